"""Durable shared groups while everything else happens: what is acknowledged comes to one member, in order, and nothing is left."""

from __future__ import annotations

import pytest

from tests.sim import sharing_roaming
from tests.sim.planting import Planted
from tests.sim.sharing_hunt import SHARED, once
from tests.sim.sharing_planted import ALL


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2))
def test_a_group_loses_nothing_whatever_breaks(tens: int) -> None:
    """And every other promise is kept beside it; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.slow
def test_who_was_replaced_before_it_had_its_token_serves_nobody() -> None:
    """The answer that brings the token comes behind the word that there is a newer one."""
    once(633)


@pytest.mark.slow
def test_a_group_goes_on_when_its_owners_are_elsewhere() -> None:
    """In 34 an owner was replaced, did not hear of it, and its member did not hear what it was given to the newer one.  In 505 what was
    settled was held once more, as its client was back."""
    for seed in (*range(6), 34, 505):
        sharing_roaming.once(seed)


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_of_groups_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = SHARED.known_first(fault)
    assert 0 <= catch.seed < SHARED.seeds_max, catch.why
