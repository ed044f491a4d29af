"""`$delayed/SECONDS/topic` at the gateway: what the name says, the order of the connection, what is refused."""

from __future__ import annotations

import pytest

from access.rules import CLOSED
from gateway.delaying import SENSELESS, read_delays
from gateway.events import AccessChanged, Replied, Stopping
from gateway.options import Options
from mqtt.packets import Ack, AckKind, AckRun, Connack, Connect, Item, Properties, Publish, PublishRun, Will
from mqtt.reason import ReasonCode
from shards.frames import REFUSED_QUOTA, REPEATED, STORED, Delay, Published, Release
from shards.frames import Publish as PublishEntry
from tests.gateway.scripted import Client, Shell, message, subscribe


@pytest.mark.parametrize(("name", "topic", "seconds"), [
    (b"$delayed/5/a", b"a", 5), (b"$delayed/0/a/b", b"a/b", 0), (b"$delayed/007//", b"/", 7), (b"$delayed/60/$x", b"$x", 60),
    (b"$delayed/61/a", b"$delayed/61/a", SENSELESS), (b"$delayed/5/", b"$delayed/5/", SENSELESS), (b"$delayed/5", b"$delayed/5", SENSELESS),
    (b"$delayed//a", b"$delayed//a", SENSELESS), (b"$delayed/-1/a", b"$delayed/-1/a", SENSELESS),
    (b"$delayed/1.5/a", b"$delayed/1.5/a", SENSELESS),
    (b"$delayed/+5/a", b"$delayed/+5/a", SENSELESS), (b"$delayed/\xd9\xa3/a", b"$delayed/\xd9\xa3/a", SENSELESS),
    (b"$delayed/" + b"0" * 11 + b"/a", b"$delayed/" + b"0" * 11 + b"/a", SENSELESS),
])  # fmt: skip
def test_what_a_name_says(name: bytes, topic: bytes, seconds: int) -> None:
    """Digits and a topic; what says no delay within the bound keeps its name, under which nobody may publish."""
    delays = read_delays(PublishRun([0], [0], [name], [b"\0"]), 60)
    assert (delays.run.topics, delays.seconds) == ([topic], [seconds])


def entries(shell: Shell) -> list[object]:
    return [entry for request in shell.requests for entry in request.entries]


def reply(shell: Shell, *codes: int) -> None:
    """The shard answers its oldest request with this for each entry."""
    request = shell.requests.popleft()
    shell.turn(Replied(request.shard, request.id, [Published(False, bytes([code]) if code else b"") for code in codes]))


def test_a_delayed_message_goes_to_the_home_and_to_nobody_else() -> None:
    """In its place among the others of the connection, acknowledged in that order; live subscribers get nothing of it."""
    shell = Shell()
    shell.homes.durable_filters.append(b"#")
    subscriber, client = shell.online("s", 5), shell.online("p", 5)
    subscribe(subscriber, b"#")
    client.send(message(b"a", b"1", 1, 1), message(b"$delayed/9/b", b"2", 1, 2), message(b"c", b"3", 1, 3))
    first, delay, last = entries(shell)
    assert isinstance(first, PublishEntry) and first.topics == [b"a"] and isinstance(last, PublishEntry) and last.topics == [b"c"]
    assert delay == Delay(b"p", client.conn, False, b"\x02", [2], [9], [b"b"], [b"\x002"])
    assert client.take() == []
    reply(shell, STORED, STORED, STORED)
    assert client.take() == [AckRun(AckKind.PUBACK, [number]) for number in (1, 2, 3)]
    assert subscriber.take() == [message(b"a", b"1"), message(b"c", b"3")]


def test_qos_0_and_retain_are_kept_for_later() -> None:
    """Nothing of them is live now, and nothing answered."""
    shell = Shell()
    subscriber, client = shell.online("s", 5), shell.online("p", 5)
    subscribe(subscriber, b"#")
    client.send(message(b"$delayed/1/a", b"1"), message(b"$delayed/2/a", b"2", retain=True))
    (entry,) = entries(shell)
    assert isinstance(entry, Delay) and (entry.flags, entry.seconds) == (b"\0\1", [1, 2])
    reply(shell, STORED)
    assert client.take() == [] and subscriber.take() == []


@pytest.mark.parametrize("durable", [True, False])
def test_qos_2_goes_its_usual_way(durable: bool) -> None:
    """A repeat is known: by the home of a session that outlives its connection, else here."""
    shell = Shell()
    client = shell.online("p", 5, expiry_s=9 if durable else 0)
    client.send(message(b"$delayed/1/a", b"1", 2, 7))
    reply(shell, STORED)
    assert client.take() == [AckRun(AckKind.PUBREC, [7])]
    client.send(message(b"$delayed/1/a", b"1", 2, 7, dup=True))
    if durable:
        reply(shell, REPEATED)
    assert client.take() == [AckRun(AckKind.PUBREC, [7])] and not shell.requests
    client.send(AckRun(AckKind.PUBREL, [7]))
    assert [type(entry) for entry in entries(shell)] == ([Release] if durable else [])


NO = ReasonCode.TOPIC_NAME_INVALID


@pytest.mark.parametrize(("options", "topic"), [
    (Options(), b"$delayed/x/a"), (Options(delayed_max_s=5), b"$delayed/6/a"), (Options(), b"$delayed/1/$SYS/a"),
    (Options(), b"$delayed/1/$share/g/a"), (Options(), b"$delayed/1/$delayed/1/a"), (Options(delayed_max_s=None), b"$delayed/1/a"),
])  # fmt: skip
def test_a_name_that_makes_no_sense_is_refused(options: Options, topic: bytes) -> None:
    """As other topics that clients may not publish to, in the order of the connection; 3.1.1 is acknowledged, and nothing comes."""
    for version in (5, 4):
        shell = Shell(options)
        shell.homes.durable_filters.append(b"#")
        client = shell.online("p", version)
        client.send(message(b"a", b"", 1, 1), message(topic, b"x", 1, 2), message(topic, b"x", 2, 3), message(topic, b"x"))
        shell.answer()
        refused: list[Item] = [Ack(AckKind.PUBACK, 2, NO), Ack(AckKind.PUBREC, 3, NO)]
        accepted: list[Item] = [AckRun(AckKind.PUBACK, [2]), AckRun(AckKind.PUBREC, [3])]
        assert client.take() == [AckRun(AckKind.PUBACK, [1]), *(refused if version == 5 else accepted)]
        assert [topic for _, topic, _ in shell.homes.stored] == [b"a"] and shell.core.counters.publishes_refused_topic == 3


def test_what_is_over_the_quota_gets_0x97() -> None:
    """3.1.1 has no such answer and is closed, as for messages that are stored at once."""
    for version in (5, 4):
        shell = Shell()
        client = shell.online("p", version)
        client.send(message(b"$delayed/1/a", b"x", 1, 2))
        reply(shell, REFUSED_QUOTA)
        if version == 5:
            assert client.take() == [Ack(AckKind.PUBACK, 2, ReasonCode.QUOTA_EXCEEDED)] and client.closed is None
        else:
            assert client.take() == [] and client.closed


def test_the_topic_behind_the_delay_is_what_rules_are_asked_about() -> None:
    """At once, and again when it is due (shards.judging)."""
    shell = Shell()
    client = shell.online("p", 5)
    shell.turn(AccessChanged(CLOSED))
    client.send(message(b"$delayed/1/a", b"x", 1, 2))
    assert client.take() == [Ack(AckKind.PUBACK, 2, ReasonCode.NOT_AUTHORIZED)] and not shell.requests


def test_a_will_may_not_be_delayed_so() -> None:
    """A will has its own delay."""
    shell = Shell()
    client = shell.client()
    client.send(Connect(5, "c", will=Will(b"$delayed/1/a", b"")))
    assert client.take() == [Connack(False, NO)]


def test_bounds_count_what_is_delayed() -> None:
    """Receive Maximum, and what one shard may have unanswered."""
    shell = Shell(Options(receive_maximum_in=2, shard_messages_max=1))
    client = shell.online("p", 5)
    client.send(message(b"$delayed/1/a", b"x", 1, 1), message(b"$delayed/1/a", b"x", 1, 2))
    assert client.paused
    client.send(message(b"$delayed/1/a", b"x", 1, 3))
    assert client.closed == "more unanswered messages than announced"


def test_shutdown_waits_for_its_acknowledgement() -> None:
    """It is one of those that the client was promised."""
    shell = Shell()
    client = shell.online("p", 4)
    client.send(message(b"$delayed/1/a", b"x", 1, 1))
    shell.turn(Stopping())
    assert client.closed is None
    reply(shell, STORED)
    assert client.take() == [AckRun(AckKind.PUBACK, [1])] and client.closed == "shutdown"


def test_an_alias_may_stand_for_a_delayed_topic() -> None:
    """The delay is a part of the name."""
    shell = Shell()
    client: Client = shell.online("p", 5)
    client.send(Publish(2, 1, b"$delayed/1/a", b"x", Properties(topic_alias=1)), Publish(2, 2, b"", b"y", Properties(topic_alias=1)))
    (entry,) = [entry for entry in entries(shell) if isinstance(entry, Delay)][-1:]
    assert entry.topics == [b"a"]
