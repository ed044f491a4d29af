"""A shard whose disk is full for a while, between real sockets: nothing is answered, nothing is lost, nothing has to be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from shards.engine import Engine, Op, StoreFull
from tests.actors.one_loop import OneLoop
from tests.broker.client import Client, settled
from tests.broker.history import History, faults

pytestmark = [pytest.mark.slow]
MESSAGES = 40


class FullDisk:
    """The engine of a shard, as far as its shell writes to it, on a disk that can be full."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.full = False
        self.refused = asyncio.Event()

    def write(self, ops: Sequence[Op]) -> None:
        if self.full:
            self.refused.set()
            raise StoreFull("No space left on device")
        self._engine.write(ops)

    def sync(self) -> None:
        self._engine.sync()

    def close(self) -> None:
        self._engine.close()


async def refused_again(disk: FullDisk) -> None:
    disk.refused.clear()
    await asyncio.wait_for(disk.refused.wait(), 60)


async def test_a_full_disk_delays_acknowledgements_and_loses_nothing(tmp_path: Path) -> None:
    """What was sent into the full disk is acknowledged when there is room, once and in order; until then nothing is."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        disks = [FullDisk(shard._engine) for shard in broker.shards]
        for shard, disk in zip(broker.shards, disks, strict=True):
            shard._engine = cast("Engine", disk)
        history = History()
        subscriber = Client(broker.port, "sub", history, version=5)
        publishers = [Client(broker.port, f"pub-{n}", history, window=4) for n in range(4)]
        try:
            await subscriber.start()
            await subscriber.subscribe("a/#", 2)
            for publisher in publishers:
                await publisher.start()
            for disk in disks:
                disk.full = True
            sending = [asyncio.create_task(publish(each, 1 + n % 2)) for n, each in enumerate(publishers)]
            for _ in range(3):
                await asyncio.gather(*(refused_again(disk) for disk in disks))
            assert history.acknowledged_count() == 0
            for disk in disks:
                disk.full = False
            await asyncio.gather(*sending)
            for publisher in publishers:
                await publisher.acknowledged(60)
            await settled(history, 60)
            assert [publisher.refusals for publisher in publishers] == [[], [], [], []], "the connections lived on"
        finally:
            for client in (subscriber, *publishers):
                await client.stop()
    assert history.acknowledged_count() == MESSAGES * len(publishers)
    assert faults(history) == []


async def publish(publisher: Client, qos: int) -> None:
    for n in range(MESSAGES):
        await publisher.publish(f"a/{n % 5}", qos)
