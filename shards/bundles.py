"""Rows of many sessions as one row.

A commit of hundreds of sessions changes two or three small rows of each, and what they have in common is most of their bytes.  Such a
commit is one row, compressed: a bundle.  Its rows are read from memory (shards.draft).  Before they are many, or old
(ShardOptions.bundled_ms), the rows of the oldest bundle are written each by itself, some at a time, and the bundle is deleted with the
last of them.

A row that is in a bundle is changed in bundles only, as long as any bundle has it: so the newest bundle that has it is right, whatever
stands in its own place, and no crash can bring an older one back.

Holds (see check):
1. a key is in `newest` exactly as long as a bundle that is not deleted has it, with the number of the last one;
2. the number of a bundle is greater than that of every older one.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any

import msgpack

from shards.engine import HOME_FAMILY, Engine, Op
from shards.rows import BUNDLE, pack_row, read_u64, successor, u64, unpack_row

ROWS_MAX = 20_000
"""With more rows in all bundles no others are put into one, and the oldest is not waited for."""
FOLD_ROWS = 500
"""So many rows of a bundle are written, or found to be in a newer one, in one record."""
_SCAN = 64
_WRITTEN = object()
_LONG_AGO_MS = -(1 << 62)


class Bundle:
    __slots__ = ("at", "keys", "made_ms", "number")

    def __init__(self, number: int, keys: list[bytes], made_ms: int) -> None:
        self.number = number
        self.keys = keys
        self.made_ms = made_ms
        self.at = 0
        """How many of its keys are done with."""


class Bundles:
    """newest: the number of the newest bundle of every row that is in one, the one in the making included."""

    def __init__(self) -> None:
        self.newest: dict[bytes, int] = {}
        self.rows = 0
        self._only_here: dict[bytes, None] = {}
        """Of these there is no row of their own that would have to be deleted: most ranges come and go in bundles."""
        self._making: dict[bytes, bytes | None] = {}
        self._number = 1
        self._made: deque[Bundle] = deque()

    def restore(self, engine: Engine) -> Iterator[tuple[bytes, bytes | None]]:
        """What is in the bundles of a store, oldest first."""
        start = BUNDLE
        while found := engine.scan(HOME_FAMILY, start, successor(BUNDLE), _SCAN):
            for key, value in found:
                rows = unpack_bundle(value)
                self._add(Bundle(read_u64(key, 1), list(rows), _LONG_AGO_MS))
                yield from rows.items()
            start = found[-1][0] + b"\x00"

    def _add(self, bundle: Bundle) -> None:
        self._made.append(bundle)
        self.rows += len(bundle.keys)
        self.newest.update(dict.fromkeys(bundle.keys, bundle.number))
        self._number = bundle.number + 1

    def put(self, key: bytes, value: bytes | None) -> None:
        self._making[key] = value
        self.newest[key] = self._number

    def never_written(self, key: bytes) -> None:
        """There is no row of its own under this key, which is about to be put into a bundle."""
        self._only_here[key] = None

    def writes(self, key: bytes, value: bytes | None) -> bool:
        """Whether anything is to be written for this row, which leaves its bundle."""
        return self._only_here.pop(key, _WRITTEN) is _WRITTEN or value is not None

    def close(self, now_ms: int) -> list[Op]:
        """The row of what was put since the last time."""
        if not self._making:
            return []
        made, self._making = self._making, {}
        op = (HOME_FAMILY, BUNDLE + u64(self._number), pack_bundle(made))
        self._add(Bundle(self._number, list(made), now_ms))
        return [op]

    def wants_fold(self, made_ms: int) -> bool:
        """made_ms: of bundles that are to go, the last."""
        return bool(self._made) and (self.rows > ROWS_MAX or self._made[0].made_ms <= made_ms)

    def fold(self) -> tuple[list[bytes], list[bytes], list[Op]]:
        """(rows to be written each by itself, rows that are in no bundle any more, what to do with the bundle)."""
        oldest = self._made[0]
        part = oldest.keys[oldest.at : oldest.at + FOLD_ROWS]
        oldest.at += len(part)
        single = [key for key in part if self.newest[key] == oldest.number]
        if oldest.at < len(oldest.keys):
            return single, [], []
        self._made.popleft()
        self.rows -= len(oldest.keys)
        free = [key for key in oldest.keys if self.newest[key] == oldest.number]
        for key in free:
            del self.newest[key]
        return single, free, [(HOME_FAMILY, BUNDLE + u64(oldest.number), None)]

    def check(self) -> None:
        expected: dict[bytes, int] = {}
        for bundle in self._made:
            assert bundle.number < self._number
            expected.update(dict.fromkeys(bundle.keys, bundle.number))
        expected.update(dict.fromkeys(self._making, self._number))
        assert self.newest == expected
        assert self._only_here.keys() <= self.newest.keys()
        assert self.rows == sum([len(bundle.keys) for bundle in self._made])


def pack_bundle(rows: dict[bytes, bytes | None]) -> bytes:
    """Sorted, as neighbours are alike then."""
    columns: list[Any] = []
    for row in sorted(rows.items()):
        columns += row
    return pack_row((zlib.compress(msgpack.packb(columns), 1),))


def unpack_bundle(value: bytes) -> dict[bytes, bytes | None]:
    """Of each key its value; None: the row is deleted.  Raises ValueError for a row of a newer version."""
    (packed,) = unpack_row(value)
    columns = msgpack.unpackb(zlib.decompress(packed))
    return dict(zip(columns[::2], columns[1::2], strict=True))
