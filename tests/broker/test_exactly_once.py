"""Every acknowledged message reaches the lake once, whatever is killed: the short form of gate 4.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lake.exactly_once import Drill, exactly_once

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("spark"),
    pytest.mark.timeout(900),
    # Broker and Spark are processes of their own here, and it runs long: what is collected meanwhile was left by tests before it, as by
    # those whose TLS handshake is refused in their last line (test_certificates).
    pytest.mark.filterwarnings("ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"),
]


async def test_five_faults_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    """A cut connection, a killed worker, reader, shard and driver, at 500 messages a second over three rolls."""
    outcome = await exactly_once(
        Drill(("cut", "worker", "reader", "shard", "driver"), seed=5, per_second=500.0, generation_s=10), tmp_path, print
    )
    assert outcome.faults.total() == 5 and outcome.lives >= 2
