"""Delayed messages while everything else happens: acknowledged, they come once, not early, in the order in which they are due."""

from __future__ import annotations

import pytest

from tests.sim.delaying_hunt import DELAYED, once
from tests.sim.delaying_planted import ALL
from tests.sim.planting import Planted


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(5))
def test_what_is_delayed_comes_once_and_in_time_whatever_breaks(tens: int) -> None:
    """And every other promise is kept beside it; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_what_waits_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = DELAYED.known_first(fault)
    assert 0 <= catch.seed < DELAYED.seeds_max, catch.why
