"""Sorted sources of index entries become one sorted segment, in slices.

The sources follow each other in position: every entry of one is below every entry of the next. So entries of equal hash, taken
source by source, are in the order of their positions, and a stable sort by hash alone sorts by (hash, position).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shards.engine import Engine, Op
from shards.layouts.paged_index.pages import PAGE_ENTRIES_MAX, SEGMENT_END, Page, decode_page, encode_page, segment_prefix

Column = npt.NDArray[np.uint64]

_READ_PAGES = 256
"""So many pages of all segments together are read at once, as a merge begins with some of each."""
_READ_PAGES_LEAST = 8
"""Of one segment: looking for the first one costs as much as reading so many."""
_NONE: Column = np.empty(0, np.uint64)


class Source(Protocol):
    def take(self, count: int) -> tuple[Column, Column]:
        """About ``count`` further entries as hashes and positions, in order; none when there are no more."""


class RunSource:
    """Sorted columns in RAM."""

    def __init__(self, hashes: Column, positions: Column) -> None:
        self._hashes = hashes
        self._positions = positions
        self._at = 0

    def take(self, count: int) -> tuple[Column, Column]:
        start, self._at = self._at, self._at + count
        return self._hashes[start : self._at], self._positions[start : self._at]


class SegmentSource:
    """The pages of one level of a segment. keys: where to put those of pages that were read, which are deleted later. among: how many
    segments are read together."""

    def __init__(self, engine: Engine, family: int, static: bytes, level: int, number: int, keys: list[bytes], among: int) -> None:
        self._engine = engine
        self._family = family
        self._keys = keys
        self._pages = max(_READ_PAGES_LEAST, _READ_PAGES // among)
        prefix = segment_prefix(static, level, number)
        self._start = prefix
        self._end = prefix + SEGMENT_END

    def take(self, count: int) -> tuple[Column, Column]:
        decoded: list[Page] = []
        # Read once and then deleted: not through the cache.
        pages = max(self._pages, -(-count // PAGE_ENTRIES_MAX))
        for keys, values, _ in self._engine.columns(self._family, self._start, self._end, pages):
            decoded += map(decode_page, keys, values)
            self._keys += keys
            self._start = keys[-1] + b"\x00"
        if not decoded:
            return _NONE, _NONE
        hashes = np.concatenate([np.asarray(page.hashes, np.uint64) for page in decoded])
        return hashes, np.concatenate([np.asarray(page.positions, np.uint64) for page in decoded])


class Merge:
    """One level of one new segment. Life cycle: made -> ``step`` until it says that it is done."""

    def __init__(self, family: int, static: bytes, level: int, number: int, sources: Sequence[Source], page_entries: int) -> None:
        self._family = family
        self._prefix = segment_prefix(static, level, number)
        self._sources = list(sources)
        self._page_entries = page_entries
        self._ended = [False] * len(self._sources)
        self._waiting: list[tuple[Column, Column]] = [(_NONE, _NONE)] * len(self._sources)
        self._carry: tuple[Column, Column] = (_NONE, _NONE)
        self.entries = 0

    def step(self, entries_max: int) -> tuple[list[Op], bool]:
        """The pages of about so many entries, and whether they are the last."""
        self._fill(max(self._page_entries, entries_max // max(1, self._ended.count(False))))
        cuts = self._cuts()
        parts = [self._carry]
        for index, cut in enumerate(cuts):
            hashes, positions = self._waiting[index]
            parts.append((hashes[:cut], positions[:cut]))
            self._waiting[index] = (hashes[cut:], positions[cut:])
        hashes = np.concatenate([part[0] for part in parts])
        positions = np.concatenate([part[1] for part in parts])
        order = np.argsort(hashes, kind="stable")
        hashes, positions = hashes[order], positions[order]
        done = all(self._ended) and not any(len(waiting[0]) for waiting in self._waiting)
        whole = len(hashes) if done else len(hashes) - len(hashes) % self._page_entries
        self._carry = (hashes[whole:], positions[whole:])
        self.entries += whole
        return self._pages(hashes[:whole].astype("<u8").tobytes(), positions[:whole].astype("<u8").tobytes()), done

    def _fill(self, count: int) -> None:
        for index, source in enumerate(self._sources):
            hashes, positions = self._waiting[index]
            if self._ended[index] or len(hashes) >= count:
                continue
            more_hashes, more_positions = source.take(count)
            if len(more_hashes):
                self._waiting[index] = (np.concatenate((hashes, more_hashes)), np.concatenate((positions, more_positions)))
            else:
                self._ended[index] = True

    def _cuts(self) -> list[int]:
        """How many of each source's waiting entries nothing that is still to come can precede."""
        bounds = [(int(hashes[-1]), int(positions[-1])) for hashes, positions in self._open() if len(hashes)]
        if not bounds:
            return [len(hashes) for hashes, _ in self._waiting]
        hashed, position = min(bounds)
        found = []
        for hashes, positions in self._waiting:
            low = int(np.searchsorted(hashes, np.uint64(hashed), "left"))
            high = int(np.searchsorted(hashes, np.uint64(hashed), "right"))
            found.append(low + int(np.searchsorted(positions[low:high], np.uint64(position), "right")))
        return found

    def _open(self) -> list[tuple[Column, Column]]:
        return [waiting for waiting, ended in zip(self._waiting, self._ended, strict=True) if not ended]

    def _pages(self, hashes: bytes, positions: bytes) -> list[Op]:
        ops: list[Op] = []
        size = 8 * self._page_entries
        for at in range(0, len(hashes), size):
            key, value = encode_page(self._prefix, hashes[at : at + size], positions[at : at + size])
            ops.append((self._family, key, value))
        return ops
