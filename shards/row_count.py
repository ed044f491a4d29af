"""How many rows of a family there are: a row of its own, in the record of every change.

A store of a program that did not count has no such row: then the rows are counted when it is opened.

Holds: `count` is how many rows there are, as of everything submitted.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.rows import META, pack_row, successor, unpack_row

_CHUNK = 10_000


class RowCount:
    def __init__(self, engine: Engine, family: bytes, name: bytes) -> None:
        self._key = META + name
        row = engine.get(HOME_FAMILY, self._key)
        self.count: int = unpack_row(row)[0] if row else _counted(engine, family)

    def add(self, draft: Draft, change: int) -> None:
        self.count += change
        draft.put(self._key, pack_row((self.count,)))


def _counted(engine: Engine, family: bytes) -> int:
    count, start, end = 0, family, successor(family)
    while rows := engine.scan(HOME_FAMILY, start, end, _CHUNK):
        count += len(rows)
        start = rows[-1][0] + b"\x00"
    return count
