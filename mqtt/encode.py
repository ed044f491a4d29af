"""From packets to bytes, for every version and both directions; the hot ones without packets.

``encode`` writes any packet.  ``PublishTemplate`` and ``acks`` serve the ways on which a broker
spends its time: one stored body to many clients, and many acknowledgements to one.
Leaves to its callers that the packet fits the peer's maximum packet size.
What always holds: what is written, ``mqtt.decode`` reads back as the same values.  A packet that
the version cannot express is our own bug, hence ``ValueError``, never ``ProtocolError``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, assert_never

from mqtt.body import strip_properties
from mqtt.packets import (
    MQTT_3_1,
    MQTT_5,
    NO_PROPERTIES,
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from mqtt.properties import Place, encode_properties
from mqtt.reason import ReasonCode, connack_return_code
from mqtt.wire import binary, string, varint

packet_id_bytes: Final[tuple[bytes, ...]] = tuple([number.to_bytes(2, "big") for number in range(65_536)])

_ACK_HEADS: Final = {
    AckKind.PUBACK: b"\x40\x02",
    AckKind.PUBREC: b"\x50\x02",
    AckKind.PUBREL: b"\x62\x02",
    AckKind.PUBCOMP: b"\x70\x02",
}


class PublishTemplate:
    """One message, ready to be sent to any number of clients.

    A packet is ``head + packet id + tail`` with QoS 1 and 2, and ``head + tail`` with QoS 0.
    ``head`` depends on the version and the first byte only and is kept; ``tail`` is the stored
    body for MQTT 5 and the bare payload before it.
    """

    __slots__ = ("_parts", "_payload", "body", "topic")

    def __init__(self, topic: bytes, body: bytes) -> None:
        self.topic = topic
        self.body = body
        self._payload: bytes | None = None
        self._parts: dict[int, tuple[bytes, bytes]] = {}

    def v5(self, first_byte: int) -> tuple[bytes, bytes]:
        """(head, tail) for MQTT 5; ``first_byte`` is 0x30 | DUP 8 | QoS << 1 | RETAIN."""
        parts = self._parts.get(first_byte)
        if parts is None:
            parts = self._parts[first_byte] = (_publish_head(first_byte, self.topic, len(self.body)), self.body)
        return parts

    def v3(self, first_byte: int) -> tuple[bytes, bytes]:
        """(head, tail) for 3.1 and 3.1.1, without the properties."""
        parts = self._parts.get(-first_byte)
        if parts is None:
            if self._payload is None:
                self._payload = strip_properties(self.body)
            head = _publish_head(first_byte, self.topic, len(self._payload))
            parts = self._parts[-first_byte] = (head, self._payload)
        return parts

    def parts(self, version: int, first_byte: int) -> tuple[bytes, bytes]:
        return self.v5(first_byte) if version == MQTT_5 else self.v3(first_byte)

    def packet_bytes(self, version: int, first_byte: int) -> int:
        """The size of the whole packet, to be compared with the client's maximum packet size."""
        head, tail = self.parts(version, first_byte)
        return len(head) + len(tail) + (2 if first_byte & 6 else 0)


def _publish_head(first_byte: int, topic: bytes, tail_bytes: int) -> bytes:
    remaining = 2 + len(topic) + (2 if first_byte & 6 else 0) + tail_bytes
    return b"%c%b%b" % (first_byte, varint(remaining), binary(topic))


def publishes(
    version: int, messages: Sequence[tuple[bytes, bytes, int, int]], indexes: Sequence[int], packet_ids: Sequence[int], firsts: bytes
) -> list[bytes]:
    """The bytes, in pieces, of PUBLISH packets that go to one client only, so that nothing of them is kept as a PublishTemplate does.

    messages: topic, stored body, and what does not matter here; indexes: which of them; packet_ids: 0 at QoS 0.
    """
    pieces: list[bytes] = []
    is_5 = version == MQTT_5
    start = b""
    of_size = of_bytes = of_first = -1
    for index, packet_id, first in zip(indexes, packet_ids, firsts, strict=True):
        topic, body, _, _ = messages[index]
        tail = body if is_5 else strip_properties(body) if body[0] else body[1:]
        size, tail_bytes = len(topic), len(tail)
        # The next one is often of the same size, and begins with the same bytes.
        if tail_bytes != of_bytes or size != of_size or first != of_first:
            of_size, of_bytes, of_first = size, tail_bytes, first
            length = varint(size + tail_bytes + (4 if packet_id else 2))
            start = b"%c%b%c%c" % (first, length, size >> 8, size & 0xFF)
        if packet_id:
            pieces += (start, topic, packet_id_bytes[packet_id], tail)
        else:
            pieces += (start, topic, tail)
    return pieces


def topic_of_head(head: bytes) -> bytes:
    """The topic in the head of a PublishTemplate."""
    at = 1
    while head[at] & 0x80:
        at += 1
    return head[at + 3 :]


def publish(version: int, flags: int, packet_id: int, topic: bytes, body: bytes) -> bytes:
    """One PUBLISH from the stored form of its body, for those who send it only once."""
    tail = body if version == MQTT_5 else strip_properties(body)
    head = _publish_head(0x30 | flags, topic, len(tail))
    return head + _publish_id(flags, packet_id) + tail


def acks(version: int, kind: AckKind, packet_ids: Sequence[int]) -> bytes:
    """Successful acknowledgements of one kind, in order.

    Their four bytes are the same in every version; ``version`` is taken so that no caller has
    to know that.
    """
    if not packet_ids:
        return b""
    head = _ACK_HEADS[kind]
    table = packet_id_bytes
    return head + head.join([table[packet_id] for packet_id in packet_ids])


def encode(version: int, packet: Item) -> bytes:
    """The bytes of ``packet`` in ``version``; runs become all their packets."""
    match packet:
        case Publish():
            return _publish(version, packet)
        case PublishRun():
            rows = zip(packet.flags, packet.packet_ids, packet.topics, packet.bodies, strict=True)
            return b"".join([publish(version, flags, number, topic, body) for flags, number, topic, body in rows])
        case AckRun():
            return acks(version, packet.kind, packet.packet_ids)
        case Ack():
            return _ack(version, packet)
        case Pingreq():
            return b"\xc0\0"
        case Pingresp():
            return b"\xd0\0"
        case Connect():
            return _connect(version, packet)
        case Connack():
            return _connack(version, packet)
        case Subscribe():
            return _subscribe(version, packet)
        case Suback():
            return _suback(version, packet)
        case Unsubscribe():
            rows_5 = b"".join([binary(topic_filter) for topic_filter in packet.filters])
            return _with_id(version, 0xA2, packet.packet_id, Place.UNSUBSCRIBE, packet.properties, rows_5)
        case Unsuback():
            reasons = bytes(packet.reasons) if version == MQTT_5 else b""
            return _with_id(version, 0xB0, packet.packet_id, Place.UNSUBACK, packet.properties, reasons)
        case Disconnect():
            if version != MQTT_5:
                return b"\xe0\0"
            return _framed(0xE0, _reason_and_properties(packet.reason, packet.properties, Place.DISCONNECT))
        case Auth():
            if version != MQTT_5:
                raise ValueError("AUTH needs MQTT 5")
            return _framed(0xF0, _reason_and_properties(packet.reason, packet.properties, Place.AUTH))
        case _ as never:
            assert_never(never)


def encode_all(version: int, packets: Iterable[Item]) -> bytes:
    return b"".join([encode(version, packet) for packet in packets])


def _framed(first_byte: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes((first_byte,)) + varint(len(content)) + content


def _properties(version: int, properties: Properties, place: Place) -> bytes:
    """The property block, or nothing in a version that has none: what it would say is lost there."""
    return encode_properties(properties, place) if version == MQTT_5 else b""


def _with_id(version: int, first_byte: int, packet_id: int, place: Place, properties: Properties, content: bytes) -> bytes:
    return _framed(first_byte, _packet_id(packet_id), _properties(version, properties, place), content)


def _packet_id(packet_id: int) -> bytes:
    if not 0 < packet_id < 65_536:
        raise ValueError(f"packet id {packet_id}, wanted 1 to 65535")
    return packet_id_bytes[packet_id]


def _publish_id(flags: int, packet_id: int) -> bytes:
    if flags & 6:
        return _packet_id(packet_id)
    if packet_id:
        raise ValueError(f"packet id {packet_id} with QoS 0")
    return b""


def _publish(version: int, packet: Publish) -> bytes:
    return _framed(
        0x30 | packet.flags,
        binary(packet.topic),
        _publish_id(packet.flags, packet.packet_id),
        _properties(version, packet.properties, Place.PUBLISH),
        packet.payload,
    )


def _reason_and_properties(reason: ReasonCode, properties: Properties, place: Place) -> bytes:
    """The shortest form: success without properties is nothing, no properties is the reason alone."""
    block = encode_properties(properties, place)
    if block != b"\0":
        return bytes((reason,)) + block
    return bytes((reason,)) if reason else b""


def _ack(version: int, packet: Ack) -> bytes:
    head = _ACK_HEADS[packet.kind]
    if version != MQTT_5 or (packet.reason is ReasonCode.SUCCESS and packet.properties == NO_PROPERTIES):
        # Before MQTT 5 an acknowledgement cannot say no: the message is taken over either way.
        return head + _packet_id(packet.packet_id)
    rest = _reason_and_properties(packet.reason, packet.properties, Place.ACK)
    return _framed(head[0], _packet_id(packet.packet_id), rest)


def _connect(version: int, packet: Connect) -> bytes:
    if version != packet.version:
        raise ValueError(f"a CONNECT of version {packet.version} cannot be sent as {version}")
    if packet.password is not None and packet.username is None and version != MQTT_5:
        raise ValueError("a password without a user name needs MQTT 5")
    flags = packet.clean_start << 1
    payload = [string(packet.client_id)]
    will = packet.will
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += [_properties(version, will.properties, Place.WILL), binary(will.topic), binary(will.payload)]
    if packet.username is not None:
        flags |= 0x80
        payload.append(string(packet.username))
    if packet.password is not None:
        flags |= 0x40
        payload.append(binary(packet.password))
    name = b"MQIsdp" if version == MQTT_3_1 else b"MQTT"
    return _framed(
        0x10,
        binary(name),
        bytes((version, flags)),
        packet.keep_alive.to_bytes(2, "big"),
        _properties(version, packet.properties, Place.CONNECT),
        *payload,
    )


def _connack(version: int, packet: Connack) -> bytes:
    if version == MQTT_5:
        code = int(packet.reason)
    else:
        return_code = connack_return_code(packet.reason)
        if return_code is None:
            raise ValueError(f"3.1.1 has no CONNACK for {packet.reason.name}: close without one")
        code = return_code
    present = packet.session_present and version != MQTT_3_1  # a reserved byte in 3.1
    return _framed(0x20, bytes((present, code)), _properties(version, packet.properties, Place.CONNACK))


def _subscribe(version: int, packet: Subscribe) -> bytes:
    rows = b"".join([binary(row.filter) + bytes((_options(version, row),)) for row in packet.subscriptions])
    return _with_id(version, 0x82, packet.packet_id, Place.SUBSCRIBE, packet.properties, rows)


def _options(version: int, row: Subscription) -> int:
    if version != MQTT_5:
        return row.qos
    return row.qos | row.no_local << 2 | row.retain_as_published << 3 | row.retain_handling << 4


def _suback(version: int, packet: Suback) -> bytes:
    codes = packet.reasons if version == MQTT_5 else [min(reason, 0x80) for reason in packet.reasons]
    return _with_id(version, 0x90, packet.packet_id, Place.SUBACK, packet.properties, bytes(codes))
