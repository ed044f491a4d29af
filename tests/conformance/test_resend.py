"""What is sent again after a reconnect, with which identifier and in which order (4.4, 4.6)."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.one_loop import OneLoop
from tests.conformance.cases import KEPT, ONE_LOOP, VERSIONS
from tests.conformance.packets import MESSAGE_EXPIRY, PUBACK, PUBCOMP, PUBREC, PUBREL, Answer, Message
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP


async def _subscribed(port: int, version: int, topic: str) -> tuple[Peer, Peer]:
    peer = await Peer.connect(port, version, kept=True)
    await peer.subscribe((topic, 2))
    return await Peer.connect(port, version), peer


async def _back(port: int, peer: Peer, how: str) -> Peer:
    if how == "left":
        await peer.leave()
    elif how == "lost":
        peer.drop()
    again = await Peer.connect(port, peer.version, peer.client, kept=True)
    assert again.present
    return again


@VERSIONS
@pytest.mark.parametrize("how", ["left", "lost", "taken over"])
@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_not_acknowledged_is_sent_again(port: int, version: int, qos: int, how: str) -> None:
    """With its identifier, with DUP, in the order in which it was sent first; what was acknowledged is not.

    At QoS 1 the client acknowledges in order, as it has to [MQTT-4.6.0-2].

    5: [MQTT-3.3.1-1] [MQTT-4.3.2-3] [MQTT-4.3.3-3] [MQTT-4.4.0-1] [MQTT-4.6.0-1];
    3.1.1: [MQTT-2.3.1-3, -4] [MQTT-3.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1] [MQTT-4.4.0-1] [MQTT-4.6.0-1, -6].
    """
    topic = fresh()
    publisher, peer = await _subscribed(port, version, topic)
    for index in range(6):
        await publisher.publish(topic, b"%d" % index, qos)
    first = [await peer.message() for _ in range(6)]
    done = first[:2] if qos == 1 else first[1::3]
    for came in done:
        await peer.complete(came)
    await peer.alive()
    peer = await _back(port, peer, how)
    again = [await peer.message() for _ in range(4)]
    wanted = [came for came in first if came not in done]
    assert [(came.payload, came.packet_id) for came in again] == [(came.payload, came.packet_id) for came in wanted]
    assert all(came.dup and came.qos == qos for came in again)
    for came in again:
        await peer.complete(came)
    await peer.nothing_but(publisher, topic)


@VERSIONS
async def test_after_pubrec_only_pubrel_is_sent_again(port: int, version: int) -> None:
    """In the order of the PUBRECs, until PUBCOMP; the message never again.

    5: [MQTT-4.3.3-5, -6] [MQTT-4.4.0-1] [MQTT-4.6.0-4]; 3.1.1: [MQTT-4.3.3-1] [MQTT-4.4.0-1] [MQTT-4.6.0-4].
    """
    topic = fresh()
    publisher, peer = await _subscribed(port, version, topic)
    for index in range(4):
        await publisher.publish(topic, b"%d" % index, 2)
    came = [await peer.message() for _ in range(4)]
    received = [came[index].packet_id for index in (2, 0, 1)]
    for packet_id in received:
        peer.acknowledge(PUBREC, packet_id)
    for packet_id in received:
        await peer.answer(PUBREL, packet_id)
    messages: list[Message] = []
    for _ in range(2):
        peer = await _back(port, peer, "lost")
        again = [await peer.next() for _ in range(4)]
        assert [each.packet_id for each in again if isinstance(each, Answer)] == received
        messages = [each for each in again if isinstance(each, Message)]
        assert [(message.payload, message.dup) for message in messages] == [(b"3", True)]
    for packet_id in received:
        peer.acknowledge(PUBCOMP, packet_id)
    await peer.complete(messages[0])
    peer = await _back(port, peer, "left")
    await peer.nothing_but(publisher, topic)


@VERSIONS
async def test_a_message_that_was_never_sent_has_no_dup(port: int, version: int) -> None:
    """It came while the client was away.  [MQTT-3.3.1-3] of both"""
    topic = fresh()
    publisher, peer = await _subscribed(port, version, topic)
    await publisher.publish(topic, b"sent", 1)
    sent = await peer.message()
    peer.drop()
    await publisher.publish(topic, b"waited", 1)
    peer = await _back(port, peer, "")
    found = [(came.payload, came.dup) for came in await peer.take_all(2)]
    assert sent.payload == b"sent" and found == [(b"sent", True), (b"waited", False)]


@pytest.mark.parametrize("kind", [PUBACK, PUBREC])
async def test_what_was_refused_is_not_sent_again(port: int, kind: int) -> None:
    """[MQTT-4.4.0-2]"""
    topic = fresh()
    publisher, peer = await _subscribed(port, 5, topic)
    await publisher.publish(topic, b"refused", 1 if kind == PUBACK else 2)
    peer.acknowledge(kind, (await peer.message()).packet_id, 0x97)
    peer = await _back(port, peer, "left")
    await peer.nothing_but(publisher, topic)


@pytest.mark.slow
async def test_a_message_that_was_sent_does_not_expire(broker: OneLoop, port: int) -> None:
    """At QoS 2 the exchange goes on, however late the client is back.  [MQTT-4.3.3-7]"""
    topic = fresh()
    publisher, peer = await _subscribed(port, 5, topic)
    await publisher.publish(topic, b"m", 2, properties=[(MESSAGE_EXPIRY, 600)])
    sent = await peer.message()
    peer.drop()
    broker.later(1_000_000)
    peer = await _back(port, peer, "")
    again = await peer.message()
    assert (again.payload, again.packet_id, again.dup) == (b"m", sent.packet_id, True)
    await peer.complete(again)
    await peer.nothing_but(publisher, topic)


# ---------------------------------------------------------------------------------------------- order
@pytest.mark.slow
@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_of_a_publisher_come_in_their_order(port: int, version: int, kept: bool, qos: int) -> None:
    """Every topic is an ordered one, for each publisher.  5: [MQTT-4.6.0-5, -6]; 3.1.1: [MQTT-4.6.0-5, -6]."""
    topic = fresh()
    publishers = [await Peer.connect(port, version) for _ in range(2)]
    peer = await Peer.connect(port, version, kept=kept)
    await peer.subscribe((f"{topic}/#", qos))

    async def publish(name: bytes, publisher: Peer) -> None:
        for index in range(20):
            await publisher.publish(f"{topic}/x", name + b"%d" % index, qos)

    await asyncio.gather(publish(b"a", publishers[0]), publish(b"b", publishers[1]))
    found = [came.payload for came in await peer.take_all(40)]
    for name in (b"a", b"b"):
        assert [payload for payload in found if payload.startswith(name)] == [name + b"%d" % index for index in range(20)]
