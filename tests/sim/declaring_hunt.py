"""The ground of declarations: which seed is the first one that the worlds of tests.sim.declaring fail with, fault by fault.

`python -m tests.sim.declaring_hunt` writes the table that tests/sim/declaring_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.declaring import Declaring
from tests.sim.declaring_planted import ALL
from tests.sim.hunt import Worlds
from tests.sim.simulation import finished


class Declared(Worlds):
    faults = ALL
    table = Path(__file__).with_name("declaring_catches.json")
    seeds_max = 100

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> Declaring:
    made: list[Declaring] = []

    def make() -> Declaring:
        made.append(Declaring(seed, plant))
        return made[0]

    finished(make)
    return made[0]


DECLARED = Declared()


if __name__ == "__main__":
    sys.exit(DECLARED.report(ALL, len(os.sched_getaffinity(0)), write=True))
