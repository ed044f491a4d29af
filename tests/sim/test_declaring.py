"""Declared groups while everything else happens: they hold when it is said that they do, and leave nothing behind."""

from __future__ import annotations

import pytest

from tests.sim.declaring_hunt import DECLARED, once
from tests.sim.declaring_planted import ALL
from tests.sim.planting import Planted

SEEDS = range(3)


@pytest.mark.slow
def test_a_declared_group_holds_from_then_on_whatever_breaks() -> None:
    """With members and without; the line of a failure has its seed."""
    assert sum(once(seed).held for seed in SEEDS) > 10 * len(SEEDS)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_declarations_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault: the recorded one as long as nothing moves the histories, else the first that does."""
    catch = DECLARED.known_first(fault)
    assert 0 <= catch.seed < DECLARED.seeds_max, catch.why
