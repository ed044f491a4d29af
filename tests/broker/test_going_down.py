"""One real broker that is stopped while something in it stands still: whoever waits for an acknowledgement gets it first."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from tests.actors.hand import Hand
from tests.broker import wire
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize("broker", [Options(dict(QUIET_RAY))], indirect=True, ids=["default"])

STILL_S = 4.4
"""Less than the 5 s that a gateway gives a client."""
JUDGED_S = 4.7
"""Where the machine made it longer than this, the gateway may have gone, and it is done once more."""
TRIES = 5


async def nobody_listens(port: int) -> float:
    """A gateway that stops closes its listeners first.  Returns a moment at which it had not begun."""
    before = time.monotonic()
    while True:
        began = time.monotonic()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return before
        before = began
        writer.close()
        await asyncio.sleep(0.02)


async def test_what_a_shard_acknowledges_late_reaches_its_client_before_the_end(broker: RunningBroker) -> None:
    """Session actors and shards are stopped when the gateways have ended, and those wait for their clients as long as they say."""
    for _ in range(TRIES):
        if await stood_still(broker) < JUDGED_S:
            return
        await asyncio.to_thread(broker.up)
    pytest.fail("this machine was too slow for it each time")


async def stood_still(broker: RunningBroker) -> float:
    """The shards stood still for so long while the gateway was stopping; if that was within JUDGED_S, the client got what is its own."""
    status = await asyncio.to_thread(broker.status)
    shards = [process.pid for process in status.processes if process.role == "shard"]
    client = await Hand.connect(broker.port, "busy", 5)
    for pid in shards:
        broker.signal(pid, signal.SIGSTOP)
    try:
        client.publish("t", "late", 1, 7)
        await client.alive()
        down = asyncio.create_task(asyncio.to_thread(broker.down))
        began = await asyncio.wait_for(nobody_listens(broker.port), 60)
        await asyncio.sleep(STILL_S)
    finally:
        for pid in shards:
            broker.signal(pid, signal.SIGCONT)
    still_s = time.monotonic() - began
    if still_s < JUDGED_S:
        assert await client.answer(wire.PUBACK, 7) < 0x80
        assert await client.ended() == "DISCONNECT 0x8b"
    client.drop()
    await down
    return still_s
