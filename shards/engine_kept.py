"""Reads of many entries that another one goes on with: RocksDB's iterators, kept where they stand.

A session that was away asks for some hundred messages at a time. To find the first of them RocksDB looks into each file of a generation,
and takes a block apart that it had taken apart before; and it reads ahead only for who has read on for a while.

What such an iterator shows is what was there when it was made, and the files it was made for stay, and so does memory that was flushed.
So there are few (KEPT_MAX), and none for longer than KEPT_S, as the next read or write sees; with neither, nothing is flushed or merged.

Always holds: one is given away once; what it was made with (ReadOptions, without which rocksdict ends a scan early) lives as long.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocksdict import ReadOptions

KEPT_MAX: Final = 8
KEPT_S: Final = 1.0


class Standing(NamedTuple):
    """An iterator of which the entries up to `last` were read."""

    last: bytes
    entries: Iterator[tuple[bytes, bytes]]
    options: ReadOptions
    since: float


class KeptReads:
    """By family and upper bound."""

    def __init__(self) -> None:
        self._there: OrderedDict[tuple[int, bytes], Standing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._there)

    def take(self, family: int, start: bytes, end: bytes) -> Standing | None:
        """One that stands before `start`; whether right before it, its next entry says."""
        there = self._there
        self.end_old()
        found = there.pop((family, end), None)
        return found if found is not None and found.last < start else None

    def keep(self, family: int, end: bytes, last: bytes, entries: Iterator[tuple[bytes, bytes]], options: ReadOptions) -> None:
        there = self._there
        there[family, end] = Standing(last, entries, options, time.monotonic())
        there.move_to_end((family, end))
        while len(there) > KEPT_MAX:
            there.popitem(last=False)

    def end_old(self) -> None:
        """Those that nobody went on with."""
        there, since = self._there, time.monotonic() - KEPT_S
        while there and next(iter(there.values())).since < since:
            there.popitem(last=False)

    def end_all(self) -> None:
        """Before a family is dropped, or all is closed: both would wait for them."""
        self._there.clear()
