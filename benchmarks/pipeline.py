"""What reading in bulk costs: Spark's batch read, the archive, the broker's part of it, and what live publishers have left.

Works on a broker that runs, with a store that ``filled`` has filled: whoever measures starts it (tests/gates/gate_04_4_cost.py does).
CPU is that of processes, from /proc, over whole runs: Spark's are its program and everything below it, the broker's are the reader and
the shards. A figure is the best of its rounds: what others do on the machine makes a round dearer, and nothing makes it cheaper. All
rounds are told.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import measure
from benchmarks.pipeline_load import Filled, fill, sealed
from benchmarks.pipeline_spark import Asked
from holdfast_spark.client import Client
from holdfast_spark.offsets import Offset

Say = Callable[[str], None]
Pids = Callable[[], Mapping[str, Sequence[int]]]
ANSWER_S = 300.0
SEAL_S = 120.0
SETTLED_S = 3.0


@dataclass(frozen=True, slots=True)
class Round:
    """One run over so many rows. ``cpu_us``: by part, for each row."""

    rows: int
    seconds: float
    cpu_us: Mapping[str, float]

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def us_per_row(self) -> float:
        return sum(self.cpu_us.values())

    @property
    def broker_us(self) -> float:
        return sum(us for part, us in self.cpu_us.items() if part != "spark")

    def __str__(self) -> str:
        parts = " + ".join(f"{us:.2f} {part}" for part, us in self.cpu_us.items())
        return f"{self.us_per_row:.2f} us/row ({parts}), {self.rows_per_s / 1000:.0f} k rows/s"


@dataclass(frozen=True, slots=True)
class Rounds:
    every: tuple[Round, ...]

    @property
    def cheapest(self) -> Round:
        return min(self.every, key=lambda each: each.us_per_row)

    @property
    def broker_us(self) -> float:
        return min(each.broker_us for each in self.every)

    @property
    def rows_per_s(self) -> float:
        return max(each.rows_per_s for each in self.every)

    def __str__(self) -> str:
        return f"{self.cheapest}; all rounds {' '.join(f'{each.us_per_row:.2f}' for each in self.every)} us/row"


class SparkProgram:
    """One session in a process of its own (benchmarks.pipeline_spark)."""

    def __init__(self, asked: Asked, log: Path) -> None:
        with log.open("wb") as err:
            self._process = subprocess.Popen(asked.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)
        self._log = log
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, *words: str) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        if self._process.poll() is None:
            try:
                self._process.communicate("quit\n", timeout=60)
            except (subprocess.TimeoutExpired, OSError):
                # Its JVM ends when it finds its standard input closed.
                self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        # What is no JSON was printed by Spark itself.
        for line in self._process.stdout:
            if line.startswith("{"):
                found: dict[str, float] = json.loads(line)
                return found
        words = self._log.read_text(errors="replace").splitlines()
        raise RuntimeError(f"the Spark program ended with code {self._process.wait()}: {' | '.join(words[-4:])[-600:]}")


def filled(client: Client, rows: int, say: Say) -> Filled:
    """At least so many rows in sealed generations, and no more of them to be sealed: a little more is written, until they are there."""
    began, written = time.monotonic(), 0
    while True:
        found = settled(client)
        if found.rows >= rows:
            took_s = time.monotonic() - began
            say(f"{found.rows} rows in {len(found.units)} units of sealed generations, {written} written in {took_s:.0f} s")
            return found
        if written and time.monotonic() - began > SEAL_S + written / 5000:
            raise RuntimeError(f"{written} rows were written, and only {found.rows} are in sealed generations; {rows} are wanted")
        more = max(rows - found.rows, 50_000)
        fill(client, more, f"benchmark-{written}")
        written += more


def settled(client: Client) -> Filled:
    """What is sealed when nothing was sealed for a while: a shard takes its turns, of half a second, to see that a generation is full."""
    found = sealed(client)
    while True:
        time.sleep(SETTLED_S)
        before, found = found, sealed(client)
        if found == before:
            return found


def options_for(found: Filled) -> dict[str, str]:
    """A read of what is sealed, and of nothing else."""
    return {"startingOffsets": "earliest", "endingOffsets": Offset(found.store, found.ends).as_json()}


def measured(program: SparkProgram, words: Sequence[str], rows: int, pids: Pids) -> Round:
    groups = {"spark": (program.pid,), **pids()}
    before = measure(groups)
    began = time.perf_counter()
    told = program.do(*words)
    seconds = time.perf_counter() - began
    if told.get("rows", rows) != rows:
        raise RuntimeError(f"{' '.join(words)} took {told['rows']} rows, and there are {rows}")
    after = measure(groups)
    return Round(rows, seconds, {part: (after[part].cpu_s - before[part].cpu_s) * 1e6 / rows for part in groups})


@dataclass(frozen=True, slots=True)
class PlainScan:
    rows: int
    us_per_row: float
    """Of CPU."""
    rows_per_s: float


def plain_scan(stores: Sequence[Path]) -> PlainScan:
    """Of one process over the same files."""
    words = [sys.executable, "-m", "benchmarks.pipeline_scan", *map(str, stores)]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, timeout=ANSWER_S).stdout)
    rows = int(told["rows"])
    return PlainScan(rows, told["cpu_s"] * 1e6 / rows, rows / told["seconds"])
