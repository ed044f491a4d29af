"""What Spark runs to compare an archive with the store: a task scans units and returns how many rows they have, and their digest.

As in holdfast_spark.archive_tasks an error that another try would meet again is an answer too: a sentence in the place of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from holdfast_spark.archive_tasks import Job, scan_with
from holdfast_spark.client import Client, NoReader, NotRepeatable
from holdfast_spark.digest import MODULUS, digest
from holdfast_spark.properties import DamagedValue
from holdfast_spark.protocol import Refused, WireError

READ: Final = "shard int, generation bigint, rows bigint, digest string, failed string"
"""The schema of what tasks return; digest: hexadecimal, as 64 bits without a sign are more than Spark's bigint."""
_ARROW: Final = pa.schema(
    [
        pa.field("shard", pa.int32()), pa.field("generation", pa.int64()), pa.field("rows", pa.int64()),
        pa.field("digest", pa.string()), pa.field("failed", pa.string()),
    ]
)  # fmt: skip


def digest_in_arrow(job: Job, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            rows = [dict(zip(_ARROW.names, row, strict=True)) for row in digest_task(job, number)]
            yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


def digest_task(job: Job, number: int) -> Iterator[tuple[int, int, int, str, str | None]]:
    """One row for each unit of the task."""
    with Client(job.endpoint, who="audit") as client:
        scan = scan_with(client, job)
        for unit in job.tasks[number]:
            rows = found = 0
            failed = None
            try:
                for batch in scan(unit):
                    rows += batch.num_rows
                    found = (found + digest(batch)) % MODULUS
            except Refused as error:
                failed = error.sentence
            except (DamagedValue, NotRepeatable, WireError, NoReader) as error:
                failed = str(error)
            yield unit.shard, unit.generation, rows, f"{found:016x}", failed
