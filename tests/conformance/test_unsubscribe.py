"""UNSUBSCRIBE and UNSUBACK."""

from __future__ import annotations

import pytest

from tests.conformance import packets
from tests.conformance.cases import KEPT, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import UNSUBACK, Message, unsubscribe
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

NO_SUBSCRIPTION = 0x11


def _codes(version: int, *codes: int) -> bytes:
    """3.1.1 has none."""
    return bytes(codes) if version == 5 else b""


@VERSIONS
async def test_an_unsubscribe_without_a_filter_closes_the_connection(port: int, version: int) -> None:
    """[MQTT-3.10.3-2] of both"""
    peer = await Peer.connect(port, version)
    peer.send(unsubscribe(version, 1))
    await peer.closed(PROTOCOL_ERROR)


@VERSIONS
@KEPT
async def test_messages_stop_with_unsuback(port: int, version: int, kept: bool) -> None:
    """5: [MQTT-3.10.4-1, -2, -4] [MQTT-3.11.3-2]; 3.1.1: [MQTT-3.10.4-1, -2, -4]."""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe((topic, 2), (f"{topic}/other", 1))
    await peer.nothing_but(publisher, topic)
    assert await peer.unsubscribe(topic) == _codes(version, 0)
    await publisher.publish(topic, b"too late", 2)
    await publisher.publish(topic, b"too late", 0)
    await peer.nothing_but(publisher, f"{topic}/other")


@VERSIONS
@KEPT
async def test_filters_are_compared_letter_by_letter(port: int, version: int, kept: bool) -> None:
    """One that covers another does not remove it, nor the other way round.  [MQTT-3.10.4-1, -5] of both"""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe((f"{topic}/a/+", 1))
    others = [f"{topic}/a/b", f"{topic}/#", f"{topic}/+/+", f"{topic}/A/+", f"{topic}/a/+/", "#", f"/{topic}/a/+"]
    for other in others:
        assert await peer.unsubscribe(other) == _codes(version, NO_SUBSCRIPTION)
    await peer.nothing_but(publisher, f"{topic}/a/b")
    assert await peer.unsubscribe(f"{topic}/a/+") == _codes(version, 0)
    assert await peer.unsubscribe(f"{topic}/a/+") == _codes(version, NO_SUBSCRIPTION)


@VERSIONS
@KEPT
async def test_one_packet_is_like_several(port: int, version: int, kept: bool) -> None:
    """One UNSUBACK, its codes in the order of the filters.  5: [MQTT-3.10.4-6] [MQTT-3.11.3-1, -2]; 3.1.1: [MQTT-3.10.4-6]."""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe(*[(f"{topic}/{name}", 1) for name in "abcd"])
    filters = [f"{topic}/{name}" for name in ("c", "x", "a", "c")]
    assert await peer.unsubscribe(*filters) == _codes(version, 0, NO_SUBSCRIPTION, 0, NO_SUBSCRIPTION)
    for name in "abc":
        await publisher.publish(f"{topic}/{name}")
        if name == "b":
            assert (await peer.take()).topic == f"{topic}/b"
    await peer.nothing_but(publisher, f"{topic}/d")


@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_has_begun_to_be_sent_is_completed(port: int, version: int, kept: bool, qos: int) -> None:
    """[MQTT-3.10.4-3] of both"""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe((topic, qos), (f"{topic}/other", 1))
    for _ in range(2):
        await publisher.publish(topic, b"begun", qos)
    begun = [await peer.message() for _ in range(2)]
    if qos == 2:
        peer.acknowledge(packets.PUBREC, begun[0].packet_id)
        await peer.released(begun[0].packet_id)
    await peer.unsubscribe(topic)
    if qos == 2:
        peer.acknowledge(packets.PUBCOMP, begun[0].packet_id)
        await peer.complete(begun[1])
    else:
        for came in begun:
            await peer.complete(came)
    await peer.nothing_but(publisher, f"{topic}/other")


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_has_begun_is_completed_over_a_reconnect(port: int, version: int, qos: int) -> None:
    """[MQTT-3.10.4-3] of both"""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=True), await Peer.connect(port, version)
    await peer.subscribe((topic, qos), (f"{topic}/other", 1))
    await publisher.publish(topic, b"begun", qos)
    begun = await peer.message()
    await peer.unsubscribe(topic)
    peer.drop()
    peer = await Peer.connect(port, version, peer.client, kept=True)
    again = await peer.message()
    assert (again.payload, again.packet_id, again.dup) == (b"begun", begun.packet_id, True)
    await peer.complete(again)
    await peer.nothing_but(publisher, f"{topic}/other")


@VERSIONS
@KEPT
async def test_nothing_comes_behind_unsuback(port: int, version: int, kept: bool) -> None:
    """Of what is published after it, in whichever turn.  [MQTT-3.10.4-2] of both"""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe((f"{topic}/other", 1))
    for packet_id in range(1000, 1010):
        await peer.subscribe((topic, 1))
        await publisher.publish(topic, b"in time")
        peer.send(unsubscribe(version, packet_id, topic))
        seen: list[Message] = []
        while isinstance(came := await peer.next(), Message):
            seen.append(came)
            await peer.complete(came)
        assert (came.kind, came.packet_id) == (UNSUBACK, packet_id)
        await publisher.publish(topic, b"too late")
        late = [each for each in await _rest(peer, publisher, f"{topic}/other") if each.payload == b"too late"]
        assert not late


async def _rest(peer: Peer, publisher: Peer, topic: str) -> list[Message]:
    """What comes before a message to this topic does."""
    await publisher.publish(topic, b"the end")
    found: list[Message] = []
    while not found or found[-1].payload != b"the end":
        found.append(await peer.take())
    return found
