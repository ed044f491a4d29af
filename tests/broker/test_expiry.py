"""Sessions of a broker of processes end at their time: while it runs, and over kill -9 of everything.

Time has to pass here: that nothing ends early shows in nothing, and looking at a session by its client begins its time anew. The same
with clocks that tests move: tests/actors/test_expiry.py.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.actors.hand import Hand
from tests.broker.running import RunningBroker

OF_A_RESTART_S = 10.0
"""After a restart of everything an end may be so late: nobody knows better when a connection ended that was open then."""


async def present(broker: RunningBroker, client: str, expiry_s: int) -> bool:
    """Whether there is a session.  Looking at it resumes it, and this connection ends at once."""
    hand = await Hand.connect(broker.port, client, 5, expiry_s=expiry_s)
    await hand.close()
    return hand.present


async def make(broker: RunningBroker, client: str, expiry_s: int) -> Hand:
    hand = await Hand.connect(broker.port, client, 5, expiry_s=expiry_s)
    assert not hand.present
    await hand.subscribe(f"of/{client}/#", 1)
    return hand


async def test_a_session_ends_two_seconds_after_its_client_has_gone(broker: RunningBroker) -> None:
    """Whoever comes back before finds it, and the time counts anew from there.  Where the machine made that too late, it is tried again."""
    client = next(clients := (f"x-{number}" for number in range(20)))
    hand, returns = await make(broker, client, 2), 0
    while returns < 2:
        left = time.monotonic()
        await hand.close()
        await asyncio.sleep(1.5)
        hand = await Hand.connect(broker.port, client, 5, expiry_s=2)
        returns += 1
        if not hand.present:
            assert time.monotonic() > left + 2, "it has ended early"
            hand.drop()
            client, returns = next(clients), 0
            hand = await make(broker, client, 2)
    await hand.close()
    await asyncio.sleep(2.1)
    assert not await present(broker, client, 2)


@pytest.mark.slow
async def test_sessions_end_over_a_restart_of_everything(broker: RunningBroker) -> None:
    """Away ones by the time that passed; those that were connected count from the crash; long ones are there."""
    await (await make(broker, "x-away", 2)).close()
    connected = await make(broker, "x-connected", 3)
    await (await make(broker, "x-long", 3_600)).close()
    killed = time.monotonic()
    await asyncio.to_thread(broker.kill_all)
    await asyncio.to_thread(broker.up)
    connected.drop()
    await asyncio.sleep(max(0.0, killed + 2.5 - time.monotonic()))
    assert not await present(broker, "x-away", 2)
    assert await present(broker, "x-long", 3_600)
    await asyncio.sleep(max(0.0, killed + 3 + OF_A_RESTART_S + 1 - time.monotonic()))
    assert not await present(broker, "x-connected", 3)
