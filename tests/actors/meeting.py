"""A publisher and a durable subscriber called "s" that meet at a broker on one loop, both played by hand."""

from __future__ import annotations

import pytest

from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.broker.wire import Version

VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])


async def publisher(broker: OneLoop) -> Hand:
    return await Hand.connect(broker.port, "publisher", 5, clean=True, expiry_s=0)


async def resumed(broker: OneLoop, version: Version) -> Hand:
    hand = await Hand.connect(broker.port, "s", version)
    assert hand.present
    return hand


async def nothing_else(broker: OneLoop, topic: str, *hands: Hand) -> None:
    """What is published now is the next thing that comes."""
    other = await publisher(broker)
    await other.published(topic, "the end", qos=1)
    for hand in hands:
        got = await hand.message()
        assert (got.payload, got.dup) == ("the end", False), f"{got} came first"
        await hand.complete(got)
    await other.close()
