"""Rules in force, where a gateway asks for them: PUBLISH, SUBSCRIBE, and everything that leaves."""

from __future__ import annotations

import pytest

from access.denials import Denial
from access.identity import Identity
from access.profile import Profile
from access.rights import Extent, Right
from access.rules import CLOSED, OPEN
from gateway.events import AccessChanged, FromSession, Opened, RetainedTold, ToSession, ToShard
from mqtt.packets import Ack, AckKind, AckRun, Connect, PublishRun, Suback, Subscribe, Subscription
from mqtt.reason import ReasonCode
from sessions.frames import PUBACK, PUBREC, Acked, Deliver
from shards.frames import Connect as ConnectEntry
from shards.frames import Delay
from shards.messages import encode_message
from tests.gateway.scripted import Client, Shell, message, subscribe

R = ReasonCode
NOTHING = Right(0)


class Topics:
    """A profile that allows all rights but `denied` on the topics in `allowed`, and counts how often it decides."""

    def __init__(self, *allowed: bytes, denied: Right = NOTHING) -> None:
        self.publishable: set[bytes] = set()
        self.readable: set[bytes] = set()
        self.allowed = set(allowed)
        self.denied = denied
        self.asked = 0

    def may(self, right: Right, topic: bytes) -> bool:
        self.asked += 1
        if right & self.denied or topic not in self.allowed:
            return False
        if right & Right.PUBLISH:
            self.publishable.add(topic)
        if right & Right.SUBSCRIBE:
            self.readable.add(topic)
        return True

    def grant(self, right: Right, topic_filter: bytes) -> Extent:
        if right & self.denied:
            return Extent.NONE
        if topic_filter in self.allowed:
            return Extent.ALL
        return Extent.SOME if topic_filter == b"#" else Extent.NONE


class Rules:
    """The same profile for those of whom it is said, and none for everybody else."""

    weight = 1

    def __init__(self, **profiles: Topics) -> None:
        self.profiles = {client.encode(): profile for client, profile in profiles.items()}
        self.asked: list[tuple[bytes, str, str]] = []

    def profile(self, who: Identity, client: bytes, listener: str, address: str) -> Profile | None:
        self.asked.append((client, listener, address))
        return self.profiles.get(client)


def under(**profiles: Topics) -> Shell:
    shell = Shell()
    shell.turn(AccessChanged(Rules(**profiles)))
    return shell


def both() -> tuple[Shell, Client, Topics]:
    """A durable MQTT 5 client that may read and write `a` only."""
    profile = Topics(b"a")
    shell = under(c=profile)
    return shell, shell.online("c", 5, expiry_s=9), profile


# ---------------------------------------------------------------- PUBLISH


def test_a_topic_that_was_found_allowed_is_not_decided_again() -> None:
    """The first message of a topic is asked for; a run of known topics goes on as one."""
    shell, client, profile = both()
    client.send(message(b"a", b"1", 1, 1), message(b"a", b"2", 1, 2))
    assert profile.asked == 2, "the first run is asked message by message"
    client.send(message(b"a", b"3", 1, 3), message(b"a", b"4", 1, 4))
    assert profile.asked == 2
    shell.answer()
    assert [topic for _, topic, _ in shell.homes.stored] == [b"a"] * 4


def test_a_message_with_retain_needs_the_right_to_retain() -> None:
    """Known for PUBLISH is not enough."""
    profile = Topics(b"a", denied=Right.RETAIN)
    shell = under(c=profile)
    client = shell.online("c", 5)
    client.send(message(b"a", b"1", 1, 1))
    client.send(message(b"a", b"2", 1, 2, retain=True))
    shell.answer()
    assert [topic for _, topic, _ in shell.homes.stored] == [b"a"] and shell.core.counters.publishes_denied == 1


@pytest.mark.parametrize("version", [4, 5])
def test_a_delayed_message_needs_the_right_to_delay(version: int) -> None:
    """On top of publish, at the topic behind the delay; without it, it goes nowhere and is counted like others."""
    shell = under(c=Topics(b"a", denied=Right.DELAY), d=Topics(b"a"))
    client, other = shell.online("c", version), shell.online("d", version)
    client.send(message(b"$delayed/5/a", b"1", 1, 1), message(b"a", b"2", 1, 2))
    shell.answer()
    refused = Ack(AckKind.PUBACK, 1, R.NOT_AUTHORIZED) if version == 5 else AckRun(AckKind.PUBACK, [1])
    assert client.take()[0] == refused and shell.core.counters.publishes_denied == 1
    assert shell.core.denied() == [Denial(b"c", Right.PUBLISH | Right.DELAY, b"a", 1)]
    other.send(message(b"$delayed/5/a", b"3", 1, 1), message(b"$delayed/5/x", b"4", 1, 2))
    delays = [entry.topics for request in shell.requests for entry in request.entries if isinstance(entry, Delay)]
    assert delays == [[b"a"]] and shell.core.counters.publishes_denied == 2


@pytest.mark.parametrize("version", [4, 5])
def test_a_refused_message_is_answered_in_its_turn(version: int) -> None:
    """Behind those before it, before those behind it; 3.1.1 is acknowledged as if it had been taken [MQTT-3.3.5-2]."""
    shell = under(c=Topics(b"a"))
    shell.homes.durable_filters.append(b"#")
    client = shell.online("c", version)
    run = [message(b"a", b"", 1, 1), message(b"x", b"", 1, 2), message(b"a", b"", 2, 3), message(b"x", b"", 2, 4), message(b"x", b"", 0)]
    client.send(*run)
    assert client.take() == [], "the first one has no answer yet"
    shell.answer()
    no = {5: [Ack(AckKind.PUBACK, 2, R.NOT_AUTHORIZED), Ack(AckKind.PUBREC, 4, R.NOT_AUTHORIZED)]}
    second, fourth = no.get(version, [AckRun(AckKind.PUBACK, [2]), AckRun(AckKind.PUBREC, [4])])
    assert client.take() == [AckRun(AckKind.PUBACK, [1]), second, AckRun(AckKind.PUBREC, [3]), fourth]
    assert [topic for _, topic, _ in shell.homes.stored] == [b"a", b"a"] and shell.core.counters.publishes_denied == 3


def test_the_identifier_of_a_refused_message_is_free() -> None:
    """Of QoS 2, too: what comes next under it is a message of its own."""
    shell = under(c=Topics(b"a"))
    client = shell.online("c", 5)
    client.send(message(b"x", b"no", 2, 9), message(b"a", b"yes", 2, 9))
    shell.answer()
    assert [body for _, _, body in shell.homes.stored] == [b"\0yes"]


def test_a_message_under_way_is_not_refused_when_it_is_repeated() -> None:
    """The right is gone, but its identifier is taken here: refused, it would swallow the next message under it."""
    profile = Topics(b"a")
    shell = under(c=profile)
    shell.homes.durable_filters.append(b"#")
    client = shell.online("c", 5)
    client.send(message(b"a", b"1", 2, 9))
    shell.answer()
    assert client.take() == [AckRun(AckKind.PUBREC, [9])]
    profile.allowed.clear()
    profile.publishable.clear()
    client.send(message(b"a", b"1", 2, 9, dup=True))
    assert client.take() == [AckRun(AckKind.PUBREC, [9])] and len(shell.homes.stored) == 1


# ---------------------------------------------------------------- SUBSCRIBE


@pytest.mark.parametrize(("version", "refused"), [(4, R.UNSPECIFIED_ERROR), (5, R.NOT_AUTHORIZED)])
def test_a_filter_without_the_right_is_refused_and_the_others_are_not(version: int, refused: ReasonCode) -> None:
    """A filter of which some may be read is granted; a shared one has to be allowed as a whole."""
    shell = under(c=Topics(b"a", b"b"))
    client = shell.online("c", version)
    filters = (b"a", b"x", b"#", b"$share/g/a", b"$share/g/#")
    client.send(Subscribe(1, tuple([Subscription(each) for each in filters])))
    (suback,) = [each for each in client.take() if isinstance(each, Suback)]
    assert suback.reasons == (R.SUCCESS, refused, R.SUCCESS, R.SUCCESS, refused)


# ---------------------------------------------------------------- what leaves


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_live_message_that_may_not_be_read_is_not_sent(qos: int) -> None:
    """Also when the subscription was plain before there were rules, and again when there are none any more."""
    shell = Shell()
    subscriber, publisher = shell.online("c", 5), shell.online("p", 5)
    subscribe(subscriber, b"#", qos)

    def come() -> list[bytes]:
        for topic in (b"a", b"x"):
            publisher.send(message(topic, b"", qos, 1 if qos else 0))
            shell.answer()
            publisher.take()
            if qos == 2:
                publisher.send(AckRun(AckKind.PUBREL, [1]))
                shell.answer()
        return [each.topics[0] for each in subscriber.take() if isinstance(each, PublishRun)]

    assert come() == [b"a", b"x"]
    shell.turn(AccessChanged(Rules(c=Topics(b"a"))))
    assert come() == [b"a"] and shell.core.counters.deliveries_suppressed == 1
    shell.turn(AccessChanged(OPEN))
    assert come() == [b"a", b"x"]


def test_a_shared_message_goes_to_a_member_that_may_read_it() -> None:
    """Who may not is no member for it."""
    shell = Shell()
    members = [shell.online(name, 5) for name in ("one", "two")]
    for member in members:
        subscribe(member, b"$share/g/#", 0)
    shell.turn(AccessChanged(Rules(one=Topics())))
    publisher = shell.online("p", 5)
    publisher.send(*[message(b"t", b"%d" % i) for i in range(6)])
    assert members[0].take() == [] and len(members[1].take()) == 6


def test_a_stored_message_that_may_not_be_read_is_acknowledged_in_the_place_of_its_client() -> None:
    """A QoS 2 message that may have been sent before ends by PUBREL: the client may hold its identifier."""
    shell, client, profile = both()
    rows = [(topic, b"\0m", shell.wall_ms, 0) for topic in (b"a", b"x")]
    to = (client.conn, [0, 1, 1, 1, 1], [1, 2, 3, 4, 0], b"\x32\x32\x34\x3c\x30", [0] * 5)
    effects = shell.turn(FromSession(0, Deliver(rows, [to])))
    assert client.take() == [message(b"a", b"m", 1, 1)]
    assert [effect.frame for effect in effects if isinstance(effect, ToSession)] == [
        Acked(client.conn, PUBACK, [2], False),
        Acked(client.conn, PUBREC, [3], True),
        Acked(client.conn, PUBREC, [4], False),
    ]
    assert shell.core.counters.deliveries_suppressed == 4
    asked = profile.asked
    shell.turn(FromSession(0, Deliver(rows, [(client.conn, [0], [5], b"\x32", [0])])))
    assert client.take() == [message(b"a", b"m", 1, 5)] and profile.asked == asked, "known topics are not decided again"


def test_a_retained_message_that_may_not_be_read_is_not_given_out() -> None:
    """Of a filter of which some may be read."""
    shell = under(c=Topics(b"a"))
    client = shell.online("c", 5)
    client.send(Subscribe(1, (Subscription(b"#", 1),)))
    query = shell.queries.pop(0)
    values = [encode_message(2, shell.wall_ms, b"p", topic, b"\0kept") for topic in (b"a", b"x")]
    shell.turn(RetainedTold(query.shard, query.id, values, b""))
    assert [each.topics for each in client.take() if isinstance(each, PublishRun)] == [[b"a"]]


# ---------------------------------------------------------------- who is asked about


def test_rules_are_asked_for_each_connection_and_again_when_they_change() -> None:
    """With the client, the listener and the address; one whose CONNECT has not come has no client yet."""
    shell = Shell()
    rules = Rules()
    shell.turn(AccessChanged(rules))
    shell.clients[77] = late = Client(shell, 77, 5)
    shell.turn(Opened(77, "tls", "10.0.0.9:1", "10.0.0.9"))
    shell.turn(AccessChanged(rules))
    assert rules.asked == []
    effects = late.send(Connect(5, "late", True))
    assert rules.asked == [(b"late", "tls", "10.0.0.9")]
    assert [effect.entries for effect in effects if isinstance(effect, ToShard)] == [
        [ConnectEntry(b"late", True, 0, 5, None, False, b"", b"", "10.0.0.9")]
    ]
    shell.answer()
    shell.turn(AccessChanged(CLOSED))
    late.send(message(b"a", b"1", 1, 1))
    assert Ack(AckKind.PUBACK, 1, R.NOT_AUTHORIZED) in late.take()
