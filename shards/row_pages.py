"""Rows of a home for people who ask: short slices, cut where they would keep the shard from its clients.

What a row means, whoever asks finds out by himself (shards.rows): here it is only read and counted.

Holds: an answer has at most ROWS_MAX rows and about BYTES_MAX bytes, whatever is asked for, and at least one row when there is one; what
is told of all ranges is of one moment.
"""

from __future__ import annotations

from shards.draft import Draft
from shards.queries import Rows, RowsFound

ROWS_MAX = 500
BYTES_MAX = 256 << 10
_FIRST_READ = 8
"""So many rows are read first: how long they are is not known, and the longest is a megabyte."""


class _Room:
    __slots__ = ("bytes", "rows")

    def __init__(self) -> None:
        self.rows, self.bytes = ROWS_MAX, BYTES_MAX


def rows_found(draft: Draft, ask: Rows, age_ms: int) -> RowsFound:
    """As of everything submitted, so it is told when that is committed."""
    room = _Room()
    found: list[list[tuple[bytes, bytes, int]]] = []
    whole: list[bool] = []
    for start, end, count_max in ask.ranges:
        rows, last = _range(draft, start, end, count_max, ask.value_bytes_max, room)
        found.append(rows)
        whole.append(last)
    return RowsFound(age_ms, found, whole)


def _range(draft: Draft, start: bytes, end: bytes, count_max: int, cut: int, room: _Room) -> tuple[list[tuple[bytes, bytes, int]], bool]:
    """(rows, whether these are the last ones)."""
    rows: list[tuple[bytes, bytes, int]] = []
    reads = _FIRST_READ
    while (wanted := min(count_max - len(rows), room.rows)) > 0 and room.bytes > 0:
        asked = min(reads, wanted)
        some = draft.scan_range(start, end, asked)
        for key, value in some:
            if room.bytes <= 0:
                return rows, False
            kept = value[:cut]
            rows.append((key, kept, len(value)))
            room.rows -= 1
            # What is read and left out has cost its time as well.
            room.bytes -= len(key) + len(kept) + (len(value) - len(kept)) // 4
        if len(some) < asked:
            return rows, True
        start = some[-1][0] + b"\x00"
        if sum(len(value) for _, value in some) < reads * 256:
            reads = min(2 * reads, 256)
    return rows, False
