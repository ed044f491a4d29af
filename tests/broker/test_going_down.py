"""One real broker that is stopped while something in it stands still: whoever waits for an acknowledgement gets it first."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Literal

import pytest

from tests.actors.hand import Ended, Hand
from tests.broker import wire
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize("broker", [Options(dict(QUIET_RAY))], indirect=True, ids=["default"])

STILL_S = 4.4
GIVEN_S = 5.0
"""By a gateway that stops, to each client. Who got nothing and was closed no earlier can say nothing of it: it is done once more."""
TRIES = 5


async def pids(broker: RunningBroker, role: str) -> list[int]:
    status = await asyncio.to_thread(broker.status)
    return [process.pid for process in status.processes if process.role == role]


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
    await tried(broker)


async def test_so_it_does_while_a_controller_waits_for_others_to_start(broker: RunningBroker) -> None:
    """One that is made anew asks all of them whether they have started, and shards that stand still do not answer."""
    await tried(broker, killed="before")


async def test_so_it_does_when_the_controller_dies_in_the_middle_of_the_stop(broker: RunningBroker) -> None:
    """Ray makes it anew, and it is asked again: what the one before had begun to stop is waited for, what it had not come to is stopped."""
    await tried(broker, killed="meanwhile")


async def tried(broker: RunningBroker, killed: Literal["", "before", "meanwhile"] = "") -> None:
    """killed: when the controller is."""
    for _ in range(TRIES):
        answered = await is_answered(broker, killed)
        await asyncio.to_thread(broker.up)
        if answered:
            return
    pytest.fail("this machine was too slow for it each time")


async def is_answered(broker: RunningBroker, killed: str) -> bool:
    """The shards stand still while the gateway stops, and go on before its time is over. False: this machine needed longer than that."""
    shards = await pids(broker, "shard")
    client = await Hand.connect(broker.port, "busy", 5)
    for pid in shards:
        broker.signal(pid, signal.SIGSTOP)
    former = await pids(broker, "controller")
    try:
        if killed == "before":
            await asyncio.to_thread(broker.kill, *former)
            async with asyncio.timeout(60):
                while await pids(broker, "controller") in ([], former):
                    pass  # Each look is a command, and takes its time.
        client.publish("t", "late", 1, 7)
        await client.alive()
        down = asyncio.create_task(asyncio.to_thread(broker.down))
        began = await asyncio.wait_for(nobody_listens(broker.port), 60)
        if killed == "meanwhile":
            broker.signal(former[0], signal.SIGKILL)
        await asyncio.sleep(STILL_S)
    finally:
        for pid in shards:
            broker.signal(pid, signal.SIGCONT)
    try:
        assert await client.answer(wire.PUBACK, 7) < 0x80
        answered = True
    except Ended:
        waited_s = time.monotonic() - began
        assert waited_s >= GIVEN_S, f"closed without a PUBACK {waited_s:.2f} s after it had begun to stop"
        answered = False
    if answered:
        assert await client.ended() == "DISCONNECT 0x8b"
    client.drop()
    await down
    return answered
