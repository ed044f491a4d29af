"""The property block of a stored MQTT 5 publish, as far as columns are made of it.

Only for rows that have properties at all: one Python call each. The broker has checked what it stored; here anything that cannot be
followed is DamagedValue, and nothing is guessed. Subscription identifiers and topic aliases belong to a connection and are passed over.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class DamagedValue(Exception):
    """What is stored cannot be read: the sentence says where it stops making sense."""


class Properties(NamedTuple):
    """Of one publish; None where the property is not there. Strings are UTF-8 as stored."""

    expiry_s: int | None
    content_type: bytes | None
    response_topic: bytes | None
    correlation_data: bytes | None
    payload_format: int | None
    user: tuple[tuple[bytes, bytes], ...] | None
    """In the order of the publish, repeats and all."""


NONE: Final = Properties(None, None, None, None, None, None)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends) of a Variable Byte Integer."""
    value = 0
    for index in range(4):
        if at + index >= len(data):
            break
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise DamagedValue(f"a variable byte integer at byte {at} of {len(data)} has no end")


def parse(block: bytes) -> Properties:
    """``block``: the properties alone, without their length."""
    expiry: int | None = None
    content_type: bytes | None = None
    response_topic: bytes | None = None
    correlation: bytes | None = None
    payload_format: int | None = None
    user: list[tuple[bytes, bytes]] = []
    at = 0
    while at < len(block):
        which = block[at]
        at += 1
        match which:
            case 0x01:
                payload_format = _number(block, at, 1)
                at += 1
            case 0x02:
                expiry = _number(block, at, 4)
                at += 4
            case 0x03:
                content_type, at = _binary(block, at)
            case 0x08:
                response_topic, at = _binary(block, at)
            case 0x09:
                correlation, at = _binary(block, at)
            case 0x0B:
                _, at = varint(block, at)
            case 0x23:
                _number(block, at, 2)
                at += 2
            case 0x26:
                key, at = _binary(block, at)
                value, at = _binary(block, at)
                user.append((key, value))
            case _:
                raise DamagedValue(f"property 0x{which:02x} at byte {at - 1} of {len(block)}; a publish has none of this number")
    return Properties(expiry, content_type, response_topic, correlation, payload_format, tuple(user) or None)


def _number(block: bytes, at: int, size: int) -> int:
    if at + size > len(block):
        raise DamagedValue(f"a property at byte {at} ends behind its block of {len(block)} bytes")
    return int.from_bytes(block[at : at + size], "big")


def _binary(block: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + _number(block, at, 2)
    if end > len(block):
        raise DamagedValue(f"a property at byte {at} ends behind its block of {len(block)} bytes")
    return block[at + 2 : end], end
