"""The stored form of a message, ``property length + properties + payload``, and its surgery.

Bodies come from our own decoder or ``make_body``: they have at least the byte of the length, their
property blocks are valid and hold no topic alias; a damaged one is a ``ProtocolError`` all the same.
 Everything here works on the bytes; nothing builds a ``Properties`` unless asked.
The common body, without properties, begins with a zero byte and is answered by one test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from mqtt.packets import NO_PROPERTIES, Properties
from mqtt.properties import (
    KIND_OF,
    MESSAGE_EXPIRY_INTERVAL,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    Kind,
    Place,
    encode_properties,
    read_properties,
)
from mqtt.reason import malformed
from mqtt.wire import read_u16, read_varint, varint

# Where blocks whose length is one byte, and less than this, have the expiry.  A memory only, emptied when it is full.
_EXPIRY_AT: Final[dict[bytes, int]] = {}
_BLOCKS_MAX: Final = 4_096
_SHORT: Final = 0x80

_first_byte = itemgetter(0)


def make_body(properties: Properties, payload: bytes) -> bytes:
    """The stored form of a message; topic alias and subscription identifiers are left out.

    Serves wills too: the will delay belongs to the will, not to the message, and is left out.
    """
    kept = replace(properties, topic_alias=None, subscription_identifiers=(), will_delay_interval=None)
    return encode_properties(kept, Place.PUBLISH) + payload


def properties_of(body: bytes) -> Properties:
    if body[0] == 0:
        return NO_PROPERTIES
    return read_properties(body, 0, len(body), Place.PUBLISH)[0]


def strip_properties(body: bytes) -> bytes:
    """The payload: what a 3.1.1 client gets."""
    if body[0] == 0:
        return body[1:]
    return body[_block(body)[1] :]


def payload_bytes(body: bytes) -> int:
    return len(body) - 1 if body[0] == 0 else len(body) - _block(body)[1]


def common_block(bodies: Sequence[bytes]) -> bytes:
    """The properties that all of these begin with, with their length; empty where they differ, or take more than one byte to say that."""
    size = bodies[0][0]
    if not size:
        return b"" if any(map(_first_byte, bodies)) else b"\0"
    block = bodies[0][: size + 1]
    return block if size < _SHORT and all(body.startswith(block) for body in bodies) else b""


def message_expiry(body: bytes) -> int | None:
    """The message expiry interval in seconds, or None for a message that does not expire."""
    if body[0] == 0:
        return None
    at = _expiry_at(body)
    return int.from_bytes(body[at : at + 4], "big") if at else None


def with_message_expiry(body: bytes, seconds: int) -> bytes:
    """``body`` with its expiry interval set to ``seconds`` (what is left of it [MQTT-3.3.2-6])."""
    value = seconds.to_bytes(4, "big")
    at = _expiry_at(body) if body[0] else 0
    return body[:at] + value + body[at + 4 :] if at else _insert(body, bytes((MESSAGE_EXPIRY_INTERVAL,)) + value)


def _expiry_at(body: bytes) -> int:
    """Where the value stands; 0: there is none."""
    block = body[: body[0] + 1] if body[0] < _SHORT else b""
    at = _EXPIRY_AT.get(block)
    if at is None:
        at = next((start + 1 for identifier, start, _ in walk(body) if identifier == MESSAGE_EXPIRY_INTERVAL), 0)
        if block:
            if len(_EXPIRY_AT) >= _BLOCKS_MAX:
                _EXPIRY_AT.clear()
            _EXPIRY_AT[block] = at
    return at


def with_subscription_ids(body: bytes, ids: Sequence[int]) -> bytes:
    """``body`` with the identifiers of the subscriptions that matched [MQTT-3.3.4-3]."""
    if not ids:
        return body
    mark = bytes((SUBSCRIPTION_IDENTIFIER,))
    return _insert(body, b"".join([mark + varint(identifier) for identifier in ids]))


def with_user_property(body: bytes, name: bytes, value: bytes) -> bytes:
    """``body`` with one more user property, before those it has."""
    lengths = len(name).to_bytes(2, "big"), len(value).to_bytes(2, "big")
    return _insert(body, b"".join((bytes((USER_PROPERTY,)), lengths[0], name, lengths[1], value)))


def with_topic_alias(body: bytes, alias: int) -> bytes:
    """``body`` as it goes to one connection, which knows its topic by this number."""
    return _insert(body, b"%c%c%c" % (TOPIC_ALIAS, alias >> 8, alias & 0xFF))


def without_property(body: bytes, unwanted: int) -> bytes:
    """``body`` less every property with the identifier ``unwanted``."""
    kept = b"".join([body[begin:end] for identifier, begin, end in walk(body) if identifier != unwanted])
    return varint(len(kept)) + kept + strip_properties(body)


def _insert(body: bytes, encoded: bytes) -> bytes:
    start, stop = _block(body)
    return varint(stop - start + len(encoded)) + encoded + body[start:]


def _block(body: bytes) -> tuple[int, int]:
    """Where the properties start and where they stop."""
    length, start = read_varint(body, 0, len(body), "property length")
    if start + length > len(body):
        raise malformed(f"stored body: property length {length} with {len(body) - start} bytes left")
    return start, start + length


def walk(body: bytes) -> Iterator[tuple[int, int, int]]:
    """(identifier, start, end) of each property in turn; ``start`` is where its identifier stands."""
    pos, stop = _block(body)
    while pos < stop:
        start = pos
        kind = KIND_OF.get(body[pos])
        pos += 1
        match kind:
            case Kind.U8 | Kind.U16 | Kind.U32:
                pos += kind.value
            case Kind.VARINT:
                _, pos = read_varint(body, pos, stop, "property")
            case Kind.STRING | Kind.BINARY:
                size, pos = read_u16(body, pos, stop, "property")
                pos += size
            case Kind.PAIR:
                for _ in range(2):
                    size, pos = read_u16(body, pos, stop, "property")
                    pos += size
            case None:
                raise malformed(f"stored body: unknown property 0x{body[start]:02x}")
        if pos > stop:
            raise malformed(f"stored body: property 0x{body[start]:02x} reaches over the end of its block")
        yield body[start], start, pos
