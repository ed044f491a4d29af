"""Capacity: what is stored by topic pattern, how fast it grows, when the quota is reached, and who would lose what if less were kept.

Pure reckoning over what the reader says (CUTS, STATS) and what a survey of the stores says of sessions (shards.survey, handed in by the
command line, since only who has the files can ask). The reader counts what records counted; `exact` reads everything in Spark instead.

What always holds: nothing is invented. What is not known (generations from before there were counts, sessions of a broker elsewhere) is
None or said, and never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
_RECENT: Final = 2
"""The present rate is that of so many newest generations of each shard and class."""
_SURE_BYTES: Final = 64 << 20
"""With less stored than this, files are mostly log, and say nothing of what a message takes."""


@dataclass(frozen=True, slots=True)
class Generation:
    """As CUTS has it. rows, bytes None: it was written before there were counts."""

    shard: int
    id: int
    klass: str
    since: int
    until: int | None
    rows: int | None
    bytes: int | None
    created_ms: int
    sealed_ms: int | None

    @classmethod
    def all_of(cls, cuts: Mapping[str, Any]) -> list[Generation]:
        return [cls._of(int(shard), row) for shard, of in cuts["shards"].items() for row in of["generations"]]

    @classmethod
    def _of(cls, shard: int, row: Mapping[str, Any]) -> Generation:
        names = ("id", "class", "since", "until", "rows", "bytes", "created_ms", "sealed_ms")
        return cls(shard, *(row[name] for name in names))

    @property
    def over_ms(self) -> int:
        """Since when it is sealed; of one whose successor is not known, since when it was there."""
        return self.created_ms if self.sealed_ms is None else self.sealed_ms


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topics that one learned pattern stands for, over all generations that there are."""

    pattern: str
    rows: int
    bytes: int
    sampled: bool
    rows_per_s: float | None
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """When the files reach the quota if publishers go on as they do now."""

    used_bytes: int | None
    quota_bytes: int | None
    """None: unlimited, or not known here."""
    rows_per_s: float | None
    bytes_per_s: float | None
    """Of files."""
    steady_bytes: int | None
    """What the files take when as much is dropped as is written."""
    days: float | None
    """None: never, with this rate and these periods."""


@dataclass(frozen=True, slots=True)
class Loser:
    """Who has not taken all of a generation that would go."""

    kind: str
    """session or lease."""
    name: str
    filter: str
    shard: int
    generation: int
    messages: int | None
    """At most: for a lease, all that the generation holds behind its place may have been taken in part."""
    held: bool
    """It would wait for this one, within the bounds of the lease or as hold_unread says."""


def present_rates(generations: Sequence[Generation], now_ms: int) -> tuple[float, float] | None:
    """(messages, value bytes) a second, of the newest generations; None: nobody knows."""
    by_class = _rates_by_class(generations, now_ms)
    return (sum(rows for rows, _ in by_class.values()), sum(size for _, size in by_class.values())) if by_class else None


def _rates_by_class(generations: Sequence[Generation], now_ms: int) -> dict[str, tuple[float, float]]:
    newest: dict[tuple[int, str], list[Generation]] = defaultdict(list)
    for each in sorted(generations, key=lambda one: -one.since):
        if len(newest[each.shard, each.klass]) < _RECENT:
            newest[each.shard, each.klass].append(each)
    found: dict[str, tuple[float, float]] = {}
    for (_, klass), of_class in newest.items():
        counted = [(each.rows, each.bytes, each.created_ms) for each in of_class if each.rows is not None and each.bytes is not None]
        # Where nothing is current, the class is not in the map any more, and nothing comes.
        if counted and any(each.until is None for each in of_class):
            seconds = max(1.0, (now_ms - min(created for _, _, created in counted)) / 1000)
            rows, size = found.get(klass, (0.0, 0.0))
            found[klass] = rows + sum(one for one, _, _ in counted) / seconds, size + sum(one for _, one, _ in counted) / seconds
    return found


def per_value_byte(generations: Sequence[Generation], used_bytes: int) -> float:
    """What the files take for a byte of messages: keys and indexes on top, compression off."""
    known = sum(each.bytes or 0 for each in generations)
    return min(3.0, max(0.2, used_bytes / known)) if known >= _SURE_BYTES else 1.0


def forecast(
    generations: Sequence[Generation],
    periods_ms: Mapping[str, int],
    now_ms: int,
    used_bytes: int | None,
    quota_bytes: int | None,
    left_ms: Mapping[tuple[int, int], int | None] | None = None,
    held: Collection[tuple[int, int]] = (),
) -> Forecast:
    """periods_ms: of each class. left_ms: of (shard, generation), until it is over by the shard's own clock. held: (shard, generation) of
    those whose time is over and that wait for somebody, who may go on making them wait."""
    rates = _rates_by_class(generations, now_ms)
    rows_per_s = sum(rows for rows, _ in rates.values()) if rates else None
    if not rates or used_bytes is None:
        return Forecast(used_bytes, quota_bytes, rows_per_s, None, None, None)
    factor = per_value_byte(generations, used_bytes)
    drops = []
    for each in generations:
        if each.until is not None and each.bytes is not None and each.klass in periods_ms and (each.shard, each.id) not in held:
            left = (left_ms or {}).get((each.shard, each.id))
            due_ms = each.over_ms + periods_ms[each.klass] - now_ms if left is None else left
            drops.append((float(max(0, due_ms)), each.bytes * factor))
    longest_ms = max(periods_ms.values())
    growing = [
        (_grows_ms(generations, klass, periods_ms.get(klass, longest_ms)), size * factor / 1000) for klass, (_, size) in rates.items()
    ]
    reached_ms = _reached(used_bytes, quota_bytes, growing, drops)
    steady = used_bytes - sum(size for _, size in drops) + sum(rate * grows_ms for grows_ms, rate in growing)
    rate = 1000 * sum(of_class for _, of_class in growing)
    return Forecast(used_bytes, quota_bytes, rows_per_s, rate, int(steady), None if reached_ms is None else reached_ms / DAY_MS)


def _grows_ms(generations: Sequence[Generation], klass: str, period_ms: int) -> float:
    """For so long as much is written of a class as there is: messages of now go when the generation is over that they are in, and then
    its period."""
    lengths = [each.over_ms - each.created_ms for each in generations if each.until is not None and each.klass == klass]
    return float(period_ms + max([DAY_MS // 24, *lengths]))


def _reached(used: float, quota: int | None, growing: Sequence[tuple[float, float]], drops: Sequence[tuple[float, float]]) -> float | None:
    """growing: (until when, by how much a ms); drops: (when, how much). Between two of these moments files grow evenly."""
    if quota is None:
        return None
    slope = sum(rate for _, rate in growing)
    at = 0.0
    for when, size, less in sorted([(when, size, 0.0) for when, size in drops] + [(when, 0.0, rate) for when, rate in growing]):
        grown = used + slope * (when - at)
        if grown >= quota:
            return at + (max(0.0, (quota - used) / slope) if slope > 0 else 0.0)
        used, at, slope = grown - size, when, slope - less
    return None


def patterns_of(stats: Mapping[str, Any], generations: Sequence[Generation], now_ms: int) -> list[Pattern]:
    """By size; a pattern that several shards and generations have is one."""
    created = {(each.shard, each.id): each.created_ms for each in generations}
    rows: dict[str, int] = defaultdict(int)
    size: dict[str, int] = defaultdict(int)
    sampled: dict[str, bool] = defaultdict(bool)
    since: dict[str, int] = {}
    for one in stats["patterns"]:
        name = one["pattern"]
        rows[name] += one["rows"]
        size[name] += one["bytes"]
        sampled[name] |= one["sampled"]
        began = created.get((one["shard"], one["generation"]))
        if began is not None:
            since[name] = min(began, since.get(name, began))
    found = []
    for name in rows:
        seconds = max(1.0, (now_ms - since[name]) / 1000) if name in since else None
        per_s = (None, None) if seconds is None else (rows[name] / seconds, size[name] / seconds)
        found.append(Pattern(name, rows[name], size[name], sampled[name], *per_s))
    return sorted(found, key=lambda one: (-one.bytes, one.pattern))


def exact(spark: SparkSession, options: Mapping[str, str], patterns: Sequence[Pattern], names: Mapping[int, str]) -> list[Pattern]:
    """The same with rows and bytes as they are, by reading all of it: what each holds in payloads and topics. names: of streams."""
    from pyspark.sql import functions as f

    df = spark.read.format("holdfast").options(**options).option("columns", "stream,topic,payload").load()
    counted = df.groupBy("stream").agg(
        f.count(f.lit(1)).alias("rows"), f.sum(f.octet_length("payload") + f.octet_length("topic")).alias("bytes")
    )
    rows: dict[str, int] = defaultdict(int)
    size: dict[str, int] = defaultdict(int)
    for row in counted.collect():
        name = names.get(row.stream, f"stream {row.stream}")
        rows[name] += row["rows"]
        size[name] += row["bytes"]
    by_name = {each.pattern: each for each in patterns}
    found = []
    for name in rows:
        was = by_name.get(name, Pattern(name, 0, 0, False, None, None))
        seconds = was.rows / was.rows_per_s if was.rows and was.rows_per_s else None
        per_s = (None, None) if seconds is None else (rows[name] / seconds, size[name] / seconds)
        found.append(replace(was, rows=rows[name], bytes=size[name], sampled=False, rows_per_s=per_s[0], bytes_per_s=per_s[1]))
    return sorted(found, key=lambda one: (-one.bytes, one.pattern))


def would_go(generations: Iterable[Generation], period_ms: int, now_ms: int) -> list[Generation]:
    """Those that would be dropped at once if messages were kept for so long only."""
    return [each for each in generations if each.until is not None and each.over_ms + period_ms <= now_ms]


def leases_behind(leases: Iterable[Mapping[str, Any]], going: Iterable[Generation]) -> list[Loser]:
    """Leases that have not taken all of what would go. They hold it back, within their bounds."""
    found = []
    for each in going:
        assert each.until is not None
        for lease in leases:
            place = lease["to"].get(str(each.shard))
            if place is not None and place < each.until:
                filters = " ".join(lease.get("filters") or ())
                found.append(Loser("lease", lease["name"], filters, each.shard, each.id, each.rows, True))
    return found


def amount(size: float | None) -> str:
    """For people."""
    if size is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
