"""What the shards of a running broker had committed when a backup of it began."""

from __future__ import annotations

import asyncio

from actors.asking import Shards
from actors.backup.taking import Told
from actors.topology import Topology
from shards.queries import Cut, CutFound

WITHIN_S = 60.0
"""A shard that was killed is back in seconds."""


def committed(topology: Topology, within_s: float = WITHIN_S) -> dict[int, Told]:
    """By shard. Raises NotReached when one does not answer."""

    async def ask() -> dict[int, Told]:
        async with Shards(topology, within_s) as shards:
            found = await shards.query_all(Cut())
        return {shard: Told(cut.watermark, cut.sequence) for shard, cut in enumerate(found) if isinstance(cut, CutFound)}

    return asyncio.run(ask())
