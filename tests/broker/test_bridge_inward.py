"""A bridge inwards of a real broker: what another broker was acknowledged for is here, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import aiomqtt
import pytest

from tests.actors.bridge.test_inward import mosquitto
from tests.broker.running import RunningBroker
from tests.broker.test_bridges import lines, until

pytestmark = [pytest.mark.needs("mosquitto")]

MESSAGES = 200
SAID_WITHIN_S = 20.0


async def test_what_another_broker_has_is_here_in_order_when_the_process_and_the_broker_are_killed(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """kill -9 of the bridge's process under load, then of everything; at QoS 2 each message once, at QoS 1 none lost.  A second bridge
    writes down what came, once each."""
    command, path = broker.command, Path(broker.data_dir) / "out.jsonl"
    async with mosquitto(tmp_path) as there:
        url = f"mqtt://127.0.0.1:{there.port}"
        await asyncio.to_thread(command, "bridge", "add", "out", "filter=b/#", "type=jsonl", "jsonl.path=out.jsonl")
        settings = ("filter=b/#", "direction=in", "type=mqtt", f"mqtt.url={url}", "retry_min=50ms")
        assert "is there" in await asyncio.to_thread(command, "bridge", "add", "in", *settings)
        async with aiomqtt.Client("127.0.0.1", there.port, protocol=aiomqtt.ProtocolVersion.V5) as writer:
            await _publish(writer, range(MESSAGES // 2))
            (pid,) = (await asyncio.to_thread(broker.status)).pids("bridge")
            os.kill(pid, signal.SIGKILL)
            publishing = asyncio.create_task(_publish(writer, range(MESSAGES // 2, MESSAGES)))
            await until(path, MESSAGES)
            await asyncio.to_thread(broker.kill_all)
            await publishing
            await _publish(writer, range(MESSAGES, MESSAGES + 20))
            await asyncio.to_thread(broker.up)
            await until(path, 2 * (MESSAGES + 20))
            async with asyncio.timeout(SAID_WITHIN_S):
                while await _listed(broker, "in") != ("in", "running"):
                    pass  # It says how it is once a second, and to be asked takes half of one.
        assert "has ended" in await asyncio.to_thread(command, "bridge", "rm", "in", "--yes")
    expected = [f"{number:04}" for number in range(MESSAGES + 20)]
    found = lines(path)
    assert [each["payload"] for each in found if each["topic"] == "b/2"] == expected
    assert list(dict.fromkeys([each["payload"] for each in found if each["topic"] == "b/1"])) == expected


async def _listed(broker: RunningBroker, name: str) -> tuple[str, str]:
    """Its direction and its state."""
    rows = json.loads(await asyncio.to_thread(broker.command, "bridge", "ls", "--json"))
    return next((row["direction"], row["state"]) for row in rows if row["name"] == name)


async def _publish(writer: aiomqtt.Client, numbers: range) -> None:
    for number in numbers:
        for qos in (1, 2):
            await writer.publish(f"b/{qos}", f"{number:04}", qos=qos)
