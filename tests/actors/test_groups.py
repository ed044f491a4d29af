"""Durable shared groups over the real servers: members at several gateways, and processes that end and come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.session import SessionServer
from tests.actors.hand import Ended, Got, Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire

pytestmark = [pytest.mark.slow]

GROUP = "$share/g/t/#"
SETS = ("durable_sessions.groups.redelivery_after=1s", "durable_sessions.groups.strategy=round_robin")


async def connected(port: int, client: str, version: wire.Version = 5) -> Hand:
    """Connect as a client does that is told to try again: the first answers may be 0x88."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await Hand.connect(port, client, version)
            except (AssertionError, Ended, ConnectionResetError):
                await asyncio.sleep(0.02)


def payloads(messages: list[Got]) -> list[str]:
    return [got.payload for got in messages]


async def settled(broker: OneLoop) -> None:
    """Nobody has anything of a group any more, and the group knows."""
    while any(shard._core._deliveries._there for shard in broker.shards):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def test_members_share_what_comes_and_take_over_from_one_that_is_lost(tmp_path: Path) -> None:
    """Of MQTT 3.1.1 and 5; over a new session actor; what is acknowledged comes to nobody again."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=SETS) as broker:
        first = await connected(broker.port, "first", 5)
        await first.subscribe(GROUP, 1)
        second = await connected(broker.port, "second", 4)
        await second.subscribe(GROUP, 1)
        publisher = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
        sent = [f"m{number}" for number in range(10)]
        await publisher.published("t/1", *sent, qos=1)
        mine, other = await first.messages(5), await second.messages(5)
        assert sorted(payloads([*mine, *other])) == sorted(sent)
        await second.complete_all(*other)
        await first.complete_all(mine[0])
        await first.alive()
        first.drop()
        # After a while the second one has them.
        late = await second.messages(4)
        assert payloads(late) == payloads(mine[1:]) and not any(got.dup for got in late)
        await second.complete_all(*late)
        await settled(broker)

        await broker.sessions[0].stop()
        broker.sessions[0] = SessionServer(broker.topology, 0)
        await broker.sessions[0].start()
        first, second = await connected(broker.port, "first", 5), await connected(broker.port, "second", 4)
        assert first.present and second.present
        publisher = await connected(broker.port, "pub")
        await publisher.published("t/2", "a", "b", qos=1)
        assert sorted(payloads([await first.message(), await second.message()])) == ["a", "b"]
