"""The ground of tests.sim.roaming: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.roaming_hunt` writes the table that tests/sim/roaming_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.roaming import Roaming
from tests.sim.roaming_planted import ALL
from tests.sim.simulation import finished


class Roamed(Worlds):
    faults = ALL
    table = Path(__file__).with_name("roaming_catches.json")
    seeds_max = 200

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Roaming(seed, plant))


ROAMED = Roamed()


if __name__ == "__main__":
    sys.exit(ROAMED.report(ALL, len(os.sched_getaffinity(0)), write=True))
