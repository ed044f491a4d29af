"""Histories by seed: which layouts and engine a seed has, many of them over several processes, and one again.

`STORE_SEED=n python -m tests.contracts.campaign` runs one history again and shows where it fails; with `--seeds n` the first n;
with `--planted` it hunts the planted faults, and with `--write` keeps which seed catches which.

Holds: a seed gives the same history in any process and whatever ran there before.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from shards.layouts.registry import LAYOUTS
from tests.contracts.disks import make
from tests.contracts.layout_history import History
from tests.contracts.layouts import open_small, open_small_pages

ALONE = ("pagestream", "record_batch", "skipstream", "wildcard_optimized")
SMALL_BOUNDS = {"pagestream": open_small_pages, "record_batch": open_small}
KINDS: tuple[tuple[str, ...], ...] = (*((name,) for name in ALONE), ALONE)
"""The last one: another layout at any roll or restart."""
STEPS = 80
CPU_S_MAX = 20
"""No history takes so long; one that does has come into a loop."""
SHARE = 10


class Failed(AssertionError):
    """A history in which a promise was broken; with the line that runs it again."""


class Chosen(NamedTuple):
    """small: pagestream and record_batch with bounds so small that all of an index is gone through."""

    layouts: tuple[str, ...]
    engine: str
    small: bool

    @property
    def cell(self) -> str:
        return f"{self.layouts[0] if len(self.layouts) == 1 else 'changing'}/{self.engine}"


def chosen(seed: int) -> Chosen:
    """Of each kind every tenth is on RocksDB; of each kind and engine every fifth has the bounds that ship."""
    turn = seed // len(KINDS)
    return Chosen(KINDS[seed % len(KINDS)], "rocksdb" if turn % 10 == 9 else "memory", (turn + turn // 10) % 5 > 0)


@contextmanager
def bounds(small: bool) -> Iterator[None]:
    shipped = {name: LAYOUTS[name] for name in SMALL_BOUNDS}
    if small:
        LAYOUTS.update(SMALL_BOUNDS)
    try:
        yield
    finally:
        LAYOUTS.update(shipped)


@contextmanager
def in_time() -> Iterator[None]:
    """By the processor's clock, so that other programs do not matter."""

    def late(*_: object) -> None:
        raise TimeoutError(f"not ended after {CPU_S_MAX} s of CPU")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S_MAX)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def live(seed: int, steps: int = STEPS) -> Counter[str]:
    """One history; what happened in it. Raises Failed."""
    layouts, engine, small = chosen(seed)
    with tempfile.TemporaryDirectory(prefix="hf-history-") as directory, bounds(small), in_time():
        step = -1
        try:
            history = History(f"layouts {seed}", layouts, make(engine == "rocksdb", Path(directory)))
            for step in range(steps + 1):
                if step < steps:
                    history.step()
                else:
                    history.finish()
            history.disk.close()
        except Exception as error:
            what = str(error).split("\n")[0] or type(error).__name__
            hint = f"STORE_SEED={seed} .venv/bin/python -m tests.contracts.campaign"
            raise Failed(f"{chosen(seed).cell}, step {step}: {type(error).__name__}: {what}; again: {hint}") from error
    return Counter(history.happened)


@dataclass(slots=True)
class Share:
    """What some seeds came to. cells: histories that held, by layout and engine."""

    seeds: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, other: Share) -> None:
        self.seeds += other.seeds
        self.cells.update(other.cells)
        self.happened.update(other.happened)
        self.failures += other.failures
        self.cpu_s += other.cpu_s

    def __str__(self) -> str:
        cells = ", ".join(f"{cell} {count}" for cell, count in sorted(self.cells.items()))
        events = ", ".join(f"{count} {name}" for name, count in self.happened.items())
        return f"{sum(self.cells.values())} of {self.seeds} histories hold ({cells}) with {events}"


def share(seeds: range) -> Share:
    found = Share(len(seeds))
    began = time.process_time()
    for seed in seeds:
        try:
            happened = live(seed)
        except Failed as failed:
            found.failures.append(str(failed))
        else:
            found.cells[chosen(seed).cell] += 1
            found.happened.update(happened)
    found.cpu_s = time.process_time() - began
    return found


def run_many(first: int, count: int, processes: int, say: Callable[[str], None]) -> Share:
    total = Share()
    parts = [range(start, min(start + SHARE, first + count)) for start in range(first, first + count, SHARE)]
    with ProcessPoolExecutor(processes) as pool:
        for found in pool.map(share, parts):
            for failure in found.failures:
                say(f"FAIL {failure}")
            total.add(found)
    return total


def main(words: list[str]) -> int:
    from tests.contracts.hunt import HISTORIES

    parser = argparse.ArgumentParser(description="random histories of a store over every layout and engine")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--planted", action="store_true", help="hunt the planted faults instead")
    parser.add_argument("--of", default="", help="only faults whose name contains this")
    parser.add_argument("--write", action="store_true", help="keep the seeds that the tests start from")
    asked = parser.parse_args(words)
    if os.environ.get("STORE_SEED"):
        seed = int(os.environ["STORE_SEED"])
        print(f"{chosen(seed)}: {dict(live(seed))}")
        return 0
    if asked.planted:
        return HISTORIES.report([fault for fault in HISTORIES.faults if asked.of in fault.name], asked.processes, asked.write)
    total = run_many(asked.first, asked.seeds, asked.processes, print)
    print(f"{total}; {total.cpu_s:.0f} s of CPU")
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
