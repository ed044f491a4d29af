"""The ground of tests.sim.tooling: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.tooling_hunt` writes the table that tests/sim/tooling_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.simulation import finished
from tests.sim.tooling import Tooling
from tests.sim.tooling_planted import ALL


class Tooled(Worlds):
    faults = ALL
    table = Path(__file__).with_name("tooling_catches.json")
    seeds_max = 400

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> Tooling:
    made: list[Tooling] = []

    def make() -> Tooling:
        made.append(Tooling(seed, plant))
        return made[0]

    finished(make)
    return made[0]


TOOLED = Tooled()


if __name__ == "__main__":
    sys.exit(TOOLED.report(ALL, len(os.sched_getaffinity(0)), write=True))
