"""The ground of tests.sim.revoking: which seed is the first one that it fails with, fault by fault.

`python -m tests.sim.revoking_hunt` writes the table that tests/sim/revoking_catches.json holds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.hunting import MISFITS, Ground, Misfit
from tests.sim.broker import Plant
from tests.sim.planted import Planted
from tests.sim.revoking import Revoking
from tests.sim.revoking_planted import ALL
from tests.sim.simulation import Failed, finished


class Revoked(Ground[type[Planted]]):
    faults = ALL
    table = Path(__file__).with_name("revoking_catches.json")
    seeds_max = 300

    def name(self, fault: type[Planted]) -> str:
        return fault.name

    def trial(self, fault: type[Planted], seed: int) -> tuple[str, int]:
        plant = fault()
        try:
            once(seed, plant)
        except Failed as failed:
            if isinstance(failed.__cause__, MISFITS):
                raise Misfit(f"{fault.name}: {failed.__cause__!r}") from failed
            return str(failed).partition(": ")[2], plant.planted
        return "", plant.planted

    def holds(self, seed: int) -> bool:
        try:
            once(seed)
        except Failed:
            return False
        return True


def once(seed: int, plant: Plant | None = None) -> None:
    finished(lambda: Revoking(seed, plant))


REVOKED = Revoked()


if __name__ == "__main__":
    sys.exit(REVOKED.report(ALL, len(os.sched_getaffinity(0)), write=True))
