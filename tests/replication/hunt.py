"""The ground of the simulation: which seed is the first whose history fails with a fault in the shipped core.

`python -m tests.replication --planted --write` makes tests/replication/catches.json.
"""

from __future__ import annotations

from pathlib import Path

from tests.contracts.planting import Fault
from tests.hunting import MISFITS, Ground, Misfit
from tests.replication.planted import ALL
from tests.replication.simulation import run
from tests.replication.world import Violation


class Histories(Ground[Fault]):
    faults = ALL
    table = Path(__file__).with_name("catches.json")
    seeds_max = 400

    def name(self, fault: Fault) -> str:
        return fault.name

    def trial(self, fault: Fault, seed: int) -> tuple[str, int]:
        with fault.planted() as planting:
            try:
                run(seed)
            except Violation as failed:
                if isinstance(failed.__cause__, MISFITS):
                    raise Misfit(f"{fault.name}: {failed.__cause__!r}") from failed
                return str(failed).partition(": ")[2], planting.times
            return "", planting.times

    def holds(self, seed: int) -> bool:
        try:
            run(seed)
        except Violation:
            return False
        return True


HISTORIES = Histories()
