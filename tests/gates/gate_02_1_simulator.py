"""Gate 1 of issue 2 of the plan: the simulator, seed after seed green, and every planted fault caught by it.

1,000 seeds of the whole broker in one thread, and each planted fault within 500. SIM_SEEDS asks for more, 20,000 for the long form.
It starts no broker; it says how much CPU a simulated minute costs, and which seed catches which fault.
"""

from __future__ import annotations

import asyncio
import os
import time

from tests.gates.gate import GateFailed, Scale
from tests.hunting import Catch
from tests.sim.fleet import run_many
from tests.sim.hunt import SIMULATED
from tests.sim.planted import ALL

LIMIT_S = 8 * 3600
SEEDS = 1000
FAULTS_MIN = 15
CPU_MS_PER_MINUTE_MAX = 100.0


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def planted(processes: int) -> list[Catch]:
    """Each from its recorded seed on."""
    catches = SIMULATED.hunted(ALL, processes, lambda catch: say(f"{catch.seed:>5}  {catch.name}"), known=True)
    missed = [catch.name for catch in catches if not 0 <= catch.seed < SIMULATED.seeds_max]
    if missed or len(catches) < FAULTS_MIN:
        raise GateFailed(f"{len(catches) - len(missed)} of {len(catches)} planted faults were caught, {FAULTS_MIN} wanted; not {missed}")
    return catches


def simulated(scale: Scale) -> str:
    processes = len(os.sched_getaffinity(0))
    catches = planted(processes)
    seeds = scale.of(int(os.environ.get("SIM_SEEDS") or SEEDS))
    began = time.monotonic()
    total = run_many(int(os.environ.get("SIM_FROM") or 0), seeds, processes, say)
    took_s = time.monotonic() - began
    if total.failures:
        raise GateFailed(f"{len(total.failures)} of {seeds} seeds failed, the first one: {total.failures[0]}")
    if total.cpu_ms_per_minute > CPU_MS_PER_MINUTE_MAX:
        raise GateFailed(f"{total.cpu_ms_per_minute:.0f} ms of CPU for a simulated minute, at most {CPU_MS_PER_MINUTE_MAX:.0f} wanted")
    worst = max(catches, key=lambda catch: catch.seed)
    return f"{len(catches)} planted faults caught, the last by seed {worst.seed}; {total}, in {took_s:.0f} s on {processes} processes"


async def run(scale: Scale) -> str:
    return await asyncio.to_thread(simulated, scale)
