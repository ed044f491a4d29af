"""Bridges of several sites: they run where their session's home is led, and go on elsewhere when that site is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiomqtt
import pytest

from tests.actors.bridge.test_inward import mosquitto
from tests.actors.hand import Hand
from tests.broker.replaying import Replayer
from tests.sites.running import SeveralSites, several

WITHIN_S = 60.0
EACH = 60


@pytest.mark.needs("etcd", "ray", "rocksdict", "mosquitto")
async def test_a_bridge_goes_on_at_another_site_when_its_own_is_lost(tmp_path: Path) -> None:
    """One outwards and one inwards, and the broker at their other end; whoever was acknowledged anywhere is heard there, in order."""
    async with asyncio.timeout(300), mosquitto(tmp_path) as there:
        url = f"mqtt://127.0.0.1:{there.port}"
        more = {
            "bridges.out.filter": "out/#", "bridges.out.type": "mqtt", "bridges.out.mqtt.url": url, "bridges.out.retry_max": "1s",
            "bridges.in.direction": "in", "bridges.in.filter": "back/#", "bridges.in.type": "mqtt", "bridges.in.mqtt.url": url,
            "bridges.in.retry_max": "1s",
        }  # fmt: skip
        async with aiomqtt.Client("127.0.0.1", there.port, identifier="echo") as echo, several(3, more=more) as sites:
            await echo.subscribe("out/#", qos=1)
            echoing = asyncio.create_task(_echo(echo))
            leader = await asyncio.to_thread(sites.leader_of, 0)
            reader = await Replayer.connect(sites.ports[(leader + 1) % 3], "reader", 5, expiry_s=600)
            await reader.replay("back/#")
            await _publish(sites.ports[leader], range(EACH))
            assert await _first(reader, EACH) == [f"{number:03}" for number in range(EACH)]
            await asyncio.to_thread(sites.sites[leader].kill_all)
            await _publish(await _port(sites, leader), range(EACH, 2 * EACH))
            assert await _first(reader, EACH, [f"{number:03}" for number in range(EACH)]) == [
                f"{number:03}" for number in range(EACH, 2 * EACH)
            ]
            echoing.cancel()
            await reader.close()
            await asyncio.to_thread(sites.sites[leader].up)


async def _echo(echo: aiomqtt.Client) -> None:
    """What comes out goes back in."""
    async for message in echo.messages:
        await echo.publish("back/" + str(message.topic).removeprefix("out/"), message.payload, qos=1)


async def _port(sites: SeveralSites, lost: int) -> int:
    """Of a site that is there, when another leads."""
    leader = lost
    async with asyncio.timeout(WITHIN_S):
        while leader == lost:
            leader = await asyncio.to_thread(sites.leader_of, 0)
    return sites.ports[leader]


async def _publish(port: int, numbers: range) -> None:
    writer = await Hand.connect(port, "writer", 5, expiry_s=600)
    await writer.published("out/1", *[f"{number:03}" for number in numbers])
    await writer.close()


async def _first(reader: Replayer, count: int, known: list[str] | None = None) -> list[str]:
    """So many that were not there before, in the order in which they came first: at QoS 1 a bridge may bring one again."""
    seen = dict.fromkeys(known or [])
    before = len(seen)
    while len(seen) < before + count:
        seen[(await reader.got()).payload] = None
    return list(seen)[before:]
