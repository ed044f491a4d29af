"""Parameters of the design, from the name in a configuration to what clients meet: one broker each, with both values where it can be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.actors.test_selection import connect, taken
from tests.broker import wire

pytestmark = [pytest.mark.slow]
BUFFER = "durable_storage.messages.local_write_buffer"
DURABLE, MEMORY, EPHEMERAL = "durable", "memory", "ephemeral"
IN_MEMORY = (f'zones.m.client_id_prefixes=["{MEMORY}"]', "zones.m.durable_sessions.enable=false")


async def published_at_all(publisher: Hand, topics: Sequence[str]) -> None:
    for topic in topics:
        for qos in range(3):
            await publisher.published(topic, f"{topic}{qos}", qos=qos)


async def test_with_upgrade_qos_messages_leave_at_the_granted_qos(tmp_path: Path) -> None:
    """Of sessions of every kind; of durable ones what is stored.  A subscription keeps what it was given when the setting changes."""
    on = ("mqtt.upgrade_qos=true", *IN_MEMORY)
    async with OneLoop(tmp_path, n_gateways=2, sets=on) as broker:
        publisher = await connect(broker.port, "p")
        for kind in (DURABLE, MEMORY, EPHEMERAL):
            hand = await connect(broker.port, kind, expiry_s=0 if kind == EPHEMERAL else 3600)
            for granted in range(3):
                await hand.subscribe(f"{kind}/{granted}", granted)
            await published_at_all(publisher, [f"{kind}/{granted}" for granted in range(3)])
            got = dict(await taken(hand, 9))
            live = 0 if kind == DURABLE else None
            wanted = {f"{kind}/{granted}{qos}": granted if qos or live is None else live for granted in range(3) for qos in range(3)}
            assert got == wanted, kind
            broker.reconfigure(*IN_MEMORY)
            await hand.subscribe(f"{kind}/new", 2)
            await published_at_all(publisher, [f"{kind}/new", f"{kind}/2"])
            assert dict(await taken(hand, 6)) == {
                **{f"{kind}/new{qos}": qos for qos in range(3)}, **{f"{kind}/2{qos}": wanted[f"{kind}/2{qos}"] for qos in range(3)},
            }, kind  # fmt: skip
            broker.reconfigure(*on)
            hand.drop()
        publisher.drop()


async def test_what_was_raised_is_raised_when_it_comes_again(tmp_path: Path) -> None:
    """The same numbers and QoS after the connection, and after the session actor; also what was published at QoS 0 and stored."""
    async with OneLoop(tmp_path, sets=("mqtt.upgrade_qos=true", "durable_storage.messages.store_qos0=true")) as broker:
        publisher = await connect(broker.port, "p")
        hand = await connect(broker.port, "s")
        await hand.subscribe("t", 2)
        for qos in range(3):
            await publisher.published("t", f"{qos}", qos=qos)
        first = await hand.messages(3)
        assert [(got.payload, got.qos) for got in first] == [("0", 2), ("1", 2), ("2", 2)]
        await broker.ranges_committed()
        hand.drop()
        publisher.drop()
        await broker.kill_session()
        broker.reconfigure()
        hand = await connect(broker.port, "s")
        again = await hand.messages(3)
        assert [(got.payload, got.qos, got.packet_id, got.dup) for got in again] == [
            (got.payload, got.qos, got.packet_id, True) for got in first
        ]
        await hand.complete_all(*again)
        await hand.alive()
        hand.drop()


async def test_retained_messages_are_raised_too(tmp_path: Path) -> None:
    """To a new subscription of each kind of session."""
    async with OneLoop(tmp_path, sets=("mqtt.upgrade_qos=true", *IN_MEMORY)) as broker:
        publisher = await connect(broker.port, "p")
        await publisher.published("t", "kept", qos=1, retain=True)
        for kind in (DURABLE, MEMORY, EPHEMERAL):
            hand = await connect(broker.port, kind, expiry_s=0 if kind == EPHEMERAL else 3600)
            await hand.subscribe("t", 2)
            assert await taken(hand, 1) == [("kept", 2)], kind
            hand.drop()
        publisher.drop()


async def test_a_flush_interval_makes_one_sync_serve_more(tmp_path: Path) -> None:
    """One message after another is acknowledged no faster than syncs begin; another interval counts at once."""
    async with OneLoop(tmp_path, sets=(f"{BUFFER}.flush_interval=50ms",)) as broker:
        publisher = await connect(broker.port, "p")
        spread = broker.shards[0]._figures.sync
        before, began = spread.count, time.monotonic()
        await publisher.published("t", *map(str, range(6)))
        took_s = time.monotonic() - began
        assert took_s > 5 * 0.045 and spread.count - before <= took_s / 0.045 + 1
        broker.reconfigure()
        assert not broker.shards[0]._syncing.put_off
        before = spread.count
        await publisher.published("t", *map(str, range(6)))
        assert spread.count - before >= 6
        publisher.drop()


async def test_a_batch_is_as_large_as_was_said(tmp_path: Path) -> None:
    """`durable_sessions.batch_size`: so many polls bring twelve messages; another size, a zone's too, counts at the next connection."""
    never = "durable_sessions.idle_poll_interval=1h"
    async with OneLoop(tmp_path, sets=("durable_sessions.batch_size=2", never)) as broker:
        publisher = await connect(broker.port, "p")
        hand = await connect(broker.port, "s")
        await hand.subscribe("t", 1)
        polls: list[int] = []
        zone = ('zones.z.client_id_prefixes=["s"]', "zones.z.durable_sessions.batch_size=3")
        for sets in (("durable_sessions.batch_size=2",), ("durable_sessions.batch_size=6",), (), zone):
            broker.reconfigure(*sets, never)
            await hand.close()
            await broker.gone("s")
            await publisher.published("t", *map(str, range(12)))
            before = broker.sessions[0].core.counters.polls
            hand = await connect(broker.port, "s")
            assert len(await taken(hand, 12)) == 12
            polls.append(broker.sessions[0].core.counters.polls - before)
        # The last poll also says that there is no more.
        assert polls == [6, 2, 1, 4]
        for each in (publisher, hand):
            each.drop()


async def test_a_session_of_3_1_1_lives_as_long_as_was_said(tmp_path: Path) -> None:
    """`mqtt.session_expiry_interval`: at 0 it ends with its connection; what MQTT 5 clients say themselves is not touched."""
    async with OneLoop(tmp_path, sets=("mqtt.session_expiry_interval=0",)) as broker:
        present: list[bool] = []
        for sets in ("mqtt.session_expiry_interval=0", "mqtt.session_expiry_interval=1h"):
            broker.reconfigure(sets)
            for again in (False, True):
                hands = [await Hand.connect(broker.port, "old", 4), await connect(broker.port, "new", expiry_s=60)]
                present += [hand.present for hand in hands if again]
                for hand in hands:
                    await hand.close()
                for client in ("old", "new"):
                    await broker.gone(client)
        assert present == [False, True, True, True]


async def test_so_many_messages_are_under_way_as_was_said(tmp_path: Path) -> None:
    """`mqtt.max_inflight`, to a durable session and to an ephemeral one, whatever larger window the client offers."""
    async with OneLoop(tmp_path) as broker:
        publisher = await connect(broker.port, "p")
        for most in (3, 5):
            broker.reconfigure(f"mqtt.max_inflight={most}")
            for client, expiry_s in (("durable", 3600), ("ephemeral", 0)):
                hand = await connect(broker.port, client, expiry_s=expiry_s)
                await hand.subscribe(f"{client}/{most}", 1)
                await publisher.published(f"{client}/{most}", *map(str, range(8)))
                got = await hand.messages(most)
                await hand.alive()
                await hand.complete_all(*got)
                assert len(await taken(hand, 8 - most)) == 8 - most
                hand.drop()
        publisher.drop()


async def test_so_many_qos_2_messages_wait_for_pubrel_as_was_said(tmp_path: Path) -> None:
    """`mqtt.max_awaiting_rel`: one more ends the connection with 0x93; for sessions with and without an expiry."""
    async with OneLoop(tmp_path) as broker:
        for most in (1, 3):
            broker.reconfigure(f"mqtt.max_awaiting_rel={most}")
            for expiry_s in (0, 3600):
                hand = await connect(broker.port, f"p{most}-{expiry_s}", expiry_s=expiry_s)
                for packet_id in range(1, most + 1):
                    hand.publish("t", "x", 2, packet_id)
                    assert await hand.answer(wire.PUBREC, packet_id) < 0x80
                hand.publish("t", "x", 2, most + 1)
                assert await hand.ended() == "DISCONNECT 0x93"
