"""Retained messages: stored, replaced, removed, and sent to new subscriptions."""

from __future__ import annotations

import pytest

from tests.conformance.cases import KEPT, ONE_LOOP, VERSIONS
from tests.conformance.packets import MESSAGE_EXPIRY, SUBSCRIPTION_IDENTIFIER, USER_PROPERTY
from tests.conformance.peer import AS_PUBLISHED, IF_NEW, NO_RETAINED, Peer, fresh

pytestmark = ONE_LOOP

QOS = pytest.mark.parametrize("qos", [0, 1, 2])


async def _subscribed(port: int, version: int, topic: str, options: int = 2, *, kept: bool = False) -> Peer:
    peer = await Peer.connect(port, version, kept=kept)
    await peer.subscribe((topic, options))
    return peer


# ---------------------------------------------------------------------------------------------- stored
@VERSIONS
@KEPT
@QOS
async def test_the_last_retained_message_is_sent_to_a_new_subscription(port: int, version: int, kept: bool, qos: int) -> None:
    """With RETAIN set, once, at its own QoS.

    5: [MQTT-3.3.1-5] [MQTT-3.3.1-9]; 3.1.1: [MQTT-3.3.1-5, -6, -7, -8].
    """
    topic = fresh()
    publisher = await Peer.connect(port, version)
    await publisher.publish(topic, b"first", 2, retain=True)
    await publisher.publish(topic, b"last", qos, retain=True)
    await publisher.alive()
    peer = await _subscribed(port, version, topic, kept=kept)
    came = await peer.take()
    assert (came.topic, came.payload, came.qos, came.retain, came.dup) == (topic, b"last", qos, True, False)
    await peer.nothing_but(publisher, topic)


@VERSIONS
@KEPT
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_a_retained_message_comes_at_most_at_the_qos_granted(port: int, version: int, kept: bool, granted: int) -> None:
    """5: [MQTT-3.8.4-8]; 3.1.1: [MQTT-3.8.4-6]."""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    await publisher.publish(topic, b"m", 2, retain=True)
    came = await (await _subscribed(port, version, topic, granted, kept=kept)).take()
    assert (came.qos, came.retain) == (granted, True)


@VERSIONS
@KEPT
async def test_all_matching_topics_send_their_retained_message(port: int, version: int, kept: bool) -> None:
    """And no other does.  5: [MQTT-3.3.1-9]; 3.1.1: [MQTT-3.3.1-6]."""
    root = fresh()
    publisher = await Peer.connect(port, version)
    wanted = {f"{root}/a/x", f"{root}/b/x", f"{root}//x"}
    for topic in {*wanted, f"{root}/a/y", f"{root}/x", f"{root}/a/x/x", root}:
        await publisher.publish(topic, topic.encode(), retain=True)
    peer = await _subscribed(port, version, f"{root}/+/x", kept=kept)
    assert {came.topic for came in await peer.take_all(3)} == wanted
    await peer.nothing_but(publisher, f"{root}/a/x")


@VERSIONS
@KEPT
async def test_a_message_without_retain_changes_nothing_retained(port: int, version: int, kept: bool) -> None:
    """It is not stored as one, and neither removes nor replaces one, empty or not.  5: [MQTT-3.3.1-8]; 3.1.1: [MQTT-3.3.1-12]."""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    await publisher.publish(f"{topic}/a", b"kept", retain=True)
    for payload in (b"other", b""):
        await publisher.publish(f"{topic}/a", payload)
        await publisher.publish(f"{topic}/b", payload)
    peer = await _subscribed(port, version, f"{topic}/#", kept=kept)
    assert (await peer.take()).payload == b"kept"
    await peer.nothing_but(publisher, f"{topic}/a")


@VERSIONS
@KEPT
@QOS
async def test_an_empty_payload_removes_the_retained_message(port: int, version: int, kept: bool, qos: int) -> None:
    """Who is subscribed gets it as a message; who comes later gets nothing.  5: [MQTT-3.3.1-6, -7]; 3.1.1: [MQTT-3.3.1-10, -11]."""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    await publisher.publish(topic, b"kept", retain=True)
    before = await _subscribed(port, version, topic, kept=kept)
    await before.take()
    await publisher.publish(topic, b"", qos, retain=True)
    came = await before.take()
    assert (came.payload, came.retain, came.qos) == (b"", False, qos)
    after = await _subscribed(port, version, topic, kept=kept)
    await after.nothing_but(publisher, topic, before)


@KEPT
async def test_a_retained_message_has_its_properties(port: int, kept: bool) -> None:
    """Those of the message, what is left of its expiry, and the identifier of the new subscription.  [MQTT-3.3.4-3]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    pairs = [("b", "1"), ("a", "2")]
    await publisher.publish(topic, b"m", retain=True, properties=[(MESSAGE_EXPIRY, 500), *[(USER_PROPERTY, pair) for pair in pairs]])
    peer = await Peer.connect(port, 5, kept=kept)
    await peer.subscribe((topic, 1), identifier=9)
    came = await peer.take()
    assert came.all(USER_PROPERTY) == pairs and came.all(SUBSCRIPTION_IDENTIFIER) == [9]
    assert came.get(MESSAGE_EXPIRY) in range(400, 501)


# ---------------------------------------------------------------------------------------------- the flag of live messages
@VERSIONS
@KEPT
@QOS
async def test_a_live_message_comes_without_retain(port: int, version: int, kept: bool, qos: int) -> None:
    """Unless the subscription wants it as published.  5: [MQTT-3.3.1-12]; 3.1.1: [MQTT-3.3.1-9]."""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    peer = await _subscribed(port, version, topic, kept=kept)
    await publisher.publish(topic, b"m", qos, retain=True)
    assert not (await peer.take()).retain


@KEPT
@QOS
@pytest.mark.parametrize("retain", [False, True])
async def test_a_live_message_comes_as_published_if_wanted(port: int, kept: bool, qos: int, retain: bool) -> None:
    """[MQTT-3.3.1-13]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    peer = await _subscribed(port, 5, topic, 2 | AS_PUBLISHED, kept=kept)
    await publisher.publish(topic, b"m", qos, retain=retain)
    assert (await peer.take()).retain == retain


# ---------------------------------------------------------------------------------------------- retain handling
@VERSIONS
@KEPT
async def test_subscribing_again_sends_retained_messages_again(port: int, version: int, kept: bool) -> None:
    """Retain Handling 0.  5: [MQTT-3.3.1-9] [MQTT-3.8.4-4]; 3.1.1: [MQTT-3.8.4-3]."""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    await publisher.publish(topic, b"kept", retain=True)
    peer = await Peer.connect(port, version, kept=kept)
    for qos in (0, 1, 1, 0):
        await peer.subscribe((topic, qos))
        came = await peer.take()
        assert (came.payload, came.retain, came.qos) == (b"kept", True, qos)


@KEPT
async def test_retain_handling_1_sends_retained_messages_to_new_subscriptions_only(port: int, kept: bool) -> None:
    """A subscription that was removed is new again.  [MQTT-3.3.1-10]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"kept", retain=True)
    peer = await _subscribed(port, 5, topic, 1 | IF_NEW, kept=kept)
    assert (await peer.take()).payload == b"kept"
    await peer.subscribe((topic, 1 | IF_NEW))
    await peer.nothing_but(publisher, topic)
    await peer.unsubscribe(topic)
    await peer.subscribe((topic, 1 | IF_NEW))
    assert (await peer.take()).payload == b"kept"


async def test_retain_handling_1_knows_the_subscriptions_of_a_resumed_session(port: int) -> None:
    """[MQTT-3.3.1-10]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    peer = await _subscribed(port, 5, topic, 1 | IF_NEW, kept=True)
    await peer.leave()
    await publisher.publish(fresh(), b"")
    peer = await Peer.connect(port, 5, peer.client, kept=True)
    await publisher.publish(topic, b"kept", retain=True)
    assert not (await peer.take()).retain
    await peer.subscribe((topic, 1 | IF_NEW))
    await peer.nothing_but(publisher, topic)


@KEPT
async def test_retain_handling_2_sends_no_retained_messages(port: int, kept: bool) -> None:
    """[MQTT-3.3.1-11]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"kept", retain=True)
    peer = await _subscribed(port, 5, topic, 1 | NO_RETAINED, kept=kept)
    await peer.subscribe((topic, 2 | NO_RETAINED))
    await peer.nothing_but(publisher, topic)
