"""The simulator sees what it is there to see: every planted fault is caught by ordinary seeds."""

from __future__ import annotations

import pytest

from shards.core import ShardCore
from tests.hunting import Misfit
from tests.sim.hunt import SIMULATED
from tests.sim.planted import ALL
from tests.sim.planting import Planted

REQUIRED = {
    "late frame of an old connection stored",
    "late DISCONNECT of an old connection fires the new one's will",
    "route counted instead of named",
    "range re-assigned after an expiry",
    "folding a row into the cut loses one message",
    "PUBREL before rec is committed",
    "route removed too early",
    "ack of an old connection counted",
    "end of stream before the watermark",
}


def test_the_list_of_planted_faults_is_long_enough_and_names_each_once() -> None:
    """15 of them, and the nine that must be among them."""
    names = [fault.name for fault in ALL]
    assert len(names) == len(set(names)) >= 15
    assert set(names) >= REQUIRED


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_caught_within_500_seeds(fault: type[Planted]) -> None:
    """By a seed that holds without the fault: the recorded one as long as nothing moves the histories, else the first that does."""
    catch = SIMULATED.known_first(fault)
    assert 0 <= catch.seed < SIMULATED.seeds_max, catch.why


class _Elsewhere(Planted):
    """Replaces what is not there."""

    name = "what has moved"

    def shard(self, core: ShardCore) -> None:
        self.replace(core, "no_such_method", lambda method: method)


class _Nowhere(Planted):
    """Plants nothing."""

    name = "nothing at all"


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_Elsewhere, _Nowhere])
def test_a_fault_that_plants_nothing_is_an_error_and_no_catch(fault: type[Planted]) -> None:
    """What it replaces has moved, or is never run."""
    with pytest.raises(Misfit):
        SIMULATED.hunt(fault, [0])
