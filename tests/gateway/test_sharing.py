"""Shared subscriptions of ephemeral sessions: one member of each group gets a message, and what happens when members go."""

from __future__ import annotations

import pytest

from gateway.events import Congested, FromSession, SocketLost
from gateway.options import Options
from mqtt.packets import (
    Ack,
    AckKind,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from mqtt.reason import ReasonCode
from sessions.frames import Subacked, Unsubacked
from sessions.frames import Subscribe as SubscribeFrame
from tests.gateway.scripted import Shell, message, subscribe
from tests.gateway.sharers import GROUP, OTHER, members, payloads, publish

REFUSED = ReasonCode.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED


# -------------------------------------------------------------------------------------------------- one gateway
def test_each_message_goes_to_one_member_in_turn() -> None:
    """Of each group; plain subscribers get every message besides."""
    shell = Shell()
    clients = members(shell, 3)
    other, plain, publisher = shell.online("o", 4), shell.online("s", 5), shell.online("p", 4)
    subscribe(other, OTHER, 2)
    subscribe(plain, b"a", 0)
    publish(shell, publisher, 1, 2, 3, 4)
    assert [client.take() for client in clients] == [
        [message(b"a", b"1", 1, 1), message(b"a", b"4", 1, 2)],
        [message(b"a", b"2", 1, 1)],
        [message(b"a", b"3", 1, 1)],
    ]
    assert payloads(other) == payloads(plain) == [b"1", b"2", b"3", b"4"]
    publisher.send(message(b"a", b"5"), message(b"b", b"x"))
    assert [payloads(client) for client in clients] == [[], [b"5"], []]
    assert shell.core.counters.live_delivered == 4 * 3 + 3


def test_a_group_may_begin_while_its_topic_is_in_use() -> None:
    """What was known of the topic before is not what holds now."""
    shell = Shell()
    plain, publisher = shell.online("s", 5), shell.online("p", 4)
    subscribe(plain, b"a", 1)
    publish(shell, publisher, 1)
    (client,) = members(shell, 1)
    publish(shell, publisher, 2)
    assert (payloads(plain), payloads(client)) == ([b"1", b"2"], [b"2"])


def test_a_publisher_may_be_a_member() -> None:
    """There is no No Local here, so it may get its own message."""
    shell = Shell()
    (client,) = members(shell, 1)
    client.send(message(b"a", b"own"))
    assert client.take() == [message(b"a", b"own")]


def test_the_options_of_a_member_s_subscription_hold_for_what_it_gets() -> None:
    """QoS, identifier, retain as published; a message for its own plain subscription is another one."""
    shell = Shell()
    client, old, publisher = shell.online("s", 5), shell.online("o", 4), shell.online("p", 4)
    row = Subscription(GROUP, 1, retain_as_published=True)
    client.send(Subscribe(1, (row,), Properties(subscription_identifiers=(7,))))
    subscribe(old, GROUP, 2)
    publisher.send(*[message(b"a", b"x", 2, packet_id, retain=True) for packet_id in (1, 2)])
    shell.answer()
    _, got = client.take()
    assert got == Publish(3, 1, b"a", b"x", Properties(subscription_identifiers=(7,)))
    assert old.take() == [message(b"a", b"x", 2, 1)]
    client.send(Subscribe(2, (Subscription(b"a", 0),)))
    publisher.send(message(b"a", b"y"), message(b"a", b"z"))
    suback, *packets = client.take()
    assert suback == Suback(2, (ReasonCode.SUCCESS,))
    shared = [packet.payload for packet in packets if isinstance(packet, Publish)]
    plain = [packet.bodies for packet in packets if isinstance(packet, PublishRun)]
    assert shared == [b"y"] and plain == [[b"\0y"], [b"\0z"]] and payloads(old) == [b"z"]


def test_a_shared_subscription_brings_no_retained_messages() -> None:
    """MQTT 5, 4.8.2; whatever Retain Handling says."""
    shell = Shell()
    client = shell.online("s", 5)
    client.send(Subscribe(1, tuple([Subscription(b"$share/g/%d" % handling, 1, retain_handling=handling) for handling in range(3)])))
    assert client.take() == [Suback(1, (ReasonCode.GRANTED_QOS_1,) * 3)] and shell.queries == []


def test_a_group_without_plain_subscribers_is_somebody() -> None:
    """No "no matching subscribers" for a message that a member gets."""
    shell = Shell()
    publisher = shell.online("p", 5)
    members(shell, 1)
    publish(shell, publisher, 1)
    assert publisher.take() == [AckRun(AckKind.PUBACK, [1])]


@pytest.mark.parametrize("version", [4, 5])
def test_what_the_suback_of_an_ephemeral_session_says(version: int) -> None:
    """Granted in both versions; a share name that is none is refused and harms nobody; off, all are refused."""
    filters = (b"$share/g/a", b"$share//a", b"$share/g+/a", b"$share/g", b"$share/g/", b"$share/g/a#", b"$share/h/+/#")
    wrong = ReasonCode.TOPIC_FILTER_INVALID if version == 5 else ReasonCode.UNSPECIFIED_ERROR
    granted = ReasonCode.GRANTED_QOS_1
    client = Shell().online("s", version)
    client.send(Subscribe(5, tuple([Subscription(filter, 1) for filter in filters])))
    assert client.take() == [Suback(5, (granted, wrong, wrong, wrong, wrong, wrong, granted))]
    client = Shell(Options(shared=False)).online("s", version)
    client.send(Subscribe(5, (Subscription(GROUP, 1), Subscription(b"a", 1))))
    assert client.take() == [Suback(5, (REFUSED if version == 5 else ReasonCode.UNSPECIFIED_ERROR, granted))]


@pytest.mark.parametrize("version", [4, 5])
def test_those_of_durable_sessions_are_the_business_of_their_session_actor(version: int) -> None:
    """They are no members of the live group of that name, and nothing that is stored comes to them live."""
    shell = Shell()
    durable = shell.online("d", version, clean=version == 5, expiry_s=100)
    durable.send(Subscribe(3, (Subscription(GROUP, 1), Subscription(b"b", 1))))
    frames = [frame for _, frame in shell.to_session if isinstance(frame, SubscribeFrame)]
    assert [frame.filters for frame in frames] == [[(GROUP, 1, 0, 0), (b"b", 1, 0, 0)]]
    shell.turn(FromSession(0, Subacked(durable.conn, 3, [1, 1])))
    assert durable.take() == [Suback(3, (ReasonCode.GRANTED_QOS_1, ReasonCode.GRANTED_QOS_1))]
    publish(shell, shell.online("p", 4), 1)
    assert durable.take() == []


def test_what_is_not_stored_goes_live_to_one_durable_member_that_is_online() -> None:
    """In turn, beside the group of the same name whose members are not durable; until it unsubscribes or is gone."""
    shell = Shell()
    (live,) = members(shell, 1)
    durable = [shell.online(name, 5, expiry_s=100) for name in ("d1", "d2")]
    for member in durable:
        member.send(Subscribe(3, (Subscription(GROUP, 1),)))
        shell.turn(FromSession(0, Subacked(member.conn, 3, [1])))
        member.take()
    publisher = shell.online("p", 4)
    publish(shell, publisher, 1, 2, 3, qos=0)
    publish(shell, publisher, 4)
    assert [payloads(member) for member in durable] == [[b"1", b"3"], [b"2"]]
    assert payloads(live) == [b"1", b"2", b"3", b"4"]
    durable[0].send(Unsubscribe(4, (GROUP,)))
    shell.turn(FromSession(0, Unsubacked(durable[0].conn, 4, [0])))
    durable[0].take()
    publish(shell, publisher, 5, 6, qos=0)
    assert [payloads(member) for member in durable] == [[], [b"5", b"6"]]
    shell.turn(SocketLost(durable[1].socket, "reset"))
    publish(shell, publisher, 7, qos=0)
    assert payloads(live) == [b"5", b"6", b"7"]


def test_no_client_has_the_id_of_a_group() -> None:
    """Under that name the store keeps the group."""
    client = Shell().client(5)
    client.send(Connect(5, "$share/g/a", True, 0))
    (answer,) = [packet for packet in client.take() if isinstance(packet, Connack)]
    assert answer.reason is ReasonCode.CLIENT_IDENTIFIER_NOT_VALID


def test_unsubscribe_leaves_the_group() -> None:
    """Nothing comes afterwards; its turn goes to the others; the last one takes the group along."""
    shell = Shell()
    first, second = members(shell, 2)
    publisher = shell.online("p", 5)
    first.send(Unsubscribe(2, (GROUP, OTHER)))
    assert first.take() == [Unsuback(2, (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED))]
    publish(shell, publisher, 1, 2)
    assert payloads(second) == [b"1", b"2"] and first.take() == []
    second.send(Unsubscribe(3, (GROUP,)))
    assert len(shell.core._table) == 0
    publish(shell, publisher, 3)
    assert len(second.take()) == 1
    assert isinstance(publisher.take()[-1], Ack), "no matching subscribers"


# -------------------------------------------------------------------------------------------------- who cannot take it
def test_a_member_that_is_full_is_passed_over() -> None:
    """Window and queue; when all are full the next one loses its oldest, as a plain subscriber does."""
    shell = Shell(Options(queue_count_max=1))
    slow, quick = members(shell, 2, receive_maximum=1)
    publisher = shell.online("p", 4)
    publish(shell, publisher, 1, 2, 3, 4)
    assert (payloads(slow), payloads(quick)) == ([b"1"], [b"2"])
    quick.send(AckRun(AckKind.PUBACK, [1]))
    publish(shell, publisher, 5)
    assert payloads(quick) == [b"4"]
    quick.send(AckRun(AckKind.PUBACK, [2]))
    assert payloads(quick) == [b"5"]
    publish(shell, publisher, 6)
    assert shell.core.counters.live_dropped_queue_full == 0
    publish(shell, publisher, 7, 8)
    assert shell.core.counters.live_dropped_queue_full == 2
    slow.send(AckRun(AckKind.PUBACK, [1]))
    quick.send(AckRun(AckKind.PUBACK, [3]))
    assert sorted(payloads(slow) + payloads(quick)) == [b"7", b"8"]


def test_a_member_that_does_not_read_gets_no_qos_0() -> None:
    """The others get it; nobody left, it is dropped and counted once."""
    shell = Shell()
    slow, quick = members(shell, 2, qos=0)
    publisher = shell.online("p", 4)
    shell.turn(Congested(slow.socket, True))
    publish(shell, publisher, 1, 2)
    assert (payloads(slow), payloads(quick)) == ([], [b"1", b"2"])
    shell.turn(Congested(quick.socket, True))
    publish(shell, publisher, 3)
    assert (payloads(slow), payloads(quick)) == ([], []) and shell.core.counters.live_dropped_slow == 1


def test_a_message_too_large_for_one_member_goes_to_another() -> None:
    """[MQTT-3.1.2-25] allows it; the identifier counts; too large for all, it is dropped and counted once."""
    shell = Shell()
    small, large, publisher = shell.online("s", 5, maximum_packet_size=20), shell.online("l", 5), shell.online("p", 4)
    small.send(Subscribe(1, (Subscription(GROUP, 1),), Properties(subscription_identifiers=(7,))))
    subscribe(large, GROUP, 1)
    small.take()
    publisher.send(*[message(b"a", b"x" * 10, 1, 1), message(b"a", b"y", 1, 2), message(b"a", b"x" * 11, 1, 3), message(b"a", b"z", 1, 4)])
    shell.answer()
    assert [getattr(packet, "payload", None) for packet in small.take()] == [b"x" * 10, b"z"]
    assert payloads(large) == [b"y", b"x" * 11]
    large.send(Disconnect())
    assert [getattr(packet, "payload", None) for packet in small.take()] == [b"y"]
    assert shell.core.counters.live_dropped_too_large == 1


def test_a_large_group_does_not_make_a_message_expensive() -> None:
    """After a hundred members without room one has to make some, though the next would have had it."""
    shell = Shell(Options(queue_count_max=1))
    clients = members(shell, 102, receive_maximum=1)
    publisher = shell.online("p", 4)
    publish(shell, publisher, *range(1, 205))
    clients[101].send(AckRun(AckKind.PUBACK, [1]))
    publish(shell, publisher, 205)
    assert shell.core.counters.live_dropped_queue_full == 1
    publish(shell, publisher, 206)
    assert shell.core.counters.live_dropped_queue_full == 1, "the turn went on, so the next message finds room"


# -------------------------------------------------------------------------------------------------- a member goes
def test_what_a_member_leaves_goes_to_another() -> None:
    """QoS 1 without PUBACK and what was not sent, in order and without DUP; not what was acknowledged."""
    shell = Shell()
    going, staying = members(shell, 2, receive_maximum=2)
    publisher = shell.online("p", 4)
    publish(shell, publisher, *range(1, 9))
    assert (payloads(going), payloads(staying)) == ([b"1", b"3"], [b"2", b"4"])
    going.send(AckRun(AckKind.PUBACK, [1]))
    assert payloads(going) == [b"5"]
    shell.turn(SocketLost(going.socket, "reset"))
    staying.send(AckRun(AckKind.PUBACK, [1, 2]))
    assert staying.take() == [message(b"a", b"6", 1, 3), message(b"a", b"8", 1, 4)]
    staying.send(AckRun(AckKind.PUBACK, [3, 4]))
    assert staying.take() == [message(b"a", b"3", 1, 5), message(b"a", b"5", 1, 6)]
    staying.send(AckRun(AckKind.PUBACK, [5, 6]))
    assert staying.take() == [message(b"a", b"7", 1, 7)]
    assert shell.core.counters.shared_handed_on == 3 and shell.core.counters.shared_lost == 0


def test_a_qos_2_message_that_was_sent_goes_to_nobody_else() -> None:
    """[MQTT-4.8.2-5]; one that still waited does."""
    shell = Shell()
    going, staying = members(shell, 2, qos=2, receive_maximum=2)
    publisher = shell.online("p", 4)
    publish(shell, publisher, 1, 2, 3, 4, 5, qos=2)
    assert payloads(going) == [b"1", b"3"] and len(staying.take()) == 2
    going.send(AckRun(AckKind.PUBREC, [1]))
    going.send(Disconnect())
    staying.send(AckRun(AckKind.PUBREC, [1, 2]), AckRun(AckKind.PUBCOMP, [1, 2]))
    assert staying.take()[2:] == [message(b"a", b"5", 2, 3)], "behind two PUBRELs"


@pytest.mark.parametrize(("qos", "kind"), [(1, AckKind.PUBACK), (2, AckKind.PUBREC)])
def test_a_message_that_a_member_refused_goes_to_nobody_else(qos: int, kind: AckKind) -> None:
    """[MQTT-4.8.2-6]."""
    shell = Shell()
    going, staying = members(shell, 2, qos=qos)
    publish(shell, shell.online("p", 4), 1, qos=qos)
    going.send(Ack(kind, 1, ReasonCode.QUOTA_EXCEEDED))
    going.send(Disconnect())
    assert staying.take() == [] and shell.core.counters.shared_handed_on == 0


def test_only_messages_of_groups_are_handed_on() -> None:
    """A plain subscription's messages end with its session, also from the queue."""
    shell = Shell()
    going, staying = members(shell, 2, receive_maximum=1)
    subscribe(going, b"b", 1)
    publisher = shell.online("p", 4)
    publisher.send(message(b"b", b"plain", 1, 1), message(b"a", b"1", 1, 2), message(b"b", b"plain", 1, 3))
    shell.answer()
    going.send(Disconnect())
    assert payloads(staying) == [b"1"]


def test_a_taken_over_member_s_messages_go_to_another() -> None:
    """An ephemeral session ends with its connection, whoever ended it; its next connection is in no group."""
    shell = Shell()
    going, staying = members(shell, 2)
    publish(shell, shell.online("p", 4), 1)
    again = shell.online("g1-m0", 5)
    assert going.closed == "session taken over"
    assert payloads(staying) == [b"1"] and again.take() == []


def test_several_that_go_at_once_leave_all_to_who_stays() -> None:
    """Nothing is handed to somebody who goes in the same turn, and nothing twice."""
    shell = Shell()
    clients = members(shell, 4)
    publish(shell, shell.online("p", 4), *range(1, 9))
    shell.turn(*[SocketLost(client.socket, "reset") for client in clients[:3]])
    assert sorted(payloads(clients[3])) == [b"%d" % number for number in range(1, 9)]
    assert shell.core.counters.shared_handed_on == 6


def test_a_message_handed_on_has_aged() -> None:
    """What is left of its expiry counts from when it was published; too old, nobody gets it."""
    shell = Shell()
    first, second, third = members(shell, 3)
    publisher = shell.online("p", 5)
    publisher.send(Publish(2, 1, b"a", b"x", Properties(message_expiry_interval=10)))
    shell.answer()
    shell.pass_time(3_000)
    first.send(Disconnect())
    (got,) = second.take()
    assert isinstance(got, Publish) and got.properties.message_expiry_interval == 7
    shell.pass_time(8_000)
    second.send(Disconnect())
    assert third.take() == [] and shell.core.counters.live_dropped_expired == 1


def test_a_member_that_unsubscribed_finishes_what_it_has() -> None:
    """[MQTT-3.10.4-3]: it may acknowledge it; if its connection ends first the message goes to another member."""
    shell = Shell()
    going, staying = members(shell, 2)
    publish(shell, shell.online("p", 4), 1, 2, 3)
    going.send(Unsubscribe(2, (GROUP,)))
    going.send(AckRun(AckKind.PUBACK, [1]))
    going.send(Disconnect())
    assert sorted(payloads(staying)) == [b"2", b"3"]


def test_what_is_kept_for_another_member_is_bounded() -> None:
    """In bytes; beyond that a message is sent to a member and ends with it."""
    shell = Shell(Options(queue_bytes_max=250))
    going, staying = members(shell, 2)
    publisher = shell.online("p", 4)
    publisher.send(*[message(b"a", b"%d" % number + b"x" * 98, 1, number) for number in range(1, 8)])
    shell.answer()
    assert len(payloads(going)) + len(payloads(staying)) == 7
    going.send(Disconnect())
    assert shell.core.counters.shared_handed_on == 2 and len(payloads(staying)) == 2


def test_the_last_member_takes_its_messages_along() -> None:
    """Nobody is left to have them; they are counted, and not given to a group that comes later."""
    shell = Shell()
    (client,) = members(shell, 1)
    publish(shell, shell.online("p", 4), 1, 2)
    client.send(Disconnect())
    late = shell.online("late", 5)
    subscribe(late, GROUP, 1)
    assert late.take() == [] and shell.core.counters.shared_lost == 2
