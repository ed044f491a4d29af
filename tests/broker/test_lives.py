"""A part of the table of lives on a real broker with two gateways: what the simulator has shown holds over sockets and Ray too."""

from __future__ import annotations

import os

import pytest

from tests.broker.real_lives import SETTINGS, TURNS, live
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.broker.standing import Standing
from tests.lives.table import sample

SEED = int(os.environ.get("LIVES_SEED") or 0)
LIVES = 60
STOOD_S = 0.5
"""Half of the least by which anything is allowed to be late."""

pytestmark = pytest.mark.parametrize(
    "broker", [Options({**QUIET_RAY, **SETTINGS, "durable_storage.messages.n_shards": "2"})], indirect=True
)


async def test_lives_are_as_the_specification_says(broker: RunningBroker) -> None:
    """Of every way a connection can end some lives, chosen so that as many pairs of values as possible meet.

    Their times are real.  Where the machine stood still, those that were wrong are lived once more: a fault of the broker stays one."""
    left, wrong = sample(LIVES, SEED), {}
    for turn in range(TURNS):
        async with Standing() as standing:
            wrong = await live(broker, left, turn)
        left = list(wrong)
        if not left or standing.seconds < STOOD_S:
            break
    assert not wrong, "\n".join([f"{life.name}: {'; '.join(what)}" for life, what in wrong.items()])
