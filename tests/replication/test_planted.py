"""The simulation sees what it is there to see: every fault that is planted in the shipped core is found by ordinary seeds."""

from __future__ import annotations

import pytest

from tests.contracts.planting import Fault
from tests.replication.hunt import HISTORIES
from tests.replication.planted import ALL

REQUIRED = {
    "acknowledged before the fsync",
    "no epoch check",
    "served above the commit",
    "cut off whatever comes",
    "half a checkpoint is installed",
    "the log begins anew before the checkpoint is installed",
}


def test_the_list_has_the_faults_of_the_plan_and_names_each_once() -> None:
    """And many more."""
    names = [fault.name for fault in ALL]
    assert len(names) == len(set(names)) >= 20 and set(names) >= REQUIRED


@pytest.mark.slow
@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_in_the_core_is_found(fault: Fault) -> None:
    """By the recorded seed as long as nothing moves the histories, else by the first that does."""
    catch = HISTORIES.known_first(fault)
    assert 0 <= catch.seed < HISTORIES.seeds_max, catch.why
