"""The whole broker in one thread, seed by seed: faults, then healing, then everything drains and every promise is kept."""

from __future__ import annotations

import os

import pytest

from tests.sim.simulation import run, traced

CHUNK = 50
SEEDS = int(os.environ.get("SIM_SEEDS") or 200)
FIRST = int(os.environ.get("SIM_FROM") or 0)


def chunks() -> list[range]:
    if os.environ.get("SIM_SEED"):
        one = int(os.environ["SIM_SEED"])
        return [range(one, one + 1)]
    return [range(start, min(start + CHUNK, FIRST + SEEDS)) for start in range(FIRST, FIRST + SEEDS, CHUNK)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", chunks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_every_promise_holds_whatever_breaks(seeds: range) -> None:
    """Acknowledged is stored and comes, in order, at QoS 2 once; nothing stalls; the line of a failure replays it."""
    for seed in seeds:
        run(seed, say=print if traced() else None)
