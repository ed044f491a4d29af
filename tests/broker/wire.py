"""The few packets that the test client sends and reads, for 3.1.1 and 5.

Written from the specification and independent of the broker's own codec: a mistake
that both had in common would go unseen. Builds correct packets only and believes the broker's
lengths; malformed packets are tested elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Version = Literal[4, 5]

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 2, 3, 4, 5, 6, 7, 9, 11, 13, 14
PINGREQ = b"\xc0\x00"
SESSION_EXPIRY, RECEIVE_MAXIMUM = 0x11, 0x21
PACKET_IDS = 65535
EXPIRY_NEVER = 0xFFFFFFFE  # not 0xFFFFFFFF: some brokers answer that one differently

# Of properties in packets to a client, only the lengths of their values matter here.
_ONE, _TWO, _FOUR = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}, {0x13, 0x21, 0x22, 0x23}, {0x02, 0x11, 0x18, 0x27}


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet from the broker; ``ends_at`` counts all bytes of the connection up to its last."""

    kind: int
    flags: int
    body: bytes
    ends_at: int


@dataclass(frozen=True, slots=True)
class Publish:
    topic: str
    payload: bytes
    qos: int
    dup: bool
    retain: bool
    packet_id: int


@dataclass(frozen=True, slots=True)
class Connack:
    session_present: bool
    code: int
    receive_maximum: int
    expiry_s: int | None = None


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def connect(version: Version, client_id: str, *, clean: bool, keep_alive_s: int, expiry_s: int, receive_maximum: int) -> bytes:
    body = text("MQTT") + bytes([version, 0x02 if clean else 0]) + struct.pack(">H", keep_alive_s)
    if version == 5:
        properties = struct.pack(">BI", SESSION_EXPIRY, expiry_s) + struct.pack(">BH", RECEIVE_MAXIMUM, receive_maximum)
        body += varint(len(properties)) + properties
    return packet(0x10, body + text(client_id))


def publish(version: Version, topic: str, payload: bytes, qos: int, packet_id: int, *, dup: bool = False, retain: bool = False) -> bytes:
    body = text(topic) + (struct.pack(">H", packet_id) if qos else b"") + (b"\x00" if version == 5 else b"") + payload
    return packet(0x30 | (0x08 if dup else 0) | qos << 1 | retain, body)


def answer(kind: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP with success; the short form is legal in both versions."""
    return bytes([kind << 4 | (2 if kind == PUBREL else 0), 2]) + struct.pack(">H", packet_id)


def subscribe(version: Version, packet_id: int, topic_filter: str, qos: int) -> bytes:
    return packet(0x82, struct.pack(">H", packet_id) + (b"\x00" if version == 5 else b"") + text(topic_filter) + bytes([qos]))


def disconnect() -> bytes:
    return b"\xe0\x00"


class Reader:
    """Bytes in, packets out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._taken = 0

    def feed(self, data: bytes) -> Iterator[Packet]:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while (head := _head(buffer, at)) is not None:
                start, end = head
                if end > len(buffer):
                    break
                yield Packet(buffer[at] >> 4, buffer[at] & 15, bytes(buffer[start:end]), self._taken + end)
                at = end
        finally:
            del buffer[:at]
            self._taken += at


def _head(buffer: bytearray, at: int) -> tuple[int, int] | None:
    """Where the body begins and ends, or None while the length is not there yet."""
    length = 0
    for used in range(1, 5):
        if at + used >= len(buffer):
            return None
        byte = buffer[at + used]
        length |= (byte & 127) << 7 * (used - 1)
        if not byte & 128:
            return at + used + 1, at + used + 1 + length
    raise ValueError("a remaining length of more than four bytes")


def read_connack(version: Version, body: bytes) -> Connack:
    properties = _numbers(body, 2) if version == 5 and len(body) > 2 else {}
    return Connack(bool(body[0] & 1), body[1], properties.get(RECEIVE_MAXIMUM, PACKET_IDS), properties.get(SESSION_EXPIRY))


def read_publish(version: Version, flags: int, body: bytes) -> Publish:
    qos = flags >> 1 & 3
    (length,) = struct.unpack_from(">H", body)
    at = 2 + length
    topic = body[2:at].decode()
    packet_id = 0
    if qos:
        (packet_id,) = struct.unpack_from(">H", body, at)
        at += 2
    if version == 5:
        size, at = _varint(body, at)
        at += size
    return Publish(topic, body[at:], qos, bool(flags & 8), bool(flags & 1), packet_id)


def read_answer(body: bytes) -> tuple[int, int]:
    """(packet id, reason code) of an acknowledgement."""
    return int.from_bytes(body[:2], "big"), body[2] if len(body) > 2 else 0


def read_suback(version: Version, body: bytes) -> tuple[int, bytes]:
    """(packet id, return codes)."""
    at = 2
    if version == 5:
        size, at = _varint(body, at)
        at += size
    return int.from_bytes(body[:2], "big"), body[at:]


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            return value, at


def _numbers(body: bytes, at: int) -> dict[int, int]:
    """The numeric properties of a packet."""
    size, at = _varint(body, at)
    end = at + size
    found: dict[int, int] = {}
    while at < end:
        key = body[at]
        at += 1
        width = 1 if key in _ONE else 2 if key in _TWO else 4 if key in _FOUR else 0
        if width:
            found[key] = int.from_bytes(body[at : at + width], "big")
            at += width
        else:  # a string or binary data; a user property has two
            for _ in range(2 if key == 0x26 else 1):
                at += 2 + int.from_bytes(body[at : at + 2], "big")
    return found
