"""What an archive takes next: ranges of generations, units of them, tasks of units; and how far its lease may be acknowledged.

From what the reader and the manifest say, and from nothing else: no clock, no file, no connection.

Holds: a range begins where the archive of its generation ends; the units of a range fill it, in order; nothing that is not archived lies
below the place up to which a lease is acknowledged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from holdfast_spark.client import Unit
from pipeline.archived import Lost, State

_BYTES_UNKNOWN = 190
"""A stored message, when nobody has counted."""
_ANY = "any class"
_PASSED_OVER = "lease"
_WITH_THEIR_STORE = frozenset(("store lost", "restored", "leadership forced"))
"""Why something went, as shards say it (shards.dropped)."""


@dataclass(frozen=True, slots=True)
class GenerationSeen:
    """As CUTS tells it. until: None while it is the current one of its class; rows and bytes: None when nobody counted."""

    shard: int
    number: int
    klass: str
    since: int
    until: int | None
    rows: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """The store now."""

    store: str
    cuts: Mapping[int, int]
    walls: Mapping[int, tuple[tuple[int, int], ...]]
    generations: tuple[GenerationSeen, ...]
    gone: tuple[Lost, ...]

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Seen:
        shards = {int(shard): found for shard, found in answer["shards"].items()}
        generations = tuple(
            GenerationSeen(shard, each["id"], each["class"], each["since"], each["until"], each["rows"], each["bytes"])
            for shard, found in sorted(shards.items())
            for each in found["generations"]
        )
        gone = tuple(
            Lost(shard, gap["generation"], gap["class"], gap["from"], gap["to"], gap["reason"])
            for shard, found in sorted(shards.items())
            for gap in found.get("gone", ())
        )
        walls = {shard: tuple((position, offset_ms) for position, offset_ms in found["wall"]) for shard, found in shards.items()}
        return cls(answer["store"], {shard: found["cut"] for shard, found in shards.items()}, walls, generations, gone)


@dataclass(frozen=True, slots=True)
class Range:
    """start <= position < stop of a generation, to be archived now. rows_whole: what it holds below ``stop``, when somebody counted."""

    shard: int
    generation: int
    klass: str
    start: int
    stop: int
    bytes: int
    empty: bool
    """It is known to hold no row: there is nothing to read."""
    rows_whole: int | None


@dataclass(frozen=True, slots=True)
class Round:
    """What one commit is to take. more: there is something that has to wait for the next one."""

    ranges: tuple[Range, ...] = ()
    lost: tuple[Lost, ...] = ()
    more: bool = False
    waiting_bytes: int = field(default=0)
    """Of what is sealed and not archived, with what this round takes."""


def next_round(
    seen: Seen, state: State, live_below: Mapping[int, int] | None, bytes_max: int, begun_below: Mapping[int, int] | None = None
) -> Round:
    """live_below: for each shard a position; a current generation with something unarchived below it is taken up to the cut. begun_below:
    for each shard a position; what begins there or later waits for another run."""
    found: list[Range] = []
    for each in seen.generations:
        start = state.upto(each.shard, each.number, each.since)
        stop = each.until
        if stop is None and live_below is not None and start < live_below.get(each.shard, 0):
            stop = seen.cuts[each.shard]
        if stop is None or start >= stop:
            continue
        done = state.reached.get((each.shard, each.number))
        rows_done = 0 if done is None else done.rows
        left = None if each.rows is None else max(0, each.rows - rows_done)
        if each.until is None and left == 0:
            # Nothing came, so there is nothing to write down: the lease goes on without a commit.
            continue
        size = _BYTES_UNKNOWN * (stop - start) if each.bytes is None or each.rows is None else each.bytes * (left or 0) // max(1, each.rows)
        whole = each.rows if each.until is not None and (done is None or done.start <= each.since) else None
        found.append(Range(each.shard, each.number, each.klass, start, stop, size, left == 0, whole))
    found.sort(key=lambda range_: (range_.stop, range_.shard, range_.generation))
    taken: list[Range] = []
    total = 0
    for range_ in found:
        if begun_below is not None and range_.start >= begun_below[range_.shard]:
            continue
        if taken and total + range_.bytes > bytes_max:
            break
        taken.append(range_)
        total += range_.bytes
    waiting = sum(range_.bytes for range_ in found)
    return Round(tuple(taken), tuple(lost_of(seen, state)), len(taken) < len(found), waiting)


def lost_of(seen: Seen, state: State) -> Iterable[Lost]:
    """What went between the beginning of the archive and now without being in it, and was not said before."""
    classes = {(each.shard, each.number): each.klass for each in seen.generations}
    classes |= {(gap.shard, gap.generation): gap.klass for gap in seen.gone}
    begins: dict[tuple[int, str | None], int] = {}
    ends: dict[int, int] = {}
    for (shard, number), reached in state.reached.items():
        # None: of any class, for all that is known.
        for key in ((shard, classes.get((shard, number))), (shard, _ANY)):
            begins[key] = min(begins.get(key, reached.start), reached.start)
        ends[shard] = max(ends.get(shard, reached.stop), reached.stop)
    for gap in seen.gone:
        if gap.shard not in ends:
            continue
        if _of_everything(gap):
            # What of it is not archived is known only beyond the end of the archive.
            begin, start = begins[gap.shard, _ANY], max(ends[gap.shard], gap.start)
        else:
            begin, start = _begin(begins, gap), max(state.upto(gap.shard, gap.generation, gap.start), gap.start)
        if begin <= start < gap.stop:
            lost = Lost(gap.shard, gap.generation, gap.klass, start, gap.stop, gap.reason)
            if lost not in state.lost:
                yield lost


def _begin(begins: Mapping[tuple[int, str | None], int], gap: Lost) -> int:
    """Where the archive of the gap's class began. Classes are kept for different times: what of one was dropped long ago lies behind the
    first that is there of another, and nobody has archived it since."""
    known = [begins[key] for key in ((gap.shard, gap.klass), (gap.shard, None)) if key in begins]
    if known:
        return min(known)
    # Nothing of this class yet. If there was a lease that would have held it, that was the archive's.
    return begins[gap.shard, _ANY] if gap.reason == _PASSED_OVER else gap.stop


def _of_everything(gap: Lost) -> bool:
    """It stands for all generations that are remembered no more, or that were in a store that was lost, or what that had gained since its
    backup."""
    return not gap.generation or gap.reason in _WITH_THEIR_STORE


def acknowledged(seen: Seen, state: State) -> dict[int, int]:
    """For each shard the position below which everything that is there is archived."""
    found = dict(seen.cuts)
    for each in seen.generations:
        upto = state.upto(each.shard, each.number, each.since)
        done = state.reached.get((each.shard, each.number))
        if each.until is not None and upto >= each.until:
            continue
        if each.until is None and each.rows is not None and each.rows == (0 if done is None else done.rows):
            # A class in which nothing happens holds nothing.
            continue
        found[each.shard] = min(found[each.shard], upto)
    return found


def live_positions(seen: Seen, behind: Mapping[str, Sequence[int | None]]) -> dict[int, int]:
    """FIND's answer to one time: below these positions, or else below the cut, there is nothing much younger."""
    found = {shard: behind[str(shard)][0] for shard in seen.cuts}
    return {shard: seen.cuts[shard] if at is None else min(at, seen.cuts[shard]) for shard, at in found.items()}


def units_of(ranges: Iterable[Range], planned: Iterable[Mapping[str, Any]]) -> dict[Range, list[Unit]]:
    """The units of each range, cut where the reader's plan cuts; they fill the range whatever the plan says."""
    cuts: dict[tuple[int, int], set[int]] = defaultdict(set)
    for each in planned:
        cuts[each["shard"], each["generation"]].update((each["from"], each["to"]))
    found: dict[Range, list[Unit]] = {}
    for range_ in ranges:
        inner = sorted(at for at in cuts[range_.shard, range_.generation] if range_.start < at < range_.stop)
        edges = [range_.start, *inner, range_.stop]
        whole = [Unit(range_.shard, range_.generation, start, stop) for start, stop in pairwise(edges)]
        found[range_] = [] if range_.empty else whole
    return found


def rows_per_unit(ranges: Sequence[Range], seen: Seen, task_bytes: int) -> int:
    """So many rows as have about ``task_bytes``."""
    wanted = {(range_.shard, range_.generation) for range_ in ranges}
    counted = [(each.rows, each.bytes) for each in seen.generations if (each.shard, each.number) in wanted and each.rows and each.bytes]
    rows, size = sum(rows for rows, _ in counted), sum(size for _, size in counted)
    return max(1000, task_bytes * rows // size if size else task_bytes // _BYTES_UNKNOWN)


def tasks_of(units: Mapping[Range, Sequence[Unit]], task_bytes: int) -> tuple[tuple[Unit, ...], ...]:
    """Units that follow each other packed together up to about ``task_bytes``: so small generations share their files."""
    packed: list[list[Unit]] = []
    room = -1
    for range_ in sorted(units, key=lambda range_: (range_.shard, range_.start, range_.generation)):
        for unit in units[range_]:
            size = range_.bytes // len(units[range_])
            if packed and size <= room:
                packed[-1].append(unit)
                room -= size
            else:
                packed.append([unit])
                room = task_bytes - size
    return tuple(tuple(task) for task in packed)
