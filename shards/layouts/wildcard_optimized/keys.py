"""Bit-field keys: how a message's stream, position and varying levels become one number that sorts, and back.

A key is a row of bit fields, most significant first:

    topic index | time epoch | H(level 1) | ... | H(level n) | offset in the epoch

The time epoch is the upper part of the position, the offset its `epoch_bits` lower bits. So within an epoch keys are sorted by the
hashes of the levels first, and a reader that wants one value of a level jumps over all others: `ratchet` says where to.

There is one mapper for each number of varying levels. It knows numbers only: hashes, streams and bytes on disk are the
layout's (docs/formats.md, "Generation, layout wildcard_optimized").

Always holds:
1. `vector(key(v)) == v`; keys of one mapper have one length, in whole bytes;
2. `ratchet(filter, k)` is the smallest key >= k whose fields all lie in the filter's intervals, or None when there is none;
3. `k & filter.mask == filter.wanted` for every key that a ratchet returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

POSITION_BITS = 64
VARYING_MAX = 10
"""There are mappers for up to so many varying levels; the learned structure does not make more (lts.TopicStructure)."""

INDEX, TIME, LEVELS = 0, 1, 2
"""Dimensions of a vector: topic index, position, and from LEVELS on the hashes of the varying levels."""

Interval = tuple[int, int]
"""Smallest and largest value wanted of a dimension, both included."""


class Field(NamedTuple):
    """A bit source: `size` bits of a dimension's value, from bit `at` of it on, lie in the key from bit `shift` on."""

    dimension: int
    at: int
    size: int
    shift: int


class Filter(NamedTuple):
    """What is wanted of a key. lows, highs: of each field. mask, wanted: the fields of which one value is wanted.
    first, last: no key outside these is wanted."""

    lows: tuple[int, ...]
    highs: tuple[int, ...]
    mask: int
    wanted: int
    first: int
    last: int


class KeyMapper:
    """The keys of streams with this many varying levels."""

    __slots__ = ("_dimensions", "_offset", "epoch_bits", "epoch_shift", "fields", "key_bytes", "levels")

    def __init__(self, levels: int, level_bits: int, epoch_bits: int, index_bits: int, position_bits: int = POSITION_BITS) -> None:
        assert 0 <= levels <= VARYING_MAX and 0 <= epoch_bits <= position_bits, (levels, epoch_bits)
        self.levels = levels
        self.epoch_bits = epoch_bits
        self._offset = (1 << epoch_bits) - 1
        self._dimensions = (index_bits, position_bits, *(level_bits for _ in range(levels)))
        total = sum(self._dimensions)
        assert total % 8 == 0, f"a key of {total} bits is not one of whole bytes"
        self.key_bytes = total // 8
        self.epoch_shift = levels * level_bits + epoch_bits
        """The epoch begins at this bit of a key."""
        parts = [(INDEX, 0, index_bits), (TIME, epoch_bits, position_bits - epoch_bits)]
        parts += [(LEVELS + level, 0, level_bits) for level in range(levels)]
        parts += [(TIME, 0, epoch_bits)]
        fields: list[Field] = []
        for dimension, at, size in parts:
            total -= size
            if size:
                fields.append(Field(dimension, at, size, total))
        self.fields = tuple(fields)
        """Most significant first."""

    # ---- vectors and keys

    def key(self, vector: Sequence[int]) -> int:
        key = 0
        for dimension, at, size, shift in self.fields:
            key |= (vector[dimension] >> at & (1 << size) - 1) << shift
        return key

    def vector(self, key: int) -> tuple[int, ...]:
        values = [0] * len(self._dimensions)
        for dimension, at, size, shift in self.fields:
            values[dimension] |= (key >> shift & (1 << size) - 1) << at
        return tuple(values)

    def at(self, base: int, position: int) -> int:
        """The key of a message at this position, of the topic whose key at position 0 is `base`."""
        return base | position >> self.epoch_bits << self.epoch_shift | position & self._offset

    def position(self, key: int) -> int:
        epoch = key >> self.epoch_shift & (1 << self._dimensions[TIME] - self.epoch_bits) - 1
        return epoch << self.epoch_bits | key & self._offset

    # ---- filters

    def filter(self, intervals: Sequence[Interval | None]) -> Filter:
        """One interval for each dimension; None for any value.

        Of a dimension in several fields, the lower one is only bounded where the upper one has a single value: then a key may
        pass whose value is outside, and the caller has to look at the value itself.
        """
        lows: list[int] = []
        highs: list[int] = []
        mask = wanted = first = last = 0
        for dimension, at, size, shift in self.fields:
            ones = (1 << size) - 1
            interval = intervals[dimension]
            low, high = (0, (1 << self._dimensions[dimension]) - 1) if interval is None else interval
            if low >> at + size == high >> at + size:
                low, high = low >> at & ones, high >> at & ones
            else:
                low, high = 0, ones
            lows.append(low)
            highs.append(high)
            first |= low << shift
            last |= high << shift
            if low == high:
                mask |= ones << shift
                wanted |= low << shift
        return Filter(tuple(lows), tuple(highs), mask, wanted, first, last)

    def ratchet(self, wanted: Filter, key: int) -> int | None:
        """The smallest key that is not less than this one and has every field in its interval."""
        lows, highs, _, _, first, last = wanted
        if key <= first:
            return first
        if key > last:
            return None
        fields = self.fields
        for number, (_, _, size, shift) in enumerate(fields):
            value = key >> shift & (1 << size) - 1
            if lows[number] <= value <= highs[number]:
                continue
            if value < lows[number]:
                return self._with(wanted, key, number, lows[number])
            # Too large: the nearest field above it that can grow does, and everything below begins anew.
            for above in range(number - 1, -1, -1):
                _, _, size, shift = fields[above]
                value = key >> shift & (1 << size) - 1
                if value < highs[above]:
                    return self._with(wanted, key, above, value + 1)
            return None
        return key

    def _with(self, wanted: Filter, key: int, number: int, value: int) -> int:
        """The key with this value in the numbered field, the fields above as they are, and those below at their smallest."""
        _, _, size, shift = self.fields[number]
        above = shift + size
        return key >> above << above | value << shift | wanted.first & (1 << shift) - 1
