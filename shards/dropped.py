"""What is remembered of generations that are gone: a row each, so that a reader who comes later learns what it missed.

The rows lie in family 0 (docs/formats.md, "Dropped generations"). The newest DROPPED_REMEMBERED_MAX are kept; what is remembered no
more is summed up in one row under number 0. When a generation goes, and why, is decided above.

Always holds: whatever was dropped is in a row of its own, or below `until` of the sum. A store whose first generations were dropped by a
program that wrote no such rows is no exception: its numbers begin at 1, so a number that nothing stands for was dropped, and the sum
reaches as far as the next generation that is known began.
"""

from __future__ import annotations

from typing import NamedTuple

import msgpack

from shards.engine import HOME_FAMILY, Engine, Op, StoreFailed

DROPPED_ROW = b"d"
DROPPED_ROWS_END = b"e"
DROPPED_REMEMBERED_MAX = 1000
FORGOTTEN = 0
"""Stands for all generations that are remembered no more: no generation has this number."""
_ROW_VERSION = 1


class Dropped(NamedTuple):
    """It held messages with since <= position < until. Wall clocks are for people; 0: not known.

    reason: "period" (its time was over), "read" (all had read it), "lease" (a lease would have held it, and was passed over), "damaged",
    "by hand", "store lost" (shards.replacement), "restored" (shards.restored), "leadership forced" (shards.begun_anew); "" for generation
    0, which stands for everything that is remembered no more.
    """

    generation: int
    klass: str
    since: int
    until: int
    created_wall_ms: int
    sealed_wall_ms: int
    dropped_wall_ms: int
    reason: str

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value) in family 0."""
        return dropped_key(self.generation), bytes((_ROW_VERSION,)) + bytes(msgpack.packb(tuple(self[1:])))

    @staticmethod
    def decode(key: bytes, value: bytes) -> Dropped:
        if value[:1] != bytes((_ROW_VERSION,)):
            raise StoreFailed(f"row {key.hex()} of version {value[:1].hex()} found, {_ROW_VERSION} is what this program reads")
        return Dropped(int.from_bytes(key[1:], "big"), *msgpack.unpackb(value[1:]))


def dropped_key(generation: int) -> bytes:
    return DROPPED_ROW + generation.to_bytes(4, "big")


class DroppedRows:
    """The rows of one store, in RAM as on disk."""

    def __init__(self, engine: Engine, sinces: dict[int, int]) -> None:
        """sinces: where each generation that has a row began."""
        found = [Dropped.decode(*row) for row in engine.scan(HOME_FAMILY, DROPPED_ROW, DROPPED_ROWS_END, 1 << 32)]
        self._rows = {row.generation: row for row in found if row.generation != FORGOTTEN}
        sums = [row.until for row in found if row.generation == FORGOTTEN]
        # Without a sum nothing was ever forgotten by us. So a number without a row was dropped before there were such rows, when there
        # was one class: it ended where the next one began, at the latest.
        self._forgotten_until = sums[0] if sums else _ends_unknown(sinces | {row.generation: row.since for row in self._rows.values()})

    def put(self, row: Dropped) -> list[Op]:
        """The ops that remember it, and forget the oldest when there are too many."""
        self._rows[row.generation] = row
        ops: list[Op] = []
        if len(self._rows) > DROPPED_REMEMBERED_MAX:
            # The one whose messages are oldest, so that the sum covers as little as it can.
            oldest = min(self._rows.values(), key=lambda known: (known.until, known.generation))
            del self._rows[oldest.generation]
            self._forgotten_until = max(self._forgotten_until, oldest.until)
            if oldest is not row:
                ops.append((HOME_FAMILY, dropped_key(oldest.generation), None))
        if row.generation in self._rows:
            ops.append((HOME_FAMILY, *row.encode()))
        if self._forgotten_until:
            ops.append((HOME_FAMILY, *self._sum().encode()))
        return ops

    def between(self, after: int, upto: int) -> list[Dropped]:
        """Those which may have held a position p with after < p <= upto, by number; generation 0 first."""
        first, last = max(after + 1, 0), upto
        if first > last:
            return []
        rows = [self._sum(), *(self._rows[number] for number in sorted(self._rows))]
        return [row for row in rows if row.since <= last and first < row.until]

    def created_at(self, position: int) -> int:
        """The wall clock at which some remembered generation began at this position; 0: none did."""
        return max((row.created_wall_ms for row in self._rows.values() if row.since == position), default=0)

    @property
    def forgotten_until(self) -> int:
        """Below this position something may have been dropped of which nothing else is known; 0: nothing was."""
        return self._forgotten_until

    def _sum(self) -> Dropped:
        return Dropped(FORGOTTEN, "", 0, self._forgotten_until, 0, 0, 0, "")

    def __len__(self) -> int:
        return len(self._rows)


def _ends_unknown(sinces: dict[int, int]) -> int:
    """Below this position lies everything of the generations whose numbers are missing below the highest one; 0: none is."""
    numbers = sorted(sinces)
    return max((sinces[number] for number, before in zip(numbers, [0, *numbers], strict=False) if number != before + 1), default=0)
