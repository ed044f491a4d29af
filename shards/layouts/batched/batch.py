"""A batch: messages that one record has of one stream, in one value.

Format (docs/formats.md, "Batch"); numbers little-endian:

    n u32 | length u32 | first position u64 | offset u32[n] | end u32[n] | messages

offset: a message's position above the first one. end: where the message ends in the value.

A batch is never changed, and holds messages of one stream with no other one of that stream between them. It lies under the position of its
last message, so a seek to any position finds the batch that has it.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

# Arrays in values are read in place, in the byte order of the machine; all that this program runs on have this one.
assert sys.byteorder == "little", "stored arrays are little-endian"

MESSAGES_MIN: Final = 16
"""Fewer are cheaper as single values, to write and to read."""
MESSAGES_MAX: Final = 64
"""More gain little and make every small read pay for the whole."""
BYTES_MAX: Final = 64 << 10

_HEADER = Struct("<IIQ")
_OFFSET_MAX = 0xFFFFFFFF
_SIZES_REMEMBERED: Final = 256


class Batch(NamedTuple):
    """A batch that was checked, with its arrays in place."""

    first: int
    last: int
    offsets: memoryview
    ends: memoryview
    value: bytes

    @property
    def messages_count(self) -> int:
        return len(self.offsets)

    def index_after(self, position: int) -> int:
        """How many of its messages have a position up to this one."""
        return bisect_right(self.offsets, position - self.first)

    def begin(self, index: int) -> int:
        """Where the message of this index begins in the value."""
        end: int = self.ends[index - 1] if index else header_bytes(len(self.offsets))
        return end

    def size(self, start: int, stop: int) -> int:
        """Bytes of its messages from index start to before stop; there is at least one."""
        return self.begin(stop) - self.begin(start)

    def positions(self, start: int, stop: int) -> list[int]:
        """Of its messages from index start to before stop."""
        first = self.first
        return [first + offset for offset in self.offsets[start:stop].tolist()]

    def messages(self, start: int, stop: int) -> list[bytes]:
        """From index start to before stop."""
        count, value = len(self.offsets), self.value
        size = self.ends[0] - header_bytes(count)
        if stop - start == count and len(value) == header_bytes(count) + size * count and size:
            # As a rule all have this size.
            ends, take_apart = _of_one_size(count, size)
            if self.ends == ends:
                return list(take_apart(value))
        stops = self.ends[start:stop].tolist()
        return [value[begin:end] for begin, end in zip([self.begin(start), *stops], stops, strict=False)]


def header_bytes(count: int) -> int:
    """What comes before the messages of a batch with so many."""
    return _HEADER.size + 8 * count


@lru_cache(_SIZES_REMEMBERED)
def _of_one_size(count: int, size: int) -> tuple[memoryview, Callable[[bytes], tuple[bytes, ...]]]:
    """Of a batch of so many messages of one size: where they end, and what takes them apart with one call."""
    begin = header_bytes(count)
    ends = array("I", range(begin + size, begin + size * count + 1, size))
    return memoryview(ends), Struct(f"{begin}x" + f"{size}s" * count).unpack


def packed(positions: Sequence[int], messages: Sequence[bytes]) -> bytes:
    """The value of these messages, in the order of their positions; they must be within the bounds of `cut`."""
    first, count = positions[0], len(messages)
    offsets = array("I", [position - first for position in positions])
    ends = array("I", accumulate(map(len, messages), initial=header_bytes(count)))
    return b"".join((_HEADER.pack(count, ends[-1], first), offsets.tobytes(), ends[1:].tobytes(), *messages))


def unpacked(value: bytes, last: int) -> Batch | None:
    """The batch in a value under this position; None when it is none."""
    if len(value) < _HEADER.size:
        return None
    count, length, first = _HEADER.unpack_from(value)
    at = header_bytes(count)
    if length != len(value) or count < 1 or at > length:
        return None
    view = memoryview(value)
    offsets = view[_HEADER.size : _HEADER.size + 4 * count].cast("I")
    ends = view[_HEADER.size + 4 * count : at].cast("I")
    return Batch(first, last, offsets, ends, value) if first + offsets[-1] == last and ends[-1] == length else None


def cut(positions: Sequence[int], messages: Sequence[bytes]) -> list[tuple[int, int]]:
    """The messages that one record has of one stream, cut into what becomes one value each, by index from and to before: batches, and
    single ones that are too few or too large to be a batch."""
    found: list[tuple[int, int]] = []
    sizes = list(map(len, messages))
    at, there = 0, len(sizes)
    while at < there:
        stop = _fitting(positions, sizes, at, min(at + MESSAGES_MAX, there))
        if stop - at < MESSAGES_MIN:
            stop = max(stop, at + 1)
            found += [(index, index + 1) for index in range(at, stop)]
        else:
            found.append((at, stop))
        at = stop
    return found


def _fitting(positions: Sequence[int], sizes: list[int], at: int, stop: int) -> int:
    """Up to before which index, from this one on, all are within the bounds of bytes and positions."""
    if sum(sizes[at:stop]) > BYTES_MAX:
        stop = at + bisect_right(list(accumulate(sizes[at:stop])), BYTES_MAX)
    if positions[max(at, stop - 1)] - positions[at] > _OFFSET_MAX:
        stop = bisect_right(positions, positions[at] + _OFFSET_MAX, at, stop)
    return stop
