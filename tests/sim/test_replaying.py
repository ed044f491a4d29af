"""Replays while everything else happens: complete, once, in order, and no more than was asked for."""

from __future__ import annotations

import pytest

from tests.sim.__main__ import main
from tests.sim.planting import Planted
from tests.sim.replaying import Replaying
from tests.sim.replaying_hunt import REPLAYED, once
from tests.sim.replaying_planted import ALL
from tests.sim.simulation import Failed


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(2))
def test_a_replay_brings_what_is_stored_and_goes_on(tens: int) -> None:
    """Whatever breaks meanwhile; the line of a failure has its seed."""
    for seed in range(10 * tens, 10 * tens + 10):
        once(seed)


@pytest.mark.slow
def test_who_asks_nearly_all_the_time_is_at_the_head_in_between() -> None:
    """Twelve cursors a second look whether there is something, over links that are slow: that is no lagging, and it was taken for it."""
    once(1002)


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The line has its kind of world with its seed, and does it; a kind that nobody knows is one sentence."""
    monkeypatch.setattr(Replaying, "run", lambda self: 1 // 0)
    with pytest.raises(Failed, match=r"^SIM_WORLD=Replaying SIM_SEED=3 make sim "):
        once(3)
    monkeypatch.setenv("SIM_WORLD", "Replaying")
    assert main(["--seed", "3"]) == 1 and "ZeroDivisionError" in capsys.readouterr().out
    monkeypatch.setenv("SIM_WORLD", "Nowhere")
    with pytest.raises(SystemExit):
        main(["--seed", "3"])
    assert "SIM_WORLD is 'Nowhere', and is to be one of Simulation, Declaring" in capsys.readouterr().err


@pytest.mark.needs("interpreted")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_bound_that_is_off_is_found(fault: type[Planted]) -> None:
    """By a seed that holds without the fault."""
    catch = REPLAYED.known_first(fault)
    assert 0 <= catch.seed < REPLAYED.seeds_max, catch.why
