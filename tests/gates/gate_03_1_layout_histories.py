"""Gate 1 of issue 3 of the plan: the storage layouts keep their promises, and what tests that would see it if they did not.

The contract suites over every layout and engine; 1,000 seeded histories of stores, a tenth of them on RocksDB, with kills and power cuts
(STORE_SEEDS asks for more); and every planted fault caught within 500 seeds, the five of the plan among them. It starts no broker.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time

from tests.contracts.campaign import ALONE, Share, run_many
from tests.contracts.engines import ENGINES
from tests.contracts.hunt import HISTORIES
from tests.contracts.layouts import OPENERS
from tests.contracts.planted import ALL
from tests.contracts.test_planted_layouts import REQUIRED
from tests.gates.gate import GateFailed, Scale
from tests.hunting import Catch
from tests.needs import ROOT

LIMIT_S = 1800
SEEDS = 1000
SUITES = ("tests/contracts/test_layout.py", "tests/contracts/test_engine.py", "tests/contracts/test_golden_stores.py")


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def suites() -> str:
    """Every test of every layout on every engine; none skipped."""
    missing = set(ALONE) - set(OPENERS)
    if missing or not {"memory", "rocksdb"} <= set(ENGINES):
        raise GateFailed(f"the contract suites do not run over {sorted(missing)} or not over both engines, only {ENGINES}")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=0", "--durations-min=60", *SUITES]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+) passed(.*?) in ", run.stdout)
    if run.returncode or found is None or "skipped" in found[2]:
        lines = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))] + run.stdout.splitlines()[-1:]
        raise GateFailed(f"the contract suites: {'; '.join(lines) or run.stderr}")
    return found[1]


def planted(processes: int) -> list[Catch]:
    """Each from its recorded seed on."""
    catches = HISTORIES.hunted(ALL, processes, lambda catch: say(f"{catch.seed:>4}  {catch.name}"), known=True)
    missed = [f"{catch.name} ({catch.why})" for catch in catches if not 0 <= catch.seed < HISTORIES.seeds_max]
    if missed or not {catch.name for catch in catches} >= REQUIRED:
        raise GateFailed(f"{len(catches) - len(missed)} of {len(catches)} planted faults were caught; not {', '.join(missed)}")
    return catches


def histories(seeds: int, processes: int) -> Share:
    total = run_many(int(os.environ.get("STORE_FROM") or 0), seeds, processes, say)
    if total.failures:
        raise GateFailed(f"{len(total.failures)} of {seeds} histories failed, the first one: {total.failures[0]}")
    for kind in ("kills", "power cuts", "messages lost", "rolls", "drops", "folds"):
        if not total.happened[kind]:
            raise GateFailed(f"there were no {kind} in {seeds} histories")
    return total


def proved(scale: Scale) -> str:
    processes = len(os.sched_getaffinity(0))
    began = time.monotonic()
    passed = suites()
    say(f"{passed} contract tests over {len(OPENERS)} layouts and {len(ENGINES)} engines")
    catches = planted(processes)
    total = histories(scale.of(int(os.environ.get("STORE_SEEDS") or SEEDS)), processes)
    worst = max(catches, key=lambda catch: catch.seed)
    took_s = time.monotonic() - began
    return (
        f"{passed} contract tests on {len(ALONE)} layouts and {len(ENGINES)} engines; "
        f"{len(catches)} planted faults caught, the last by seed {worst.seed}; {total}; "
        f"{total.cpu_s:.0f} s of CPU for them, {took_s:.0f} s in all on {processes} processes"
    )


async def run(scale: Scale) -> str:
    return await asyncio.to_thread(proved, scale)
