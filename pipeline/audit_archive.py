"""Audit of an archive: its files against its manifest, and its manifest against the store, generation by generation.

    with_archive(spark, endpoint, root, report)

A generation that the store has dropped cannot be compared any more: for that the archive is there. What is sealed and not archived yet is
not wrong either; a generation that was archived in part is compared as far as it was. What went before it could be archived is in neither:
the manifest has it written down, and that is damage of the archive for as long as there is one.

What always holds: rows are compared by number and by digest (holdfast_spark.digest), so one flipped bit in one message is one sentence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast_spark.archive_tasks import Job
from holdfast_spark.client import Client, Endpoint
from holdfast_spark.comparing import READ, digest_in_arrow, digest_task
from holdfast_spark.digest import MODULUS
from pipeline.archive_plan import Range, Seen, tasks_of, units_of
from pipeline.archive_verify import verify
from pipeline.archive_work import planned
from pipeline.archived import ArchiveError, Generation, Reached, State, site_of
from pipeline.audit import Report
from pipeline.manifest import Manifest, Step, nothing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_UNIT: Final = 250_000
TASK_BYTES: Final = 64 << 20
_BYTES_UNKNOWN: Final = 190


@dataclass(frozen=True, slots=True)
class Compared:
    """generations: so many were in both."""

    generations: int
    problems: tuple[str, ...]


def with_archive(spark: SparkSession | None, endpoint: Endpoint, root: str | Path, report: Report) -> Report:
    """The report of messages, with what is wrong with the archive. ArchiveError: there is none, or it is another broker's."""
    found = compare(spark, endpoint, root)
    return replace(report, damage=(*report.damage, *found.problems), archived_units=found.generations)


def compare(spark: SparkSession | None, endpoint: Endpoint, root: str | Path, step: Step = nothing) -> Compared:
    """spark None: in this process, for little."""
    root = Path(root)
    problems = list(verify(root).problems)
    try:
        state = Manifest(root).load()
    except ArchiveError:
        # It was said.
        return Compared(0, tuple(problems))
    with Client(endpoint, who="audit") as client:
        store = str(client.hello()["store"])
        if state.number and site_of(state.store) != site_of(store):
            raise ArchiveError(f"{root} is the archive of the site {site_of(state.store)}, and this broker is the site {site_of(store)}")
        seen = Seen.of(client.cuts())
        ranges = _ranges(seen, state)
        units = units_of(ranges, planned(client, ranges, state.filters, ROWS_PER_UNIT))
    job = Job(endpoint, store, state.filters, dict(seen.walls), "", tasks_of(units, TASK_BYTES))
    rows: dict[Generation, int] = defaultdict(int)
    digests: dict[Generation, int] = defaultdict(int)
    failed: dict[Generation, str] = {}
    step("reading the store")
    for shard, generation, count, digest, sentence in _read(spark, job):
        rows[shard, generation] += count
        digests[shard, generation] = (digests[shard, generation] + int(digest, 16)) % MODULUS
        if sentence is not None:
            failed.setdefault((shard, generation), sentence)
    if failed:
        # What goes in the meantime, since its time is over, cannot be compared any more.
        with Client(endpoint, who="audit") as client:
            there = {(each.shard, each.number) for each in Seen.of(client.cuts()).generations}
        ranges = [each for each in ranges if (each.shard, each.generation) in there]
    problems += [f"{lost.where}: it was dropped before it was archived ({lost.reason or 'remembered no more'})" for lost in state.lost]
    for each in ranges:
        key = each.shard, each.generation
        problems += _judged(state.reached[key], failed.get(key), rows[key], digests[key])
    return Compared(len(ranges), tuple(problems))


def _ranges(seen: Seen, state: State) -> list[Range]:
    there = {(each.shard, each.number): each for each in seen.generations}
    found = []
    for key, reached in sorted(state.reached.items()):
        generation = there.get(key)
        if generation is not None and reached.stop > reached.start:
            size = _BYTES_UNKNOWN * reached.rows
            found.append(Range(*key, generation.klass, reached.start, reached.stop, size, False, None))
    return found


def _read(spark: SparkSession | None, job: Job) -> Sequence[tuple[int, int, int, str, str | None]]:
    if not job.tasks:
        return []
    if spark is None:
        return [row for number in range(len(job.tasks)) for row in digest_task(job, number)]
    numbers = spark.range(0, len(job.tasks), 1, len(job.tasks))
    return [tuple(row) for row in numbers.mapInArrow(partial(digest_in_arrow, job), READ).collect()]


def _judged(reached: Reached, failed: str | None, rows: int, digest: int) -> list[str]:
    where = f"generation {reached.generation} of shard {reached.shard}, positions {reached.start} to {reached.stop - 1}"
    if failed is not None:
        return [f"{where}: the store cannot be read to compare it: {failed}"]
    if rows != reached.rows:
        return [f"{where}: the archive has {reached.rows} messages, and the store has {rows}"]
    if digest != reached.digest:
        return [f"{where}: the {rows} messages of the archive are not those of the store (digest {reached.digest:016x}, {digest:016x})"]
    return []
