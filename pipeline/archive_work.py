"""One round of the archive between its plan and its commit: tasks run, by Spark or here, and what they report judged.

Holds: what ``compared`` lets through is what the scans gave, row by row, and as many rows as the store itself has counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast_spark.archive_tasks import REPORT, Failed, Job, Report, decode, run_in_arrow, run_task
from holdfast_spark.client import Client, Unit
from holdfast_spark.digest import MODULUS
from holdfast_spark.parquet_units import Piece, ReadUnit, WrittenFile, told
from pipeline.archive_plan import Range
from pipeline.archived import ArchiveError, Reached, SparkEnded, State

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDED = "the Spark session of the archive has ended; nothing was committed"


def planned(client: Client, ranges: Sequence[Range], filters: Sequence[str], rows: int) -> list[dict[str, Any]]:
    """Where the reader would cut the ranges into parts of so many rows."""
    starts: dict[int, int] = {}
    stops: dict[int, int] = {}
    for each in ranges:
        if not each.empty:
            starts[each.shard] = min(starts.get(each.shard, each.start), each.start)
            stops[each.shard] = max(stops.get(each.shard, each.stop), each.stop)
    if not starts:
        return []
    units: list[dict[str, Any]] = client.plan(starts, stops, filters, None, sorted(starts), rows)["units"]
    return units


def execute(spark: SparkSession | None, job: Job) -> list[Report]:
    """All reports of all tasks. ArchiveError with the first sentence of a task that failed."""
    if spark is None:
        reports = [report for number in range(len(job.tasks)) for report in run_task(job, number)]
    else:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if _ended(spark):
            raise SparkEnded(_ENDED)
        try:
            # One row and one partition for each task, so that none waits for another.
            numbers = spark.range(0, len(job.tasks), 1, len(job.tasks))
            rows = numbers.mapInArrow(partial(run_in_arrow, job), REPORT).collect()
        except (PySparkException, Py4JError, OSError) as error:
            if _ended(spark):
                raise SparkEnded(_ENDED) from error
            raise ArchiveError(f"Spark could not run the tasks of the archive: {_cause(str(error))}") from error
        reports = [decode(row[0]) for row in rows]
    for report in reports:
        if isinstance(report, Failed):
            raise ArchiveError(report.sentence)
    return reports


def _ended(spark: SparkSession) -> bool:
    """Stopped, or its Java is gone: no task will run in it again."""
    from py4j.protocol import Py4JError

    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except (Py4JError, OSError):
        return True


def _cause(text: str) -> str:
    """Of a trace that ends with the error of Python's worker, that error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        name, colon, rest = line.partition(": ")
        if colon and rest and name.isidentifier() and name.endswith(("Error", "Exception")):
            return line
    return lines[0] if lines else "it said nothing"


def compared(units: Mapping[Range, Sequence[Unit]], reports: Sequence[Report], state: State, *, counts: bool) -> tuple[Reached, ...]:
    """What each range comes to. counts: everything was asked for, so the store's own count has to be met.

    ArchiveError when a unit was not read exactly once, when files hold something else than was read, or when the count is another.
    """
    read: dict[Unit, ReadUnit] = {}
    pieces: dict[Unit, list[Piece]] = defaultdict(list)
    for report in reports:
        if isinstance(report, ReadUnit):
            if report.unit in read:
                raise ArchiveError(f"{told(report.unit)} was read twice in one run; nothing was committed")
            read[report.unit] = report
        elif isinstance(report, WrittenFile):
            for piece in report.pieces:
                pieces[piece.unit].append(piece)
    wanted = {unit for of_range in units.values() for unit in of_range}
    if read.keys() != wanted or not pieces.keys() <= wanted:
        raise ArchiveError(f"{len(wanted)} units were to be archived and {len(read)} were reported; nothing was committed")
    for unit, was in read.items():
        rows, digest, ts_sum = _sums(pieces[unit])
        if (rows, digest, ts_sum) != (was.rows, was.digest, was.ts_sum):
            found = f"{rows} rows with digest {digest:016x} where {was.rows} with {was.digest:016x} were read"
            raise ArchiveError(f"the files of {told(unit)} hold {found}; nothing was committed")
    return tuple(_reached(range_, [read[unit] for unit in of_range], state, counts) for range_, of_range in units.items())


def _reached(range_: Range, read: Sequence[ReadUnit], state: State, counts: bool) -> Reached:
    rows, digest = sum(each.rows for each in read), sum(each.digest for each in read) % MODULUS
    before = state.reached.get((range_.shard, range_.generation))
    whole = rows + (before.rows if before is not None else 0)
    if counts and range_.rows_whole is not None and whole != range_.rows_whole:
        where = f"generation {range_.generation} of shard {range_.shard} (class {range_.klass})"
        raise ArchiveError(f"{where} holds {range_.rows_whole} messages by the store's count, and {whole} were read; nothing was committed")
    return Reached(range_.shard, range_.generation, range_.start, range_.stop, rows, digest)


def _sums(pieces: Sequence[Piece]) -> tuple[int, int, int]:
    digest = sum(piece.digest for piece in pieces) % MODULUS
    return sum(piece.rows for piece in pieces), digest, sum(piece.ts_sum for piece in pieces) % MODULUS
