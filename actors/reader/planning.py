"""What is answered without reading messages: cuts, units of a plan, gaps, times.

All of it is about one view at a time and its cut. Generations that begin at the cut or above are not there yet, and one whose end is
not below the cut is still a current one: a roll that is not committed may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from actors.reader.counted import Counted
from actors.reader.views import Seen, View
from shards.dropped import Dropped
from shards.generations import GenerationInfo
from shards.steady import STEPS_KEPT, WallRow

FIND_SLACK_MS = 60_000
"""Messages are stored in another order than they were published in; by no more than this."""


def generations(seen: Seen) -> list[GenerationInfo]:
    """Those that hold something below the cut, or may yet."""
    found = seen.view.generations()
    return [info for number, info in enumerate(found) if not number or info.since < seen.cut]


def sealed(info: GenerationInfo, cut: int) -> bool:
    return info.until is not None and info.until <= cut


def overlapping(seen: Seen, begin: int, end: int) -> Iterator[tuple[GenerationInfo, int, int]]:
    """(generation, from, to) of all that have a part of the range."""
    for info in generations(seen):
        first = max(begin, info.since)
        last = end if info.until is None else min(end, info.until)
        if first < last:
            yield info, first, last


def cuts(shard: int, seen: Seen) -> dict[str, Any]:
    """Of one shard, as CUTS tells it."""
    view, cut = seen
    infos = generations(seen)
    began = {info.since: info.created_wall_ms for info in sorted(infos, key=lambda info: info.created_wall_ms)}
    rows = []
    for info in infos:
        over = sealed(info, cut)
        total = view.total(info.id)
        rows.append(
            {
                "id": info.id,
                "class": info.klass,
                "since": info.since,
                "until": info.until if over else None,
                "layout": info.layout,
                "streams": view.streams_known(info.id),
                "rows": None if total is None else total[0],
                "bytes": None if total is None else total[1],
                "created_ms": info.created_wall_ms,
                # Another one began with it, of the same class or, when the class went, of another.
                "sealed_ms": began.get(info.until or 0) if over else None,
            }
        )
    return {
        "earliest": min(info.since for info in infos),
        "cut": cut,
        "generations": rows,
        "wall": wall(view.wall, 0, cut),
        "gone": [gap(shard, row, 0, cut) for row in view.dropped_between(-1, cut - 1)],
    }


def wall(row: WallRow, begin: int, end: int) -> list[tuple[int, int]]:
    """(position, ms that the wall clock was ahead of steady time from there on), as far as the range needs it."""
    # Of many steps the oldest are forgotten: then what is before is shown with the oldest that is known.
    steps = [(0, row.steps[0].offset_ms if len(row.steps) >= STEPS_KEPT else 0), *row.steps]
    first = max(number for number, step in enumerate(steps) if not number or step[0] <= begin)
    return [(position, offset_ms) for position, offset_ms in steps[first:] if position < end or position == steps[first][0]]


def gap(shard: int, row: Dropped, begin: int, end: int) -> dict[str, Any]:
    return {
        "shard": shard, "generation": row.generation, "class": row.klass,
        "from": max(begin, row.since), "to": min(end, row.until), "reason": row.reason,
    }  # fmt: skip


def gaps(shard: int, view: View, begin: int, end: int, filters: Sequence[bytes], generation: int | None = None) -> list[dict[str, Any]]:
    """What of the range is gone and may have matched; generation: only of this one, or of those that are remembered no more."""
    if begin >= end:
        return []
    found: dict[int, Dropped] = {}
    for topic_filter in filters or (None,):
        found |= {row.generation: row for row in view.dropped_between(begin - 1, end - 1, topic_filter)}
    return [gap(shard, found[number], begin, end) for number in sorted(found) if generation is None or number in (0, generation)]


def units(shard: int, seen: Seen, begin: int, end: int, rows_per_unit: int) -> list[dict[str, Any]]:
    """Generation by generation, in the order of their numbers: read in that order, a topic is in order. The same range has the same
    units for as long as nothing of it is dropped, save that `sealed` becomes true."""
    found = []
    for info, first, last in overlapping(seen, begin, end):
        known = seen.view.counted(info)
        counted = None if known is None else known.as_of(end)
        for low, high in split(counted, first, last, rows_per_unit):
            rows = None if counted is None else counted.about_between(low, high).rows
            found.append(
                {
                    "shard": shard, "generation": info.id, "class": info.klass, "from": low, "to": high,
                    "sealed": sealed(info, seen.cut), "rows": rows,
                }
            )  # fmt: skip
    return found


def split(counted: Counted | None, begin: int, end: int, rows_per_unit: int) -> list[tuple[int, int]]:
    """At marks, into parts of about so many rows, or more where there is no mark."""
    if counted is None:
        return [(begin, end)]
    total = counted.about_between(begin, end).rows
    count = max(1, round(total / rows_per_unit))
    before = counted.about(begin).rows
    at: list[int] = [begin]
    for mark in counted.marks:
        if begin < mark.position < end and mark.rows - before >= len(at) * total / count and len(at) < count:
            at.append(mark.position)
    return list(zip(at, [*at[1:], end], strict=True))


def find(seen: Seen, times_ms: Sequence[int]) -> list[int]:
    """For each time a position before which nothing was published that is younger than it, less FIND_SLACK_MS."""
    return [min(seen.cut, max(0, seen.view.position_at(max(0, time_ms - FIND_SLACK_MS)))) for time_ms in times_ms]


def behind(seen: Seen, times_ms: Sequence[int]) -> list[int | None]:
    """For each time a position from which on nothing was published that is older than it, plus FIND_SLACK_MS; None: not yet."""
    marks = [seen.view.mark_at(time_ms + FIND_SLACK_MS) for time_ms in times_ms]
    return [mark if mark is not None and mark <= seen.cut else None for mark in marks]
