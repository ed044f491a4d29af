"""The ground of tests.sim.late: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.late_hunt` writes the table that tests/sim/late_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.late import ALL, Late
from tests.sim.simulation import run


class LateWorlds(Worlds):
    faults = ALL
    table = Path(__file__).with_name("late_catches.json")
    seeds_max = 200

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    run(seed, plant=plant or Late())


LATE = LateWorlds()


if __name__ == "__main__":
    sys.exit(LATE.report(ALL, len(os.sched_getaffinity(0)), write=True))
