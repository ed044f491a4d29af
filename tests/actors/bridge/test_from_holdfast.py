"""A bridge inwards from another Holdfast, whose parts die as well as ours: in order, and at QoS 2 once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.actors.bridge.carried import Bridges, kill, online
from tests.actors.bridge.test_inward import brings
from tests.actors.one_loop import OneLoop
from tests.bridge.proxy import Proxy
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]
PARTS, EACH = 6, 40


async def test_in_order_and_at_qos_2_once_whoever_dies_on_either_side(tmp_path: Path) -> None:
    """The connection between them, the bridge's process, the session actors and shards of both."""
    async with OneLoop(tmp_path / "a", site="a" * 16) as here, OneLoop(tmp_path / "b", site="b" * 16) as there:
        proxy = Proxy(("127.0.0.1", there.port))
        await proxy.start()
        here.sets_of_bridges(*brings(proxy.port))
        async with Bridges(here) as server:
            await online(server, "in")
        reader = await Replayer.connect(here.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#", qos=2)
        reading = asyncio.create_task(_read(reader))
        for part in range(PARTS):
            bridges = Bridges(here)
            await bridges.server.start()
            writer = await Replayer.connect(there.port, f"writer-{part}", 5, expiry_s=0)
            for number in range(EACH):
                for qos in (1, 2):
                    await writer.published(f"a/{qos}", f"{part}.{number:02}", qos=qos)
                if number == EACH // 2:
                    await _breaks(part, here, there, proxy)
                    writer = await Replayer.connect(there.port, f"again-{part}", 5, expiry_s=0)
            await kill(bridges.server)
        async with Bridges(here):
            found = await reading
        await proxy.cut()
    expected = [f"{part}.{number:02}" for part in range(PARTS) for number in range(EACH)]
    assert found["a/2"] == expected
    assert list(dict.fromkeys(found["a/1"])) == expected


async def _breaks(part: int, here: OneLoop, there: OneLoop, proxy: Proxy) -> None:
    match part:
        case 0:
            await proxy.cut()
            await proxy.start()
        case 1:
            await there.kill_session()
        case 2:
            await there.restart_shard()
        case 3:
            await here.restart_shard()
        case 4:
            await there.kill_session()
            await here.restart_shard()


async def _read(reader: Replayer) -> dict[str, list[str]]:
    """By topic, until the last of each is there."""
    found: dict[str, list[str]] = {"a/1": [], "a/2": []}
    last = f"{PARTS - 1}.{EACH - 1:02}"
    while not all(last in of_topic for of_topic in found.values()):
        message = await reader.got()
        found[message.topic].append(message.payload)
    return found
