"""From "what is to be read" to partitions: which shards, which range, which units go together. On the driver; asks metadata only.

A partition is of one shard and has one unit or several small ones that lie behind each other, so that a store of many small generations
does not become as many tasks. What of the range is gone comes with the plan; whether that is an error is for who asked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from holdfast_spark.client import Client, Unit
from holdfast_spark.offsets import Offset
from holdfast_spark.options import ReadOptions
from holdfast_spark.protocol import Code, Refused

log = logging.getLogger("holdfast_spark")

STRETCHES_TOLD: Final = 2
"""In one sentence; `Refused.more` has all gaps."""
Cuts = Mapping[int, int]
Wall = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which rows, besides the range: what the options say, narrowed by the filters that Spark pushed down."""

    filters: tuple[str, ...]
    clients: tuple[str, ...] | None = None
    shards: tuple[int, ...] | None = None
    ts_from_ms: int | None = None
    ts_before_ms: int | None = None
    offset_from: int | None = None
    offset_before: int | None = None
    nothing: bool = False
    """What is asked for contradicts itself: there is no such row."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one task reads."""

    store: str
    units: tuple[Unit, ...]
    wall: Wall
    expired_at_ms: int | None


class Part(InputPartition):
    """Work, in the wrapping that Spark asks for. ``value`` is None where Spark makes one itself, because there was none."""

    def __init__(self, work: Work) -> None:
        super().__init__(work)


@dataclass(frozen=True, slots=True)
class Gap:
    """A part of a range that is gone: from <= position < to."""

    shard: int
    generation: int
    klass: str
    start: int
    stop: int
    reason: str

    def __str__(self) -> str:
        return (
            f"shard {self.shard}, generation {self.generation} (class {self.klass}), positions {self.start} to {self.stop}: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class State:
    """What the reader says about its store now."""

    store: str
    cuts: dict[int, int]
    earliest: dict[int, int]
    walls: dict[int, Wall]
    dropped: tuple[Gap, ...]
    """What went before now and is still known of."""
    counted: tuple[tuple[int, int, int], ...] | None
    """(shard, generation, rows) of everything: while it stays the same, nothing was stored. None: nobody counted."""


@dataclass(frozen=True, slots=True)
class Plan:
    parts: list[Part]
    gaps: list[Gap] = field(default_factory=list)


def scope_of(options: ReadOptions) -> Scope:
    return Scope(options.filters, options.clients, options.shards, options.ts_from_ms, options.ts_before_ms)


def look(client: Client) -> State:
    answer = client.cuts()
    shards = {int(shard): found for shard, found in sorted(answer["shards"].items(), key=lambda item: int(item[0]))}
    counted: list[tuple[int, int, int]] | None = []
    for shard, found in shards.items():
        for each in found["generations"]:
            if counted is not None and each.get("rows") is not None:
                counted.append((shard, each["id"], each["rows"]))
            elif each.get("until") is None:
                counted = None
    return State(
        answer["store"],
        {shard: found["cut"] for shard, found in shards.items()},
        {shard: found["earliest"] for shard, found in shards.items()},
        {shard: tuple((position, offset_ms) for position, offset_ms in found["wall"]) for shard, found in shards.items()},
        tuple(gap for found in shards.values() for gap in gaps_of(found.get("gone", ()))),
        None if counted is None else tuple(counted),
    )


def gaps_of(found: Sequence[Mapping[str, Any]]) -> list[Gap]:
    return [Gap(each["shard"], each["generation"], each["class"], each["from"], each["to"], each["reason"]) for each in found]


def at_time(client: Client, state: State, wall_ms: int) -> dict[int, int]:
    """For each shard a position before which nothing shows this time or a later one."""
    # Steady time is what the reader knows; the earliest that any wall clock of the store can have shown this at.
    most = max((offset for wall in state.walls.values() for _, offset in wall), default=0)
    found = client.find([max(0, wall_ms - max(0, most))])["positions"]
    return {shard: min(int(found[str(shard)][0]), cut) for shard, cut in state.cuts.items()}


def behind_time(client: Client, state: State, wall_ms: int) -> dict[int, int]:
    """For each shard a position from which on everything shows this time or a later one; the cut when nobody knows of one."""
    least = min((offset for wall in state.walls.values() for _, offset in wall), default=0)
    found = client.find([wall_ms - min(0, least)]).get("behind", {})
    ends: dict[int, int] = {}
    for shard, cut in state.cuts.items():
        at = found.get(str(shard), [None])[0]
        ends[shard] = cut if at is None else min(int(at), cut)
    return ends


def cuts_of(offset: Offset, state: State, what: str) -> dict[int, int]:
    """The cuts of an offset that somebody gave, for all shards of this store."""
    offset.of_store(state.store)
    if set(offset.cuts) != set(state.cuts):
        raise Refused(Code.REQUEST, f"{what} names the shards {sorted(offset.cuts)}, and the store has the shards {sorted(state.cuts)}")
    for shard, cut in offset.cuts.items():
        if cut > state.cuts[shard]:
            raise Refused(
                Code.REQUEST,
                f"{what} is {cut} in shard {shard}, and what is committed there ends at {state.cuts[shard]}: nothing is known beyond",
            )
    return dict(offset.cuts)


def make_plan(
    client: Client,
    state: State,
    scope: Scope,
    start: Cuts,
    stop: Cuts,
    *,
    rows_per_partition: int,
    min_partitions: int,
    expired_at_ms: int | None,
    exclude: Mapping[int, Cuts] | None = None,
) -> Plan:
    """Partitions for [start, stop), without what is below the positions of generations in ``exclude``: neither read nor missed."""
    begins, ends = _narrowed(scope, start, stop)
    if scope.nothing or not begins:
        return Plan([])

    def ask(rows: int) -> dict[str, Any]:
        return client.plan(begins, ends, scope.filters, scope.clients, scope.shards, rows)

    answer = ask(rows_per_partition)
    rows = sum(each["rows"] or 0 for each in answer["units"])
    per_partition = max(1, min(rows_per_partition, -(-rows // min_partitions)))
    if len(answer["units"]) < min_partitions and per_partition < rows_per_partition:
        answer = ask(per_partition)
    parts: list[Part] = []
    for units in _packed(_left(answer["units"], exclude or {}), per_partition):
        parts.append(Part(Work(state.store, units, state.walls[units[0].shard], expired_at_ms)))
    return Plan(parts, gaps_of(_left(answer["gaps"], exclude or {})))


def _left(found: Sequence[Mapping[str, Any]], exclude: Mapping[int, Cuts]) -> list[Mapping[str, Any]]:
    """What of units, or of gaps, is not below the position of its generation."""
    left: list[Mapping[str, Any]] = []
    for each in found:
        begin = max(each["from"], exclude.get(each["shard"], {}).get(each["generation"], 0))
        if begin < each["to"]:
            left.append({**each, "from": begin})
    return left


def _narrowed(scope: Scope, start: Cuts, stop: Cuts) -> tuple[dict[int, int], dict[int, int]]:
    """The range of each shard that has one at all."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for shard, cut in stop.items():
        if scope.shards is not None and shard not in scope.shards:
            continue
        begin = max(start[shard], scope.offset_from or 0)
        end = cut if scope.offset_before is None else min(cut, scope.offset_before)
        if begin < end:
            begins[shard], ends[shard] = begin, end
    return begins, ends


def _packed(units: Sequence[Mapping[str, Any]], rows_max: int) -> list[tuple[Unit, ...]]:
    """Units of one shard together, as long as their rows are known and few."""
    packed: list[list[Unit]] = []
    room = -1
    for each in sorted(units, key=lambda unit: (unit["shard"], unit["generation"], unit["from"])):
        unit = Unit(each["shard"], each["generation"], each["from"], each["to"])
        rows = rows_max if each["rows"] is None else each["rows"]
        if packed and packed[-1][-1].shard == unit.shard and rows <= room:
            packed[-1].append(unit)
            room -= rows
        else:
            packed.append([unit])
            room = rows_max - rows
    return [tuple(each) for each in packed]


def _stretches(gaps: Sequence[Gap]) -> list[str]:
    """Gaps in words; those of one class that meet are one, as when many generations went one after the other."""
    found: list[list[Gap]] = []
    for gap in sorted(gaps, key=lambda gap: (gap.shard, gap.klass, gap.start)):
        last = found[-1][-1] if found else None
        if last is not None and (last.shard, last.klass, last.reason, last.stop) == (gap.shard, gap.klass, gap.reason, gap.start):
            found[-1].append(gap)
        else:
            found.append([gap])
    return [_stretch(each[0], each[-1]) for each in found]


def _stretch(first: Gap, last: Gap) -> str:
    if first is last:
        return str(first)
    generations = f"generations {first.generation} to {last.generation} (class {first.klass})"
    return f"shard {first.shard}, {generations}, positions {first.start} to {last.stop}: {first.reason}"


def lost(gaps: Sequence[Gap]) -> Refused:
    """The error for what is gone: exact, and never endless."""
    stretches = _stretches(gaps)
    shown = "; ".join(stretches[:STRETCHES_TOLD])
    if len(stretches) > STRETCHES_TOLD:
        shown += f"; and {len(stretches) - STRETCHES_TOLD} more"
    more = [
        {"shard": g.shard, "generation": g.generation, "class": g.klass, "from": g.start, "to": g.stop, "reason": g.reason} for g in gaps
    ]
    return Refused(
        Code.LOST,
        f"messages that were to be read are gone ({shown}); option failOnDataLoss=false goes on without what was dropped, a lease keeps it",
        {"gaps": more},
    )


def report(gaps: Sequence[Gap], *, fail: bool) -> None:
    """What is gone: an error, or a line for each in the log of the driver's Python."""
    if fail:
        raise lost(gaps)
    for gap in gaps:
        log.warning("messages are gone and are left out: %s", gap)
