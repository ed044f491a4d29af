"""A bridge over real servers on one loop: what is stored is in its file, once and in order, whoever dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.settings import bridge_socket
from config.load import load
from gateway.bridges import token
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Connack, Connect
from mqtt.reason import ReasonCode
from tests.actors.bridge.carried import Bridges, Line, kill, lines, online, sets, until
from tests.actors.one_loop import OneLoop
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]


async def test_what_is_published_is_in_the_file_with_what_it_is(tmp_path: Path) -> None:
    """Payload, topic, publisher, QoS as published, position; nothing of other topics."""
    async with OneLoop(tmp_path, n_shards=2, sets=sets()) as broker, Bridges(broker) as server:
        await online(server)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one")
        await writer.published("b/1", "not this")
        await writer.published("a/2", "two")
        found = await until(tmp_path, 2)
        assert [(each["topic"], each["payload"], each["publisher"], each["qos"]) for each in found] == [
            ("a/1", "one", "writer", 1), ("a/2", "two", "writer", 1),
        ]  # fmt: skip
        assert len({(each["shard"], each["position"]) for each in found}) == 2
        assert [each["number"] for each in found] == [1, 2]


async def test_what_comes_while_the_process_is_away_is_there_when_it_is_back_and_nothing_twice(tmp_path: Path) -> None:
    """Killed in the middle of 300 messages, again and again, with the session actor too."""
    async with OneLoop(tmp_path, n_shards=2, sets=sets("out", "a/#", "batch_count_max=7", "inflight_max=20")) as broker:
        async with Bridges(broker) as server:
            await online(server)
        writers = [await Replayer.connect(broker.port, f"w-{number}", 5, expiry_s=0) for number in range(3)]
        found: list[Line] = []
        for part in range(6):
            for number, writer in enumerate(writers):
                await writer.published(f"a/{number}", *(f"{part}.{n:03}" for n in range(50)))
            bridges = Bridges(broker)
            await bridges.server.start()
            if part == 5:
                found = await until(tmp_path, 900)
                await bridges.server.stop()
                break
            await until(tmp_path, 150 * part + 20)
            if part % 2:
                await broker.kill_session()
            await kill(bridges.server)
        expected = [f"{part}.{n:03}" for part in range(6) for n in range(50)]
        for number in range(3):
            assert [each["payload"] for each in found if each["topic"] == f"a/{number}"] == expected
        assert len(lines(tmp_path)) == 900


async def test_nobody_from_outside_is_a_bridge(tmp_path: Path) -> None:
    """An id that begins with $bridge/ is refused at every listener but that of bridges, and there without what only we know."""
    async with OneLoop(tmp_path, sets=sets()) as broker:
        with pytest.raises(Exception, match=r"0x85|133|refused|closed"):
            await Replayer.connect(broker.port, "$bridge/out", 5)
        for client, secret in (("$bridge/out", b"wrong"), ("other", b"secret"), ("$bridge/", b"secret")):
            reader, writer = await asyncio.open_unix_connection(bridge_socket(broker.topology.run_dir))
            writer.write(encode(MQTT_5, Connect(MQTT_5, client, password=token(secret))))
            (connack,) = Decoder(MQTT_5, 1 << 20, "client").feed(await reader.read(1000))
            assert isinstance(connack, Connack) and connack.reason == ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
            writer.close()


async def test_a_new_filter_begins_where_start_says_and_the_old_one_ends(tmp_path: Path) -> None:
    """Changed while it runs; what the old one had been given is carried."""
    async with OneLoop(tmp_path, sets=sets()) as broker, Bridges(broker) as server:
        await online(server)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one")
        await until(tmp_path, 1)
        server.reconfigure(load(sets=sets("out", "b/#"), environ={}))
        while not server._runners or server._runners["out"].settings.filter != "b/#":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await online(server)
        await writer.published("b/1", "two")
        await until(tmp_path, 2)
        while "b'a/#'" in str(broker.sessions[0].core._state.sessions[b"$bridge/out"].subs):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await writer.published("a/1", "not this")
        await writer.published("b/1", "three")
        assert [each["payload"] for each in await until(tmp_path, 3)] == ["one", "two", "three"]
