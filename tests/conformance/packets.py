"""Packets as bytes, right or wrong, and what the packets of a server say; for 3.1, 3.1.1 and 5.

Written from the specifications and independent of the broker's own codec, like tests.broker.wire, whose framing it shares.
Builders check nothing: a statement about bad packets needs bad packets.  Readers believe nothing: a reserved bit that is
set or a property that has no place in its packet is an assertion.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.broker import wire
from tests.broker.wire import Packet, packet, text, varint

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15

PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA = 0x01, 0x02, 0x03, 0x08, 0x09
SUBSCRIPTION_IDENTIFIER, SESSION_EXPIRY, ASSIGNED_CLIENT, SERVER_KEEP_ALIVE = 0x0B, 0x11, 0x12, 0x13
AUTH_METHOD, AUTH_DATA, REQUEST_PROBLEM, WILL_DELAY, REQUEST_RESPONSE = 0x15, 0x16, 0x17, 0x18, 0x19
RESPONSE_INFORMATION, SERVER_REFERENCE, REASON_STRING, RECEIVE_MAXIMUM = 0x1A, 0x1C, 0x1F, 0x21
ALIAS_MAXIMUM, TOPIC_ALIAS, MAXIMUM_QOS, RETAIN_AVAILABLE, USER_PROPERTY = 0x22, 0x23, 0x24, 0x25, 0x26
MAXIMUM_PACKET_SIZE, WILDCARDS_AVAILABLE, IDENTIFIERS_AVAILABLE, SHARED_AVAILABLE = 0x27, 0x28, 0x29, 0x2A

Value = int | str | bytes | tuple[str, str]
Properties = Sequence[tuple[int, Value]]

_WIDTHS = {
    **dict.fromkeys((PAYLOAD_FORMAT, REQUEST_PROBLEM, REQUEST_RESPONSE, MAXIMUM_QOS, RETAIN_AVAILABLE), 1),
    **dict.fromkeys((WILDCARDS_AVAILABLE, IDENTIFIERS_AVAILABLE, SHARED_AVAILABLE), 1),
    **dict.fromkeys((SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, TOPIC_ALIAS), 2),
    **dict.fromkeys((MESSAGE_EXPIRY, SESSION_EXPIRY, WILL_DELAY, MAXIMUM_PACKET_SIZE), 4),
}
_BINARY = (CORRELATION_DATA, AUTH_DATA)

# What a server may put where (MQTT 5, table 2-4).
_ANSWER = {REASON_STRING, USER_PROPERTY}
MAY_CARRY = {
    CONNACK: {
        *(SESSION_EXPIRY, ASSIGNED_CLIENT, SERVER_KEEP_ALIVE, AUTH_METHOD, AUTH_DATA, RESPONSE_INFORMATION, SERVER_REFERENCE),
        *(REASON_STRING, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, MAXIMUM_QOS, RETAIN_AVAILABLE, USER_PROPERTY, MAXIMUM_PACKET_SIZE),
        *(WILDCARDS_AVAILABLE, IDENTIFIERS_AVAILABLE, SHARED_AVAILABLE),
    },
    PUBLISH: {
        *(PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION_DATA, SUBSCRIPTION_IDENTIFIER),
        *(TOPIC_ALIAS, USER_PROPERTY),
    },
    **dict.fromkeys((PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK), _ANSWER),
    DISCONNECT: {*_ANSWER, SERVER_REFERENCE},
    AUTH: {*_ANSWER, AUTH_METHOD, AUTH_DATA},
}
_PUBLISHED = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
CODES = {
    CONNACK: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    PUBACK: _PUBLISHED,
    PUBREC: _PUBLISHED,
    PUBREL: {0x00, 0x92},
    PUBCOMP: {0x00, 0x92},
    SUBACK: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    UNSUBACK: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    PINGRESP: {0},
    DISCONNECT: {
        *(0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99),
        *(0x9A, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F, 0xA0, 0xA1, 0xA2),
    },
    AUTH: {0x00, 0x18},
}
"""What a server of MQTT 5 may answer."""
CODES_3_1_1 = {CONNACK: set(range(6)), SUBACK: {0, 1, 2, 0x80}}
_MANY = {USER_PROPERTY, SUBSCRIPTION_IDENTIFIER}

USER, PASSWORD = "name", b"\0word"
"""Who has a password at the broker of these tests."""


# ---------------------------------------------------------------------------------------------- to the server
def number(value: int) -> bytes:
    return struct.pack(">H", value)


def binary(value: bytes) -> bytes:
    return number(len(value)) + value


def properties(rows: Properties) -> bytes:
    """A property block behind its length."""
    block = b"".join(bytes([key]) + _value(key, value) for key, value in rows)
    return varint(len(block)) + block


def _value(key: int, value: Value) -> bytes:
    match value:
        case int():
            return varint(value) if key == SUBSCRIPTION_IDENTIFIER else value.to_bytes(_WIDTHS[key], "big")
        case str():
            return text(value)
        case bytes():
            return binary(value)
        case (name, content):
            return text(name) + text(content)


@dataclass(frozen=True, slots=True)
class Will:
    topic: str
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


def connect(
    version: int,
    client: str,
    *,
    clean: bool = True,
    keep_alive: int = 0,
    properties_: Properties = (),
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
) -> bytes:
    flags = clean << 1 | (username is not None) << 7 | (password is not None) << 6
    payload = text(client)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        payload += (properties(will.properties) if version == 5 else b"") + text(will.topic) + binary(will.payload)
    payload += text(username) if username is not None else b""
    payload += binary(password) if password is not None else b""
    return raw_connect(version, flags, payload, keep_alive=keep_alive, block=properties(properties_))


def raw_connect(
    version: int, flags: int, payload: bytes, *, keep_alive: int = 0, block: bytes = b"\0", name: bytes = b"MQTT", level: int | None = None
) -> bytes:
    """A CONNECT with these flags and this payload, whether they fit or not."""
    head = binary(name) + bytes([version if level is None else level, flags]) + number(keep_alive)
    return packet(0x10, head + (block if version == 5 else b"") + payload)


def publish(
    version: int,
    topic: str | bytes,
    payload: bytes = b"m",
    qos: int = 0,
    packet_id: int = 0,
    *,
    dup: bool = False,
    retain: bool = False,
    properties_: Properties = (),
) -> bytes:
    name = topic.encode() if isinstance(topic, str) else topic
    body = binary(name) + (number(packet_id) if qos else b"") + (properties(properties_) if version == 5 else b"") + payload
    return packet(0x30 | dup << 3 | qos << 1 | retain, body)


def subscribe(version: int, packet_id: int, *rows: tuple[str, int], properties_: Properties = (), flags: int = 2) -> bytes:
    """Rows of (filter, options)."""
    body = number(packet_id) + (properties(properties_) if version == 5 else b"")
    return packet(0x80 | flags, body + b"".join(text(name) + bytes([options]) for name, options in rows))


def unsubscribe(version: int, packet_id: int, *filters: str, flags: int = 2) -> bytes:
    body = number(packet_id) + (b"\0" if version == 5 else b"")
    return packet(0xA0 | flags, body + b"".join(text(name) for name in filters))


def ack(kind: int, packet_id: int, reason: int = 0, properties_: Properties = ()) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, in its shortest form."""
    rest = properties(properties_) if properties_ else b""
    rest = bytes([reason]) + rest if reason or rest else b""
    return packet(kind << 4 | (2 if kind == PUBREL else 0), number(packet_id) + rest)


def disconnect(version: int = 4, reason: int = 0, properties_: Properties = ()) -> bytes:
    if version != 5 or (not reason and not properties_):
        return b"\xe0\x00"
    return packet(0xE0, bytes([reason]) + properties(properties_))


def auth(reason: int, properties_: Properties = ()) -> bytes:
    return packet(0xF0, bytes([reason]) + properties(properties_))


# ---------------------------------------------------------------------------------------------- from the server
@dataclass(frozen=True, slots=True)
class Answer:
    """CONNACK, an acknowledgement, SUBACK, UNSUBACK, PINGRESP, DISCONNECT or AUTH.

    flags: those of a CONNACK; codes: those of SUBACK and UNSUBACK."""

    kind: int
    packet_id: int = 0
    code: int = 0
    flags: int = 0
    codes: bytes = b""
    properties: tuple[tuple[int, Value], ...] = ()
    size: int = 0

    def get(self, key: int) -> Value | None:
        return dict(self.properties).get(key)


@dataclass(frozen=True, slots=True)
class Message:
    topic: str
    payload: bytes
    qos: int
    packet_id: int
    dup: bool
    retain: bool
    properties: tuple[tuple[int, Value], ...] = ()
    size: int = 0

    def get(self, key: int) -> Value | None:
        return dict(self.properties).get(key)

    def all(self, key: int) -> list[Value]:
        return [value for found, value in self.properties if found == key]


def read(version: int, came: Packet) -> Answer | Message:
    """A packet of the server, all of whose bytes have to mean something, and whose codes have to be of its table."""
    size = 1 + len(varint(len(came.body))) + len(came.body)
    if came.kind == PUBLISH:
        return _message(version, came, size)
    assert came.flags == (2 if came.kind == PUBREL else 0), f"{came}: flags of the fixed header"
    answer = _answer(version, came, size)
    table = CODES[came.kind] if version == 5 else CODES_3_1_1.get(came.kind, {0})
    assert {answer.code, *answer.codes} - ({0} if answer.codes else set()) <= table, f"{answer}: codes"
    return answer


def _answer(version: int, came: Packet, size: int) -> Answer:
    kind, body = came.kind, came.body
    if kind == PINGRESP:
        assert not body
        return Answer(kind, size=size)
    if kind == CONNACK:
        assert not body[0] & 0xFE and (version == 5 or len(body) == 2), f"{came}"
        rows = _properties(kind, body, 2) if version == 5 else ()
        return Answer(kind, 0, body[1], body[0], properties=rows, size=size)
    if kind in (DISCONNECT, AUTH):
        assert version == 5, f"{came} in version {version}"
        return Answer(kind, 0, body[0] if body else 0, properties=_properties(kind, body, 1) if len(body) > 1 else (), size=size)
    packet_id = int.from_bytes(body[:2], "big")
    assert packet_id, f"{came}: packet identifier 0"
    if kind in (SUBACK, UNSUBACK):
        at, rows = 2, ()
        if version == 5:
            length, start = _varint(body, 2)
            at = start + length
            rows = _properties(kind, body[:at], 2)
        assert version == 5 or kind == SUBACK or not body[2:]
        return Answer(kind, packet_id, codes=body[at:], properties=rows, size=size)
    assert kind in (PUBACK, PUBREC, PUBREL, PUBCOMP), f"{came}"
    assert version == 5 or len(body) == 2, f"{came}: a reason code before MQTT 5"
    return Answer(
        kind, packet_id, body[2] if len(body) > 2 else 0, properties=_properties(kind, body, 3) if len(body) > 3 else (), size=size
    )


def _message(version: int, came: Packet, size: int) -> Message:
    body, qos = came.body, came.flags >> 1 & 3
    assert qos < 3, f"{came}"
    at = 2 + int.from_bytes(body[:2], "big")
    topic = body[2:at].decode()
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(body[at : at + 2], "big")
        assert packet_id, f"{came}: packet identifier 0"
        at += 2
    rows: tuple[tuple[int, Value], ...] = ()
    if version == 5:
        length, start = _varint(body, at)
        rows, at = _properties(PUBLISH, body[: start + length], at), start + length
    return Message(topic, body[at:], qos, packet_id, bool(came.flags & 8), bool(came.flags & 1), rows, size)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(4):
        byte = body[at + index]
        value |= (byte & 127) << 7 * index
        if byte < 128:
            assert byte or not index, "a variable byte integer of more bytes than it needs"
            return value, at + index + 1
    raise AssertionError("a variable byte integer of more than four bytes")


def _properties(kind: int, body: bytes, at: int) -> tuple[tuple[int, Value], ...]:
    """The block that begins at `at` and has to end with the body."""
    length, at = _varint(body, at)
    assert at + length == len(body), f"property length {length}, {len(body) - at} bytes left"
    rows: list[tuple[int, Value]] = []
    while at < len(body):
        key = body[at]
        assert key in MAY_CARRY[kind], f"property {key:#04x} in a packet of kind {kind}"
        assert key in _MANY or key not in dict(rows), f"property {key:#04x} twice"
        value, at = _read_value(key, body, at + 1)
        rows.append((key, value))
    return tuple(rows)


def _read_value(key: int, body: bytes, at: int) -> tuple[Value, int]:
    if key == SUBSCRIPTION_IDENTIFIER:
        return _varint(body, at)
    if width := _WIDTHS.get(key, 0):
        return int.from_bytes(body[at : at + width], "big"), at + width
    first, at = _read_binary(body, at)
    if key in _BINARY:
        return first, at
    if key != USER_PROPERTY:
        return first.decode(), at
    second, at = _read_binary(body, at)
    return (first.decode(), second.decode()), at


def _read_binary(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    assert end <= len(body)
    return body[at + 2 : end], end


Reader = wire.Reader
