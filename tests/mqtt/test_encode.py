"""The encoders of the hot ways, and what an encoder refuses because it would be our own mistake."""

from __future__ import annotations

import pytest

from mqtt.body import make_body
from mqtt.decode import Decoder
from mqtt.encode import PublishTemplate, acks, encode, packet_id_bytes, publish, publishes
from mqtt.packets import (
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Item,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
)
from mqtt.reason import ProtocolError, ReasonCode, connack_return_code, reason_of_return_code

TYPED = Properties(content_type="t")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_what_goes_to_one_client_only_is_as_from_the_encoder(version: int) -> None:
    """Some of the messages, in another order; with properties and without; of all sizes of a length and of a topic; at QoS 0 too."""
    bodies = [make_body(properties, b"x" * size) for properties in (Properties(), TYPED) for size in (0, 119, 20_000, 3_000_000)]
    messages = [(b"t" * (1 + 50 * number), body, 7, 1) for number, body in enumerate(bodies)]
    indexes = [5, 0, 7, 1, 2, 3, 6]
    firsts = bytes([0x32, 0x30, 0x34, 0x3A, 0x31, 0x33, 0x32])
    packet_ids = [65_535, 0, 1, 513, 0, 2, 3]
    expected = b"".join(
        publish(version, first & 15, packet_id, *messages[index][:2])
        for index, first, packet_id in zip(indexes, firsts, packet_ids, strict=True)
    )
    assert b"".join(publishes(version, messages, indexes, packet_ids, firsts)) == expected


@pytest.mark.parametrize("version", [3, 4, 5])
def test_what_packets_begin_with_serves_the_next_one_only_if_all_of_it_is_the_same(version: int) -> None:
    """Topic, sizes and first byte change one at a time, each against its neighbours, and what is the same is there twice in a row."""
    ways = [
        (b"a", 5, 0x32),
        (b"b", 5, 0x32),
        (b"bb", 4, 0x32),
        (b"bb", 5, 0x32),
        (b"b", 6, 0x32),
        (b"b", 6, 0x33),
        (b"b", 6, 0x30),
        (b"b", 6, 0x32),
        (b"b", 5, 0x32),
        (b"a", 5, 0x32),
    ]
    rows = [way for way in ways for _ in range(2)]
    messages = [(topic, b"\0" + b"x" * size, 7, 1) for topic, size, _ in rows]
    packet_ids = [number + 1 if first & 6 else 0 for number, (_, _, first) in enumerate(rows)]
    firsts = bytes(first for _, _, first in rows)
    expected = b"".join(
        publish(version, first & 15, packet_id, topic, body)
        for (topic, body, _, _), packet_id, first in zip(messages, packet_ids, firsts, strict=True)
    )
    assert b"".join(publishes(version, messages, range(len(rows)), packet_ids, firsts)) == expected


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("first_byte", [0x30, 0x31, 0x32, 0x33, 0x3A, 0x3B, 0x34, 0x35, 0x3C, 0x3D])
@pytest.mark.parametrize("payload", [b"", b"x" * 119, b"x" * 20_000])
def test_a_template_gives_the_packet_of_the_encoder(version: int, first_byte: int, payload: bytes) -> None:
    """head + packet id + tail is the whole packet, for each version, first byte and size, also the second time."""
    body = make_body(TYPED, payload)
    template = PublishTemplate(b"a/b", body)
    flags = first_byte & 15
    packet_id = 513 if flags & 6 else 0
    for _ in range(2):
        head, tail = template.parts(version, first_byte)
        packet = head + (packet_id_bytes[packet_id] if flags & 6 else b"") + tail
        assert packet == encode(version, Publish(flags, packet_id, b"a/b", payload, TYPED))
        assert packet == publish(version, flags, packet_id, b"a/b", body)
        assert len(packet) == template.packet_bytes(version, first_byte)
    assert template.parts(version, first_byte)[0] is template.parts(version, first_byte)[0]


def test_one_template_serves_both_versions() -> None:
    """Properties go to MQTT 5 only, and asking for one version does not spoil the other."""
    template = PublishTemplate(b"t", b"\x04\x03\x00\x01tpayload")
    assert b"".join(template.v3(0x30)) == b"\x30\x0a\x00\x01tpayload"
    assert b"".join(template.v5(0x30)) == b"\x30\x0f\x00\x01t\x04\x03\x00\x01tpayload"
    assert b"".join(template.v3(0x30)) == b"\x30\x0a\x00\x01tpayload"
    assert template.v5(0x32)[1] is template.body


def test_packet_id_bytes_are_all_there() -> None:
    """65,536 entries of two bytes, big-endian."""
    assert len(packet_id_bytes) == 65_536
    assert all(int.from_bytes(entry, "big") == number and len(entry) == 2 for number, entry in enumerate(packet_id_bytes))


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("kind", AckKind)
def test_acks_are_those_of_the_encoder(version: int, kind: AckKind) -> None:
    """Joined quickly, the same bytes as one by one."""
    ids = [1, 65_535, 256, 255]
    assert acks(version, kind, ids) == b"".join([encode(version, Ack(kind, number)) for number in ids])
    assert acks(version, kind, []) == b""
    assert Decoder(version, 100).feed(acks(version, kind, ids)) == [AckRun(kind, ids)]


@pytest.mark.parametrize(
    ("version", "packet", "wire"),
    [
        (5, Ack(AckKind.PUBACK, 5, ReasonCode.NO_MATCHING_SUBSCRIBERS), b"\x40\x03\x00\x05\x10"),
        (4, Ack(AckKind.PUBACK, 5, ReasonCode.NOT_AUTHORIZED), b"\x40\x02\x00\x05"),
        (5, Disconnect(), b"\xe0\x00"),
        (5, Disconnect(ReasonCode.SESSION_TAKEN_OVER), b"\xe0\x01\x8e"),
        (4, Disconnect(ReasonCode.SESSION_TAKEN_OVER), b"\xe0\x00"),
        (4, Connack(True), b"\x20\x02\x01\x00"),
        (3, Connack(True), b"\x20\x02\x00\x00"),
        (4, Connack(False, ReasonCode.BANNED), b"\x20\x02\x00\x05"),
        (5, Connack(False, ReasonCode.BANNED), b"\x20\x03\x00\x8a\x00"),
        (4, Suback(1, (ReasonCode.GRANTED_QOS_2, ReasonCode.QUOTA_EXCEEDED), TYPED), b"\x90\x04\x00\x01\x02\x80"),
        (4, Unsuback(1, (ReasonCode.NO_SUBSCRIPTION_EXISTED,)), b"\xb0\x02\x00\x01"),
        (4, Subscribe(1, (Subscription(b"a", 1, True, True, 2),)), b"\x82\x06\x00\x01\x00\x01a\x01"),
        (5, Auth(), b"\xf0\x00"),
    ],
)
def test_shortest_forms_and_what_older_versions_cannot_say(version: int, packet: Item, wire: bytes) -> None:
    """One server says the same to every version; what the version has no field for is left out."""
    assert encode(version, packet) == wire


@pytest.mark.parametrize(
    ("version", "packet"),
    [
        (4, Auth()),
        (5, Connect(4, "c")),
        (4, Connect(4, "c", password=b"p")),
        (4, Connack(False, ReasonCode.MALFORMED_PACKET)),
        (5, Ack(AckKind.PUBACK, 0)),
        (5, Ack(AckKind.PUBACK, 65_536)),
        (5, Publish(2, 0, b"t")),
        (5, Publish(0, 7, b"t")),
        (5, PublishRun([2], [0], [b"t"], [b"\0"])),
        (5, Publish(0, 0, b"t" * 65_536)),
        (5, Publish(0, 0, b"t", properties=Properties(receive_maximum=1))),
        (5, Connack(False, properties=Properties(receive_maximum=0))),
        (5, Connack(False, properties=Properties(maximum_qos=2))),
        (5, Subscribe(1, (Subscription(b"a"),), Properties(subscription_identifiers=(1, 2)))),
        (5, Disconnect(properties=Properties(reason_string="x" * 65_536))),
    ],
)
def test_what_cannot_be_said_is_our_own_mistake(version: int, packet: Item) -> None:
    """ValueError, not ProtocolError: no peer is to blame."""
    with pytest.raises(ValueError):
        encode(version, packet)


def test_return_codes_of_3_1_1() -> None:
    """Each return code has its reason and back; a broken CONNECT has no return code at all."""
    assert [connack_return_code(reason_of_return_code(code)) for code in range(6)] == [0, 1, 2, 3, 4, 5]
    assert connack_return_code(ReasonCode.SERVER_BUSY) == 3
    assert connack_return_code(ReasonCode.MALFORMED_PACKET) is None
    assert connack_return_code(ReasonCode.PROTOCOL_ERROR) is None
    with pytest.raises(ProtocolError) as caught:
        reason_of_return_code(6)
    assert caught.value.reason is ReasonCode.MALFORMED_PACKET


def test_an_error_tells_its_reason_and_its_detail() -> None:
    """The text of an error is what is logged."""
    error = ProtocolError(ReasonCode.TOPIC_ALIAS_INVALID, "topic_alias is 0, wanted 1 to 65535")
    assert str(error) == "TOPIC_ALIAS_INVALID (0x94): topic_alias is 0, wanted 1 to 65535"
    assert (error.reason, error.detail) == (0x94, "topic_alias is 0, wanted 1 to 65535")
