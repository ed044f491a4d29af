"""A right that goes: what was let through before, and waits somewhere in the gateway, is not let out behind it."""

from __future__ import annotations

import pytest

from access.denials import Denial
from access.rights import Right
from access.rules import OPEN, Access, compile_access
from access.rules_file import parse_rules
from gateway.connection import Connection
from gateway.events import AccessChanged, Congested, FromShard, RetainedTold, SocketLost, TickEnded, ToShard, Wake
from gateway.permitting import LOOKED_AT_PER_TURN, RENEWED_PER_TURN, RULES_PER_TURN
from mqtt.packets import Ack, AckKind, AckRun, Connack, Connect, PublishRun, Subscribe, Subscription, Will
from mqtt.reason import ReasonCode
from sessions.frames import Unsubscribe
from shards.frames import Live
from shards.messages import encode_message
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, Shell, message, subscribe
from tests.gateway.test_memory import made

R = ReasonCode
ALL = "[[rule]]\nallow = ['all']\ntopics = ['#']\n"
GROUP = b"$share/g/#"


def rules(*blocks: str) -> Access:
    return compile_access(1, parse_rules("version = 1\n" + "\n".join(blocks)), claims=False, decides=False)


def denying(topic: str, client: str, right: str = "subscribe") -> Access:
    """Everybody may do everything, but not this one there."""
    return rules(f"[[rule]]\ndeny = ['{right}']\ntopics = ['{topic}']\nclient_ids = ['{client}']\n", ALL)


def topics(client: Client) -> list[bytes]:
    return [packet.topics[0] for packet in client.take() if isinstance(packet, PublishRun)]


def full_window(shell: Shell) -> tuple[Client, Client]:
    """A subscriber to `#` that has taken one message of QoS 1, for which `x` and `a` wait; and the publisher."""
    subscriber = shell.online("s", 5, receive_maximum=1)
    subscribe(subscriber, b"#", 1)
    publisher = shell.online("p", 5)
    publisher.send(message(b"first", b"", 1, 1), message(b"x", b"", 1, 2), message(b"a", b"", 1, 3))
    shell.answer()
    assert topics(subscriber) == [b"first"]
    return subscriber, publisher


# ---------------------------------------------------------------- who asks for each message


def test_a_subscription_that_may_be_read_as_a_whole_asks_for_nothing() -> None:
    """Rules cost its messages nothing; one of which some is denied asks by topic, and so does nobody when there are no rules."""
    shell = Shell()
    client = shell.online("c", 5)
    for topic_filter in (b"a/#", b"b/#"):
        subscribe(client, topic_filter)
    subs = shell.core._state.by_conn[client.conn].subs
    assert all(sub.plain for sub in subs.values())
    shell.turn(AccessChanged(denying("b/secret", "c")))
    assert (subs[b"a/#"].plain, subs[b"b/#"].plain) == (True, False)
    shell.turn(AccessChanged(OPEN))
    assert all(sub.plain for sub in subs.values())


def test_everything_asks_from_the_turn_that_brings_the_rules_and_is_let_off_some_at_a_time() -> None:
    """However many subscriptions there are, no turn looks at more than so many."""
    shell = Shell()
    client = shell.online("c", 5)
    count = LOOKED_AT_PER_TURN + 500
    for start in range(0, count, 500):
        filters = [Subscription(b"t/%d" % number, retain_handling=2) for number in range(start, start + 500)]
        client.send(Subscribe(1, tuple(filters)))
    subs = shell.core._state.by_conn[client.conn].subs.values()
    for expected in (500, 0):
        shell.turn(*[AccessChanged(rules(ALL))] if expected else [])
        assert sum(sub.guard is not None for sub in subs) == expected


def crowded(count: int) -> tuple[Shell, list[Connection]]:
    """So many connections, in the order in which they came."""
    shell = Shell()
    shell.checking = False
    clients = [shell.online(f"c{number}", 5) for number in range(count)]
    return shell, [shell.core._state.by_conn[client.conn] for client in clients]


@pytest.mark.slow
def test_new_rules_reach_many_connections_some_at_once_and_the_others_turn_by_turn_without_a_pause() -> None:
    """No turn makes more profiles than so many; the first of them are made with the event, so that few connections never wait."""
    shell, connections = crowded(2 * RENEWED_PER_TURN + 1)
    shell.core.handle(AccessChanged(rules(ALL)))
    for renewed in (1, 2):
        assert [each.profile is not None for each in connections].index(False) == renewed * RENEWED_PER_TURN
        shell.now_ms += 1
        assert (Wake(1) in shell.core.handle(TickEnded(shell.now_ms, shell.wall_ms))) is (renewed == 1)
    assert all(each.guard is not None for each in connections)


@pytest.mark.slow
def test_who_comes_while_new_rules_are_given_out_has_them_and_who_has_gone_gets_none() -> None:
    """A newcomer does not stand in the row."""
    shell, connections = crowded(RENEWED_PER_TURN + 1)
    shell.core.handle(AccessChanged(rules(ALL)))
    shell.core.handle(SocketLost(connections[-1].socket, "gone"))
    newcomer = shell.online("new", 5)
    assert shell.core._state.by_conn[newcomer.conn].profile is not None
    assert connections[-1].profile is None and not shell.core._state.outdated


def test_rules_that_come_while_others_are_given_out_take_their_place() -> None:
    """Nobody is left with those between."""
    shell = Shell()
    client = shell.online("c", 5)
    state = shell.core._state
    state.outdated.append(state.by_conn[client.conn])
    shell.turn(AccessChanged(denying("x", "c")), AccessChanged(OPEN))
    assert state.by_conn[client.conn].profile is None and not state.outdated


def test_the_more_rules_are_about_everybody_the_fewer_subscriptions_are_looked_at_in_a_turn() -> None:
    """No turn looks at more than so many rules, and whoever nobody has looked at asks for each message; in the end all are let off."""
    shell = Shell()
    clients = [shell.online(f"c{number}", 5) for number in range(25)]
    for client in clients:
        subscribe(client, b"a/#")
    subs = [shell.core._state.by_conn[client.conn].subs[b"a/#"] for client in clients]
    each = [f"[[rule]]\ndeny = ['all']\ntopics = ['b/{number}/${{client_id}}']\n" for number in range(RULES_PER_TURN // 10)]
    shell.turn(AccessChanged(rules(*each, ALL)))
    left = [sum(sub.guard is not None for sub in subs)]
    while left[-1] and len(left) < 10:
        shell.turn()
        left.append(sum(sub.guard is not None for sub in subs))
    assert left == [16, 7, 0]


# ---------------------------------------------------------------- what waits


def test_what_waits_for_the_window_is_asked_for_when_it_leaves() -> None:
    """It had passed when it came."""
    shell = Shell()
    subscriber, _ = full_window(shell)
    shell.turn(AccessChanged(denying("x", "s")))
    subscriber.send(AckRun(AckKind.PUBACK, [1]))
    assert topics(subscriber) == [b"a"] and shell.core.counters.deliveries_suppressed == 1


def test_what_waits_and_may_be_read_again_when_its_turn_comes_is_sent() -> None:
    """Only the moment at which it leaves counts."""
    shell = Shell()
    subscriber, _ = full_window(shell)
    shell.turn(AccessChanged(denying("x", "s")))
    shell.turn(AccessChanged(OPEN))
    subscriber.send(AckRun(AckKind.PUBACK, [1]))
    assert topics(subscriber) == [b"x"]


def test_a_page_of_retained_messages_is_asked_for_message_by_message_as_it_leaves() -> None:
    """The page was fetched while everything could be read."""
    shell = Shell()
    client = shell.online("c", 5)
    client.send(Subscribe(1, (Subscription(b"#", 1),)))
    client.take()
    query = shell.queries.pop(0)
    values = [encode_message(1, shell.wall_ms, b"p", topic, b"\0kept") for topic in (b"a", b"x")]
    shell.turn(Congested(client.socket, True), RetainedTold(query.shard, query.id, values, b""))
    assert client.take() == []
    shell.turn(AccessChanged(denying("x", "c")))
    shell.turn(Congested(client.socket, False))
    assert topics(client) == [b"a"]


@pytest.mark.parametrize("qos", [0, 1])
def test_what_another_gateway_forwards_is_asked_for_here(qos: int) -> None:
    """The other one knows of the interest, and not of the rights."""
    pair = Linked(2)
    subscriber, publisher = pair[0].online("s", 5), pair[1].online("p", 5)
    subscribe(subscriber, b"#", qos)
    pair.settle()
    pair[0].turn(AccessChanged(denying("x", "s")))
    publisher.send(*[message(topic, b"", qos, number if qos else 0) for number, topic in enumerate((b"x", b"a"), start=1)])
    pair.answer(1)
    pair.settle()
    assert topics(subscriber) == [b"a"]


def test_a_message_that_entered_in_a_shard_is_asked_for() -> None:
    """A will, or one of a writer."""
    shell = Shell()
    client = shell.online("c", 5)
    subscribe(client, b"#", 1)
    shell.turn(AccessChanged(denying("x", "c")))
    shell.turn(*[FromShard(0, Live(b"p", 2, topic, b"\0")) for topic in (b"x", b"a")])
    assert topics(client) == [b"a"]


# ---------------------------------------------------------------- groups


def test_a_member_that_may_not_read_everything_leaves_and_what_waits_for_it_goes_to_others() -> None:
    """What it was given would be lost to its group."""
    shell = Shell()
    first, second = [shell.online(name, 5, receive_maximum=1) for name in ("one", "two")]
    for member in (first, second):
        subscribe(member, GROUP, 1)
    publisher = shell.online("p", 5)
    publisher.send(*[message(b"t", b"%d" % number, 1, number) for number in range(1, 7)])
    shell.answer()
    assert len(topics(first)) == len(topics(second)) == 1, "the windows are full, and two wait for each"
    shell.turn(AccessChanged(denying("other", "one")))
    for number in range(1, 6):
        second.send(AckRun(AckKind.PUBACK, [number]))
    assert len(topics(second)) == 4 and shell.core.counters.shared_handed_on == 2
    first.send(AckRun(AckKind.PUBACK, [1]))
    assert topics(first) == [] and shell.core.counters.shared_lost == 0


def test_a_member_needs_the_right_to_share_and_the_right_to_read() -> None:
    """With one of them it could take messages that it may not see."""
    shell = Shell()
    client = shell.online("c", 5)
    for right in ("share", "subscribe"):
        shell.turn(AccessChanged(denying("a", "c", right)))
        client.send(Subscribe(1, (Subscription(b"$share/g/a"),)))
        assert [packet.reasons for packet in client.take()] == [(R.NOT_AUTHORIZED,)]  # type: ignore[union-attr]


def test_a_member_in_the_memory_of_a_session_actor_leaves_there() -> None:
    """Its session actor gives out what comes for the group; it is told that this one takes no part any more."""
    shell = made()
    client = shell.online("c", 5, expiry_s=60, subscriptions=[(GROUP, 1, 0, 0), (b"a", 1, 0, 0)])
    shell.turn(AccessChanged(rules(ALL)))
    assert not [frame for _, frame in shell.to_session if isinstance(frame, Unsubscribe)]
    shell.turn(AccessChanged(denying("x", "c")))
    assert [frame for _, frame in shell.to_session if isinstance(frame, Unsubscribe)] == [Unsubscribe(client.conn, 0, [GROUP])]


# ---------------------------------------------------------------- QoS 2 of a session that is resumed


def resumed(version: int) -> tuple[Shell, Client]:
    """A publisher that comes back while its home holds identifier 9 of a message to `x`, which it may not write any more."""
    shell = Shell()
    shell.homes.durable_filters.append(b"#")
    first = shell.online("p", version, clean=version == 5, expiry_s=60)
    first.send(message(b"x", b"1", 2, 9))
    shell.answer()
    assert first.take() == [AckRun(AckKind.PUBREC, [9])]
    shell.turn(AccessChanged(denying("x", "p", "publish")))
    return shell, shell.online("p", version, clean=False, expiry_s=60)


@pytest.mark.parametrize("version", [4, 5])
def test_a_repeated_message_whose_identifier_its_home_holds_is_acknowledged(version: int) -> None:
    """Refused, the client would free the identifier, and its next message under it would be swallowed as a repeat."""
    shell, client = resumed(version)
    client.send(message(b"x", b"1", 2, 9, dup=True))
    assert client.take() == [], "its home is asked"
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBREC, [9])]
    client.send(AckRun(AckKind.PUBREL, [9]))
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBCOMP, [9])] and len(shell.homes.stored) == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_message_that_its_home_does_not_know_is_refused_and_its_identifier_is_free(version: int) -> None:
    """The body does not travel: nothing but the identifier matters."""
    shell, client = resumed(version)
    effects = client.send(message(b"x", b"secret", 2, 7, dup=True), message(b"a", b"yes", 1, 8))
    (request,) = [effect for effect in effects if isinstance(effect, ToShard)]
    assert [entry.bodies for entry in request.entries] == [[b"\0", b"\0yes"]]  # type: ignore[union-attr]
    shell.answer()
    refused = Ack(AckKind.PUBREC, 7, R.NOT_AUTHORIZED) if version == 5 else AckRun(AckKind.PUBREC, [7])
    assert client.take() == [refused, AckRun(AckKind.PUBACK, [8])]
    assert shell.core.counters.publishes_denied == 1 and [topic for _, topic, _ in shell.homes.stored] == [b"x", b"a"]
    client.send(message(b"a", b"new", 2, 7))
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBREC, [7])] and shell.homes.stored[-1] == (b"p", b"a", b"\0new")


# ---------------------------------------------------------------- wills, and what is told


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("right", "retain"), [("publish", False), ("retain", True)])
def test_a_connect_with_a_will_that_is_not_permitted_is_refused(version: int, right: str, retain: bool) -> None:
    """Before its home hears of it."""
    shell = Shell()
    shell.turn(AccessChanged(denying("x", "c", right)))
    client = shell.client(version)
    effects = client.send(Connect(version, "c", True, will=Will(b"x", b"gone", retain=retain)))
    assert client.take() == [Connack(False, R.NOT_AUTHORIZED)] and client.closed
    assert not [effect for effect in effects if isinstance(effect, ToShard)] and shell.core.counters.wills_denied == 1
    other = shell.client(version)
    other.send(Connect(version, "c", True, will=Will(b"y", b"gone", retain=retain)))
    shell.answer()
    assert [packet.reason for packet in other.take()] == [R.SUCCESS]  # type: ignore[union-attr]


def test_what_was_denied_is_told_at_once_and_then_once_a_minute() -> None:
    """By client, right and topic."""
    shell = Shell()
    shell.turn(AccessChanged(denying("x", "c", "publish")))
    client = shell.online("c", 5)
    client.send(*[message(b"x", b"", 1, number) for number in (1, 2)])
    assert shell.core.denied() == [Denial(b"c", Right.PUBLISH, b"x", 2)]
    client.send(message(b"x", b"", 1, 3))
    assert shell.core.denied() == []
    shell.pass_time(61_000)
    assert shell.core.denied() == [Denial(b"c", Right.PUBLISH, b"x", 1)]
