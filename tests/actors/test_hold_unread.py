"""hold_unread between real processes' code: shards that ask each other's homes over their links, and real sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from shards.slots import SlotTable
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop

pytestmark = [pytest.mark.slow]
HOUR_MS = 3_600_000
SETS = (
    "durable_storage.messages.hold_unread=true",
    "durable_storage.messages.generation_length=1h",
    "durable_sessions.message_retention_period=1h",
)


def at_home_in(shard: int) -> str:
    slots = SlotTable.initial(2)
    return next(f"c{n}" for n in range(99) if slots.shard_of(f"c{n}".encode()) == shard)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_generation_waits_for_the_sessions_of_both_homes(tmp_path: Path) -> None:
    """It stays while a session that is away has not read it, whose home is another shard, also over a restart of that shard; and goes,
    as read, when the client has come back and has acknowledged."""
    reader, quiet, publisher = at_home_in(1), at_home_in(0), at_home_in(0) + "-p"
    while SlotTable.initial(2).shard_of(publisher.encode()) != 0:
        publisher += "p"
    async with OneLoop(tmp_path, n_shards=2, sets=SETS) as broker:
        shard = broker.shards[0]

        def dropped() -> list[str]:
            return [row.reason for row in shard._store.dropped_between(-1, 1 << 60) if row.generation]

        hand = await Hand.connect(broker.port, reader, 5, expiry_s=0xFFFFFFFF)
        await hand.subscribe("a/#", 1)
        await hand.close()
        silent = await Hand.connect(broker.port, quiet, 5, expiry_s=0xFFFFFFFF)
        await silent.subscribe("nothing/#", 1)
        writer = await Hand.connect(broker.port, publisher, 5)
        await writer.published("a/1", "one", "two")
        await broker.forgotten(reader)
        for _ in range(2):
            for each in broker.shards:
                each._age._age_at_base += HOUR_MS
            await until(lambda: shard._store.generations()[0].until is not None)
        await until(lambda: shard.counters()["unread_pages"] >= 2)
        await until(lambda: f"session {reader}" in shard._core.retention.state().generations[0][5])
        await broker.restart_shard(1)
        pages = shard.counters()["unread_pages"]
        await until(lambda: shard.counters()["unread_pages"] > pages)
        assert dropped() == []
        hand = await Hand.connect(broker.port, reader, 5, expiry_s=0xFFFFFFFF)
        assert hand.present
        got = await hand.messages(2)
        assert [message.payload for message in got] == ["one", "two"]
        await hand.complete(*got)
        await until(lambda: dropped() == ["read"])
        for client in (hand, silent, writer):
            await client.close()
