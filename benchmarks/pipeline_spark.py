"""Spark, as it is measured: one session that does on its standard input's word what a user would have it do, and says how long that took.

``python -m benchmarks.pipeline_spark JSON``; JSON is an ``Asked``. Words, a line each: ``read`` (every column of every row into nothing),
``archive DIR`` (sealed generations into a Parquet archive), ``quit``. Each is answered by a line of JSON. CPU is counted by whoever asks,
over this process and everything below it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Asked:
    data_dir: str
    options: dict[str, str] = field(default_factory=dict)
    """Of the source."""
    master: str = "local[2,4]"

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.pipeline_spark", json.dumps(dataclasses.asdict(self))]


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def read(spark: SparkSession, asked: Asked) -> None:
    """The sink `noop` takes every row and every column and keeps nothing."""
    spark.read.format("holdfast").options(**asked.options).load().write.format("noop").mode("overwrite").save()


def main(words: list[str]) -> int:
    from pipeline.session import session

    asked = Asked(**json.loads(words[0]))
    spark = session(asked.data_dir, master=asked.master, app="benchmark", progress=False, conf={"spark.ui.enabled": "false"})
    say(ready=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "quit":
            break
        began = time.perf_counter()
        if word == "read":
            read(spark, asked)
            say(did=word, seconds=time.perf_counter() - began)
        elif word == "archive":
            from pipeline.archive import archive

            rows = archive(spark, asked.data_dir, rest[0])
            say(did=word, seconds=time.perf_counter() - began, rows=rows)
        else:
            raise ValueError(f"{word!r} is not read, archive or quit")
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
