"""The ground of tests.sim.revoking: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.revoking_hunt` writes the table that tests/sim/revoking_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.sim.broker import Plant
from tests.sim.hunt import Worlds
from tests.sim.revoking import Revoking
from tests.sim.revoking_planted import ALL
from tests.sim.simulation import finished


class Revoked(Worlds):
    faults = ALL
    table = Path(__file__).with_name("revoking_catches.json")
    seeds_max = 300

    def history(self, seed: int, plant: Plant | None) -> None:
        once(seed, plant)


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Revoking(seed, plant))


REVOKED = Revoked()


if __name__ == "__main__":
    sys.exit(REVOKED.report(ALL, len(os.sched_getaffinity(0)), write=True))
