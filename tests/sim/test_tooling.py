"""Wake-ups that get lost, and places that are moved, while everything else happens: what is owed comes."""

from __future__ import annotations

import pytest

from tests.sim.planting import Planted
from tests.sim.tooling_hunt import TOOLED, once
from tests.sim.tooling_planted import ALL


@pytest.mark.slow
def test_what_is_owed_comes_whatever_is_lost_on_the_way_and_wherever_places_are_moved() -> None:
    """And that it had to be healed is counted; the line of a failure has its seed."""
    worlds = [once(seed) for seed in range(8)]
    for name in ("lost", "moves"):
        assert sum(getattr(world, name) for world in worlds) > 20, name
    for name in ("stalls_healed", "asked_again", "moved", "closed"):
        assert sum(world.counted(name) for world in worlds) > 0, name


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_what_heals_or_moves_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = TOOLED.known_first(fault)
    assert 0 <= catch.seed < TOOLED.seeds_max, catch.why
