"""STATS: how much lies under which topic pattern, and what retention would do; for people who plan.

A pattern is what the topics of a stream have in common. A stream that is small is counted; of a large one the beginning is read and the
rest is estimated, and all estimates of a generation together are made to fit what the generation says that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.reader.planning import overlapping
from actors.reader.scanning import Scan, streams_of
from actors.reader.shard_side import ShardSide
from actors.reader.views import Seen
from shards.generations import GenerationDropped, GenerationInfo
from shards.layouts.port import Stream
from shards.queries import RetentionFound, RetentionState

PATTERNS_MAX = 20_000
"""Of one shard; further streams of a generation are told as one row, under the pattern `#`."""
_LOOKED_AT_ROWS = 2000
_LOOKED_AT_IN_ALL = 500_000
_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Row:
    generation: GenerationInfo
    stream: int
    pattern: str
    rows: int
    bytes: int
    sampled: bool
    """It is an estimate."""

    def as_json(self, shard: int) -> dict[str, Any]:
        return {
            "shard": shard, "generation": self.generation.id, "class": self.generation.klass, "stream": self.stream,
            "pattern": self.pattern, "rows": self.rows, "bytes": self.bytes, "sampled": self.sampled,
        }  # fmt: skip


def survey(shard: int, seen: Seen, filters: tuple[bytes, ...]) -> list[dict[str, Any]]:
    """Of one shard."""
    found: list[Row] = []
    left = _LOOKED_AT_IN_ALL
    for info, begin, end in overlapping(seen, 0, seen.cut):
        try:
            rows, left = _of_generation(seen, info, begin, end, filters, left, PATTERNS_MAX - len(found))
        except GenerationDropped:
            continue  # Between two looks.
        found += rows
    return [row.as_json(shard) for row in found]


def retention(side: ShardSide, n_shards: int) -> dict[str, Any]:
    """Why each sealed generation is still there; whether the quota is near (1: above its soft mark, 2: used up)."""
    found: list[dict[str, Any]] = []
    level = 0
    for shard, told in sorted(side.query(range(n_shards), RetentionState()).items()):
        assert isinstance(told, RetentionFound), told
        level = max(level, told.quota_level)
        for generation, klass, since, until, left_ms, held_by in told.generations:
            found.append(
                {
                    "shard": shard, "generation": generation, "class": klass, "since": since, "until": until,
                    "left_ms": left_ms, "held_by": held_by,
                }
            )  # fmt: skip
    return {"generations": found, "quota_level": level}


def _of_generation(
    seen: Seen, info: GenerationInfo, begin: int, end: int, filters: tuple[bytes, ...], left: int, patterns_left: int
) -> tuple[list[Row], int]:
    """The rows, and how many messages may still be looked at."""
    patterns = {leaf.static: b"/".join(b"+" if level is None else level for level in leaf.levels) for leaf in seen.view.leaves(info.id)}
    found: list[Row] = []
    for static, wanted in streams_of(seen.view, Scan(info.id, begin - 1, end - 1, filters)):
        count, size, sampled = _estimate(seen, info, wanted, begin, end, max(1, min(_LOOKED_AT_ROWS, left)))
        left -= min(count, _LOOKED_AT_ROWS)
        if count:
            pattern = patterns.get(static, b"#").decode(errors="replace")
            found.append(Row(info, int.from_bytes(static, "big"), pattern, count, size, sampled))
    if len(found) > max(0, patterns_left):
        found.sort(key=lambda row: -row.bytes)
        rest = found[max(0, patterns_left) :]
        others = Row(info, 0, "#", sum(row.rows for row in rest), sum(row.bytes for row in rest), any(row.sampled for row in rest))
        found = [*found[: max(0, patterns_left)], others]
    total = seen.view.total(info.id)
    everything = not filters or b"#" in filters
    return _fitted(found, total) if everything and total is not None else found, left


def _estimate(seen: Seen, info: GenerationInfo, wanted: Sequence[Stream], begin: int, end: int, rows_max: int) -> tuple[int, int, bool]:
    """(rows, bytes, whether that is an estimate) of a stream, or of the parts of it that are wanted."""
    count = size = 0
    sampled = False
    for stream in wanted:
        columns = seen.view.bulk(info.id, stream, begin - 1, end - 1, rows_max, _BYTES)
        rows, amount = columns.rows, columns.value_bytes
        if not columns.done and rows:
            # As if messages had come evenly from the first one on.
            first = int.from_bytes(columns.positions[:8], "little")
            part = max(1, columns.place - first) / max(1, end - first)
            rows, amount, sampled = int(rows / part), int(amount / part), True
        count, size = count + rows, size + amount
    return count, size, sampled


def _fitted(rows: list[Row], total: tuple[int, int]) -> list[Row]:
    """Estimates as large together as what was not counted."""
    for_sampled = [max(0, whole - sum(counted)) for whole, counted in zip(total, _columns(rows, False), strict=True)]
    guessed = [sum(column) for column in _columns(rows, True)]
    if not all(guessed):
        return rows
    return [
        replace(row, rows=round(row.rows * for_sampled[0] / guessed[0]), bytes=round(row.bytes * for_sampled[1] / guessed[1]))
        if row.sampled
        else row
        for row in rows
    ]


def _columns(rows: list[Row], sampled: bool) -> tuple[list[int], list[int]]:
    chosen = [row for row in rows if row.sampled == sampled]
    return [row.rows for row in chosen], [row.bytes for row in chosen]
