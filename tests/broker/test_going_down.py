"""One real broker that is stopped while something in it stands still: whoever waits for an acknowledgement gets it first."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.actors.hand import Hand
from tests.broker import wire
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize("broker", [Options(dict(QUIET_RAY))], indirect=True, ids=["default"])

STILL_S = 4.4
"""Less than the 5 s that a gateway gives a client."""


async def nobody_listens(port: int) -> None:
    """A gateway that stops closes its listeners first."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.02)


async def test_what_a_shard_acknowledges_late_reaches_its_client_before_the_end(broker: RunningBroker) -> None:
    """Session actors and shards are stopped when the gateways have ended, and those wait for their clients as long as they say."""
    status = await asyncio.to_thread(broker.status)
    shards = [process.pid for process in status.processes if process.role == "shard"]
    client = await Hand.connect(broker.port, "busy", 5)
    for pid in shards:
        broker.signal(pid, signal.SIGSTOP)
    try:
        client.publish("t", "late", 1, 7)
        await client.alive()
        down = asyncio.create_task(asyncio.to_thread(broker.down))
        await asyncio.wait_for(nobody_listens(broker.port), 20)
        await asyncio.sleep(STILL_S)
    finally:
        for pid in shards:
            broker.signal(pid, signal.SIGCONT)
    assert await client.answer(wire.PUBACK, 7) < 0x80
    assert await client.ended() == "DISCONNECT 0x8b"
    await down
