"""The test client against a broker that is not ours: what it reports is what happened, so a fault in a gate is the broker's."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import free_port
from tests.broker.wire import Version
from tests.needs import find_program

pytestmark = [pytest.mark.needs("mosquitto")]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A mosquitto that keeps everything it is given in memory."""
    chosen = free_port()
    configuration = tmp_path / "mosquitto.conf"
    configuration.write_text(f"listener {chosen} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 100\n")
    program = find_program("mosquitto")
    assert program is not None
    process = subprocess.Popen([program, "-c", str(configuration)], stderr=subprocess.DEVNULL)
    try:
        yield chosen
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
async def test_everything_arrives_once_and_in_order_across_torn_and_lost_connections(port: int, version: Version, qos: int) -> None:
    """Publisher and subscriber lose their connections in mid stream, some closed and some left open; the history has no fault."""
    history = History()
    subscriber, publisher = (Client(port, name, history, version=version, window=10) for name in ("subscriber", "publisher"))
    await subscriber.start()
    await subscriber.subscribe("a/#", qos)
    await publisher.start()
    abandoned = []
    for n in range(300):
        await publisher.publish(f"a/{n % 7}", qos, size=40)
        if n % 60 == 20:
            await publisher.vanish()
            await publisher.start()
        if n % 60 == 40:
            abandoned += [publisher.tear(), subscriber.tear()]
    await publisher.acknowledged(60)
    await settled(history, 60)
    assert history.acknowledged_count() == 300
    assert len(history.due("subscriber")) == 300
    assert faults(history) == []
    assert publisher.sessions_lost == [] and subscriber.sessions_lost == []
    assert len(publisher.connections) == 11 and all(each.session_present for each in publisher.connections[1:])
    for client in (publisher, subscriber):
        await client.stop()
    for writer in abandoned:
        assert writer is not None
        writer.transport.abort()


async def test_a_session_that_the_broker_forgot_is_reported(port: int) -> None:
    """Somebody connects clean under the same id in between: the client says that its session was lost."""
    history = History()
    client = Client(port, "victim", history)
    await client.start()
    await client.stop()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x10\x12\x00\x04MQTT\x04\x02\x00\x3c\x00\x06victim")
    assert await reader.readexactly(4) == b"\x20\x02\x00\x00"
    writer.write(b"\xe0\x00")
    await reader.read()
    writer.close()
    await client.start()
    assert client.sessions_lost == [2]
    await client.stop()


async def test_acknowledgements_are_placed_in_the_stream_of_bytes(port: int) -> None:
    """CONNACK has four bytes and each PUBACK too, so the n-th acknowledgement begins at 4 + 4 n."""
    history = History()
    client = Client(port, "publisher", history)
    connection = await client.start()
    for _ in range(50):
        await client.publish("a/b", 1)
    await client.acknowledged(60)
    assert [(each.number, each.begins_at) for each in connection.acknowledgements] == [(n, 4 + 4 * n) for n in range(50)]
    await client.stop()
