"""A bridge inwards over real servers on one loop: what another broker has acknowledged is here, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from actors.bridge.crossing import Crossing
from actors.bridge.server import BridgeServer
from actors.metrics.sheet import Sheet, incarnation
from actors.shard import ShardServer
from benchmarks.brokers import Mosquitto
from bridge.targets.origins import ORIGIN
from tests.actors.bridge.carried import Bridges, inward, kill, online, sets
from tests.actors.one_loop import OneLoop
from tests.actors.test_metrics import scraped
from tests.bridge.proxy import Proxy
from tests.broker.replaying import Replayer
from tests.needs import find_program

pytestmark = [pytest.mark.slow, pytest.mark.needs("mosquitto")]


def brings(port: int, *more: str, name: str = "in", topic_filter: str = "a/#") -> tuple[str, ...]:
    prefix = f"bridges.{name}."
    given = ("direction=in", "type=mqtt", f"filter={topic_filter}", f"mqtt.url=mqtt://127.0.0.1:{port}", "retry_min=20ms", *more)
    return tuple([prefix + each for each in given])


@asynccontextmanager
async def mosquitto(directory: Path) -> AsyncIterator[Mosquitto]:
    program = find_program("mosquitto")
    assert program is not None
    broker = Mosquitto(directory, program)
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.stop)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_what_is_published_there_is_here(version: str, qos: int, tmp_path: Path) -> None:
    """In order, at its QoS, with its properties where there are any; nothing of other topics."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port, f"mqtt.version={version}")) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        async with Bridges(broker) as server, aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            await online(server, "in")
            for number in range(20):
                await writer.publish("b/1", "not this", qos=qos)
                await writer.publish("a/1", f"message {number}", qos=qos)
            found = [await reader.got() for _ in range(20)]
        assert [each.payload for each in found] == [f"message {number}" for number in range(20)]
        assert {each.qos for each in found} == {qos}


async def test_a_topic_is_made_by_the_template_and_what_is_not_wanted_is_left_out(tmp_path: Path) -> None:
    """With everything that MQTT 5 lets a message have, and more user properties than a client of ours may send."""
    more = ("transform.topic=there/{topic}", "transform.where=payload != 'no'")
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port, *more)) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("there/#", qos=2)
        async with Bridges(broker) as server, aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            await online(server, "in")
            said = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            said.UserProperty = [(f"p-{number}", "x") for number in range(300)]
            await writer.publish("a/1", "no", qos=1)
            await writer.publish("a/1", "yes", qos=1, properties=said)
            found = await reader.got()
            assert (found.topic, found.payload) == ("there/a/1", "yes")
            assert len(found.properties) == 301 and found.properties[ORIGIN].endswith("/in")
            assert inward(server, "in").counters.left_out == 1


async def test_no_message_of_another_broker_stops_those_behind_it(tmp_path: Path) -> None:
    """One with more levels or more bytes than this broker takes, or retained where nothing is."""
    more = ("gateway.topic_levels_max=4", "gateway.packet_bytes_max=8KiB", "mqtt.retain_available=false")
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=(*brings(there.port, "mqtt.version=3.1.1"), *more)) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#")
        await reader.replay("dead-letters")
        async with aiomqtt.Client("127.0.0.1", there.port) as writer:
            await writer.publish("a/retained", "retained", qos=1, retain=True)
            async with Bridges(broker) as server:
                await online(server, "in")
                await writer.publish("a/2/3/4/5", "deep", qos=2)
                await writer.publish("a/1", b"x" * 20_000, qos=1)
                await writer.publish("a/1", b"z" * 20_000, qos=0)
                await writer.publish("a/1", b"y" * 10_000, qos=1)
                await writer.publish("a/1", "last", qos=2)
                assert sorted(await reader.payloads(4)) == ["deep", "last", "retained", "y" * 10_000]
                counters = inward(server, "in").counters
                assert (counters.refused, counters.dead_letters, counters.dead_letters_dropped, counters.delivered) == (4, 2, 2, 2)


async def test_what_is_refused_here_for_good_is_a_dead_letter_and_is_acknowledged(tmp_path: Path) -> None:
    """Topics that are the broker's own, such as what mosquitto says of itself; retained messages come with the subscription."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port, topic_filter="$SYS/broker/version")) as broker:
        async with Bridges(broker) as server:
            await online(server, "in")
            reader = await Replayer.connect(broker.port, "reader", 5)
            await reader.replay("dead-letters", replay_from="earliest")
            letter = await reader.got()
            assert letter.properties["dead-letter-topic"] == "$SYS/broker/version" and letter.properties["dead-letter-bridge"] == "in"
            assert "(0x90)" in letter.properties["dead-letter-reason"]
            counters = inward(server, "in").counters
            assert (counters.refused, counters.dead_letters, counters.delivered) == (1, 1, 0)


@pytest.mark.parametrize("version", ["5", "3.1.1"])
async def test_more_than_may_be_under_way_is_brought_in_all_the_same(version: str, tmp_path: Path) -> None:
    """What waits for its PUBREL keeps no PUBREL from being read: 3.1.1 has no Receive Maximum, and mosquitto 2.0.11 sends more than it was
    told when a session goes on."""
    more = ("inflight_max=20", f"mqtt.version={version}")
    narrow = ("mqtt.max_inflight=16", "mqtt.max_awaiting_rel=16")
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=(*brings(there.port, *more), *narrow)) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#")
        async with Bridges(broker) as server:
            await online(server, "in")
        async with aiomqtt.Client("127.0.0.1", there.port) as writer:
            for number in range(300):
                await writer.publish("a/1", f"{number}", qos=2)
        async with Bridges(broker):
            assert sorted(await reader.payloads(300), key=int) == [f"{number}" for number in range(300)]


@pytest.mark.parametrize("retain", ["true", "false"])
async def test_what_is_retained_there_is_retained_here_where_that_is_wanted(retain: str, tmp_path: Path) -> None:
    """What was there before the bridge, and what is published later."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port, f"mqtt.retain={retain}")) as broker:
        async with aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            await writer.publish("a/1", "before", qos=1, retain=True)
            async with Bridges(broker) as server:
                await online(server, "in")
                await writer.publish("a/2", "later", qos=1, retain=True)
                while inward(server, "in").counters.delivered < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        reader = await Replayer.connect(broker.port, "reader", 5)
        await reader.replay("a/#")
        await asyncio.sleep(0.5)
        assert sorted(await reader.rest()) == (["before", "later"] if retain == "true" else [])


async def test_while_the_other_broker_is_away_it_is_failing_and_goes_on_by_itself(tmp_path: Path) -> None:
    """Its breaker is open after some failures; what was published there meanwhile comes when it can be reached."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path) as broker:
        proxy = Proxy(("127.0.0.1", there.port))
        await proxy.start()
        broker.sets_of_bridges(*brings(proxy.port, "breaker_after=3", "retry_max=100ms"))
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        async with Bridges(broker) as server, aiomqtt.Client("127.0.0.1", there.port) as writer:
            await online(server, "in")
            await proxy.cut()
            runner = inward(server, "in")
            while runner.status().breaker == "closed":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            status = runner.status()
            assert not status.online and status.failures >= 3 and "cannot be reached" in status.last_error
            await writer.publish("a/1", "meanwhile", qos=1)
            await proxy.start()
            assert await reader.payloads(1) == ["meanwhile"]
            while runner.status().failures:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (runner.status().online, runner.status().last_error) == (True, "")
            sheet = Sheet(broker.topology.run_dir, incarnation("bridge-0"))
            sheet.now_s = 1.0
            server.measure(sheet)
            sheet.close()
            found = scraped(broker.topology)
            assert found["holdfast_bridge_online", "in"] == 1 and found["holdfast_bridge_breaker_open", "in"] == 0
            assert found["holdfast_bridge_delivered_total", "in"] == 1 and found["holdfast_bridge_failures_total", "in"] >= 3
            await proxy.cut()


async def test_the_other_broker_killed_costs_nothing_that_is_here(tmp_path: Path) -> None:
    """kill -9 of mosquitto, which has forgotten the session when it is back: it is subscribed anew, and nothing of before is lost or comes
    again at QoS 2."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port, "retry_max=100ms")) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        async with Bridges(broker) as server:
            for part in range(3):
                await online(server, "in")
                async with aiomqtt.Client("127.0.0.1", there.port) as writer:
                    for number in range(20):
                        await writer.publish("a/1", f"{part}/{number}", qos=2)
                    assert await reader.payloads(20) == [f"{part}/{number}" for number in range(20)]
                (pid,) = there.groups()["data"]
                os.kill(pid, signal.SIGKILL)
                await asyncio.to_thread(there.stop)
                while inward(server, "in").online:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(there.start)


async def test_with_another_filter_the_session_there_goes_on(tmp_path: Path) -> None:
    """What waits in it comes, and the former filter is no more."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port)) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("#", qos=2)
        async with Bridges(broker) as server:
            await online(server, "in")
        async with aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            await writer.publish("a/1", "waits", qos=1)
            broker.sets_of_bridges(*brings(there.port, topic_filter="b/#"))
            async with Bridges(broker) as server:
                await online(server, "in")
                await writer.publish("a/1", "not this", qos=1)
                await writer.publish("b/1", "this", qos=1)
                assert await reader.payloads(2) == ["waits", "this"]


async def test_a_name_whose_place_in_the_store_is_that_of_a_bridge_outwards_is_not_taken(tmp_path: Path) -> None:
    """What is kept for that one would come back here: somebody has to say that it is not wanted."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=sets("in", "a/#")) as broker:
        async with Bridges(broker) as server:
            await online(server, "in")
        broker.sets_of_bridges(*brings(there.port))
        async with Bridges(broker) as server:
            while "holdfast bridge rm" not in inward(server, "in").complaint:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not server._runners["in"].online


async def test_killed_between_delivery_and_acknowledgement_it_brings_the_message_again(tmp_path: Path) -> None:
    """What this broker has not on disk is not acknowledged there; at QoS 2 it is here once."""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, sets=brings(there.port)) as broker:
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        async with aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            bridges = Bridges(broker)
            await bridges.server.start()
            await online(bridges.server, "in")
            await broker.shards[0].stop()
            for qos in (1, 2):
                await writer.publish(f"a/{qos}", "not yet", qos=qos)
            core = crossing(bridges.server).core
            assert core is not None
            while core.held < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await kill(bridges.server)
            broker.shards[0] = ShardServer(broker.topology, 0)
            await broker.shards[0].start()
            async with Bridges(broker) as server:
                await online(server, "in")
                await writer.publish("a/2", "last", qos=2)
                found: list[tuple[str, str]] = []
                while not found or found[-1] != ("a/2", "last"):
                    each = await reader.got()
                    found.append((each.topic, each.payload))
                assert found.count(("a/2", "not yet")) == 1 and ("a/1", "not yet") in found


async def test_nothing_is_lost_or_out_of_order_whoever_dies_and_at_qos_2_nothing_comes_twice(tmp_path: Path) -> None:
    """The bridge's process, the connection, the shard: again and again, in the middle of 600 messages.  (With a small receive maximum
    mosquitto 2.0.11 itself sends what is new before what waits.)"""
    async with mosquitto(tmp_path) as there, OneLoop(tmp_path, n_shards=1) as broker:
        proxy = Proxy(("127.0.0.1", there.port))
        await proxy.start()
        broker.sets_of_bridges(*brings(proxy.port))
        async with Bridges(broker) as server:
            await online(server, "in")
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        reading = asyncio.create_task(_read(reader, parts=5, each=60))
        async with aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            for part in range(5):
                bridges = Bridges(broker)
                await bridges.server.start()
                for number in range(60):
                    for qos in (1, 2):
                        await writer.publish(f"a/{qos}", f"{part}.{number:02}", qos=qos)
                    if number == 30:
                        await proxy.cut()
                        await proxy.start()
                if part == 2:
                    await broker.restart_shard()
                await kill(bridges.server)
            async with Bridges(broker):
                found = await reading
        await proxy.cut()
    expected = [f"{part}.{number:02}" for part in range(5) for number in range(60)]
    assert found["a/2"] == expected
    assert list(dict.fromkeys(found["a/1"])) == expected


async def _read(reader: Replayer, parts: int, each: int) -> dict[str, list[str]]:
    """By topic, until the last of each is there."""
    found: dict[str, list[str]] = {"a/1": [], "a/2": []}
    last = f"{parts - 1}.{each - 1:02}"
    while not all(last in of_topic for of_topic in found.values()):
        message = await reader.got()
        found[message.topic].append(message.payload)
    return found


def crossing(server: BridgeServer, name: str = "in") -> Crossing:
    found = inward(server, name)._crossing
    assert found is not None
    return found
