"""What MQTT 5 has beside messages, of a real broker: what clients are told, what waits in it over kill -9, where it sends them at the end.

Time has to pass where a message is delayed: that nothing comes early shows in nothing. The same with clocks that tests move:
tests/shards/test_delayed.py, tests/sim/test_delaying.py.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.conformance.packets import DISCONNECT, SERVER_KEEP_ALIVE, SERVER_REFERENCE, SUBSCRIPTION_IDENTIFIER, Answer
from tests.conformance.peer import Peer, fresh

ELSEWHERE = "other.example:1883"
SETTINGS = {
    **QUIET_RAY, "mqtt.keepalive_max": "60s", "mqtt.server_reference": ELSEWHERE, "mqtt.sys_interval": "1s", "gateway.count": "2",
}  # fmt: skip
pytestmark = pytest.mark.parametrize("broker", [Options(SETTINGS)], indirect=True, ids=["complete"])
SECONDS = 8
USE_ANOTHER_SERVER = 0x9C


@pytest.mark.parametrize(("asked", "told"), [(120, 60), (0, 60), (30, None)])
async def test_a_longer_keep_alive_is_shortened_in_connack(broker: RunningBroker, asked: int, told: int | None) -> None:
    """Server Keep Alive where the client asked for more, or for none [MQTT-3.1.2-21]."""
    peer = await Peer.connect(broker.port, 5, keep_alive=asked)
    assert peer.connack.get(SERVER_KEEP_ALIVE) == told
    await peer.leave()


async def test_what_is_delayed_comes_once_and_not_early_over_kill_9_of_everything(broker: RunningBroker) -> None:
    """Acknowledged before, due when the broker is back or while it was away; of one topic and QoS in the order of the due times."""
    topic = fresh("late")
    subscriber = await Peer.connect(broker.port, 5, f"{topic}-s", kept=True)
    await subscriber.subscribe((topic, 2))
    publisher = await Peer.connect(broker.port, 5, f"{topic}-p")
    began = time.monotonic()
    for seconds, qos in ((SECONDS, 1), (1, 2), (SECONDS, 2), (2, 1)):
        assert await publisher.publish(f"$delayed/{seconds}/{topic}", b"%d" % seconds, qos) == 0
    acknowledged = time.monotonic()
    await asyncio.to_thread(broker.kill_all)
    await asyncio.to_thread(broker.up)
    subscriber = await Peer.connect(broker.port, 5, f"{topic}-s", kept=True)
    assert subscriber.present
    # Well behind the time at which the last one is due, this one says that nothing comes twice.
    last = asyncio.create_task(_publish_at(broker, max(acknowledged + SECONDS, time.monotonic()) + 3, topic))
    came: dict[int, list[bytes]] = {1: [], 2: []}
    while (message := await subscriber.take()).payload != b"last":
        assert time.monotonic() >= began + int(message.payload), "it came early"
        came[message.qos].append(message.payload)
    await last
    assert came == {1: [b"2", b"%d" % SECONDS], 2: [b"1", b"%d" % SECONDS]}
    await subscriber.leave()


async def _publish_at(broker: RunningBroker, when: float, topic: str) -> None:
    await asyncio.sleep(max(0.0, when - time.monotonic()))
    await (await Peer.connect(broker.port, 5)).publish(topic, b"last")


@pytest.mark.parametrize("kept", [False, True])
async def test_each_of_several_matching_subscriptions_is_named(broker: RunningBroker, kept: bool) -> None:
    """Live, and what came while the client was away; one copy for each, with its own identifier [MQTT-3.3.4-5]."""
    topic = fresh("many")
    publisher, subscriber = await Peer.connect(broker.port, 5), await Peer.connect(broker.port, 5, f"{topic}-s", kept=kept)
    for identifier, filter in enumerate((f"{topic}/#", f"{topic}/+", f"{topic}/a"), 1):
        await subscriber.subscribe((filter, 1), identifier=identifier)
    for number in range(2 if kept else 1):
        if number:
            await subscriber.leave()
        await publisher.publish(f"{topic}/a", b"%d" % number)
        if number:
            subscriber = await Peer.connect(broker.port, 5, f"{topic}-s", kept=True)
        copies = await subscriber.take_all(3)
        assert {copy.payload for copy in copies} == {b"%d" % number}
        assert sorted(copy.all(SUBSCRIPTION_IDENTIFIER) for copy in copies) == [[1], [2], [3]]
    await subscriber.nothing_but(publisher, f"{topic}/a/b")


async def test_sys_tells_what_only_the_store_knows(broker: RunningBroker) -> None:
    """Of all shards, by whichever gateway; a session whose client is away and a retained message are among it."""
    topic = fresh("sys")
    away, publisher = await Peer.connect(broker.port, 5, f"{topic}-s", kept=True), await Peer.connect(broker.port, 5)
    await away.subscribe((f"{topic}/#", 1))
    await away.leave()
    await publisher.publish(f"{topic}/a", b"m" * 100, retain=True)
    watcher = await Peer.connect(broker.port, 5)
    await watcher.subscribe(("$SYS/broker/#", 0))
    prefix = "$SYS/broker/"
    wanted = {"clients/total", "clients/disconnected", "clients/inactive", "messages/stored", "store/messages/count",
              "store/messages/bytes", "retained messages/count"}  # fmt: skip
    values: dict[str, int] = {}
    while wanted - values.keys() or not all(values.values()):
        message = await watcher.message()
        name = message.topic.removeprefix(prefix)
        if name in wanted:
            values[name] = int(message.payload)
    assert values["clients/total"] > values["clients/disconnected"] == values["clients/inactive"]
    assert values["messages/stored"] == values["store/messages/count"] and values["store/messages/bytes"] > 100


async def test_at_shutdown_clients_are_told_where_to_go(broker: RunningBroker) -> None:
    """0x9C with the Server Reference, of every gateway, and the acknowledgement of what came before; 3.1.1 is closed. The last test."""
    peers = [await Peer.connect(broker.port, 5) for _ in range(8)]
    old = await Peer.connect(broker.port, 4)
    assert await peers[0].publish("t") in (0, 0x10)
    down = asyncio.create_task(asyncio.to_thread(broker.down))
    for peer in peers:
        (told,) = [packet for packet in await peer.rest() if isinstance(packet, Answer)]
        assert (told.kind, told.code, told.get(SERVER_REFERENCE)) == (DISCONNECT, USE_ANOTHER_SERVER, ELSEWHERE)
    assert await old.rest() == []
    await down
