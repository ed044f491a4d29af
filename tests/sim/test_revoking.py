"""Rights that go while everything else happens: nothing of what is denied leaks, and every other promise is kept."""

from __future__ import annotations

import pytest

from tests.sim.planting import Planted
from tests.sim.revoking_hunt import REVOKED, once
from tests.sim.revoking_planted import ALL


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(4))
def test_a_right_that_goes_stops_everything_it_allowed(tens: int) -> None:
    """Whatever breaks meanwhile, within a second; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_place_that_does_not_ask_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = REVOKED.known_first(fault)
    assert 0 <= catch.seed < REVOKED.seeds_max, catch.why
