"""One real broker whose sessions are not durable: they outlive connections and gateways, and end with their session actor."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.actors.hand import Ended, Hand
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.packets import MESSAGE_EXPIRY
from tests.conformance.peer import Peer

pytestmark = pytest.mark.parametrize(
    "broker", [Options({**QUIET_RAY, "gateway.count": "2", "durable_sessions.enable": "false"})], indirect=True, ids=["in memory"]
)

BACK_S = 60.0


async def connected(port: int, client: str) -> Hand:
    """As a client does that tries again when it is told that the server is unavailable."""
    deadline = time.monotonic() + BACK_S
    while True:
        try:
            return await Hand.connect(port, client, 5)
        except (AssertionError, Ended, OSError):
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.1)


async def test_a_message_that_is_too_old_waits_for_nobody(broker: RunningBroker) -> None:
    """What came while the client was away has the rest of its expiry, or is gone by then [MQTT-3.3.2-5, -6]."""
    away, publisher = await Peer.connect(broker.port, 5, "away", kept=True), await Peer.connect(broker.port, 5)
    await away.subscribe(("old/#", 2))
    await away.leave()
    for qos in (1, 2):
        for expiry_s in (1, 600):
            await publisher.publish(f"old/{qos}", b"%d" % expiry_s, qos, properties=[(MESSAGE_EXPIRY, expiry_s)])
        await publisher.publish(f"old/{qos}", b"for ever", qos)
    await asyncio.sleep(2.1)
    back = await Peer.connect(broker.port, 5, "away", kept=True)
    assert back.present
    came = await back.take_all(4)
    assert [(message.topic, message.payload) for message in came] == [
        (f"old/{qos}", payload) for qos in (1, 2) for payload in (b"600", b"for ever")
    ]
    assert all(500 < int(left) <= 598 for message in came for left in message.all(MESSAGE_EXPIRY) if isinstance(left, int))
    assert [len(message.all(MESSAGE_EXPIRY)) for message in came] == [1, 0, 1, 0]
    await back.nothing_but(publisher, "old/end")


async def test_a_session_outlives_its_gateway_but_not_its_session_actor(broker: RunningBroker) -> None:
    """kill -9 of the gateway: session present, and what was published meanwhile comes; of the session actor: a new session."""
    status = await asyncio.to_thread(broker.status)
    first, second = status.own_port("gateway-0"), status.own_port("gateway-1")
    pid_of = {process.name: process.pid for process in status.processes}
    sub = await Hand.connect(first, "sub", 5)
    await sub.subscribe("t/#", 2)
    pub = await Hand.connect(second, "pub", 4, clean=True)
    await pub.published("t/1", "before")
    assert (await sub.message()).payload == "before"  # and no PUBACK
    await asyncio.to_thread(broker.kill, pid_of["gateway-0"])
    await pub.published("t/1", "one", qos=1)
    await pub.published("t/1", "two", qos=2)
    sub = await connected(second, "sub")
    assert sub.present
    got = await sub.messages(3)
    assert [(one.payload, one.dup) for one in got] == [("before", True), ("one", False), ("two", False)]
    await sub.complete_all(*got)
    await sub.alive()

    await asyncio.to_thread(broker.kill, pid_of["session-0"])
    sub = await connected(second, "sub")
    assert not sub.present
    await sub.subscribe("t/#", 2)
    pub = await connected(second, "pub")
    await pub.published("t/1", "after")
    assert (await sub.message()).payload == "after"
