"""Wills: when they are published, and as what."""

from __future__ import annotations

import asyncio

import pytest

from tests.actors.one_loop import OneLoop
from tests.broker.wire import packet
from tests.conformance import packets
from tests.conformance.cases import KEPT, ONE_LOOP, VERSIONS
from tests.conformance.packets import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    RESPONSE_TOPIC,
    USER_PROPERTY,
    WILL_DELAY,
    Value,
    Will,
)
from tests.conformance.peer import AS_PUBLISHED, NO_RETAINED, Peer, fresh

pytestmark = ONE_LOOP

DISCONNECT_WITH_WILL = 0x04


async def _watched(port: int, version: int, options: int = 2) -> tuple[Peer, str]:
    topic = fresh("will")
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, options))
    return watcher, topic


# ---------------------------------------------------------------------------------------------- when
@VERSIONS
@KEPT
@pytest.mark.parametrize("end", ["lost", "violation", "malformed", "taken over"])
async def test_a_will_is_published_when_the_connection_ends_badly(port: int, version: int, kept: bool, end: str) -> None:
    """5: [MQTT-3.1.2-7, -8] [MQTT-3.1.4-3]; 3.1.1: [MQTT-3.1.2-8]."""
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=kept, will=Will(topic, b"gone", 1))
    match end:
        case "lost":
            peer.drop()
        case "violation":
            peer.send(packets.connect(version, peer.client))
        case "malformed":
            peer.send(packet(0x30, b"\xff"))
        case "taken over":
            await Peer.connect(port, version, peer.client, kept=kept)
    came = await watcher.take()
    assert (came.payload, came.qos, came.retain, came.dup) == (b"gone", 1, False, False)


@VERSIONS
@KEPT
async def test_a_will_is_not_published_after_disconnect(port: int, version: int, kept: bool) -> None:
    """5: [MQTT-3.1.2-8, -10] [MQTT-3.14.4-3]; 3.1.1: [MQTT-3.1.2-8, -10] [MQTT-3.14.4-3]."""
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=kept, will=Will(topic))
    await peer.leave()
    again = await Peer.connect(port, version, peer.client, kept=kept)
    again.drop()  # it has none, and that of its former connection is not there any more
    await (await Peer.connect(port, version, peer.client, kept=kept)).leave()
    await watcher.nothing_but(await Peer.connect(port, version), topic)


@pytest.mark.parametrize("reason", [DISCONNECT_WITH_WILL, 0x80, 0x81, 0x98])
async def test_a_will_is_published_after_a_disconnect_that_asks_for_it(port: int, reason: int) -> None:
    """Every reason but 0x00.  5: [MQTT-3.1.2-8]."""
    watcher, topic = await _watched(port, 5)
    peer = await Peer.connect(port, 5, will=Will(topic))
    await peer.leave(reason)
    assert (await watcher.take()).payload == b"gone"


@VERSIONS
@KEPT
async def test_without_a_will_nothing_is_published(port: int, version: int, kept: bool) -> None:
    """3.1.1: [MQTT-3.1.2-12]"""
    watcher = await Peer.connect(port, 5)
    await watcher.subscribe(("#", NO_RETAINED))
    peer = await Peer.connect(port, version, kept=kept)
    peer.drop()
    await (await Peer.connect(port, version, peer.client, kept=kept)).leave()
    await watcher.nothing_but(await Peer.connect(port, version), fresh())


@VERSIONS
@KEPT
async def test_a_will_is_published_once(port: int, version: int, kept: bool) -> None:
    """It is gone from the session when it has been published.  [MQTT-3.1.2-10] of both"""
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=kept, will=Will(topic))
    peer.drop()
    assert (await watcher.take()).payload == b"gone"
    again = await Peer.connect(port, version, peer.client, kept=kept)
    again.drop()
    await (await Peer.connect(port, version, peer.client, kept=kept)).leave()
    await watcher.nothing_but(await Peer.connect(port, version), topic)


# ---------------------------------------------------------------------------------------------- delay
async def _delayed(port: int, topic: str, delay_s: int, expiry_s: int) -> Peer:
    return await Peer.connect(port, 5, kept=True, expiry_s=expiry_s, will=Will(topic, properties=[(WILL_DELAY, delay_s)]))


@pytest.mark.slow
@pytest.mark.parametrize(("delay_s", "expiry_s"), [(1, 60), (60, 1)], ids=["its delay", "the end of its session"])
async def test_a_delayed_will_comes_with_the_first_of_two(port: int, delay_s: int, expiry_s: int) -> None:
    """5: [MQTT-3.1.2-8]"""
    watcher, topic = await _watched(port, 5)
    peer = await _delayed(port, topic, delay_s, expiry_s)
    since = asyncio.get_running_loop().time()
    peer.drop()
    assert (await watcher.take()).payload == b"gone"
    assert 0.9 <= asyncio.get_running_loop().time() - since < 40


async def test_a_delayed_will_comes_at_once_when_the_session_ends_with_the_connection(port: int) -> None:
    """5: [MQTT-3.1.2-8]"""
    watcher, topic = await _watched(port, 5)
    (await _delayed(port, topic, 600, 0)).drop()
    assert (await watcher.take()).payload == b"gone"


@pytest.mark.parametrize("connected", [False, True], ids=["while away", "while connected"])
async def test_a_delayed_will_comes_when_a_clean_start_ends_the_session(port: int, connected: bool) -> None:
    """5: [MQTT-3.1.2-8]"""
    watcher, topic = await _watched(port, 5)
    peer = await _delayed(port, topic, 600, 3600)
    if not connected:
        await peer.leave(DISCONNECT_WITH_WILL)
    await Peer.connect(port, 5, peer.client, kept=True, clean=True)
    assert (await watcher.take()).payload == b"gone"


@pytest.mark.slow
async def test_a_delayed_will_does_not_come_when_the_client_is_back_in_time(broker: OneLoop, port: int) -> None:
    """The will of another client that is lost later, with a longer delay, is the only one to come.  5: [MQTT-3.1.3-9]."""
    watcher, topic = await _watched(port, 5)
    peer = await _delayed(port, topic, 200, 3600)
    peer.drop()
    assert (await Peer.connect(port, 5, peer.client, kept=True)).present
    other = await Peer.connect(port, 5, kept=True, will=Will(topic, b"the other", properties=[(WILL_DELAY, 300)]))
    other.drop()
    came = asyncio.ensure_future(watcher.take())
    while not (await asyncio.wait([came], timeout=1.0))[0]:
        # In steps, as no clock stands while a broker learns that somebody is lost.
        broker.later(150_000)
    assert came.result().payload == b"the other"
    await watcher.nothing_but(await Peer.connect(port, 5), topic)


# ---------------------------------------------------------------------------------------------- as what
@VERSIONS
@pytest.mark.parametrize("retain", [False, True])
async def test_a_will_is_retained_if_it_says_so(port: int, version: int, retain: bool) -> None:
    """5: [MQTT-3.1.2-14, -15]; 3.1.1: [MQTT-3.1.2-16, -17]."""
    watcher, topic = await _watched(port, version, 1 | (AS_PUBLISHED if version == 5 else 0))
    peer = await Peer.connect(port, version, will=Will(topic, b"gone", 1, retain))
    peer.drop()
    assert (await watcher.take()).retain == (retain and version == 5)
    later = await Peer.connect(port, version)
    await later.subscribe((topic, 1))
    if retain:
        came = await later.take()
        assert (came.payload, came.retain) == (b"gone", True)
    else:
        await later.nothing_but(await Peer.connect(port, version), topic)


@KEPT
async def test_a_will_has_the_properties_it_was_given(port: int, kept: bool) -> None:
    """All of a message, user properties in their order, but not its own delay.  5: [MQTT-3.1.3-10]."""
    watcher, topic = await _watched(port, 5)
    rows: list[tuple[int, Value]] = [
        (PAYLOAD_FORMAT, 1),
        (CONTENT_TYPE, "text/plain"),
        (RESPONSE_TOPIC, "answers"),
        (CORRELATION_DATA, b"\0\1"),
        *[(USER_PROPERTY, pair) for pair in (("b", "1"), ("a", "2"), ("b", "0"), ("", ""))],
    ]
    peer = await Peer.connect(port, 5, kept=kept, expiry_s=5, will=Will(topic, properties=[*rows, (WILL_DELAY, 0)]))
    peer.drop()
    came = await watcher.take()
    assert sorted(row for row in came.properties if row[0] != USER_PROPERTY) == sorted(row for row in rows if row[0] != USER_PROPERTY)
    assert came.all(USER_PROPERTY) == [("b", "1"), ("a", "2"), ("b", "0"), ("", "")]


async def test_a_will_may_expire(port: int) -> None:
    """Its message expiry begins when it is published."""
    watcher, topic = await _watched(port, 5)
    peer = await Peer.connect(port, 5, will=Will(topic, properties=[(MESSAGE_EXPIRY, 1000)]))
    peer.drop()
    assert (await watcher.take()).get(MESSAGE_EXPIRY) in range(900, 1001)
