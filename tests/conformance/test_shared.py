"""Shared subscriptions ($share), of sessions that end with their connection and of sessions in memory (4.8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.actors.one_loop import OneLoop
from tests.conformance import packets
from tests.conformance.cases import ONE_LOOP
from tests.conformance.packets import PUBACK, PUBREC, Message
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

TOPIC_FILTER_INVALID = 0x8F
KINDS = pytest.mark.parametrize("kept", [False, True], ids=["ephemeral", "in memory"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneLoop]:
    """Sessions that outlive their connection live in memory: durable ones have no shared subscriptions yet."""
    async with OneLoop(tmp_path_factory.mktemp("shared"), sets=("durable_sessions.enable=false",)) as running:
        yield running


async def _group(port: int, topic: str, options: int, kept: bool, count: int = 2, receive_max: int = 0) -> list[Peer]:
    peers = [await Peer.connect(port, 5, kept=kept, receive_max=receive_max) for _ in range(count)]
    for peer in peers:
        assert await peer.subscribe((f"$share/g/{topic}", options)) == bytes([options & 3])
    return peers


async def _first(peers: list[Peer]) -> tuple[Peer, Peer, Message]:
    """Who of two has got a message, who has not, and the message."""
    reading = {asyncio.ensure_future(peer.message()): peer for peer in peers}
    done, waiting = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    (got,), (none,) = done, waiting
    none.cancel()
    await asyncio.wait([none])
    return reading[got], reading[none], got.result()


async def _got_nothing(publisher: Peer, peer: Peer, topic: str) -> None:
    """Of the group; what it gets by a subscription of its own is the next thing that comes."""
    await peer.unsubscribe(f"$share/g/{topic}")
    await peer.subscribe((topic, 1))
    await peer.nothing_but(publisher, topic)


# ---------------------------------------------------------------------------------------------- filters
@KINDS
@pytest.mark.parametrize(
    "bad", ["$share/", "$share//t", "$share/g", "$share/g/", "$share/+/t", "$share/#/t", "$share/g+/t", "$share/g#/t", "$share/g/a#"]
)
async def test_a_share_has_a_name_and_a_filter(port: int, kept: bool, bad: str) -> None:
    """[MQTT-4.8.2-1, -2]"""
    peer = await Peer.connect(port, 5, kept=kept)
    assert await peer.subscribe((bad, 1)) == bytes([TOPIC_FILTER_INVALID])


@KINDS
@pytest.mark.parametrize("name", ["$share", "$SHARE/g/t", "$shared/g/t", "a/$share/g/t"])
async def test_a_filter_that_only_looks_like_a_share_is_none(port: int, kept: bool, name: str) -> None:
    """[MQTT-4.8.2-1]"""
    name = f"{name}/{fresh()}" if name != "$share" else name
    peer, publisher = await Peer.connect(port, 5, kept=kept), await Peer.connect(port, 5)
    assert await peer.subscribe((name, 1)) == b"\1"
    if name != "$share":
        await peer.nothing_but(publisher, name)


# ---------------------------------------------------------------------------------------------- delivery
@KINDS
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_a_member_gets_a_message_at_the_qos_it_was_granted(port: int, kept: bool, published: int, granted: int) -> None:
    """[MQTT-4.8.2-3]"""
    topic = fresh()
    (peer,) = await _group(port, topic, granted, kept, 1)
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"m", published)
    assert (await peer.take()).qos == min(published, granted)


@KINDS
async def test_each_message_goes_to_one_member(port: int, kept: bool) -> None:
    """And each to some."""
    topic = fresh()
    peers = await _group(port, topic, 0, kept, 3)
    publisher = await Peer.connect(port, 5)
    for index in range(30):
        await publisher.publish(topic, b"%d" % index, 1)
    found: asyncio.Queue[bytes] = asyncio.Queue()

    async def read(peer: Peer) -> None:
        while True:
            found.put_nowait((await peer.message()).payload)

    reading = [asyncio.ensure_future(read(peer)) for peer in peers]
    payloads = [await found.get() for _ in range(30)]
    for task in reading:
        task.cancel()
    await asyncio.wait(reading)
    assert sorted(payloads, key=int) == [b"%d" % index for index in range(30)]


@pytest.mark.parametrize("after_pubrec", [False, True], ids=["before PUBREC", "after PUBREC"])
async def test_a_qos_2_delivery_that_broke_is_completed_to_its_member(port: int, after_pubrec: bool) -> None:
    """When it is back, and to nobody else meanwhile.  [MQTT-4.8.2-4]"""
    topic = fresh()
    peers = await _group(port, topic, 2, True)
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"m", 2)
    chosen, other, came = await _first(peers)
    if after_pubrec:
        chosen.acknowledge(PUBREC, came.packet_id)
        await chosen.released(came.packet_id)
    chosen.drop()
    await other.alive()
    again = await Peer.connect(port, 5, chosen.client, kept=True)
    assert again.present
    if after_pubrec:
        await again.released(came.packet_id)
        again.acknowledge(packets.PUBCOMP, came.packet_id)
    else:
        repeated = await again.message()
        assert (repeated.payload, repeated.packet_id, repeated.dup) == (b"m", came.packet_id, True)
        await again.complete(repeated)
    await again.alive()
    await _got_nothing(publisher, other, topic)


@KINDS
async def test_a_qos_2_delivery_of_a_session_that_ends_goes_to_nobody_else(port: int, kept: bool) -> None:
    """[MQTT-4.8.2-5]"""
    topic = fresh()
    peers = await _group(port, topic, 2, kept)
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"m", 2)
    chosen, other, _ = await _first(peers)
    chosen.drop()
    if kept:
        ended = await Peer.connect(port, 5, chosen.client, clean=True)
        await ended.leave()
    await _got_nothing(publisher, other, topic)


@KINDS
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_message_that_a_member_refuses_goes_to_nobody_else(port: int, kept: bool, qos: int) -> None:
    """[MQTT-4.8.2-6]"""
    topic = fresh()
    peers = await _group(port, topic, 2, kept)
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"m", qos)
    chosen, other, came = await _first(peers)
    chosen.acknowledge(PUBACK if qos == 1 else PUBREC, came.packet_id, 0x83)
    await chosen.alive()
    await chosen.leave()
    await _got_nothing(publisher, other, topic)
