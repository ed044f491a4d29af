"""The rows of all homes, page by page: shard after shard, in each in the order of keys.

A cursor says behind which row of which shard the next page begins, so it stays right whatever comes and goes meanwhile: what is there
all the time is told once.  A shard that is away is left out of the pages, which name it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from actors.inquiry.asking import Asking
from shards.queries import Rows, RowsFound
from shards.rows import successor

PAGE_MAX = 500
"""Rows of one page, at most."""
WHOLE_VALUE = 1 << 20
AFTER = b"\x00"
Row = tuple[bytes, bytes, int]
"""Key, value, and of how many bytes the whole value is."""
KeyRange = tuple[bytes, bytes]


class BadCursor(ValueError):
    """One sentence."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Behind this key of this shard; an empty key: from the beginning."""

    shard: int = 0
    key: bytes = b""

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises BadCursor."""
        if not text:
            return cls()
        shard, _, key = text.partition("-")
        try:
            return cls(int(shard), bytes.fromhex(key))
        except ValueError:
            raise BadCursor(f"{text!r} is no cursor: one that an answer has given is wanted") from None

    def __str__(self) -> str:
        return f"{self.shard}-{self.key.hex()}"


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of one home, range by range; those that came with the first answer are of one moment.

    Ages in rows count by the clock of the shard, `age_ms`, which showed this at `at_ms` of the wall clock."""

    age_ms: int
    at_ms: int
    rows: list[list[Row]]

    def wall_ms(self, age_ms: int) -> int:
        return self.at_ms - self.age_ms + age_ms


def prefixed(prefix: bytes) -> KeyRange:
    return prefix, successor(prefix)


def alone(key: bytes) -> KeyRange:
    return key, key + AFTER


async def within(
    asking: Asking, shard: int, ranges: list[KeyRange], missing: dict[str, None], value_bytes_max: int = WHOLE_VALUE
) -> Found | None:
    """All rows of these ranges, in as many questions as it takes; None: the shard is away."""
    found: Found | None = None
    left = dict(enumerate(ranges))
    while left:
        asked = list(left.items())
        told = await asking.rows(shard, Rows([(start, end, PAGE_MAX) for _, (start, end) in asked], value_bytes_max), missing)
        if told is None:
            return None
        found = found or Found(told.age_ms, _now_ms(), [[] for _ in ranges])
        for (index, (_, end)), rows, whole in zip(asked, told.found, told.whole, strict=True):
            found.rows[index].extend((key, value, size) for key, value, size in rows)
            if whole:
                del left[index]
            elif rows:
                left[index] = (rows[-1][0] + AFTER, end)
    return found or Found(0, _now_ms(), [])


async def some(
    asking: Asking, prefix: bytes, cursor: Cursor, count_max: int, missing: dict[str, None], value_bytes_max: int = WHOLE_VALUE
) -> tuple[Found | None, Cursor | None]:
    """The next rows of one shard whose keys begin so, and where to go on; None for the rows: that shard is away."""
    start = max(prefix, cursor.key + AFTER) if cursor.key else prefix
    told = await asking.rows(cursor.shard, Rows([(start, successor(prefix), count_max)], value_bytes_max), missing)
    if told is None:
        return None, next_shard(asking, cursor)
    (rows,) = told.found
    on = next_shard(asking, cursor) if told.whole[0] else Cursor(cursor.shard, rows[-1][0] if rows else cursor.key)
    return found_of(told), on


def next_shard(asking: Asking, cursor: Cursor) -> Cursor | None:
    return Cursor(cursor.shard + 1) if cursor.shard + 1 < asking.topology.n_shards else None


def found_of(told: RowsFound) -> Found:
    return Found(told.age_ms, _now_ms(), [[(key, value, size) for key, value, size in rows] for rows in told.found])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
