"""A broker whose store has a broken file, between real sockets: the rest is served, it is said, and strict refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from actors.shard import ShardServer
from shards.engine import StoreDamaged
from shards.engine_rocks import RocksEngine
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.shards import damage

pytestmark = [pytest.mark.slow]

SETS = ("durable_storage.messages.generation_length=1m",)


async def stored(broker: OneLoop) -> Path:
    """A session that is away, with messages in a sealed generation and in the current one; the shard is stopped. Returns the data
    file of the sealed one."""
    sub = await Hand.connect(broker.port, "sub", 5)
    await sub.subscribe("t/#", 1)
    await sub.close()
    pub = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
    await pub.published("t/1", *[f"old {n}" for n in range(40)])
    await broker.pass_time(60_000)
    await pub.published("t/1", *[f"new {n}" for n in range(5)])
    await pub.close()
    await broker.shards[0].stop()
    (name,) = tables_of_first(broker)
    return broker.topology.store_path(0) / name


def tables_of_first(broker: OneLoop) -> list[str]:
    engine = RocksEngine(str(broker.topology.store_path(0)))
    try:
        return list(engine.tables(1))
    finally:
        engine.close()


async def begin(broker: OneLoop) -> None:
    broker.shards[0] = ShardServer(broker.topology, 0)
    await broker.shards[0].start()


async def gets_the_new_ones(broker: OneLoop) -> None:
    sub = await Hand.connect(broker.port, "sub", 5)
    assert sub.present
    assert [got.payload for got in await sub.messages(5)] == [f"new {n}" for n in range(5)]
    await sub.alive()
    pub = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
    await pub.published("t/1", "live")
    assert (await sub.message()).payload == "live"
    await sub.close()
    await pub.close()


async def test_a_session_goes_on_behind_a_generation_that_cannot_be_opened(tmp_path: Path) -> None:
    """What was in it is lost to the session, the rest comes in order, and the log and a counter say so."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        damage.short(await stored(broker))
        with capture_logs() as logged:
            await begin(broker)
        assert {"shard.damage", "shard.generations_lost"} <= {line["event"] for line in logged}
        await gets_the_new_ones(broker)
        assert broker.shards[0].counters()["generations_lost"] == 1


async def test_a_read_that_meets_damage_ends_no_process(tmp_path: Path) -> None:
    """The session goes on behind it at once, and the next start puts the generation aside."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        damage.in_a_value(await stored(broker))
        await begin(broker)
        with capture_logs() as logged:
            await gets_the_new_ones(broker)
            assert broker.shards[0].counters()["reads_damaged"] == 1
        assert [line["event"] for line in logged].count("shard.damage") == 1
        await broker.shards[0].stop()
        with capture_logs() as logged:
            await begin(broker)
        assert {"shard.damage", "shard.generations_lost"} <= {line["event"] for line in logged}
        await gets_the_live_one(broker)


async def gets_the_live_one(broker: OneLoop) -> None:
    sub = await Hand.connect(broker.port, "other", 5, clean=True)
    await sub.subscribe("t/#", 1)
    pub = await Hand.connect(broker.port, "pub", 5, clean=True, expiry_s=0)
    await pub.published("t/1", "live")
    assert (await sub.message()).payload == "live"
    await sub.close()
    await pub.close()


async def test_strict_refuses_to_start_every_time_with_the_same_sentence(tmp_path: Path) -> None:
    """Never a wait for a lock of its own; once the file is back, it starts."""
    async with OneLoop(tmp_path, sets=(*SETS, 'durable_storage.messages.on_damage="strict"')) as broker:
        file = await stored(broker)
        whole = file.read_bytes()
        damage.short(file)
        server = ShardServer(broker.topology, 0)
        for _ in range(2):
            with pytest.raises(StoreDamaged, match=f"{file.name}.*restore"):
                await server.start()
        file.write_bytes(whole)
        await server.start()
        broker.shards[0] = server
        sub = await Hand.connect(broker.port, "sub", 5, receive_max=100)
        assert len(await sub.messages(45)) == 45
        await sub.close()


async def test_what_cannot_be_read_of_the_sessions_refuses_and_lets_go_of_the_store(tmp_path: Path) -> None:
    """Also when the damage shows only after the store was opened."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        file = await stored(broker)
        home = min(file.parent.glob("*.sst"))
        assert home != file
        whole = home.read_bytes()
        home.write_bytes(whole[:10] + bytes(200) + whole[210:])
        server = ShardServer(broker.topology, 0)
        for _ in range(2):
            with pytest.raises(StoreDamaged, match=home.name):
                await server.start()
        home.write_bytes(whole)
        await server.start()
        broker.shards[0] = server
