"""The ground of tests.sim.sharing: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.sharing_hunt` writes the table that tests/sim/sharing_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.sharing import Sharing
from tests.sim.sharing_planted import ALL
from tests.sim.simulation import finished


class Shared(Worlds):
    faults = ALL
    table = Path(__file__).with_name("sharing_catches.json")
    seeds_max = 1_000

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Sharing(seed, plant))


SHARED = Shared()


if __name__ == "__main__":
    sys.exit(SHARED.report(ALL, len(os.sched_getaffinity(0)), write=True))
