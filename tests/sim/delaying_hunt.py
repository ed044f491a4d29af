"""The ground of tests.sim.delaying: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.delaying_hunt` writes the table that tests/sim/delaying_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.delaying import Delaying
from tests.sim.delaying_planted import ALL
from tests.sim.hunt import Worlds
from tests.sim.simulation import finished


class Delayed(Worlds):
    faults = ALL
    table = Path(__file__).with_name("delaying_catches.json")
    seeds_max = 100

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Delaying(seed, plant))


DELAYED = Delayed()


if __name__ == "__main__":
    sys.exit(DELAYED.report(ALL, len(os.sched_getaffinity(0)), write=True))
