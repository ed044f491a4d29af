"""Shared groups with members at several gateways: what the gateways tell each other, and who serves a group."""

from __future__ import annotations

import pytest

from gateway.events import FromPeer, FromShard, PeerLinked, PeerLost, Stopping
from gateway.frames import HANDED_ON, ForGroups, Forward, Frame, Interest, InterestSeen, decode, encode
from gateway.options import Options
from mqtt.packets import (
    AckKind,
    AckRun,
    Disconnect,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from mqtt.reason import ReasonCode
from shards.frames import Live
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, Shell, message, subscribe
from tests.gateway.sharers import GROUP, OTHER, members, payloads, publish


def online(linked: Linked, index: int, name: str, filter: bytes) -> Client:
    """A subscriber at one of several gateways; all know of it."""
    client = linked[index].online(name, 5)
    client.send(Subscribe(1, (Subscription(filter, 1),)))
    linked.settle()
    assert client.take() == [Suback(1, (ReasonCode.GRANTED_QOS_1,))]
    return client


def test_frames_with_groups_are_read_back() -> None:
    """As they were."""
    frames: list[Frame] = [
        Interest(2, False, [b"x"], [], [], [], [(GROUP, 3), (OTHER, 0)]),
        Forward(b"p", 7, b"\0\2", [b"a", b"b"], [b"\0", b"\0"], [ForGroups(1, False, [GROUP, OTHER])]),
    ]
    assert repr([decode(encode(frame)) for frame in frames]) == repr(frames)


def test_other_gateways_are_told_how_many_members_there_are() -> None:
    """Numbered and confirmed as other interest, so SUBACK waits for it; a new link gets the whole table."""
    shell = Shell()
    first, second = members(shell, 2)
    assert shell.turn(PeerLinked(1, "g2"))[0].frame == Interest(1, True, [], [], [], [], [(GROUP, 2)])  # type: ignore[union-attr]
    shell.turn(FromPeer(1, InterestSeen(1)))
    third = shell.online("third", 5)
    third.send(Subscribe(1, (Subscription(GROUP, 1),)))
    assert shell.to_peer[-1] == (1, Interest(2, False, [], [], [], [], [(GROUP, 3)])) and third.take() == []
    shell.turn(FromPeer(1, InterestSeen(2)))
    assert third.take() == [Suback(1, (ReasonCode.GRANTED_QOS_1,))]
    third.send(Subscribe(2, (Subscription(GROUP, 0),)))
    assert third.take() == [Suback(2, (ReasonCode.SUCCESS,))], "the number of members is the same"
    third.send(Unsubscribe(3, (GROUP,)))
    shell.turn(first.event(Disconnect()), second.event(Disconnect()))
    assert [frame for _, frame in shell.to_peer[2:]] == [
        Interest(3, False, [], [], [], [], [(GROUP, 2)]),
        Interest(4, False, [], [], [], [], [(GROUP, 0)]),
    ]


def test_the_publisher_s_gateway_says_which_groups_another_one_serves() -> None:
    """Plain interest and groups apart; one message in one row, whatever there is for it."""
    shell = Shell()
    interest = Interest(1, True, [b"a"], [b"q"], [], [], [(GROUP, 1), (OTHER, 1), (b"$share/g/q", 1), (b"$share/g/b", 1)])
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, interest))
    publisher = shell.online("p", 4)
    publisher.send(message(b"a", b"1"), message(b"b", b"2"), message(b"x", b"3"), message(b"q", b"4"))
    assert shell.to_peer[-1] == (
        1,
        Forward(
            b"p", publisher.conn, b"\0\0\0", [b"a", b"b", b"q"], [b"\x001", b"\x002", b"\x004"],
            [ForGroups(0, True, [GROUP, OTHER]), ForGroups(1, False, [b"$share/g/b"]), ForGroups(2, True, [b"$share/g/q"])],
        ),
    )  # fmt: skip
    publisher.send(message(b"q", b"5", 1, 1), message(b"b", b"6", 1, 2))
    shell.answer()
    rows = [ForGroups(0, False, [b"$share/g/q"]), ForGroups(1, False, [b"$share/g/b"])]
    assert shell.to_peer[-1] == (1, Forward(b"p", publisher.conn, b"\2\2", [b"q", b"b"], [b"\x005", b"\x006"], rows))


def test_a_gateway_serves_only_the_groups_that_it_is_asked_to() -> None:
    """Though others match; and nothing of it goes on to a third gateway that has members too."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"), PeerLinked(2, "g3"))
    for link in (1, 2):
        shell.turn(FromPeer(link, Interest(1, True, [b"a"], [], [], [], [(GROUP, 5)])), FromPeer(link, InterestSeen(9)))
    group, other, plain = shell.online("g", 5), shell.online("o", 5), shell.online("s", 5)
    for client, filter in ((group, GROUP), (other, OTHER), (plain, b"a")):
        subscribe(client, filter, 1)
        shell.turn(FromPeer(1, InterestSeen(9)), FromPeer(2, InterestSeen(9)))
        client.take()
    shell.to_peer.clear()
    rows = [ForGroups(0, True, [GROUP]), ForGroups(1, False, [OTHER, GROUP])]
    bodies = [b"\x001", b"\x002", b"\x003"]
    shell.turn(FromPeer(1, Forward(b"x", 9, b"\2\2\2", [b"a", b"a", b"a"], bodies, rows)))
    assert [payloads(client) for client in (group, other, plain)] == [[b"1", b"2"], [b"2"], [b"1", b"3"]]
    assert shell.to_peer == []


@pytest.mark.parametrize("counts", [(1, 1, 1), (0, 2, 1), (3, 1, 2)])
def test_members_of_all_gateways_get_equally_many(counts: tuple[int, ...]) -> None:
    """Whichever gateway the messages enter by; each exactly once, in the order of its publisher."""
    linked = Linked(3, Options(max_inflight=1_000))
    clients = [online(linked, index, f"m{index}-{number}", GROUP) for index, count in enumerate(counts) for number in range(count)]
    publishers = [shell.online(f"p{number}", 4) for number, shell in enumerate(linked.shells)]
    rounds = 10 * sum(counts)
    for index, publisher in enumerate(publishers):
        publisher.send(*[message(b"a", b"%d %d" % (index, number), 1, number + 1) for number in range(rounds)])
        linked.answer(index)
    linked.settle()
    got = [payloads(client) for client in clients]
    everything = [b"%d %d" % (index, number) for index in range(3) for number in range(rounds)]
    assert sorted(row for rows in got for row in rows) == sorted(everything)
    assert [len(rows) for rows in got] == [30] * sum(counts)
    for rows in got:
        for index in range(3):
            numbers = [int(row.split()[1]) for row in rows if row.startswith(b"%d " % index)]
            assert numbers == sorted(numbers)


def test_when_nobody_here_has_room_another_gateway_gets_it() -> None:
    """Which has to take it then, full or not."""
    shell = Shell(Options(queue_count_max=1))
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, Interest(1, True, [], [], [], [], [(GROUP, 1)])), FromPeer(1, InterestSeen(9)))
    (client,) = members(shell, 1, receive_maximum=1)
    publisher = shell.online("p", 4)
    shell.to_peer.clear()
    for number in range(1, 9):
        publish(shell, publisher, number)
    forwarded = [frame.bodies[0] for _, frame in shell.to_peer if isinstance(frame, Forward)]
    assert len(forwarded) == 6 and payloads(client) == [b"1"]
    shell.turn(FromPeer(1, Forward(b"x", 9, b"\2", [b"a"], [b"\x009"], [ForGroups(0, False, [GROUP])])))
    assert shell.core.counters.live_dropped_queue_full == 1 and shell.core.counters.shared_handed_on == 0
    client.send(AckRun(AckKind.PUBACK, [1]))
    assert payloads(client) == [b"9"]


def test_the_last_member_of_a_gateway_leaves_its_messages_to_another_gateway() -> None:
    """Under no connection number: they have no order to keep, and a publisher that came back must not cost them."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"))
    shell.turn(FromPeer(1, InterestSeen(9)))
    (client,) = members(shell, 1)
    publisher = shell.online("p", 5)
    publisher.send(Publish(2, 1, b"a", b"x", Properties(message_expiry_interval=10)), message(b"a", b"y", 1, 2))
    shell.answer()
    shell.turn(FromPeer(1, Interest(1, True, [], [], [], [], [(GROUP, 1)])))
    shell.pass_time(4_000)
    shell.to_peer.clear()
    client.send(Disconnect())
    body = b"\x05\x02\x00\x00\x00\x06x"
    assert shell.to_peer == [
        (1, Interest(3, False, [], [], [], [], [(GROUP, 0)])),
        (1, Forward(b"p", HANDED_ON, b"\2\2", [b"a", b"a"], [body, b"\0y"], [ForGroups(0, False, [GROUP]), ForGroups(1, False, [GROUP])])),
    ]


def test_a_message_handed_on_is_taken_whatever_its_publisher_did_meanwhile() -> None:
    """And says nothing of the publisher's connections."""
    shell = Shell()
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, InterestSeen(9)))
    (client,) = members(shell, 1)
    subscribe(client, b"a", 0)
    row = [ForGroups(0, False, [GROUP])]
    shell.turn(FromPeer(1, Forward(b"x", 9, b"\0", [b"a"], [b"\x001"], [])))
    shell.turn(FromPeer(1, Forward(b"x", HANDED_ON, b"\2", [b"a"], [b"\x002"], row)))
    shell.turn(FromPeer(1, Forward(b"x", 8, b"\2", [b"a"], [b"\x003"], row)))
    assert payloads(client) == [b"1", b"2"] and shell.core.counters.forwards_stale == 1


def test_a_message_that_finds_no_member_any_more_goes_back() -> None:
    """The last member left while it was on its way: it comes to a member of another gateway, or is counted as lost."""
    linked = Linked(3)
    first, second = online(linked, 0, "first", GROUP), online(linked, 1, "second", GROUP)
    publisher = linked[0].online("p", 4)
    publisher.send(message(b"a", b"1", 1, 1), message(b"a", b"2", 1, 2))
    linked.answer(0)
    assert payloads(first) == [b"1"]
    second.send(Disconnect())
    linked.settle()
    assert payloads(first) == [b"2"] and second.take() == []
    publisher.send(message(b"a", b"3", 1, 3))
    linked.answer(0)
    assert payloads(first) == [b"3"], "the gateway without members is not asked any more"
    first.send(Disconnect())
    assert linked[0].core.counters.shared_lost == 3


def test_a_gateway_that_is_gone_is_in_no_group() -> None:
    """What was on its way to it is lost with it; the next messages go to who is left."""
    linked = Linked(2)
    clients = [online(linked, index, f"m{index}", GROUP) for index in range(2)]
    publisher = linked[0].online("p", 4)
    publisher.send(*[message(b"a", b"%d" % number, 1, number) for number in (1, 2)])
    linked.answer(0)
    linked.die(1)
    publisher.send(*[message(b"a", b"%d" % number, 1, number) for number in (3, 4)])
    linked.answer(0)
    assert payloads(clients[0]) == [b"1", b"3", b"4"]


def test_a_will_is_served_by_one_gateway() -> None:
    """By the one with the smallest name of those with members; its plain subscribers are served by each."""
    linked = Linked(3)
    plain = [online(linked, index, f"s{index}", b"a") for index in range(3)]
    group = [online(linked, index, f"m{index}", GROUP) for index in (1, 2)]
    linked.will(Live(b"gone", 2, b"a", b"\0bye"))
    linked.settle()
    assert [payloads(client) for client in plain] == [[b"bye"]] * 3
    assert [payloads(client) for client in group] == [[b"bye"], []]
    group[0].send(Disconnect())
    linked.settle()
    assert payloads(group[1]) == [b"bye"], "it was not acknowledged"
    linked.will(Live(b"gone", 2, b"a", b"\0again"))
    assert [payloads(client) for client in group] == [[], [b"again"]]
    assert linked.forwards and not any(row.plain for _, _, frame in linked.forwards for row in frame.shared)


def test_a_gateway_that_stops_leaves_its_groups_to_the_others() -> None:
    """Its members go all at once, and what they had is on the link before they are closed."""
    linked = Linked(2)
    clients = [online(linked, index, f"m{number}", GROUP) for number, index in enumerate((0, 0, 1))]
    publisher = linked[1].online("p", 4)
    publisher.send(*[message(b"a", b"%d" % number, 1, number) for number in range(1, 7)])
    linked.answer(1)
    linked.settle()
    assert [len(payloads(client)) for client in clients] == [2, 2, 2]
    linked[0].turn(Stopping())
    linked.settle()
    assert len(payloads(clients[2])) == 4
    linked[1].turn(PeerLost(1), FromShard(0, Live(b"gone", 2, b"a", b"\0bye")))
    assert payloads(clients[2]) == [b"bye"]
