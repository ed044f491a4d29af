"""A bridge whose target is away, slow, or does not want what it gets; over real servers on one loop."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.bridge.session import client_id
from actors.inquiry.asking import Asking
from actors.inquiry.moving import Target, move
from actors.inquiry.stored import Stored
from bridge.targets.origins import ORIGIN as MARK
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Properties, Publish
from tests.actors.bridge.carried import Bridges, online, outward
from tests.actors.bridge.fussy import book
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]
WITHIN_S = 60.0


def sets(name: str, *more: str) -> tuple[str, ...]:
    own = ("filter=a/#", "type=plugin", "plugin.target=tests.actors.bridge.fussy:Fussy", "linger=1ms", "retry_min=5ms", "retry_max=20ms")
    return tuple([f"bridges.{name}.{each}" for each in (*own, *more)])


def new_name() -> str:
    return f"b{uuid.uuid4().hex[:8]}"


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_what_the_target_refuses_is_a_dead_letter_and_the_others_go_on(tmp_path: Path) -> None:
    """It says where it comes from, and who subscribes later finds it."""
    name = new_name()
    book(name).refuses = b"bad"
    async with OneLoop(tmp_path, n_shards=2, sets=sets(name)) as broker, Bridges(broker) as server:
        await online(server, name)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "good", "bad", "better")
        await until(lambda: len(book(name).taken) == 2)
        await until(lambda: outward(server, name).core.counters.dead_letters == 1)
        await until(lambda: not outward(server, name).core.held)
        assert [each.payload for each in book(name).taken] == [b"good", b"better"]
        reader = await Replayer.connect(broker.port, "reader", 5)
        await reader.replay("dead-letters", replay_from="earliest")
        letter = await reader.got()
        assert letter.payload == "bad"
        assert {"dead-letter-topic": "a/1", "dead-letter-bridge": name, "dead-letter-reason": "it is not wanted"}.items() <= (
            letter.properties.items()
        )
        await reader.alive()


async def test_what_comes_while_the_target_is_away_is_there_in_order_when_it_is_back(tmp_path: Path) -> None:
    """It holds no more than its window meanwhile, its breaker is open, and another bridge goes on."""
    away, well = new_name(), new_name()
    book(away).away = True
    every = (*sets(away, "inflight_max=10", "breaker_after=2"), *sets(well))
    async with OneLoop(tmp_path, n_shards=2, sets=every) as broker, Bridges(broker) as server:
        await online(server, away)
        await online(server, well)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        for part in range(4):
            await writer.published("a/1", *(f"{part}.{n:02}" for n in range(50)))
        await until(lambda: len(book(well).taken) == 200)
        core = outward(server, away).core
        await until(lambda: core.failures_in_a_row >= 3)
        assert core.held == 10 and core.breaker(0) == "open"
        assert "it is away" in server._runners[away].status().last_error
        book(away).away = False
        await until(lambda: len(book(away).taken) == 200)
        assert [each.payload.decode() for each in book(away).taken] == [f"{part}.{n:02}" for part in range(4) for n in range(50)]
        assert core.failures_in_a_row == 0 and core.breaker(0) == "closed"


async def test_a_target_that_takes_too_long_is_given_the_batch_again(tmp_path: Path) -> None:
    """By a new connection."""
    name = new_name()
    book(name).slow_s = 5.0
    async with OneLoop(tmp_path, sets=sets(name, "deliver_timeout=100ms")) as broker, Bridges(broker) as server:
        await online(server, name)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one")
        await until(lambda: outward(server, name).core.counters.failures >= 2)
        assert "not accepted within 100ms" in server._runners[name].status().last_error
        book(name).slow_s = 0.0
        await until(lambda: [each.payload for each in book(name).taken] == [b"one"])


async def test_a_message_that_has_come_from_this_store_is_not_carried_again(tmp_path: Path) -> None:
    """By the mark that bridges between brokers leave."""
    name = new_name()
    async with OneLoop(tmp_path, sets=sets(name)) as broker, Bridges(broker) as server:
        await online(server, name)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        site = broker.topology.site
        for packet_id, payload, passed in ((1, b"round", f"other/x,{site}/y"), (2, b"new", "other/x")):
            properties = Properties(user_properties=((MARK, passed),))
            writer.send(encode(MQTT_5, Publish(1 << 1, packet_id, b"a/1", payload, properties)))
            assert await writer.answer(wire.PUBACK, packet_id) < 0x80
        await until(lambda: bool(book(name).taken))
        assert [each.payload for each in book(name).taken] == [b"new"]
        assert outward(server, name).core.counters.left_out == 1


async def test_a_skip_and_a_rewind_move_the_bridge(tmp_path: Path) -> None:
    """What is carried again has other numbers, and is the same message by its position."""
    name = new_name()
    async with OneLoop(tmp_path, sets=sets(name)) as broker, Bridges(broker) as server:
        await online(server, name)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one", "two")
        await until(lambda: len(book(name).taken) == 2)
        await until(lambda: not outward(server, name).core._items)
        async with Asking(broker.topology) as asking, Stored(asking) as stored:
            done = await move(asking, stored, client_id(name), "rewind", Target.parse("earliest"), None, "test")
        assert done is not None and done.places == 1
        await until(lambda: len(book(name).taken) == 4)
        first, again = book(name).taken[:2], book(name).taken[2:]
        assert [(each.position, each.payload) for each in again] == [(each.position, each.payload) for each in first]
        assert [each.number for each in again] == [3, 4]
