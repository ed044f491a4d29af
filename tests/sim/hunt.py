"""The ground of the simulator: which seed is the first one that the ordinary simulator fails with, fault by fault.

`python -m tests.sim.hunt` prints the table that tests/sim/catches.json holds, and with --write writes it there; --of takes
words of the names.
"""

from __future__ import annotations

import argparse
import os
import sys
from abc import abstractmethod
from pathlib import Path

from tests.hunting import MISFITS, Ground, Misfit
from tests.sim.broker import Plant
from tests.sim.planted import ALL, RARE
from tests.sim.planting import Planted
from tests.sim.simulation import Failed, run


class Worlds(Ground[type[Planted]]):
    """Histories of one kind of world; seeds_max: how many of them a fault may take."""

    @abstractmethod
    def history(self, seed: int, plant: Plant | None) -> None:
        """Raises Failed."""

    def name(self, fault: type[Planted]) -> str:
        return fault.name

    def trial(self, fault: type[Planted], seed: int) -> tuple[str, int]:
        plant = fault()
        try:
            self.history(seed, plant)
            planted = plant.planted
        except Failed as failed:
            if isinstance(failed.__cause__, MISFITS):
                raise Misfit(f"{fault.name}: {failed.__cause__!r}") from failed
            return str(failed).partition(": ")[2], plant.planted
        finally:
            # It is older than its world, so it would keep that for ever (tests.sim.simulation, `_without_collection`).
            vars(plant).clear()
        return "", planted

    def holds(self, seed: int) -> bool:
        try:
            self.history(seed, None)
        except Failed:
            return False
        return True


class Simulated(Worlds):
    faults = (*ALL, *RARE)
    table = Path(__file__).with_name("catches.json")
    seeds_max = 500

    def history(self, seed: int, plant: Plant | None) -> None:
        run(seed, plant=plant)


SIMULATED = Simulated()


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="the first seed that catches each planted fault")
    parser.add_argument("--write", action="store_true", help="write the table that the tests start from")
    parser.add_argument("--rare", action="store_true", help="those too that may take more seeds")
    parser.add_argument("--of", default="", help="only faults whose name contains this")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args(words)
    faults = [fault for fault in (*ALL, *(RARE if asked.rare else ())) if asked.of in fault.name]
    return SIMULATED.report(faults, asked.processes, asked.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
