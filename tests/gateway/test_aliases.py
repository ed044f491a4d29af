"""Topic aliases that clients are given: only who takes them, only what is written at once, and never without its topic."""

from __future__ import annotations

from random import Random

import pytest

from gateway.aliases import AliasesOut
from gateway.events import FromSession, RetainedTold
from gateway.options import Options
from mqtt.encode import PublishTemplate
from mqtt.packets import AckKind, AckRun, Properties, Publish, PublishRun, Subscribe, Subscription
from sessions.frames import Deliver
from shards.messages import encode_message
from tests.gateway.scripted import Client, Shell, message, subscribe

GIVES = Options(topic_alias_max_out=2)


def told(client: Client) -> list[tuple[bytes, int | None, bytes]]:
    """(topic, alias, payload) of every message that came."""
    rows: list[tuple[bytes, int | None, bytes]] = []
    for packet in client.take():
        if isinstance(packet, Publish):
            rows.append((packet.topic, packet.properties.topic_alias, packet.payload))
        elif isinstance(packet, PublishRun):
            rows.append((packet.topics[0], None, packet.bodies[0][1:]))
    return rows


def test_the_first_topics_go_by_number_and_the_rest_by_name() -> None:
    """As many as both sides allow: told with the first message, in place of the topic afterwards."""
    shell = Shell(Options(topic_alias_max_out=100))
    client, publisher = shell.online("s", 5, topic_alias_maximum=2), shell.online("p", 4)
    subscribe(client, b"#")
    for topic in (b"long/1", b"long/2", b"long/1", b"long/3", b"long/2", b"long/3"):
        publisher.send(message(topic, b"x"))
    assert told(client) == [
        (b"long/1", 1, b"x"), (b"long/2", 2, b"x"), (b"", 1, b"x"), (b"long/3", None, b"x"), (b"", 2, b"x"), (b"long/3", None, b"x"),
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "takes", "gives"), [(4, 0, 9), (5, 0, 9), (5, 9, 0)])
def test_nobody_else_gets_one(version: int, takes: int, gives: int) -> None:
    """3.1.1 has none; MQTT 5 only with a Topic Alias Maximum above 0 [MQTT-3.1.2-26, -27]; and only if we give some."""
    shell = Shell(Options(topic_alias_max_out=gives))
    client, publisher = shell.online("s", version, topic_alias_maximum=takes), shell.online("p", 4)
    subscribe(client, b"#")
    publisher.send(message(b"long/1", b"x"), message(b"long/1", b"y"))
    assert told(client) == [(b"long/1", None, b"x"), (b"long/1", None, b"y")]


def test_a_message_that_waits_goes_by_its_name() -> None:
    """It may be dropped from the queue, and with it the topic of everything behind it: here the oldest two of three are."""
    shell = Shell(Options(topic_alias_max_out=9, queue_count_max=1))
    client, publisher = shell.online("s", 5, topic_alias_maximum=9, receive_maximum=1), shell.online("p", 4)
    subscribe(client, b"#", 1)
    shell.homes.durable_filters.append(b"#")
    for number, topic in enumerate((b"long/1", b"long/2", b"long/2", b"long/2", b"long/1"), 1):
        publisher.send(message(topic, b"%d" % number, 1, number))
        shell.answer()
        if number == 4:
            assert told(client) == [(b"long/1", 1, b"1")]
            client.send(AckRun(AckKind.PUBACK, [1]))
            assert told(client) == [(b"long/2", None, b"4")]
            client.send(AckRun(AckKind.PUBACK, [2]))
    assert told(client) == [(b"", 1, b"5")]


def test_a_durable_session_gets_them_for_one_connection() -> None:
    """Each connection begins anew [MQTT-3.3.2-7]; others in the same frame get their topics; properties stay, in their order."""
    shell = Shell(GIVES)
    body = b"\x0d\x26\x00\x01b\x00\x01\x31\x26\x00\x01a\x00\x00"
    first = shell.online("d", 5, expiry_s=9, topic_alias_maximum=5)
    other = shell.online("o", 5, expiry_s=9)
    rows = [(b"long/1", body, shell.wall_ms, 0), (b"long/1", b"\0y", shell.wall_ms, 0)]
    to = [(each.conn, [0, 1], [1, 2], b"\x32\x34", [7, 0]) for each in (first, other)]
    shell.turn(FromSession(0, Deliver(rows, to)))
    packet = first.packets[0]
    assert isinstance(packet, Publish) and packet.properties == Properties(
        topic_alias=1, subscription_identifiers=(7,), user_properties=(("b", "1"), ("a", ""))
    )
    assert told(first) == [(b"long/1", 1, b""), (b"", 1, b"y")]
    assert told(other) == [(b"long/1", None, b""), (b"long/1", None, b"y")]
    again = shell.online("d", 5, expiry_s=9, topic_alias_maximum=5)
    shell.turn(FromSession(0, Deliver(rows, [(again.conn, [1], [2], b"\x3c", [0])])))
    assert told(again) == [(b"long/1", 1, b"y")]


def test_retained_messages_go_by_number_too() -> None:
    """They leave as others do."""
    shell = Shell(GIVES)
    client = shell.online("s", 5, topic_alias_maximum=5)
    client.send(Subscribe(1, (Subscription(b"long/1"),)))
    client.take()
    (query,) = shell.queries
    value = encode_message(0, shell.wall_ms, b"p", b"long/1", b"\0kept")
    shell.turn(RetainedTold(query.shard, query.id, [value], b""))
    shell.online("p", 4).send(message(b"long/1", b"live"))
    assert told(client) == [(b"long/1", 1, b"kept"), (b"", 1, b"live")]


def test_an_alias_makes_no_message_too_large() -> None:
    """The packet that brings it is three bytes longer: to the byte."""
    template = PublishTemplate(b"long/1", b"\0" + b"x" * 10)
    size = template.packet_bytes(5, 0x30)
    for packet_max, topic, given in ((size + 2, b"long/1", 0), (size + 3, b"long/1", 1), (0, b"long/1", 1)):
        aliases = AliasesOut(5)
        shortened = aliases.shorten(template, packet_max, 0x30)
        assert shortened.topic == topic and (shortened is template) == (not given)
        assert not packet_max or shortened.packet_bytes(5, 0x30) <= packet_max


def test_a_short_topic_is_not_worth_one() -> None:
    """An alias takes three bytes of each packet."""
    aliases = AliasesOut(1)
    template = PublishTemplate(b"a/b", b"\0x")
    assert aliases.shorten(template, 0, 0x30) is template
    assert aliases.shorten(PublishTemplate(b"long", b"\0x"), 0, 0x30).topic == b"long"
    assert aliases.shorten(PublishTemplate(b"long", b"\0x"), 0, 0x30).topic == b""


@pytest.mark.parametrize("seed", range(20))
def test_a_client_that_reads_every_packet_always_knows_the_topic(seed: int) -> None:
    """Whatever the window, the queue, sizes and QoS: what it makes of the packets is what was published."""
    rng = Random(seed)
    shell = Shell(Options(topic_alias_max_out=rng.choice([1, 3, 9]), queue_count_max=rng.choice([1, 5])))
    shell.homes.durable_filters.append(b"#")
    client = shell.online("s", 5, topic_alias_maximum=rng.choice([1, 4, 9]), receive_maximum=rng.choice([1, 3]), maximum_packet_size=40)
    publisher = shell.online("p", 4)
    subscribe(client, b"#", 2)
    known: dict[int, bytes] = {}
    for number in range(1, 120):
        topic = b"topic/%d" % rng.randrange(6)
        qos = rng.randrange(2)
        publisher.send(message(topic, topic + b"x" * rng.choice([0, 12, 18]), qos, number if qos else 0))
        shell.answer()
        for packet in client.take():
            if isinstance(packet, PublishRun):
                assert packet.bodies[0][1:].startswith(packet.topics[0]) and packet.topics[0]
                if packet.flags[0] & 6:
                    client.send(AckRun(AckKind.PUBACK, packet.packet_ids))
            elif isinstance(packet, Publish):
                alias = packet.properties.topic_alias
                assert alias
                if packet.topic:
                    known[alias] = packet.topic
                assert packet.payload.startswith(known[alias])
                if packet.qos:
                    client.send(AckRun(AckKind.PUBACK, [packet.packet_id]))
