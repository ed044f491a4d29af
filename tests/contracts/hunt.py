"""The ground of storage histories: faults of tests/contracts/planted.py, seeds of tests/contracts/campaign.py."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.campaign import Failed, live
from tests.contracts.planted import ALL
from tests.contracts.planting import Fault
from tests.hunting import MISFITS, Ground, Misfit


class Histories(Ground[Fault]):
    faults = ALL
    table = Path(__file__).with_name("catches.json")
    seeds_max = 500

    def name(self, fault: Fault) -> str:
        return fault.name

    def trial(self, fault: Fault, seed: int) -> tuple[str, int]:
        with fault.planted() as planting:
            try:
                live(seed)
            except Failed as failed:
                if isinstance(failed.__cause__, MISFITS):
                    raise Misfit(f"{fault.name}: {failed.__cause__!r}") from failed
                return str(failed).partition(";")[0], planting.times
            return "", planting.times

    def holds(self, seed: int) -> bool:
        try:
            live(seed)
        except Failed:
            return False
        return True


HISTORIES = Histories()
