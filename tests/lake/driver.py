"""The streaming query of the fault tests, as a user would write it: stored messages into a Parquet lake, from a checkpoint.

``python -m tests.lake.driver JSON``, where JSON is a ``Query``. It prints a line of JSON for each batch that was committed, ends with code
0 on SIGTERM, or when all is read that was there (``available``), and with another code when the query fails: then a supervisor starts it
again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Query:
    """brokers: where the reader, or a proxy before it, listens. options: more of them, for the source."""

    brokers: str
    token: str
    lake: str
    checkpoint: str
    trigger: Literal["live", "available"]
    options: dict[str, str] = field(default_factory=dict)
    every: str = "500 milliseconds"
    expect: str = ""
    """When given: what publishers were promised, as Parquet. Then the lake is audited at the end."""
    master: str = "local[2,4]"
    conf: dict[str, str] = field(default_factory=dict)

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.lake.driver", json.dumps(dataclasses.asdict(self))]


def say(event: str, **fields: object) -> None:
    # The JVM writes to the same standard output, so a line is written at once and whole.
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def begin(query: Query) -> SparkSession:
    from pipeline.session import session

    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.numRecentProgressUpdates": "1000", **query.conf}
    return session(brokers=query.brokers, token=query.token, master=query.master, app="lake", progress=False, conf=conf)


def audit(spark: SparkSession, query: Query) -> None:
    """The lake as Spark reads it, by the product's own audit."""
    from pipeline.audit import run

    lake = spark.read.parquet(query.lake)
    once = run(spark, lake.where("qos = 2"), sequence="json:n")
    found = run(spark, lake, sequence="json:n", expect=query.expect)
    say("audited", **found.facts(), rows_at_qos_2=once.rows, duplicates_at_qos_2=once.duplicates)


def start(spark: SparkSession, query: Query) -> StreamingQuery:
    source = spark.readStream.format("holdfast").options(**query.options).load()
    writer = source.writeStream.format("parquet").option("checkpointLocation", query.checkpoint).option("path", query.lake)
    trigger: Any = writer.trigger(availableNow=True) if query.trigger == "available" else writer.trigger(processingTime=query.every)
    started: StreamingQuery = trigger.start()
    return started


def tell(query: StreamingQuery, told: int) -> int:
    """Say which batches are new; the number of the last one."""
    for progress in query.recentProgress:
        batch, rows = int(progress["batchId"]), int(progress["numInputRows"])
        if batch > told and rows:
            told = batch
            say("batch", batch=batch, rows=rows, end=progress["sources"][0]["endOffset"], ms=progress["batchDuration"])
    return told


def main(words: list[str]) -> int:
    wanted = Query(**json.loads(words[0]))
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    Path(wanted.checkpoint).mkdir(parents=True, exist_ok=True)
    spark = begin(wanted)
    say("session")
    query = start(spark, wanted)
    say("started", run=str(query.runId))
    told = -1
    while query.isActive and not stopping:
        told = tell(query, told)
        time.sleep(POLL_S)
    if stopping:
        query.stop()
    tell(query, told)
    failed = query.exception()
    if failed is not None and not stopping:
        say("failed", why=str(failed)[:2000])
        return 3
    if wanted.expect and not stopping:
        audit(spark, wanted)
    say("ended")
    return 0


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        code = 4
    sys.stdout.flush()
    # When the JVM was killed, whatever is run at an ordinary exit waits for it.
    os._exit(code)
