"""Messages that are dropped before somebody gets them, between real sockets: the rest comes, and what is missing is a row and a line."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.reasons import LOST_MESSAGES
from shards.rows import NOT_COUNTED, LossRow
from shards.survey import Survey
from tests.actors.hand import Hand
from tests.actors.meeting import nothing_else, publisher, resumed
from tests.actors.one_loop import OneLoop
from tests.actors.test_damaged_store import begin, gets_the_new_ones, stored
from tests.broker import wire
from tests.conformance.packets import REASON_STRING, Value
from tests.conformance.peer import Peer
from tests.shards import damage

pytestmark = [pytest.mark.slow]

SETS = (
    "durable_storage.messages.generation_length=1m", "durable_sessions.message_retention_period=5m",
    "durable_sessions.idle_poll_interval=1s",
)  # fmt: skip
AWAY_MS = 300_000
LOOKS = 6_000


async def dropped(broker: OneLoop, *generations: int) -> None:
    """So much time passes that these go, in every shard, and from what is in memory for those who keep up."""
    for shard in broker.shards:
        shard._age._age_at_base += AWAY_MS
    while any(info.id in generations for shard in broker.shards for info in shard._store.generations()):
        broker.housekeep()
        await asyncio.sleep(0.005)
    for index in range(len(broker.shards)):
        await broker.restart_shard(index)


async def at_head(broker: OneLoop, client: str) -> None:
    """This session has read all sealed generations.  It asks for itself now and then; in a test five minutes pass in none."""
    core = broker.sessions[0].core
    (sub,) = core._state.sessions[client.encode()].subs.values()
    for cursor in sub.cursors:
        while core._reading.place_of(cursor).cut < broker.shards[cursor.shard]._store.generations()[-1].since:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def kept(broker: OneLoop, client: str = "s", count: int = 1) -> list[LossRow]:
    """The losses of a session when it has so many, from the rows on the disk."""
    for _ in range(LOOKS):
        found = losses(broker, client)
        if len(found) >= count:
            break
        await asyncio.sleep(0.01)
    return losses(broker, client)


async def told_to_the_end(broker: OneLoop, client: str, sent: int) -> list[LossRow]:
    """As kept, when there are rows for so many that had been sent, in one row or several, and the one for the rest of the generation."""
    for _ in range(LOOKS):
        found = losses(broker, client)
        if sum(loss.lost for loss in found if loss.lost != NOT_COUNTED) >= sent and found[-1].lost == NOT_COUNTED:
            break
        await asyncio.sleep(0.01)
    return losses(broker, client)


def losses(broker: OneLoop, client: str) -> list[LossRow]:
    return [loss for shard in broker.shards for _, loss in Survey(0, shard._engine).losses(client.encode())]


async def said(broker: OneLoop, count: int) -> None:
    """The session actor has so many losses committed."""
    for _ in range(LOOKS):
        if broker.sessions[0].counters()["losses"] >= count:
            return
        await asyncio.sleep(0.01)


async def reason_string(broker: OneLoop) -> Value | None:
    """Of the CONNACK of one more connection of the session."""
    peer = await Peer.connect(broker.port, 5, "s", kept=True)
    peer.drop()
    return peer.connack.get(REASON_STRING)


async def close(*hands: Hand) -> None:
    for hand in hands:
        await hand.close()


def lines(logged: list[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in logged if line["event"] == "session.messages_lost"]


async def offline(broker: OneLoop, qos: int = 1) -> Hand:
    """A session that is away; a publisher."""
    hand = await Hand.connect(broker.port, "s", 5)
    await hand.subscribe("t/#", qos)
    await hand.close()
    await broker.forgotten("s")
    return await publisher(broker)


@pytest.mark.parametrize("n_shards", [1, 2])
async def test_who_comes_too_late_gets_the_rest_in_order_and_the_gap_is_said(tmp_path: Path, n_shards: int) -> None:
    """One row and one line, with where and when; a session at the head and a new one have none, also after a crash of everything."""
    async with OneLoop(tmp_path, n_shards, sets=SETS) as broker:
        head = await Hand.connect(broker.port, "head", 5)
        await head.subscribe("t/#", 1)
        publishing = await offline(broker)
        await publishing.published("t/1", "a", "b", "c")
        await head.complete(*await head.messages(3))
        await broker.pass_time(60_000)
        info = next(shard for shard in broker.shards if shard._core.counters["messages_stored"])._store.generations()[0]
        await publishing.published("t/1", "d", "e")
        await head.complete(*await head.messages(2))
        await at_head(broker, "head")
        await dropped(broker, 1)
        await publishing.published("t/1", "f")
        await head.complete(await head.message())
        with capture_logs() as logged:
            hand = await resumed(broker, 5)
            assert [got.payload for got in await hand.messages(3)] == ["d", "e", "f"]
            await said(broker, n_shards)
            found = await kept(broker, count=n_shards)
        assert len(found) == n_shards and len({loss.shard for loss in found}) == n_shards
        assert info.until is not None
        (loss,) = [loss for loss in found if loss.upto == info.until - 1]
        assert (loss.filter, loss.generation, loss.klass, loss.lost, loss.reason) == (b"t/#", 1, "default", NOT_COUNTED, "period")
        assert info.since <= loss.after < loss.upto
        assert loss.from_wall_ms == info.created_wall_ms < loss.to_wall_ms and loss.at_wall_ms
        logged = lines(logged)
        assert len(logged) == n_shards and {line["client_id"] for line in logged} == {"s"}
        assert {(line["generation"], line["messages"], line["reason"]) for line in logged} == {(1, None, "period")}
        assert broker.sessions[0].counters()["losses"] == n_shards and not broker.sessions[0].counters()["lost"]
        fresh = await Hand.connect(broker.port, "fresh", 5)
        await fresh.subscribe("t/#", 1)
        hand.drop()
        await head.close()
        await broker.forgotten("head")
        with capture_logs() as logged:
            await broker.kill_session()
            for index in range(n_shards):
                await broker.restart_shard(index)
            assert [await reason_string(broker) for _ in range(2)] == [LOST_MESSAGES, None], "the next CONNACK says so, once"
            hand, head, fresh = [await Hand.connect(broker.port, client, 5) for client in ("s", "head", "fresh")]
            await hand.complete_all(*await hand.messages(3))
            await nothing_else(broker, "t/1", hand, head, fresh)
        assert not lines(logged) and len(losses(broker, "s")) == n_shards
        assert losses(broker, "head") == losses(broker, "fresh") == []
        await close(hand, head, fresh, publishing)


@pytest.mark.parametrize("crash", ["the session actor", "the shard", "both"])
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01])
async def test_a_crash_while_it_is_met_makes_no_second_row(tmp_path: Path, crash: str, after_s: float) -> None:
    """Whatever was told and not committed is told again."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        publishing = await offline(broker)
        await publishing.published("t/1", "old")
        await broker.pass_time(60_000)
        await publishing.published("t/1", "new")
        await dropped(broker, 1)
        hand = await resumed(broker, 5)
        await asyncio.sleep(after_s)
        hand.drop()
        if crash != "the shard":
            await broker.kill_session()
        if crash != "the session actor":
            await broker.restart_shard()
        hand = await resumed(broker, 5)
        got = await hand.taken()
        assert got.payload == "new"
        await nothing_else(broker, "t/1", hand)
        assert [loss.generation for loss in await kept(broker)] == [1]
        await close(hand, publishing)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_sent_and_not_answered_is_lost_and_counted(tmp_path: Path, qos: int) -> None:
    """Never sent again; of QoS 2 what was received is completed; the next message comes under the next identifier."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        publishing = await publisher(broker)
        hand = await Hand.connect(broker.port, "s", 5)
        await hand.subscribe("t/#", qos)
        await publishing.published("t/1", "a", "b", "c", qos=qos)
        a, b, c = await hand.messages(3)
        if qos == 1:
            hand.acknowledge(wire.PUBACK, a.packet_id)
        else:
            hand.acknowledge(wire.PUBREC, a.packet_id)
            assert await hand.answer(wire.PUBREL, a.packet_id) == 0
        await broker.ranges_committed()
        await hand.close()
        await broker.forgotten("s")
        await broker.pass_time(60_000)
        await publishing.published("t/1", "d", qos=qos)
        await dropped(broker, 1)
        with capture_logs() as logged:
            hand = await resumed(broker, 5)
            if qos == 2:
                assert await hand.answer(wire.PUBREL, a.packet_id) == 0
                hand.acknowledge(wire.PUBCOMP, a.packet_id)
            d = await hand.message()
            assert (d.payload, d.packet_id, d.dup) == ("d", c.packet_id + 1, False)
            await hand.complete(d)
            found = await told_to_the_end(broker, "s", 2)
            await said(broker, len(found))
            counted = [loss for loss in found if loss.lost != NOT_COUNTED]
        assert {loss.generation for loss in counted} == {1} and sum(loss.lost for loss in counted) == 2
        assert sorted(line["messages"] or 0 for line in lines(logged)) == sorted(max(0, loss.lost) for loss in losses(broker, "s"))
        before = losses(broker, "s")
        await hand.close()
        await broker.forgotten("s")
        await broker.kill_session()
        hand = await resumed(broker, 5)
        await nothing_else(broker, "t/1", hand)
        await close(hand, publishing)
        assert losses(broker, "s") == before and broker.sessions[0].counters()["losses"] == 0
        assert b.packet_id + 1 == c.packet_id


async def test_losses_go_with_their_session(tmp_path: Path) -> None:
    """When it expires, and nothing that the sweep would find is left."""
    async with OneLoop(tmp_path, sets=SETS) as broker:
        publishing = await offline(broker)
        await publishing.published("t/1", "old")
        await broker.pass_time(60_000)
        await dropped(broker, 1)
        hand = await resumed(broker, 5)
        assert len(await kept(broker)) == 1
        await close(hand, publishing)
        await broker.forgotten("s")
        broker.shards[0]._age._age_at_base += 3_600_000
        for _ in range(LOOKS):
            if not losses(broker, "s"):
                break
            await asyncio.sleep(0.01)
        assert losses(broker, "s") == []
        hand = await Hand.connect(broker.port, "s", 5)
        assert not hand.present
        await hand.close()


async def test_a_generation_that_cannot_be_read_is_a_loss_too(tmp_path: Path) -> None:
    """Its reason says so; what is behind it comes."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.generation_length=1m",)) as broker:
        damage.short(await stored(broker))
        await begin(broker)
        await gets_the_new_ones(broker)
        assert [(loss.generation, loss.reason, loss.lost) for loss in await kept(broker, "sub")] == [(1, "damaged", NOT_COUNTED)]


async def test_what_damage_ends_while_it_is_read_is_a_loss_too(tmp_path: Path) -> None:
    """The read that meets it says so at once."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.generation_length=1m",)) as broker:
        damage.in_a_value(await stored(broker))
        await begin(broker)
        await gets_the_new_ones(broker)
        assert [(loss.generation, loss.reason, loss.lost) for loss in await kept(broker, "sub")] == [(1, "damaged", NOT_COUNTED)]
