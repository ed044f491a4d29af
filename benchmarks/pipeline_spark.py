"""Spark, as it is measured: one session that does on its standard input's word what a user would have it do, and says how long that took.

``python -m benchmarks.pipeline_spark JSON``; JSON is an ``Asked``. Words, a line each: ``read`` (every column of every row into nothing),
``count`` (how many rows that is), ``archive DIR`` (sealed generations into a Delta archive), ``quit``. Each is answered by a line of JSON.
CPU is counted by whoever asks, over this process and everything below it. So everything stays below it: where Spark ends a daemon before
the Python workers that this had started, what they have used would be gone from a round.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PR_SET_CHILD_SUBREAPER = 36
"""Of Linux (prctl); Python has no name for it."""


@dataclass(frozen=True, slots=True)
class Asked:
    brokers: str
    token: str
    options: dict[str, str] = field(default_factory=dict)
    """Of the source."""
    master: str = "local[2,4]"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.pipeline_spark", json.dumps(dataclasses.asdict(self))]


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def frame(spark: SparkSession, asked: Asked) -> DataFrame:
    return spark.read.format("holdfast").options(**asked.options).load()


def read(spark: SparkSession, asked: Asked) -> None:
    """The sink `noop` takes every row and every column and keeps nothing."""
    frame(spark, asked).write.format("noop").mode("overwrite").save()


def archive(spark: SparkSession, asked: Asked, root: Path) -> int:
    """All steps, with the comparison of what was written and a lease; how many rows it took."""
    from holdfast_spark.client import Endpoint, parse_brokers
    from pipeline.archive import Options, run

    options = Options(format="delta", lease=f"benchmark-{root.name}")
    return run(spark, Endpoint(parse_brokers(asked.brokers), asked.token), root, options).rows


def adopt_orphans() -> None:
    """Whoever is left below this process by its parent is this process's child from now on, ended or not."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(words: list[str]) -> int:
    from pipeline.session import session

    adopt_orphans()
    asked = Asked(**json.loads(words[0]))
    quiet = {"spark.ui.enabled": "false"}
    spark = session(brokers=asked.brokers, token=asked.token, master=asked.master, app="benchmark", progress=False, conf=quiet)
    say(ready=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "quit":
            break
        began = time.perf_counter()
        if word == "read":
            read(spark, asked)
            say(did=word, seconds=time.perf_counter() - began)
        elif word == "count":
            say(did=word, rows=frame(spark, asked).count(), seconds=time.perf_counter() - began)
        elif word == "archive":
            say(did=word, rows=archive(spark, asked, Path(rest[0])), seconds=time.perf_counter() - began)
        else:
            raise ValueError(f"{word!r} is not read, count, archive or quit")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
