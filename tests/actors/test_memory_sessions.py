"""Sessions in memory over the real servers: they outlive connections and gateways, and are gone with their session actor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.session import SessionServer
from tests.actors.hand import Ended, Got, Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire

pytestmark = [pytest.mark.slow]

IN_MEMORY = "durable_sessions.enable=false"
LOOKS = 3_000


def ports(broker: OneLoop) -> list[int]:
    """The port of each gateway alone."""
    found: list[int] = []
    for gateway in broker.gateways:
        assert gateway._started is not None
        found.append(next(info.port for info in gateway._started.listeners if not info.shared))
    return found


def payloads(messages: list[Got]) -> list[str]:
    return [got.payload for got in messages]


async def restarted(broker: OneLoop) -> None:
    """The session actor ends and another one takes its place."""
    await broker.sessions[0].stop()
    broker.sessions[0] = SessionServer(broker.topology, 0)
    await broker.sessions[0].start()


async def until_connected(port: int, client: str) -> Hand:
    """Connect as a client does that is told to try again: the first answers may be 0x88."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await Hand.connect(port, client, 5)
            except (AssertionError, Ended, ConnectionResetError):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("compact", [False, True], ids=["spread", "compact"])
async def test_messages_wait_while_the_client_is_away_and_come_in_order_through_another_gateway(tmp_path: Path, compact: bool) -> None:
    """What was not acknowledged comes first, with DUP and its packet id, then what waited; QoS 2 comes once."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=(IN_MEMORY,), compact=compact) as broker:
        first, second = ports(broker)
        sub = await Hand.connect(first, "sub", 5, receive_max=4)
        assert not sub.present
        await sub.subscribe("t/#", 2)
        pub = await Hand.connect(second, "pub", 5, clean=True, expiry_s=0)
        await pub.published("t/1", "a", "b", qos=1)
        await pub.published("t/1", "c", "d", qos=2)
        a, b, c, d = await sub.messages(4)
        assert payloads([a, b, c, d]) == ["a", "b", "c", "d"] and not any(got.dup for got in (a, b, c, d))
        sub.acknowledge(wire.PUBACK, b.packet_id)
        sub.acknowledge(wire.PUBREC, c.packet_id)
        assert await sub.answer(wire.PUBREL, c.packet_id) == 0
        await sub.alive()
        sub.drop()
        await broker.gone("sub")
        await pub.published("t/2", *[f"m{n}" for n in range(20)], qos=1)
        await pub.published("t/2", "lost", qos=0)
        sub = await Hand.connect(second, "sub", 5, receive_max=100)
        assert sub.present
        assert await sub.answer(wire.PUBREL, c.packet_id) == 0
        again = await sub.messages(2)
        assert [(got.payload, got.packet_id, got.dup) for got in again] == [("a", a.packet_id, True), ("d", d.packet_id, True)]
        waited = await sub.messages(20)
        assert payloads(waited) == [f"m{n}" for n in range(20)] and not any(got.dup for got in waited)
        sub.acknowledge(wire.PUBCOMP, c.packet_id)
        await sub.complete_all(*again, *waited)
        await pub.published("t/3", "live", qos=0)
        assert (await sub.message()).payload == "live"
        await sub.alive()


async def test_a_full_queue_drops_its_oldest_messages_and_counts_them(tmp_path: Path) -> None:
    """Bounded in count and in bytes."""
    sets = (IN_MEMORY, "mqtt.max_mqueue_len=5", "mqtt.max_mqueue_bytes=10KiB")
    async with OneLoop(tmp_path, sets=sets) as broker:
        sub = await Hand.connect(broker.port, "sub", 5)
        await sub.subscribe("t", 1)
        await sub.close()
        await broker.gone("sub")
        pub = await Hand.connect(broker.port, "pub", 4, clean=True)
        await pub.published("t", *[f"{n}" for n in range(8)])
        sub = await Hand.connect(broker.port, "sub", 5)
        waited = await sub.messages(5)
        assert payloads(waited) == ["3", "4", "5", "6", "7"]
        await sub.complete(*waited)
        await sub.close()
        await broker.gone("sub")
        await pub.published("t", "old", "x" * 6000, "y" * 6000)
        sub = await Hand.connect(broker.port, "sub", 5)
        assert payloads(await sub.messages(1)) == ["y" * 6000]
        await sub.alive()
        counters = broker.sessions[0].core.counters
        assert counters.memory_dropped_queue_full == 5
        assert counters.memory_dropped_all_full == 0


async def test_a_session_is_gone_with_its_session_actor_and_nothing_is_wrongly_swallowed(tmp_path: Path) -> None:
    """Session present 0, no subscription, and a QoS 2 message under an id that the old session held open is a new message."""
    async with OneLoop(tmp_path, sets=(IN_MEMORY,)) as broker:
        client = await Hand.connect(broker.port, "c", 5)
        await client.subscribe("t", 2)
        client.publish("t", "before", 2, 7)
        assert await client.answer(wire.PUBREC, 7) < 0x80  # and no PUBREL
        assert (await client.message()).payload == "before"
        client.drop()
        await restarted(broker)
        client = await until_connected(broker.port, "c")
        assert not client.present
        await client.subscribe("t", 2)
        client.publish("t", "after", 2, 7)
        assert await client.answer(wire.PUBREC, 7) < 0x80
        assert (await client.message()).payload == "after"
        await client.close()
        client = await Hand.connect(broker.port, "c", 5)
        assert client.present


async def test_subscribers_of_every_kind_get_each_message_once(tmp_path: Path) -> None:
    """One topic, an ephemeral subscriber, one in memory and a durable one from before, at two gateways, and QoS 0 and 1."""
    async with OneLoop(tmp_path / "a", n_gateways=2) as broker:
        durable = await Hand.connect(broker.port, "durable", 5)
        await durable.subscribe("t/+", 1)
        await durable.close()
    async with OneLoop(tmp_path / "a", n_gateways=2, sets=(IN_MEMORY,)) as broker:
        first, second = ports(broker)
        durable = await Hand.connect(first, "durable", 5)
        assert durable.present, "it stays what it is"
        memory = await Hand.connect(second, "memory", 5)
        await memory.subscribe("t/+", 1)
        ephemeral = await Hand.connect(first, "ephemeral", 5, expiry_s=0)
        await ephemeral.subscribe("t/+", 1)
        for port in (first, second):
            pub = await Hand.connect(port, f"pub-{port}", 4, clean=True)
            await pub.published("t/1", "one", "two")
            await pub.published("t/1", "three", qos=0)
            for sub in (durable, memory, ephemeral):
                got = await sub.messages(3)
                assert sorted(payloads(got)) == ["one", "three", "two"], sub
                await sub.complete(*got)
                await sub.alive()


async def test_a_group_over_gateways_and_memory_takes_each_message_once_and_keeps_what_a_member_leaves(tmp_path: Path) -> None:
    """Two members in memory at two gateways and one ephemeral; one of them ends with messages that it has not acknowledged."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=(IN_MEMORY,)) as broker:
        first, second = ports(broker)
        members = [
            await Hand.connect(first, "m1", 5),
            await Hand.connect(second, "m2", 5),
            await Hand.connect(second, "e", 5, expiry_s=0),
        ]
        for member in members:
            await member.subscribe("$share/g/t/#", 1)
        pub = await Hand.connect(first, "pub", 4, clean=True)
        await pub.published("t/1", *[f"{n}" for n in range(9)])
        took = [await member.messages(3) for member in members]
        assert sorted(got.payload for messages in took for got in messages) == [f"{n}" for n in range(9)]
        for member, messages in zip(members[1:], took[1:], strict=True):
            await member.complete(*messages)
        # Away for now: what comes goes to the others; then its session ends, and what it had goes to the others too.
        members[0].drop()
        await pub.published("t/1", "while away")
        other = await Hand.connect(first, "m1", 5, clean=True)
        await other.alive()
        left = {*payloads(took[0]), "while away"}
        for _ in range(LOOKS):
            for member in members[1:]:
                member.send(wire.PINGREQ)
                while (packet := await member.packet()).kind != wire.PINGRESP:
                    left.discard(wire.read_publish(5, packet.flags, packet.body).payload.decode())
            if not left:
                break
            await asyncio.sleep(0.02)
        assert left == set()


async def test_retained_messages_and_a_will_come_to_a_session_in_memory(tmp_path: Path) -> None:
    """From all shards, once each; the will waits for who is away."""
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=(IN_MEMORY,)) as broker:
        first, second = ports(broker)
        pub = await Hand.connect(second, "pub", 4, clean=True)
        for n in range(6):
            await pub.published(f"r/{n}", f"kept {n}", retain=True)
        sub = await Hand.connect(first, "sub", 5)
        await sub.subscribe("r/#", 1)
        got = await sub.messages(6)
        assert sorted(payloads(got)) == [f"kept {n}" for n in range(6)] and all(one.retain for one in got)
        await sub.complete(*got)
        await sub.alive()
        await sub.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", second)
        # Clean session, will, will QoS 1.
        head = wire.text("MQTT") + bytes([4, 0x02 | 0x04 | 0x08, 0, 60])
        writer.write(wire.packet(0x10, head + wire.text("dying") + wire.text("r/will") + wire.text("gone")))
        await reader.readexactly(4)
        writer.transport.abort()
        for _ in range(LOOKS):
            if broker.sessions[0].core.counters.memory_taken:
                break
            await asyncio.sleep(0.02)
        sub = await Hand.connect(second, "sub", 5)
        assert sub.present
        assert payloads(await sub.messages(1)) == ["gone"]
        await sub.alive()
