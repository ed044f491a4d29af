"""The session core among honest shards and clients, whatever happens to links and processes."""

from __future__ import annotations

import os

import pytest

from sessions.options import SessionOptions
from tests.sessions.world import World

SMALL = SessionOptions(
    batch_size=5, max_inflight=20, unsent_bytes_max=2_000, poll_bytes_max=400, deliver_bytes_max=300, heartbeat_ms=40, lazy_commit_ms=3,
    range_messages_max=12, range_streams_max=2, commit_sessions_max=2, routes_per_request_max=2, route_wait_ms=10_000, retry_ms=20,
)  # fmt: skip

# SIM_FROM and SIM_SEEDS run others: SIM_FROM=4000 SIM_SEEDS=500 pytest tests/sessions/test_model.py
FROM, COUNT = int(os.environ.get("SIM_FROM", "0")), int(os.environ.get("SIM_SEEDS", "20"))


def run(seed: int, steps: int, clients: int = 2) -> None:
    world = World(seed, n_shards=1 + seed % 3, n_clients=clients, options=SMALL)
    for _ in range(steps):
        world.step()
    world.heal_and_drain()
    world.verify()
    world.verify_rest()


@pytest.mark.parametrize("seed", range(FROM, FROM + COUNT))
def test_nothing_is_lost_doubled_or_reordered_whatever_dies(seed: int) -> None:
    """After SUBACK every message comes, QoS 2 once, in order, through crashes, lost links, takeovers and resubscriptions."""
    run(seed, 1_000)


@pytest.mark.slow
def test_many_such_histories() -> None:
    """The same, longer and with more clients."""
    for seed in range(10_000 + FROM, 10_000 + FROM + 3 * COUNT):
        run(seed, 2_500, clients=3)
