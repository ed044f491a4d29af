"""Messages as keys and values: one by one, or a batch of messages that one record has of one stream.

Formats (docs/formats.md, "Generation, layout record_batch"); numbers in keys big-endian, in values little-endian:

    varying levels   static[8] | position u64                      -> 0x11 | crc u32 | message
    none             static[8] | position u64 | 0x11 | crc u32     -> message
                     static[8] | last position u64 | 0x21 | crc u32
                     -> n u32 | length u32 | first position u64 | offset u32[n] | end u32[n] | messages

offset: a message's position above the first one. end: where the message ends in the value. 0x11 and 0x21 are kind and version.
Messages of a stream with varying levels are looked up by position, so nothing may follow it in their keys. All others are only
scanned, and with the checksum in the key the value is the message as it came, which need not be copied.

The checksum is zlib's crc32 of the value (of the message, where it is in the value), begun with a number made of static key and
position (``begun``), so that a value under a wrong key is found out, too.

A batch is never changed, and holds messages of one stream with no other one of that stream between them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from shards.engine import StoreDamaged

# Arrays in values are read in place, in the byte order of the machine; all that this program runs on have this one.
assert sys.byteorder == "little", "stored arrays are little-endian"

SINGLE = 0x11
BATCH = 0x21

BATCH_MESSAGES_MIN = 16
"""Fewer are cheaper as single values, to write and to read."""
BATCH_MESSAGES_MAX = 64
"""More gain little and make every small read pay for the whole."""
BATCH_BYTES_MAX = 64 << 10

_SINGLE = Struct("<BI")
SINGLE_HEADER_BYTES = _SINGLE.size
_BATCH = Struct("<IIQ")
_OFFSET_MAX = 0xFFFFFFFF

PRIME = 4_294_967_291
"""The largest below 2**32: no flipped bit of a position leaves its rest by this as it was."""

pack_single = _SINGLE.pack
_unpack_single = _SINGLE.unpack_from
pack_position = Struct(">Q").pack
unpack_position = Struct(">Q").unpack_from
POSITION_AT = 8
pack_tail = Struct(">QBI").pack
"""(position, kind, checksum): what follows the static key where no level varies."""
unpack_tail = Struct(">QBI").unpack_from
_VARYING_KEY_BYTES = 16
KIND_AT = 16
KEY_BYTES = 21


class BadValue(StoreDamaged):
    """A stored value that is damaged, is under the wrong key, or is of a kind this program does not know."""


def begun(static: bytes, position: int) -> int:
    """What the checksum of a value under this key begins with."""
    return crc32(static) ^ position % PRIME


def messages_of(static: bytes, found: Iterable[tuple[bytes, bytes]]) -> list[tuple[int, bytes]]:
    """(position, message) of single values of a stream with varying levels, given by key and value."""
    messages = []
    start = crc32(static)
    for key, value in found:
        if len(value) < SINGLE_HEADER_BYTES or len(key) != _VARYING_KEY_BYTES:
            raise damaged(key, value)
        kind, crc = _unpack_single(value)
        if kind != SINGLE:
            raise unknown(key, value[:1])
        position: int = unpack_position(key, POSITION_AT)[0]
        message = value[SINGLE_HEADER_BYTES:]
        if crc32(message, start ^ position % PRIME) != crc:
            raise damaged(key, value)
        messages.append((position, message))
    return messages


def check_single(key: bytes, value: bytes) -> None:
    """Raise unless this is an undamaged single message of either form."""
    if len(key) < KEY_BYTES:
        messages_of(key[:POSITION_AT], [(key, value)])
        return
    position, kind, crc = unpack_tail(key, POSITION_AT)
    if kind != SINGLE:
        raise unknown(key, key[KIND_AT : KIND_AT + 1])
    if crc32(value, begun(key[:POSITION_AT], position)) != crc:
        raise damaged(key, value)


def unknown(key: bytes, kind: bytes) -> BadValue:
    return BadValue(f"{_where(key)}: a value of kind 0x{kind.hex()} found, this program reads {SINGLE:#04x} and {BATCH:#04x}")


def damaged(key: bytes, value: bytes) -> BadValue:
    return BadValue(f"{_where(key)}: the value of {len(value)} bytes is damaged, or belongs to another key")


def _where(key: bytes) -> str:
    return f"stream {key[:POSITION_AT].hex()}, position {int.from_bytes(key[POSITION_AT : POSITION_AT + 8], 'big')}"


class Batch(NamedTuple):
    """A batch that was checked, with its arrays in place."""

    first: int
    last: int
    offsets: memoryview
    ends: memoryview
    value: bytes

    def index_after(self, position: int) -> int:
        """How many of its messages have a position up to this one."""
        return bisect_right(self.offsets, position - self.first)

    def size(self, start: int, stop: int) -> int:
        """Bytes of its messages from index start to before stop; there is at least one."""
        return self.ends[stop - 1] - (self.ends[start - 1] if start else batch_header_bytes(len(self.offsets)))

    def messages(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        """(position, message) of its messages from index start to before stop."""
        first, value = self.first, self.value
        ends = list(self.ends[start:stop])
        begins = [self.ends[start - 1] if start else batch_header_bytes(len(self.offsets)), *ends]
        return [(first + offset, value[begin:end]) for offset, begin, end in zip(self.offsets[start:stop], begins, ends, strict=False)]


def batch_header_bytes(count: int) -> int:
    return _BATCH.size + 8 * count


def encode_single(static: bytes, position: int, message: bytes) -> tuple[bytes, bytes]:
    """(key, value) of a message of a stream without varying levels."""
    return static + pack_tail(position, SINGLE, crc32(message, begun(static, position))), message


def encode_batch(static: bytes, messages: Sequence[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    """(key, value) of these messages, in the order of their positions; they must be within the bounds of ``batches``."""
    first, last = messages[0][0], messages[-1][0]
    count = len(messages)
    offsets = array("I", [position - first for position, _ in messages])
    end = batch_header_bytes(count)
    ends = array("I")
    for _, message in messages:
        end += len(message)
        ends.append(end)
    header = _BATCH.pack(count, end, first)
    value = b"".join((header, offsets.tobytes(), ends.tobytes(), *[message for _, message in messages]))
    return static + pack_tail(last, BATCH, crc32(value, begun(static, last))), value


def open_batch(key: bytes, value: bytes) -> Batch:
    """The batch under a key whose kind says that it is one."""
    last, _, crc = unpack_tail(key, POSITION_AT)
    if len(value) < _BATCH.size or crc32(value, begun(key[:POSITION_AT], last)) != crc:
        raise damaged(key, value)
    count, length, first = _BATCH.unpack_from(value)
    at = batch_header_bytes(count)
    if length != len(value) or count < 1 or at > length:
        raise damaged(key, value)
    view = memoryview(value)
    offsets = view[_BATCH.size : _BATCH.size + 4 * count].cast("I")
    ends = view[_BATCH.size + 4 * count : at].cast("I")
    if first + offsets[-1] != last or ends[-1] != length:
        raise damaged(key, value)
    return Batch(first, last, offsets, ends, value)


def batches(messages: Sequence[tuple[int, bytes]]) -> list[Sequence[tuple[int, bytes]]]:
    """The messages that one record has of one stream, cut into what becomes one value each: batches, and single ones that are
    too few or too large to be a batch."""
    found: list[Sequence[tuple[int, bytes]]] = []
    at = 0
    while at < len(messages):
        first = messages[at][0]
        size = stop = 0
        for stop, (position, message) in enumerate(islice(messages, at, at + BATCH_MESSAGES_MAX), at + 1):
            size += len(message)
            if size > BATCH_BYTES_MAX or position - first > _OFFSET_MAX:
                stop -= 1
                break
        if stop - at < BATCH_MESSAGES_MIN:
            stop = max(stop, at + 1)
            found.extend(messages[index : index + 1] for index in range(at, stop))
        else:
            found.append(messages[at:stop])
        at = stop
    return found
