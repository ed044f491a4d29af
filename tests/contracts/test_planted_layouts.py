"""The histories see mistakes: every planted fault is caught by ordinary seeds."""

from __future__ import annotations

import pytest

from tests.contracts.hunt import HISTORIES
from tests.contracts.planted import ALL
from tests.contracts.planting import Fault, Planting, faults
from tests.hunting import Misfit

REQUIRED = {
    "skipstream skips an index entry",
    "record batch skips an index entry",
    "a reader goes above the watermark",
    "a batch is read above the watermark",
    "a generation is dropped before its seal is committed",
    "a batch loses its last message",
    "the cut off is one epoch too late",
    "the cut off is one epoch too early",
}
"""The five of the plan, those that differ by layout or direction twice."""


def test_the_required_faults_are_among_the_planted_and_each_has_its_seed() -> None:
    # Property: none is missing from the list, and none from the table that the tests start from.
    names = [fault.name for fault in ALL]
    assert len(names) == len(set(names)) == len(HISTORIES.recorded())
    assert set(names) == set(HISTORIES.recorded()) >= REQUIRED


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_planted_fault_is_caught(fault: Fault) -> None:
    # Property: by a seed that holds without the fault: the recorded one as long as nothing moves the histories, else the first that does.
    catch = HISTORIES.known_first(fault)
    assert 0 <= catch.seed < HISTORIES.seeds_max, catch.why


def _what_has_moved(planting: Planting) -> None:
    planting.replace(Planting, "no_such_method", lambda: None)


def _what_is_never_run(planting: Planting) -> None:
    planting.replace(Planting, "replace", lambda: None)


def _what_does_not_fit(planting: Planting) -> None:
    from shards.store import Store

    planting.replace(Store, "append", lambda self: None)


@pytest.mark.parametrize("fault", faults(_what_has_moved, _what_is_never_run, _what_does_not_fit))
def test_a_fault_that_plants_nothing_is_an_error_and_no_catch(fault: Fault) -> None:
    # Property: when what it replaces has moved, is never run, or takes other arguments.
    with pytest.raises(Misfit):
        HISTORIES.hunt(fault, [0])
