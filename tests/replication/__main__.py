"""Campaigns of replication: of the shipped core in the simulation, or with --model of the rules alone.

`python -m tests.replication --seeds 2000` runs so many histories; `--seed n` runs one and shows its end; `--hunt --minutes 30` goes on
with seeds that were never run, remembering how far it came in --state, until the time is over or one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.replication.hunt import HISTORIES
from tests.replication.model import Model
from tests.replication.model_hunt import RULES, broken
from tests.replication.simulation import Simulation, run
from tests.replication.world import Violation

SLICE = 100


def failing(seed: int) -> str:
    """What this history of the core breaks; empty: nothing."""
    try:
        run(seed)
    except Violation as found:
        return str(found)
    return ""


def campaign(check: Callable[[int], str], seeds: range, processes: int) -> int:
    """How many of the seeds fail; each is said."""
    failures = 0
    with ProcessPoolExecutor(processes) as pool:
        for seed, why in zip(seeds, pool.map(check, seeds, chunksize=10), strict=True):
            if why:
                failures += 1
                print(f"FAIL seed {seed}: {why}", flush=True)
    return failures


def hunt(check: Callable[[int], str], state: Path, minutes: float, processes: int) -> int:
    """Slice after slice; what was run is not run again."""
    until = time.monotonic() + 60 * minutes
    first = json.loads(state.read_text())["next"] if state.exists() else 0
    begin, failures = first, 0
    while time.monotonic() < until and not failures:
        failures = campaign(check, range(first, first + SLICE), processes)
        if not failures:
            first += SLICE
            state.parent.mkdir(parents=True, exist_ok=True)
            state.write_text(json.dumps({"next": first}))
    print(f"{first - begin} more histories hold, {first} in all")
    return failures


def show(seed: int) -> None:
    simulation = Simulation(seed)
    try:
        simulation.run()
    finally:
        print(*simulation.world.notes, dict(simulation.world.happened), sep="\n")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="histories of replication")
    parser.add_argument("--model", action="store_true", help="of the rules alone")
    parser.add_argument("--seed", type=int, help="one history")
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--hunt", action="store_true", help="seeds that were never run, for so many minutes")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--state", type=Path, default=Path("data/replication-hunt.json"))
    parser.add_argument(
        "--planted", action="store_true", help="the first seed that finds each planted fault; with --model, each missing rule"
    )
    parser.add_argument("--of", default="", help="only faults whose name contains this")
    parser.add_argument("--write", action="store_true", help="write the table that the tests start from")
    asked = parser.parse_args(words)
    if asked.planted and asked.model:
        return RULES.report([rule for rule in RULES.faults if asked.of in rule.value], asked.processes, asked.write)
    if asked.planted:
        return HISTORIES.report([fault for fault in HISTORIES.faults if asked.of in fault.name], asked.processes, asked.write)
    if asked.seed is not None:
        if asked.model:
            Model(asked.seed).run()
        else:
            show(asked.seed)
        return 0
    check = broken if asked.model else failing
    if asked.hunt:
        return min(1, hunt(check, asked.state, asked.minutes, asked.processes))
    failures = campaign(check, range(asked.first, asked.first + asked.seeds), asked.processes)
    print(f"{asked.seeds - failures} of {asked.seeds} histories hold")
    return min(1, failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
