"""`make sim`: SEED=n (or SIM_SEED) runs one history and tells what happened last; SEEDS=n that many, on all cores.

    python -m tests.sim [--seed N [--world NAME]] [--seeds N] [--first N] [--processes N] [--keep FILE]

Exit code 1 when a seed failed; each failing one is printed with the line that replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.sim.declaring import Declaring
from tests.sim.delaying import Delaying
from tests.sim.fleet import run_many
from tests.sim.replaying import Replaying
from tests.sim.revoking import Revoking
from tests.sim.roaming import Roaming
from tests.sim.sharing import Sharing
from tests.sim.sharing_roaming import SharingRoaming
from tests.sim.simulation import Failed, Simulation, finished
from tests.sim.tooling import Tooling

SEEDS = 1000
KINDS = (Simulation, Declaring, Delaying, Replaying, Revoking, Roaming, Sharing, SharingRoaming, Tooling)
WORLDS = {kind.__name__: kind for kind in KINDS}


def one(seed: int, tell: int, world: str) -> int:
    try:
        outcome = finished(lambda: WORLDS[world](seed, keep_all=True), print, tell)
    except Failed as failed:
        print(f"FAIL {failed}")
        return 1
    print(f"PASS {outcome}")
    return 0


def many(first: int, seeds: int, processes: int, kept: Path | None) -> int:
    began = time.monotonic()
    total = run_many(first, seeds, processes, lambda line: print(line, flush=True), kept)
    print(f"{'FAIL' if total.failures else 'PASS'} {total} in {time.monotonic() - began:.0f} s")
    for failure in total.failures:
        print(f"FAIL {failure}")
    return 1 if total.failures else 0


def main(words: list[str]) -> int:
    environ = os.environ
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="the whole broker in one thread, seed by seed")
    parser.add_argument("--seed", type=int, default=int(environ.get("SIM_SEED") or -1), help="one history, told")
    parser.add_argument("--world", choices=WORLDS, default=environ.get("SIM_WORLD") or Simulation.__name__, help="of --seed")
    parser.add_argument("--seeds", type=int, default=int(environ.get("SIM_SEEDS") or SEEDS))
    parser.add_argument("--first", type=int, default=int(environ.get("SIM_FROM") or 0), help="the first seed")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keep", type=Path, help="a file of what is done: the same run goes on there; of one commit only")
    parser.add_argument("--tell", type=int, default=400, help="how much of one failing history is told")
    asked = parser.parse_args(words)
    if asked.world not in WORLDS:
        # One that an environment variable names: argparse looks at words only.
        parser.error(f"SIM_WORLD is {asked.world!r}, and is to be one of {', '.join(WORLDS)}")
    if asked.seed >= 0:
        return one(asked.seed, asked.tell, asked.world)
    return many(asked.first, asked.seeds, asked.processes, asked.keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
