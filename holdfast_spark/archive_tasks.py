"""What Spark runs for the archive: a task is a list of units, which it scans and writes as Parquet files; it returns reports as JSON.

`mapInArrow(partial(run_in_arrow, job), REPORT)` over one row for each task, its number; without Spark, `run_task` does the same.

An error that another try would meet again is a report too, one sentence, since Spark would try four times and then bury it under its own
trace. A task that is tried again writes files of other names; those of the try that failed lie in the directory of the run, and go with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast_spark.blocks import Decoder, Wanted
from holdfast_spark.client import Client, Endpoint, NoReader, NotRepeatable, Unit
from holdfast_spark.collecting import spare_imported
from holdfast_spark.parquet_units import USUAL, Limits, Piece, ReadUnit, Scan, Unlike, WrittenFile, told, write_units
from holdfast_spark.properties import DamagedValue
from holdfast_spark.protocol import Refused, WireError
from holdfast_spark.reading import incarnation_of
from holdfast_spark.schema import arrow_schema

REPORT: Final = "report string"
"""The schema of what tasks return, as Spark spells it."""


@dataclass(frozen=True, slots=True)
class Job:
    """All that executors have to know. directory: one that they and the driver both see, and that is there."""

    endpoint: Endpoint
    store: str
    filters: tuple[str, ...]
    walls: dict[int, tuple[tuple[int, int], ...]]
    directory: str
    tasks: tuple[tuple[Unit, ...], ...]
    limits: Limits = USUAL


@dataclass(frozen=True, slots=True)
class Failed:
    """A task could not do its work, and another try would not either."""

    sentence: str


Report = WrittenFile | ReadUnit | Failed


def run_in_arrow(job: Job, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    spare_imported()
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            reports = [encode(report) for report in run_task(job, number)]
            yield pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], names=["report"])


def run_task(job: Job, number: int) -> Iterator[Report]:
    units = job.tasks[number]
    at = units[0]
    directory = Path(job.directory)
    try:
        with Client(job.endpoint, who="archive") as client:
            yield from write_units(units, scan_with(client, job), directory, arrow_schema(), job.limits)
    except (Unlike, NotRepeatable) as error:
        yield Failed(str(error))
    except DamagedValue as error:
        yield Failed(f"shard {at.shard}, generation {at.generation} and what is read with it: {error}")
    except Refused as error:
        yield Failed(f"the reader refuses {told(at)} or what is read with it: {error.sentence}")
    except (WireError, NoReader) as error:
        yield Failed(f"{told(at)} or what is read with it could not be read: {error}")
    except (OSError, pa.ArrowException) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else str(error).splitlines()[0]
        yield Failed(f"files cannot be written to {directory}: {cause}")


def scan_with(client: Client, job: Job) -> Scan:
    schema, incarnation = arrow_schema(), incarnation_of(job.store)

    def scan(unit: Unit) -> Iterator[pa.RecordBatch]:
        decoder = Decoder(Wanted(schema, unit.shard, unit.generation, incarnation, job.walls[unit.shard]))
        with closing(client.scan(job.store, unit, job.filters)) as blocks:  # type: ignore[type-var]  # it is a generator
            for block in blocks:
                yield decoder.batch(block)

    return scan


def encode(report: Report) -> str:
    fields: dict[str, Any] = asdict(report)
    if isinstance(report, WrittenFile):
        fields["pieces"] = [piece.row() for piece in report.pieces]
    elif isinstance(report, ReadUnit):
        # As text: 64 bits are more than some readers of JSON keep.
        fields |= {"digest": f"{report.digest:016x}", "ts_sum": f"{report.ts_sum:016x}"}
    return json.dumps({"kind": type(report).__name__, **fields})


def decode(text: str) -> Report:
    fields = json.loads(text)
    match fields.pop("kind"):
        case "WrittenFile":
            return WrittenFile(**{**fields, "pieces": tuple(Piece.of(row) for row in fields["pieces"])})
        case "ReadUnit":
            return ReadUnit(Unit(**fields["unit"]), fields["rows"], int(fields["digest"], 16), int(fields["ts_sum"], 16))
        case "Failed":
            return Failed(**fields)
        case kind:
            raise ValueError(f"a report of the kind {kind}")
