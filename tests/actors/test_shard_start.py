"""A shard whose start fails can be started again in the same process, as its host does."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.shard import ShardServer
from tests.actors.places import topology_in


@pytest.mark.slow
@pytest.mark.parametrize("kept", ["run/s0.sock", "run/shard-0.json"])
async def test_a_start_that_fails_behind_the_opening_leaves_the_store_to_the_next(tmp_path: Path, kept: str) -> None:
    """Its socket, or what says that it is there, cannot be made; when that has passed, nothing else is in the way."""
    topology = topology_in(tmp_path)
    in_the_way = tmp_path / kept
    in_the_way.mkdir()
    server = ShardServer(topology, 0)
    for _ in range(2):
        with pytest.raises(OSError, match=in_the_way.name):
            await server.start()
    in_the_way.rmdir()
    await server.start()
    assert (await server.health()).ready
    await server.stop()
