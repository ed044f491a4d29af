"""Gate 5 of issue 7: shared groups, replays, and sessions that are moved or lose wake-ups, in worlds where everything else breaks too.

1,000 seeds over the three kinds of world, and each planted fault of theirs caught, 8 at least. In the worlds of tests.sim.tooling frames
that would have woken a session never arrive, on purpose: it heals within an interval, what it waited for comes, and it is counted.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.gates.gate import GateFailed, Scale
from tests.hunting import Catch
from tests.sim import tooling_hunt
from tests.sim.hunt import Worlds
from tests.sim.replaying_hunt import REPLAYED
from tests.sim.sharing_hunt import SHARED
from tests.sim.simulation import Failed
from tests.sim.tooling_hunt import TOOLED

LIMIT_S = 2 * 3600
WORLDS: dict[str, tuple[Worlds, int]] = {"groups": (SHARED, 400), "replays": (REPLAYED, 300), "tools": (TOOLED, 300)}
"""With how many seeds of each."""
FIRST = 1_000
"""The seeds before it are those of `make test`."""
FAULTS_MIN = 8
SHARE = 10


def say(line: str) -> None:
    print(f"  {line}", flush=True)


def share(kind: str, seeds: range) -> tuple[list[str], int, int]:
    """(those that failed; sessions that were healed; frames that were lost)."""
    failed: list[str] = []
    healed = lost = 0
    for seed in seeds:
        try:
            if kind == "tools":
                world = tooling_hunt.once(seed)
                healed, lost = healed + world.counted("stalls_healed"), lost + world.lost
            else:
                WORLDS[kind][0].history(seed, None)
        except Failed as error:
            failed.append(f"{kind}: {error}")
    return failed, healed, lost


def planted(processes: int) -> list[Catch]:
    """Each from its recorded seed on."""
    catches: list[Catch] = []
    for worlds, _ in WORLDS.values():
        found = worlds.hunted(worlds.faults, processes, lambda catch: say(f"{catch.seed:>5}  {catch.name}"), known=True)
        if missed := [catch.name for catch in found if not 0 <= catch.seed < worlds.seeds_max]:
            raise GateFailed(f"not caught: {missed}")
        catches += found
    if len(catches) < FAULTS_MIN:
        raise GateFailed(f"{len(catches)} planted faults, {FAULTS_MIN} wanted")
    return catches


def simulated(scale: Scale) -> str:
    processes = len(os.sched_getaffinity(0))
    catches = planted(processes)
    began = time.monotonic()
    failed: list[str] = []
    seeds = healed = lost = 0
    with ProcessPoolExecutor(processes) as pool:
        futures = []
        for kind, (_, count) in WORLDS.items():
            count = scale.of(count)
            seeds += count
            shares = [range(FIRST + at, FIRST + min(count, at + SHARE)) for at in range(0, count, SHARE)]
            futures += [pool.submit(share, kind, each) for each in shares]
        for future in as_completed(futures):
            of_share, of_healed, of_lost = future.result()
            failed += of_share
            healed, lost = healed + of_healed, lost + of_lost
            for line in of_share:
                say(f"FAIL {line}")
    line = (
        f"{len(catches)} planted faults caught; {seeds} seeds with groups, replays and moved places in {time.monotonic() - began:.0f} s; "
        f"{lost} wake-ups lost on purpose, {healed} stalls healed and counted"
    )
    if failed:
        raise GateFailed(f"{len(failed)} of {seeds} seeds failed, the first one: {failed[0]} ({line})")
    if not healed:
        raise GateFailed(f"no stall was counted ({line})")
    return line


async def run(scale: Scale) -> str:
    return await asyncio.to_thread(simulated, scale)
