"""The newest index entries of one stream, in RAM: open rows as they were put, and sorted runs.

An open row is a message's position and the hashes of its varying levels, 8 bytes each, big-endian. When there are enough rows the
oldest are frozen into a run, which is sorted by (hash, position) for each level: runs are searched by bisection, and merged into a
segment on disk. Rows of messages that are not committed are never frozen.

Holds: positions grow over all runs and then the open rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shards.layouts.paged_index.merging import Column


class Run(NamedTuple):
    """Per level, counted from 0: hashes, sorted, and their positions; as numpy columns and as what bisect reads."""

    last: int
    entries: int
    columns: tuple[tuple[Column, Column], ...]
    views: tuple[tuple[Sequence[int], Sequence[int]], ...]

    def positions(self, level: int, hashed: int) -> Sequence[int]:
        hashes, positions = self.views[level]
        low = bisect_left(hashes, hashed)
        return positions[low : bisect_right(hashes, hashed, low)]


class Entries:
    """``rows`` is public because the hottest path of the layout appends to it."""

    __slots__ = ("rows", "runs", "width")

    def __init__(self, levels: int) -> None:
        self.rows = bytearray()
        self.runs: list[Run] = []
        self.width = 8 * (1 + levels)

    @property
    def open_count(self) -> int:
        return len(self.rows) // self.width

    @property
    def count(self) -> int:
        return len(self.rows) // self.width + sum([run.entries for run in self.runs])

    @property
    def first(self) -> int | None:
        """The lowest position here, for a stream whose older entries are not loaded yet: then nothing is frozen."""
        assert not self.runs
        return int.from_bytes(self.rows[:8], "big") if self.rows else None

    def precede(self, rows: bytearray) -> None:
        """Put older rows before all others."""
        assert not self.runs
        self.rows[:0] = rows

    def forget(self, upto: int) -> int:
        """Drop the oldest open rows with position <= ``upto``; returns how many. For a few rows without runs before them."""
        assert not self.runs
        rows, width = self.rows, self.width
        end = 0
        while end < len(rows) and int.from_bytes(rows[end : end + 8], "big") <= upto:
            end += width
        del rows[:end]
        return end // width

    def take_back(self, position: int) -> None:
        """Drop the newest open rows, from this position on; none of them is frozen, as they are not committed."""
        rows, width = self.rows, self.width
        end = len(rows)
        while end and int.from_bytes(rows[end - width : end - width + 8], "big") >= position:
            end -= width
        del rows[end:]

    def freeze(self, upto: int, entries_max: int) -> int:
        """Sort the oldest open rows with position <= ``upto`` into a run; returns how many."""
        rows = np.frombuffer(bytes(self.rows[: self.width * entries_max]), ">u8").reshape(-1, self.width // 8).T.astype(np.uint64)
        count = int(np.searchsorted(rows[0], np.uint64(upto), "right"))
        if not count:
            return 0
        positions = rows[0, :count]
        columns = []
        for hashes in rows[1:, :count]:
            order = np.argsort(hashes, kind="stable")
            columns.append((hashes[order], positions[order]))
        del self.rows[: self.width * count]
        views = tuple((hashes.data, found.data) for hashes, found in columns)
        self.runs.append(Run(int(positions[-1]), count, tuple(columns), views))
        return count

    def open_positions(self, level: int, hashed: bytes) -> list[int]:
        """The positions of a hash in the open rows."""
        if not self.rows:
            return []
        rows = np.frombuffer(self.rows, np.uint64).reshape(-1, self.width // 8)
        at = np.flatnonzero(rows[:, 1 + level] == np.frombuffer(hashed, np.uint64)[0])
        found: list[int] = rows[at, 0].byteswap().tolist() if len(at) else []
        return found
