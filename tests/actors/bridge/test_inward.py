"""A bridge inwards over real servers on one loop: what another broker has acknowledged is here, whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiomqtt
import pytest

from benchmarks.brokers import Mosquitto
from tests.actors.bridge.carried import Bridges, online
from tests.actors.one_loop import OneLoop
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
