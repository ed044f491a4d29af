"""The values under data keys: one message, or a batch of messages that one record has of one stream.

Key: static[8] | position u64 BE, of a batch the position of its last message. Values (docs/formats.md, "Generation, layout
record_batch"), little-endian; the first byte is kind and version:

    single  0x11 | crc u32 | message
    batch   0x21 | 0 u8 | 0 u16 | crc u32 | n u32 | length u32 | first position u64 | offset u32[n] | end u32[n] | messages

offset: a message's position above the first one. end: where the message ends in the value. The checksum is zlib's crc32 of the
key and then of the value without the checksum (single: of the message), so that a value under a wrong key is found out too.

A batch is never changed, and holds messages of one stream with no other one of that stream between them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from shards.engine import StoreFailed

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
_BATCH = Struct("<BBHIIIQ")
_OFFSET_MAX = 0xFFFFFFFF

pack_single = _SINGLE.pack
unpack_single = _SINGLE.unpack_from
pack_position = Struct(">Q").pack
unpack_position = Struct(">Q").unpack_from
POSITION_AT = 8


class BadValue(StoreFailed):
    """A stored value that is damaged, is under the wrong key, or is of a kind this program does not know."""


def message_of(key: bytes, value: bytes) -> bytes:
    """The message of a single value."""
    kind, crc = unpack_single(value) if len(value) >= SINGLE_HEADER_BYTES else (0, 0)
    message = value[SINGLE_HEADER_BYTES:]
    if kind != SINGLE or crc32(message, crc32(key)) != crc:
        raise bad_value(key, value)
    return message


def bad_value(key: bytes, value: bytes) -> BadValue:
    """What is wrong with a value that was refused, in a sentence."""
    static, position = key[:8].hex(), unpack_position(key, POSITION_AT)[0]
    kind = value[0] if value else 0
    if kind in (SINGLE, BATCH):
        return BadValue(f"stream {static}, position {position}: the value of {len(value)} bytes is damaged, or belongs to another key")
    return BadValue(
        f"stream {static}, position {position}: a value of kind {kind:#04x} found, this program reads {SINGLE:#04x} and {BATCH:#04x}"
    )


class Batch(NamedTuple):
    """A batch that was checked, with its arrays in place."""

    first: int
    last: int
    offsets: Sequence[int]
    ends: Sequence[int]
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


def encode_batch(static: bytes, messages: Sequence[tuple[int, bytes]]) -> tuple[bytes, bytes]:
    """(key, value) of these messages, in the order of their positions; they must be within the bounds of ``batches``."""
    first = messages[0][0]
    count = len(messages)
    offsets = array("I", [position - first for position, _ in messages])
    end = batch_header_bytes(count)
    ends = array("I")
    for _, message in messages:
        end += len(message)
        ends.append(end)
    body = b"".join((offsets.tobytes(), ends.tobytes(), *[message for _, message in messages]))
    key = static + pack_position(messages[-1][0])
    header = _BATCH.pack(BATCH, 0, 0, 0, count, end, first)
    crc = crc32(body, crc32(header[8:], crc32(header[:4], crc32(key))))
    return key, _BATCH.pack(BATCH, 0, 0, crc, count, end, first) + body


def open_batch(key: bytes, value: bytes) -> Batch:
    """The batch in a value whose kind says that it is one."""
    view = memoryview(value)
    if len(value) < _BATCH.size:
        raise bad_value(key, value)
    _, _, _, crc, count, length, first = _BATCH.unpack_from(value)
    at = batch_header_bytes(count)
    if length != len(value) or count < 1 or at > length or crc32(view[8:], crc32(view[:4], crc32(key))) != crc:
        raise bad_value(key, value)
    offsets = view[_BATCH.size : _BATCH.size + 4 * count].cast("I")
    ends = view[_BATCH.size + 4 * count : at].cast("I")
    last = first + offsets[-1]
    if last != unpack_position(key, POSITION_AT)[0] or ends[-1] != length:
        raise bad_value(key, value)
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
