"""Strings, integers, flags and packet identifiers (chapters 1 and 2 of both specifications)."""

from __future__ import annotations

import pytest

from tests.broker.wire import packet, varint
from tests.conformance import packets
from tests.conformance.cases import BAD_STRINGS, KEPT, MALFORMED, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import PUBACK, PUBREC, PUBREL, SUBACK, UNSUBACK, binary, number
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP


# ---------------------------------------------------------------------------------------------- strings
def _with_string(version: int, where: str, bad: bytes) -> bytes:
    block = b"\0" if version == 5 else b""
    if where == "topic name":
        return packets.publish(version, bad)
    if where == "topic filter":
        return packet(0x82, number(1) + block + binary(bad) + b"\0")
    return packet(0xA2, number(1) + block + binary(bad))


@VERSIONS
@BAD_STRINGS
@pytest.mark.parametrize("where", ["topic name", "topic filter", "filter to unsubscribe"])
async def test_a_string_that_is_not_utf8_closes_the_connection(port: int, version: int, where: str, bad: bytes) -> None:
    """5: [MQTT-1.5.4-1, -2] [MQTT-3.3.2-1] [MQTT-3.8.3-1] [MQTT-3.10.3-1] [MQTT-4.7.3-2]; 3.1.1: [MQTT-1.5.3-1, -2] and the like."""
    peer = await Peer.connect(port, version)
    peer.send(_with_string(version, where, bad))
    await peer.closed(MALFORMED)


@BAD_STRINGS
@pytest.mark.parametrize("key", [packets.CONTENT_TYPE, packets.RESPONSE_TOPIC], ids=["content type", "response topic"])
async def test_a_property_that_is_not_utf8_closes_the_connection(port: int, key: int, bad: bytes) -> None:
    """[MQTT-3.3.2-13] [MQTT-3.3.2-19]"""
    peer = await Peer.connect(port, 5)
    block = bytes([key]) + binary(bad)
    peer.send(packet(0x30, binary(b"t") + varint(len(block)) + block))
    await peer.closed(MALFORMED)


@BAD_STRINGS
@pytest.mark.parametrize("half", ["name", "value"])
async def test_both_strings_of_a_pair_are_looked_at(port: int, half: str, bad: bytes) -> None:
    """[MQTT-1.5.7-1]"""
    peer = await Peer.connect(port, 5)
    block = bytes([packets.USER_PROPERTY]) + (binary(bad) + binary(b"v") if half == "name" else binary(b"n") + binary(bad))
    peer.send(packet(0x30, binary(b"t") + varint(len(block)) + block))
    await peer.closed(MALFORMED)


@VERSIONS
@KEPT
async def test_a_byte_order_mark_is_a_character_like_others(port: int, version: int, kept: bool) -> None:
    """Neither skipped nor taken off, wherever it stands.  5: [MQTT-1.5.4-3]; 3.1.1: [MQTT-1.5.3-3]."""
    publisher, subscriber = await Peer.connect(port, version), await Peer.connect(port, version, kept=kept)
    name = fresh()
    await subscriber.subscribe((f"\ufeff{name}", 1), (f"{name}\ufeff", 1))
    await publisher.publish(name)
    await publisher.publish(f"\ufeff{name}")
    await publisher.publish(f"{name}\ufeff")
    assert [(await subscriber.take()).topic for _ in range(2)] == [f"\ufeff{name}", f"{name}\ufeff"]


# ---------------------------------------------------------------------------------------------- integers
@pytest.mark.parametrize(
    "data",
    [
        b"\x30\x85\x00" + binary(b"t") + b"\0m",
        b"\x30\x07" + binary(b"t") + b"\x80\x00" + b"mm",
        b"\x82\x0a" + number(1) + b"\x03\x0b\x81\x00" + binary(b"t") + b"\0",
        b"\xe0\x80\x00",
    ],
    ids=["remaining length", "property length", "subscription identifier", "DISCONNECT of no length"],
)
async def test_an_integer_of_more_bytes_than_it_needs_closes_the_connection(port: int, data: bytes) -> None:
    """What we send is judged by the readers of these tests.  [MQTT-1.5.5-1]"""
    peer = await Peer.connect(port, 5)
    peer.send(data)
    await peer.closed(MALFORMED)


@VERSIONS
async def test_a_remaining_length_of_five_bytes_closes_the_connection(port: int, version: int) -> None:
    """Four bytes are the most that there are, of both versions."""
    peer = await Peer.connect(port, version)
    peer.send(b"\x30\x80\x80\x80\x80\x01")
    await peer.closed(MALFORMED)


# ---------------------------------------------------------------------------------------------- flags
FLAGS = {
    "PUBACK": 0x40,
    "PUBREC": 0x50,
    "PUBREL": 0x62,
    "PUBCOMP": 0x70,
    "SUBSCRIBE": 0x82,
    "UNSUBSCRIBE": 0xA2,
    "PINGREQ": 0xC0,
    "DISCONNECT": 0xE0,
}


@VERSIONS
@pytest.mark.parametrize("flags", [0, 1, 2, 4, 8, 15])
@pytest.mark.parametrize("kind", FLAGS)
async def test_reserved_bits_of_a_fixed_header_close_the_connection(port: int, version: int, kind: str, flags: int) -> None:
    """5: [MQTT-2.1.3-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1]; 3.1.1: [MQTT-2.2.2-1, -2] and the like."""
    first = FLAGS[kind]
    if flags == first & 15:
        flags = 3
    body = {
        "SUBSCRIBE": packets.subscribe(version, 1, ("t", 0))[2:],
        "UNSUBSCRIBE": packets.unsubscribe(version, 1, "t")[2:],
        "PINGREQ": b"",
        "DISCONNECT": b"",
    }.get(kind, number(1))
    peer = await Peer.connect(port, version)
    peer.send(packet(first & 0xF0 | flags, body))
    await peer.closed(MALFORMED)


@VERSIONS
@pytest.mark.parametrize("first", [0x00, 0x0F, 0x20, 0x90, 0xB0, 0xD0])
async def test_a_packet_that_no_client_sends_closes_the_connection(port: int, version: int, first: int) -> None:
    """Type 0, and what only servers send.  3.1.1: [MQTT-4.8.0-1]; 5: [MQTT-4.13.1-1]."""
    peer = await Peer.connect(port, version)
    peer.send(packet(first, b"\0\1\0"))
    await peer.closed(PROTOCOL_ERROR if first > 0x0F else MALFORMED)


# ---------------------------------------------------------------------------------------------- packet identifiers
@VERSIONS
@pytest.mark.parametrize("kind", ["SUBSCRIBE", "UNSUBSCRIBE", "QoS 1", "QoS 2", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP"])
async def test_packet_identifier_0_closes_the_connection(port: int, version: int, kind: str) -> None:
    """3.1.1: [MQTT-2.3.1-1]"""
    data = {
        "SUBSCRIBE": packets.subscribe(version, 0, ("t", 0)),
        "UNSUBSCRIBE": packets.unsubscribe(version, 0, "t"),
        "QoS 1": packets.publish(version, "t", qos=1),
        "QoS 2": packets.publish(version, "t", qos=2),
        **{name: packet(FLAGS[name], number(0)) for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP")},
    }[kind]
    peer = await Peer.connect(port, version)
    peer.send(data)
    came = await peer.rest()
    assert [packet.code for packet in came if isinstance(packet, packets.Answer)] in ([], [MALFORMED], [PROTOCOL_ERROR])
    assert len(came) == (version == 5)


@VERSIONS
@KEPT
async def test_a_message_of_qos_0_has_no_packet_identifier(port: int, version: int, kept: bool) -> None:
    """Neither is one read nor written: what stands behind the topic name is the payload.  5: [MQTT-2.2.1-2]; 3.1.1: [MQTT-2.3.1-5]."""
    publisher, subscriber = await Peer.connect(port, version), await Peer.connect(port, version, kept=kept)
    topic = fresh()
    await subscriber.subscribe((topic, 2))
    publisher.send(packets.publish(version, topic, b"\0\1payload"))
    came = await subscriber.message()
    assert (came.payload, came.qos, came.size) == (b"\0\1payload", 0, 2 + 2 + len(topic) + (version == 5) + 9)


@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_under_way_has_identifiers_of_its_own(port: int, version: int, kept: bool, qos: int) -> None:
    """Not 0, and none twice until the exchange is over.  5: [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]; 3.1.1: [MQTT-2.3.1-4]."""
    publisher, subscriber = await Peer.connect(port, version), await Peer.connect(port, version, kept=kept)
    topic = fresh()
    await subscriber.subscribe((topic, 2))
    for index in range(20):
        await publisher.publish(topic, b"%d" % index, qos)
    came = [await subscriber.message() for _ in range(20)]
    assert [each.payload for each in came] == [b"%d" % index for index in range(20)]
    assert len({each.packet_id for each in came} - {0}) == 20
    for each in came[::2]:
        await subscriber.complete(each)
    for index in range(20):
        await publisher.publish(topic, b"x%d" % index, qos)
    later = [await subscriber.message() for _ in range(20)]
    used = [each.packet_id for each in [*came[1::2], *later]]
    assert len(set(used)) == len(used) == 30


@VERSIONS
async def test_answers_have_the_identifier_of_what_they_answer(port: int, version: int) -> None:
    """5: [MQTT-2.2.1-5, -6] [MQTT-3.8.4-2] [MQTT-3.10.4-5]; 3.1.1: [MQTT-2.3.1-6, -7] [MQTT-3.8.4-2] [MQTT-3.10.4-4]."""
    peer = await Peer.connect(port, version)
    for packet_id in (65535, 1, 256, 255):
        peer.send(packets.subscribe(version, packet_id, ("t", 1)))
        await peer.answer(SUBACK, packet_id)
        peer.send(packets.unsubscribe(version, packet_id, "t"))
        await peer.answer(UNSUBACK, packet_id)
        peer.send(packets.publish(version, fresh(), b"", 1, packet_id))
        await peer.answer(PUBACK, packet_id)
        peer.send(packets.publish(version, fresh(), b"", 2, packet_id))
        await peer.answer(PUBREC, packet_id)
        peer.send(packets.ack(PUBREL, packet_id))
        await peer.answer(packets.PUBCOMP, packet_id)


# ---------------------------------------------------------------------------------------------- property length
async def test_no_properties_are_a_length_of_zero(port: int) -> None:
    """A packet that leaves the length out is malformed; in what we send it stands there.  [MQTT-2.2.2-1]"""
    publisher, subscriber = await Peer.connect(port, 5), await Peer.connect(port, 5)
    topic = fresh()
    await subscriber.subscribe((topic, 1))
    publisher.send(packets.publish(5, topic, b""))
    assert (await subscriber.message()).size == 2 + 2 + len(topic) + 1
    publisher.send(packet(0x30, binary(topic.encode())))
    await publisher.closed(MALFORMED)


@pytest.mark.parametrize(
    "data",
    [
        packet(0x30, binary(b"t") + b"\x05\x01\x01"),
        packet(0x82, number(1) + b"\x7f" + binary(b"t") + b"\0"),
        packet(0xE0, b"\0\x20"),
        packet(0x30, binary(b"t") + b"\x02\x7f\x00"),
        packet(0x30, binary(b"t") + b"\x04\x01\x00\x01\x00"),
    ],
    ids=["PUBLISH cut", "SUBSCRIBE cut", "DISCONNECT cut", "unknown", "twice"],
)
async def test_properties_that_make_no_sense_close_the_connection(port: int, data: bytes) -> None:
    """[MQTT-4.13.1-1]"""
    peer = await Peer.connect(port, 5)
    peer.send(data)
    came = await peer.rest()
    assert [each.code in (MALFORMED, PROTOCOL_ERROR) for each in came if isinstance(each, packets.Answer)] == [True]
