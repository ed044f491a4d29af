"""The control packets a load client sends and reads: CONNECT, CONNACK, SUBSCRIBE, SUBACK, for MQTT 3.1.1 and 5.

Written for the generator alone and on purpose not the broker's codec: a benchmark that shares the code it measures
also shares its mistakes.
What is sent and read by the hundred thousand (PUBLISH and the acknowledgements) is in `benchmarks.runs`.
Holds: an answer of the broker that is not the one awaited raises `Refused` with both in the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Version = Literal[4, 5]
QoS = Literal[0, 1, 2]

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 0x10, 0x20, 0x30, 0x40, 0x50, 0x62, 0x70
SUBSCRIBE, SUBACK, DISCONNECT = 0x82, 0x90, 0xE0
BYE = b"\xe0\x00"

# A little less than 2^32-1, which MQTT 5 reads as "never": brokers treat that value as a special case and we want the common path.
EXPIRY_S_LONG = 0xFFFF_FFF0

# What a publisher of MQTT 5 may say about a message, a bit of everything: text, an expiry, a kind of content, where to answer, two of the
# user's own.
PROPERTIES = (
    b"\x01\x01\x02\x00\x00\x0e\x10\x03\x00\x10application/json\x08\x00\x07answers\x09\x00\x08\x00\x01\x02\x03\x04\x05\x06\x07"
    b"\x26\x00\x04site\x00\x05north\x26\x00\x04unit\x00\x07celsius"
)

_RECEIVE_MAXIMUM = 0x21
_PROPERTY_BYTES = {0x24: 1, 0x25: 1, 0x28: 1, 0x29: 1, 0x2A: 1, 0x13: 2, 0x21: 2, 0x22: 2, 0x11: 4, 0x27: 4}
_PROPERTY_STRINGS = {0x12: 1, 0x15: 1, 0x16: 1, 0x1A: 1, 0x1C: 1, 0x1F: 1, 0x26: 2}


class Refused(Exception):
    """The broker said no, closed the connection, or answered with something else."""


@dataclass(frozen=True, slots=True)
class Packet:
    """One whole control packet: its first byte and what follows the fixed header."""

    kind: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a CONNACK that accepts tells the client."""

    session_present: bool
    receive_maximum: int


def encode_length(length: int) -> bytes:
    """The remaining length of a packet as a variable byte integer."""
    out = bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)


def decode_length(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[int, int] | None:
    """(value, bytes it took), or None while its last byte has not arrived."""
    value = 0
    for used in range(4):
        if at + used >= end:
            return None
        byte = data[at + used]
        value |= (byte & 127) << (7 * used)
        if byte < 128:
            return value, used + 1
    raise Refused("a remaining length of more than four bytes")


def text(value: str) -> bytes:
    """A UTF-8 string with its two bytes of length."""
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def _packet(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + encode_length(len(body)) + body


def connect(version: Version, client_id: str, *, clean: bool, keepalive_s: int = 600, user: str = "") -> bytes:
    """A CONNECT; without `clean` the session outlives the connection in both versions."""
    flags = (0x02 if clean else 0) | (0x80 if user else 0)
    body = text("MQTT") + bytes([version, flags]) + keepalive_s.to_bytes(2, "big")
    if version == 5:
        body += b"\x00" if clean else b"\x05\x11" + EXPIRY_S_LONG.to_bytes(4, "big")
    return _packet(CONNECT, body + text(client_id) + (text(user) if user else b""))


def subscribe(version: Version, packet_id: int, topic_filter: str, qos: QoS, *more: str) -> bytes:
    """A SUBSCRIBE for one filter, or several."""
    properties = b"\x00" if version == 5 else b""
    filters = b"".join(text(each) + bytes([qos]) for each in (topic_filter, *more))
    return _packet(SUBSCRIBE, packet_id.to_bytes(2, "big") + properties + filters)


def read_packet(data: bytes) -> tuple[Packet, bytes] | None:
    """The first whole packet of `data` and the bytes behind it; None while it is not whole."""
    length = decode_length(data, 1, len(data))
    if length is None or len(data) < 1 + length[1] + length[0]:
        return None
    begin, end = 1 + length[1], 1 + length[1] + length[0]
    return Packet(data[0], data[begin:end]), data[end:]


def accepted(version: Version, packet: Packet) -> Accepted:
    """Reads a CONNACK; anything but an acceptance is raised."""
    if packet.kind != CONNACK:
        raise Refused(f"found packet 0x{packet.kind:02x} where a CONNACK was due")
    if packet.body[1] != 0:
        raise Refused(f"CONNACK with code 0x{packet.body[1]:02x}")
    receive_maximum = 65535
    if version == 5:
        receive_maximum = _receive_maximum(packet.body)
    return Accepted(bool(packet.body[0] & 1), receive_maximum)


def _receive_maximum(body: bytes) -> int:
    length = decode_length(body, 2, len(body))
    if length is None:
        raise Refused("a CONNACK that ends before its properties")
    at, found = 2 + length[1], 65535
    end = at + length[0]
    while at < end:
        name = body[at]
        at += 1
        if name == _RECEIVE_MAXIMUM:
            found = int.from_bytes(body[at : at + 2], "big")
        if name in _PROPERTY_BYTES:
            at += _PROPERTY_BYTES[name]
        elif name in _PROPERTY_STRINGS:
            for _ in range(_PROPERTY_STRINGS[name]):
                at += 2 + int.from_bytes(body[at : at + 2], "big")
        else:
            raise Refused(f"CONNACK property 0x{name:02x} does not exist")
    return found


def granted(packet: Packet, wanted: QoS) -> None:
    """Reads a SUBACK for one filter; a code other than the QoS wanted is raised."""
    if packet.kind != SUBACK:
        raise Refused(f"found packet 0x{packet.kind:02x} where a SUBACK was due")
    if packet.body[-1] != wanted:
        raise Refused(f"SUBACK with code 0x{packet.body[-1]:02x} where QoS {wanted} was asked for")
