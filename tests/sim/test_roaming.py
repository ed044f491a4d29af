"""A session actor is another one, elsewhere, before the old one knows it: every promise holds, and nobody fights for ever."""

from __future__ import annotations

import pytest

from tests.sim.planting import Planted
from tests.sim.roaming_hunt import ROAMED, once
from tests.sim.roaming_planted import ALL


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(10))
def test_sessions_go_on_elsewhere_whatever_breaks(tens: int) -> None:
    """While both are there, and afterwards; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_two_owners_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = ROAMED.known_first(fault)
    assert 0 <= catch.seed < ROAMED.seeds_max, catch.why
