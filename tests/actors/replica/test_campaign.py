"""Campaigns over three shard processes, short: gate 8.2 takes all of them, more seeds, and every planted fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.replica import nemesis
from tests.actors.replica.campaign import found, run
from tests.actors.replica.planted import plant
from tests.hunting import Misfit

pytestmark = [pytest.mark.slow, pytest.mark.needs("gcc"), pytest.mark.timeout(240)]


async def test_whoever_loses_power_stands_still_or_is_heard_again_loses_nothing_acknowledged() -> None:
    """And the copies are equal afterwards, rows and logs."""
    ended = await run(3, stretches=(nemesis.without_power, nemesis.stood_still, nemesis.said_again))
    assert not ended.why
    assert ended.happened["power cut"] and ended.happened["stopped"] and ended.happened["said again"]


async def test_a_follower_that_does_not_look_at_epochs_is_found() -> None:
    """Planted in all three processes: what a leader said before it stood still is taken by those who follow another."""
    seed, why = await found("no epoch check", range(3), (nemesis.stood_still,))
    assert seed >= 0, why


def test_a_fault_that_is_none_is_no_catch(tmp_path: Path) -> None:
    """Its process ends before it opens anything."""
    with pytest.raises(Misfit, match="no fault is called 'nothing'"):
        plant("nothing", tmp_path)
