"""The whole broker in one thread, seed by seed: faults, then healing, then everything drains and every promise is kept."""

from __future__ import annotations

import os

import pytest

from tests.sim.fleet import share, shares

SEEDS = int(os.environ.get("SIM_SEEDS") or 500)
FIRST = int(os.environ.get("SIM_FROM") or 0)
FURTHER = (544,)
"""Of 544 a session was over two seconds after its gateway had stood still, so that who came in its place was no stranger to it."""


def chosen() -> list[range]:
    if os.environ.get("SIM_SEED"):
        one = int(os.environ["SIM_SEED"])
        return [range(one, one + 1)]
    return [*shares(FIRST, SEEDS), *(range(seed, seed + 1) for seed in FURTHER)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", chosen(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds_whatever_breaks(seeds: range) -> None:
    """Acknowledged is stored and comes, in order, at QoS 2 once; nothing stalls; the line of a failure replays it."""
    assert share(seeds).failures == []
