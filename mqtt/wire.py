"""The data types of MQTT on the wire: integers, variable byte integers, strings, binary data.

Readers take ``(data, pos, end)`` and return ``(value, next pos)``; ``end`` is the end of the
packet or of the property block, never read past.  What always holds: a reader returns
``next pos <= end`` or raises a ``ProtocolError``; it lets no other exception out.
"""

from __future__ import annotations

from typing import Final

from mqtt.reason import malformed

VARINT_MAX: Final = 268_435_455
STRING_BYTES_MAX: Final = 65_535


def read_u8(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    if pos + 1 > end:
        raise malformed(f"{what}: packet ends where one byte was wanted")
    return data[pos], pos + 1


def read_u16(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    if pos + 2 > end:
        raise malformed(f"{what}: packet ends where two bytes were wanted")
    return data[pos] << 8 | data[pos + 1], pos + 2


def read_u32(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    if pos + 4 > end:
        raise malformed(f"{what}: packet ends where four bytes were wanted")
    return int.from_bytes(data[pos : pos + 4], "big"), pos + 4


def read_varint(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    """A variable byte integer in its shortest form; longer forms are malformed [MQTT-1.5.5-1]."""
    value = 0
    for index in range(4):
        if pos + index >= end:
            raise malformed(f"{what}: packet ends inside a variable byte integer")
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index:
                raise malformed(f"{what}: variable byte integer {value} takes {index + 1} bytes, more than it needs")
            return value, pos + index + 1
    raise malformed(f"{what}: variable byte integer of more than four bytes")


def read_binary(data: bytes, pos: int, end: int, what: str) -> tuple[bytes, int]:
    length, pos = read_u16(data, pos, end, what)
    if pos + length > end:
        raise malformed(f"{what}: length {length} with {end - pos} bytes left in the packet")
    return data[pos : pos + length], pos + length


def read_utf8(data: bytes, pos: int, end: int, what: str) -> tuple[bytes, int]:
    """A UTF-8 string kept as its bytes, checked: no surrogates, no overlong forms, no U+0000."""
    raw, pos = read_binary(data, pos, end, what)
    check_utf8(raw, what)
    return raw, pos


def read_string(data: bytes, pos: int, end: int, what: str) -> tuple[str, int]:
    raw, pos = read_binary(data, pos, end, what)
    return check_utf8(raw, what), pos


def check_utf8(raw: bytes, what: str) -> str:
    """Decode ``raw``, refusing ill-formed UTF-8 [MQTT-1.5.4-1] and U+0000 [MQTT-1.5.4-2]."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"{what}: not UTF-8 at byte {error.start}") from None
    if "\0" in text:
        raise malformed(f"{what}: holds U+0000")
    return text


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Remaining lengths and property lengths are nearly always small: a table is faster than a loop.
_SMALL_VARINTS: Final = tuple(_varint(value) for value in range(16_384))


def varint(value: int) -> bytes:
    """``value`` as a variable byte integer."""
    if 0 <= value < 16_384:
        return _SMALL_VARINTS[value]
    if not 0 <= value <= VARINT_MAX:
        raise ValueError(f"{value} does not fit a variable byte integer, 0 to {VARINT_MAX}")
    return _varint(value)


def binary(value: bytes) -> bytes:
    """``value`` behind its two-byte length."""
    if len(value) > STRING_BYTES_MAX:
        raise ValueError(f"{len(value)} bytes do not fit a two-byte length, at most {STRING_BYTES_MAX}")
    return len(value).to_bytes(2, "big") + value


def string(value: str) -> bytes:
    return binary(value.encode())
