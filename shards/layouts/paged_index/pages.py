"""The rows of the deferred index: pages of (hash, position) in sorted segments, and one state row for each stream.

They are in the family of the index. All keys begin with seven zero bytes, so they lie apart from all messages in generations that were
begun before there were such families, and have them in their own. Keys big-endian, values little-endian (docs/formats.md, "Generation,
layout record_batch"):

    state   0[7] 02 | static[8]
            -> 0x41 | levels u8 | 0 u16 | crc u32 | covered u64 | next segment u32 | s u16 | g u16 | segment[s] | garbage u32[g]
               segment: number u32 | entries u32 | last position u64
    page    0[7] 03 | static[8] | level u16 | segment u32 | hash u64 | position u64, both of the page's last entry
            -> 0x31 | 0 u8 | n u16 | crc u32 | hash u64[n] | position u64[n]

Within a segment the entries are sorted by (hash, position), over all of its pages; so a seek to (hash, position) lands in the
page in which that entry is, or would be. The segments of a stream follow each other in position: all entries of one are below
all entries of the next. The checksum is as with messages: crc32 of the key, then of the value without the checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from shards.engine import StoreDamaged
from shards.lts import RESERVED_PREFIX

STATE_PREFIX = RESERVED_PREFIX + b"\x02"
STATES_END = PAGE_PREFIX = RESERVED_PREFIX + b"\x03"
PAGE_ENTRIES_MAX = 256
SEGMENT_END = b"\xff" * 17
"""Behind a segment's prefix: higher than every entry."""

_PAGE = 0x31
_STATE = 0x41
_PAGE_HEADER = Struct("<BBHI")
_STATE_HEADER = Struct("<BBHIQIHH")
_SEGMENT = Struct("<IIQ")
_segment_prefix = Struct(">HI").pack
_level_prefix = Struct(">H").pack
_entry = Struct(">QQ").pack
_number_of = Struct(">I").unpack_from
_NUMBER_AT = 18


class BadIndex(StoreDamaged):
    """A row of the index that is damaged or of a version this program does not know."""


class Segment(NamedTuple):
    """A sorted part of a stream's index on disk. ``last``: it covers the stream up to this position, from the one before on."""

    number: int
    entries: int
    last: int


class IndexState(NamedTuple):
    """What is on disk of a stream's index. ``garbage``: numbers of segments that are folded into others and to be deleted."""

    covered: int
    next_number: int
    segments: tuple[Segment, ...]
    garbage: tuple[int, ...]


NO_INDEX = IndexState(0, 0, (), ())


class Page(NamedTuple):
    hashes: Sequence[int]
    positions: Sequence[int]


def state_key(static: bytes) -> bytes:
    return STATE_PREFIX + static


def encode_state(key: bytes, levels: int, state: IndexState) -> bytes:
    def header(crc: int) -> bytes:
        return _STATE_HEADER.pack(_STATE, levels, 0, crc, state.covered, state.next_number, len(state.segments), len(state.garbage))

    body = b"".join([_SEGMENT.pack(*segment) for segment in state.segments] + [number.to_bytes(4, "little") for number in state.garbage])
    return header(_crc(key, header(0) + body)) + body


def decode_state(key: bytes, value: bytes, levels: int) -> IndexState:
    if len(value) < _STATE_HEADER.size or value[0] != _STATE:
        raise BadIndex(f"index state {key.hex()} begins with {value[:1].hex()}, {_STATE:#04x} is what this program reads")
    _, found, _, crc, covered, next_number, segments, garbage = _STATE_HEADER.unpack_from(value)
    at = _STATE_HEADER.size
    end = at + _SEGMENT.size * segments
    if len(value) != end + 4 * garbage or crc != _crc(key, value) or found != levels:
        raise BadIndex(f"index state {key.hex()} of {len(value)} bytes is damaged")
    return IndexState(
        covered,
        next_number,
        tuple(Segment(*_SEGMENT.unpack_from(value, offset)) for offset in range(at, end, _SEGMENT.size)),
        tuple(int.from_bytes(value[offset : offset + 4], "little") for offset in range(end, len(value), 4)),
    )


def level_prefix(static: bytes, level: int) -> bytes:
    return PAGE_PREFIX + static + _level_prefix(level)


def segment_prefix(static: bytes, level: int, number: int) -> bytes:
    return PAGE_PREFIX + static + _segment_prefix(level, number)


def entry_of(hashed: int, position: int) -> bytes:
    """What a page's key ends with, behind its segment's prefix."""
    return _entry(hashed, position)


def segment_number(key: bytes) -> int:
    number: int = _number_of(key, _NUMBER_AT)[0]
    return number


def encode_page(prefix: bytes, hashes: bytes, positions: bytes) -> tuple[bytes, bytes]:
    """(key, value) of a page; both arrays as little-endian u64, of the same length."""
    key = prefix + hashes[:-9:-1] + positions[:-9:-1]
    count = len(hashes) // 8
    crc = crc32(positions, crc32(hashes, crc32(_PAGE_HEADER.pack(_PAGE, 0, count, 0)[:4], crc32(key))))
    return key, b"".join((_PAGE_HEADER.pack(_PAGE, 0, count, crc), hashes, positions))


def decode_page(key: bytes, value: bytes) -> Page:
    if len(value) < _PAGE_HEADER.size or value[0] != _PAGE:
        raise BadIndex(f"index page {key.hex()} begins with {value[:1].hex()}, {_PAGE:#04x} is what this program reads")
    _, _, count, crc = _PAGE_HEADER.unpack_from(value)
    middle = _PAGE_HEADER.size + 8 * count
    if len(value) != _PAGE_HEADER.size + 16 * count or crc != _crc(key, value):
        raise BadIndex(f"index page {key.hex()} of {len(value)} bytes is damaged")
    view = memoryview(value)
    return Page(view[_PAGE_HEADER.size : middle].cast("Q"), view[middle:].cast("Q"))


def _crc(key: bytes, value: bytes) -> int:
    view = memoryview(value)
    return crc32(view[8:], crc32(view[:4], crc32(key)))
