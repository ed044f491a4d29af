"""Replays while everything else happens: complete, once, in order, and no more than was asked for."""

from __future__ import annotations

import pytest

from tests.sim.planting import Planted
from tests.sim.replaying_hunt import REPLAYED, once
from tests.sim.replaying_planted import ALL


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2))
def test_a_replay_brings_what_is_stored_and_goes_on(tens: int) -> None:
    """Whatever breaks meanwhile; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_bound_that_is_off_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = REPLAYED.known_first(fault)
    assert 0 <= catch.seed < REPLAYED.seeds_max, catch.why
