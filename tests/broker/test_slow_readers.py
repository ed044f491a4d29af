"""Clients that read more slowly than messages come, of a real broker: they are sent no more than they read, and stay connected."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import wire
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.peer import Peer, fresh

APART = {**QUIET_RAY, "admin.enable": "false"}
pytestmark = pytest.mark.parametrize(
    "broker", [Options(APART), Options({**APART, "profile": "compact"})], indirect=True, ids=["apart", "compact"]
)  # fmt: skip
BYTES = 32 << 10
MESSAGES = 600
"""Twice what is cut off (SLOW_FACTOR of actors/connection.py), and within the window of a session."""
TURNS = 200


async def stored(broker: RunningBroker, topic: str) -> Peer:
    publisher = await Peer.connect(broker.port, 4)
    for number in range(MESSAGES):
        await publisher.publish(topic, b"%06d" % number + bytes(BYTES - 6), 1)
    return publisher


async def open_session(broker: RunningBroker, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that takes from its socket what is read, and 8 KiB more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=4096)
    writer.write(wire.connect(4, client, clean=False, keep_alive_s=0, expiry_s=0, receive_maximum=wire.PACKET_IDS))
    return reader, writer


async def test_a_window_of_large_messages_goes_out_as_it_is_read(broker: RunningBroker) -> None:
    """Nothing is read for a while, in which others are served; then all of it comes over this very connection, once and in order."""
    topic = fresh("large")
    subscriber = await Peer.connect(broker.port, 4, f"{topic}-s", kept=True)
    await subscriber.subscribe((topic, 1))
    await subscriber.leave()
    publisher = await stored(broker, topic)
    reader, writer = await open_session(broker, f"{topic}-s")
    for _ in range(TURNS):
        await publisher.publish(f"{topic}/other", b"others are served", 1)
    packets, found = wire.Reader(), list[int]()
    async with asyncio.timeout(60):
        while len(found) < MESSAGES:
            data = await reader.read(4096)
            assert data, f"the broker has closed the connection after {len(found)} messages"
            for packet in packets.feed(data):
                if packet.kind == wire.PUBLISH:
                    message = wire.read_publish(4, packet.flags, packet.body)
                    found.append(int(message.payload[:6]))
                    writer.write(wire.answer(wire.PUBACK, message.packet_id))
    assert found == list(range(MESSAGES))
    writer.write(wire.disconnect())
    writer.close()
    await publisher.leave()
