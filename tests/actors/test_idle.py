"""What a broker does that has nothing to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.meeting import publisher
from tests.actors.one_loop import OneLoop

pytestmark = [pytest.mark.slow]


async def test_a_shard_is_to_be_woken_once_however_many_turns_it_had(tmp_path: Path) -> None:
    """Each turn of a shard says when it wants the next.  When those were kept beside one another, sixteen came where one was wanted,
    each asked for one more, and so it went on when nobody was there any more."""
    async with OneLoop(tmp_path, n_shards=1, n_gateways=1) as broker:
        publishing = await publisher(broker)
        for number in range(20):
            await publishing.published("t", str(number), qos=1)
        (shard,) = broker.shards
        assert len(shard._pump._asked) == 1
