"""Retention classes and captured topics from the configuration down to the disk, over real servers on one loop."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.shard import ShardServer
from tests.actors.one_loop import OneLoop
from tests.actors.test_selection import connect
from tests.broker import wire

pytestmark = [pytest.mark.slow]
GOLD = 'durable_storage.messages.classes=[{name = "gold", filter = "gold/#", period = "90d"}]'
CAPTURE = 'durable_storage.messages.capture=["gold/#"]'
NOBODY = 0x10


def classes(shard: ShardServer) -> list[tuple[str, bool]]:
    return [(info.klass, info.until is None) for info in shard._store.generations()]


async def test_a_map_of_classes_comes_into_force_at_a_start_and_the_order_of_a_topic_stays(tmp_path: Path) -> None:
    """What was stored before is read before what was stored after, in one subscription, though it lies in another class."""
    told: list[str] = []
    found: list[tuple[str, bool]] = []
    for number, sets in enumerate(((), (GOLD,), (GOLD,), ())):
        async with OneLoop(tmp_path, sets=sets) as broker:
            while broker.shards[0]._store.map_changed:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reader = await connect(broker.port, "reader")
            if number == 0:
                await reader.subscribe("gold/#", 1)
            writer = await connect(broker.port, "writer", expiry_s=0)
            await writer.published("gold/a", *(f"{number}.{n}" for n in range(5)))
            while len(told) < 5 * number + 5:
                got = await reader.message()
                if not (got.dup and got.payload in told):
                    # What was acknowledged last before the stop may come again.
                    told.append(got.payload)
                await reader.complete_all(got)
            found = classes(broker.shards[0])
    assert told == [f"{number}.{n}" for number in range(4) for n in range(5)]
    assert found == [("default", False), ("default", False), ("gold", False), ("default", True)]


async def test_what_is_captured_is_answered_as_stored_and_is_there_afterwards(tmp_path: Path) -> None:
    """No session wants it; the publisher of another topic is told that nobody does."""
    async with OneLoop(tmp_path, sets=(CAPTURE,)) as broker:
        writer = await connect(broker.port, "writer", expiry_s=0)
        writer.publish("gold/a", "1", 1, 1)
        writer.publish("lead/a", "1", 1, 2)
        assert [await writer.answer(wire.PUBACK, number) for number in (1, 2)] == [0, NOBODY]
        store = broker.shards[0]._store
        assert [len(store.streams(topic, 0)) for topic in (b"gold/a", b"lead/a")] == [1, 0]
