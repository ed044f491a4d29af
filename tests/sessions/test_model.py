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

SEEDS = range(int(os.environ.get("SIM_FROM", "0")), int(os.environ.get("SIM_FROM", "0")) + int(os.environ.get("SIM_SEEDS", "40")))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_reordered_whatever_dies(seed: int) -> None:
    """After SUBACK every message comes, QoS 2 once, in order, through crashes, lost links, takeovers and resubscriptions."""
    world = World(seed, n_shards=1 + seed % 3, n_clients=2, options=SMALL)
    for _ in range(2000):
        world.step()
    world.heal_and_drain()
    world.verify()
    world.verify_rest()
