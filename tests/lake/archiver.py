"""Runs the archive once, and dies where it is told to: at the n-th time that a step comes, or so many milliseconds after it.

``python -m tests.lake.archiver JSON``; JSON is an ``Archiving``. It prints each step as it comes, and what was done at the end. It dies
by SIGKILL to itself, so nothing of it can tidy up; Spark, when it is used, ends with it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass

from holdfast_spark.client import Endpoint
from pipeline.archive import Options, run


@dataclass(frozen=True, slots=True)
class Archiving:
    host: str
    port: int
    token: str
    root: str
    format: str
    lease: str
    die_at: str = ""
    nth: int = 1
    after_ms: int | None = None
    """None: at once."""
    spark: bool = False
    round_bytes: int = 400_000

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.lake.archiver", json.dumps(dataclasses.asdict(self))]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(words: list[str]) -> int:
    asked = Archiving(**json.loads(words[0]))
    seen: Counter[str] = Counter()

    def step(name: str) -> None:
        seen[name] += 1
        sys.stdout.write(json.dumps({"event": "step", "name": name}) + "\n")
        sys.stdout.flush()
        if name == asked.die_at and seen[name] == asked.nth:
            if asked.after_ms is None:
                die()
            threading.Timer((asked.after_ms or 0) / 1000, die).start()

    spark = None
    if asked.spark:
        from pipeline.session import session

        spark = session(brokers=f"{asked.host}:{asked.port}", token=asked.token, master="local[2,4]", conf={"spark.ui.enabled": "false"})
    options = Options(format="delta" if asked.format == "delta" else "parquet", lease=asked.lease, round_bytes=asked.round_bytes)
    done = run(spark, Endpoint(((asked.host, asked.port),), asked.token), asked.root, options, step=step)
    told = {"rows": done.rows, "commits": done.commits, "number": done.number, "acknowledged": done.acknowledged}
    sys.stdout.write(json.dumps({"event": "done", **told}) + "\n")
    sys.stdout.flush()
    if spark is not None:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
