"""The ground of tests.sim.replaying: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.replaying_hunt` writes the table that tests/sim/replaying_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.replaying import Replaying
from tests.sim.replaying_planted import ALL
from tests.sim.simulation import finished


class Replayed(Worlds):
    faults = ALL
    table = Path(__file__).with_name("replaying_catches.json")
    seeds_max = 300

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Replaying(seed, plant))


REPLAYED = Replayed()


if __name__ == "__main__":
    sys.exit(REPLAYED.report(ALL, len(os.sched_getaffinity(0)), write=True))
