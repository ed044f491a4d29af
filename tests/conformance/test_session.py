"""Sessions: begun anew, resumed, taken over, ended."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance import packets
from tests.conformance.cases import KEPT, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import SESSION_EXPIRY, WILL_DELAY, Will
from tests.conformance.peer import Closed, Peer, fresh

pytestmark = ONE_LOOP

TAKEN_OVER = 0x8E
SPOKEN = 10
"""So many times something is said, four times a second: longer than a keep alive of a second lets somebody be silent."""


# ---------------------------------------------------------------------------------------------- begun anew and resumed
@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_session_is_resumed_with_its_subscriptions_and_messages(port: int, version: int, qos: int) -> None:
    """What came meanwhile included.

    5: [MQTT-3.1.2-5] [MQTT-3.1.2-23] [MQTT-4.5.0-1]; 3.1.1: [MQTT-3.1.2-4, -5] [MQTT-4.1.0-1] [MQTT-4.5.0-1].
    """
    publisher, client, topic = await Peer.connect(port, version), fresh("c"), fresh()
    peer = await Peer.connect(port, version, client, kept=True)
    assert not peer.present
    await peer.subscribe((topic, qos))
    await peer.leave()
    for index in range(3):
        await publisher.publish(topic, b"%d" % index, qos)
    peer = await Peer.connect(port, version, client, kept=True)
    assert peer.present
    assert [(each.payload, each.qos) for each in await peer.take_all(3)] == [(b"%d" % index, qos) for index in range(3)]
    await publisher.publish(topic, b"live", qos)
    assert (await peer.take()).payload == b"live"


@VERSIONS
async def test_a_session_that_is_not_there_is_begun(port: int, version: int) -> None:
    """Clean Start off and nothing to resume.  5: [MQTT-3.1.2-6] [MQTT-3.2.2-3]; 3.1.1: [MQTT-3.1.2-4] [MQTT-3.2.2-3]."""
    peer = await Peer.connect(port, version, kept=True)
    assert not peer.present
    topic = fresh()
    assert await peer.subscribe((topic, 1)) == b"\1"
    await peer.publish(topic, b"x")
    assert (await peer.take()).payload == b"x"


@VERSIONS
async def test_a_clean_start_discards_the_session(port: int, version: int) -> None:
    """Its subscriptions and what waited for it.  5: [MQTT-3.1.2-4] [MQTT-3.1.4-4] [MQTT-3.2.2-2]; 3.1.1: [MQTT-3.1.2-6] [MQTT-3.1.4-3]."""
    publisher, client, topic = await Peer.connect(port, version), fresh("c"), fresh()
    peer = await Peer.connect(port, version, client, kept=True)
    await peer.subscribe((topic, 1))
    await peer.leave()
    await publisher.publish(topic, b"old")
    peer = await Peer.connect(port, version, client, kept=True, clean=True)
    assert not peer.present
    await publisher.publish(topic, b"nobody wants this")
    await peer.subscribe((topic, 1))
    await peer.nothing_but(publisher, topic)


@VERSIONS
async def test_a_session_that_ends_with_its_connection_leaves_nothing(port: int, version: int) -> None:
    """5: [MQTT-4.1.0-2]; 3.1.1: [MQTT-3.1.2-6] [MQTT-3.2.2-3]."""
    publisher, client, topic = await Peer.connect(port, version), fresh("c"), fresh()
    peer = await Peer.connect(port, version, client)
    await peer.subscribe((topic, 1))
    await peer.leave()
    await publisher.publish(topic, b"old")
    peer = await Peer.connect(port, version, client, kept=True)
    assert not peer.present
    await peer.subscribe((fresh(), 1), (topic, 1))
    await peer.nothing_but(publisher, topic)


@VERSIONS
async def test_retained_messages_are_not_part_of_a_session(port: int, version: int) -> None:
    """3.1.1: [MQTT-3.1.2-7]"""
    client, topic = fresh("c"), fresh()
    peer = await Peer.connect(port, version, client, kept=True)
    await peer.publish(topic, b"kept", retain=True)
    await peer.leave()
    await (await Peer.connect(port, version, client, clean=True)).leave()
    other = await Peer.connect(port, version)
    await other.subscribe((topic, 1))
    assert (await other.take()).payload == b"kept"


@VERSIONS
async def test_state_belongs_to_a_client_identifier(port: int, version: int) -> None:
    """To every byte of it: nothing is folded or cut.  [MQTT-3.1.3-2] of both"""
    publisher, name = await Peer.connect(port, version), fresh("c")
    clients = [name, name.upper(), f"{name} ", f"{name}x", "x" * 30 + name]
    for client in clients:
        peer = await Peer.connect(port, version, client, kept=True)
        assert not peer.present
        await peer.subscribe((f"{name}/{client}", 1))
        await peer.leave()
    for client in clients:
        await publisher.publish(f"{name}/{client}", client.encode())
    for client in clients:
        peer = await Peer.connect(port, version, client, kept=True)
        assert peer.present and (await peer.take()).payload == client.encode()


# ---------------------------------------------------------------------------------------------- taken over
@VERSIONS
@KEPT
async def test_a_second_connection_of_a_client_takes_the_place_of_the_first(port: int, version: int, kept: bool) -> None:
    """MQTT 5 is told so.  5: [MQTT-3.1.4-3]; 3.1.1: [MQTT-3.1.4-2]."""
    client, topic = fresh("c"), fresh()
    first = await Peer.connect(port, version, client, kept=kept)
    await first.subscribe((topic, 1))
    second = await Peer.connect(port, version, client, kept=kept)
    await first.closed(TAKEN_OVER)
    assert second.present == kept
    publisher = await Peer.connect(port, version)
    if not kept:
        await second.subscribe((topic, 1))
    await second.nothing_but(publisher, topic)


@pytest.mark.parametrize(("first", "second"), [(4, 5), (5, 4)])
async def test_a_session_goes_over_to_another_version(port: int, first: int, second: int) -> None:
    """It belongs to the client, not to how it speaks."""
    client, topic = fresh("c"), fresh()
    older = await Peer.connect(port, first, client, kept=True)
    await older.subscribe((topic, 1))
    newer = await Peer.connect(port, second, client, kept=True)
    await older.closed(TAKEN_OVER)
    assert newer.present
    await newer.nothing_but(await Peer.connect(port, 5), topic)


# ---------------------------------------------------------------------------------------------- ended
async def _gone(watcher: Peer, topic: str) -> None:
    """The session whose will goes to this topic has ended."""
    assert (await watcher.take()).topic == topic


@pytest.mark.slow
async def test_a_session_lasts_as_long_as_its_connection_and_its_expiry(port: int) -> None:
    """Of two with an expiry of a second, one is left and ends; the other stays connected and keeps everything.

    5: [MQTT-4.1.0-1, -2]
    """
    watcher, topic = await Peer.connect(port, 5), fresh()
    await watcher.subscribe((f"{topic}/will", 1))
    will = Will(f"{topic}/will", properties=[(WILL_DELAY, 60)])
    left = await Peer.connect(port, 5, kept=True, expiry_s=1, will=will)
    stays = await Peer.connect(port, 5, kept=True, expiry_s=1)
    for peer in (left, stays):
        await peer.subscribe((topic, 1))
    left.drop()
    await _gone(watcher, f"{topic}/will")
    assert not (await Peer.connect(port, 5, left.client, kept=True)).present
    await stays.nothing_but(await Peer.connect(port, 5), topic)
    assert (await Peer.connect(port, 5, stays.client, kept=True)).present


@VERSIONS
async def test_a_session_outlives_many_connections(port: int, version: int) -> None:
    """3.1.1: [MQTT-4.1.0-1, -2]"""
    client, topic = fresh("c"), fresh()
    publisher = await Peer.connect(port, version)
    peer = await Peer.connect(port, version, client, kept=True)
    await peer.subscribe((topic, 1))
    for _ in range(5):
        peer.drop()
        peer = await Peer.connect(port, version, client, kept=True)
        assert peer.present
        await peer.nothing_but(publisher, topic)


async def test_disconnect_may_change_the_expiry(port: int) -> None:
    """To 0: the session ends with the connection.  From 0 to more: a protocol error, since nothing was kept."""
    client = fresh("c")
    await (await Peer.connect(port, 5, client, kept=True)).leave(properties=[(SESSION_EXPIRY, 0)])
    peer = await Peer.connect(port, 5, client, clean=False)
    assert not peer.present
    peer.send(packets.disconnect(5, 0, [(SESSION_EXPIRY, 10)]))
    await peer.closed(PROTOCOL_ERROR)


# ---------------------------------------------------------------------------------------------- keep alive
async def _silent(port: int, version: int, kept: bool) -> None:
    """A client that falls silent is closed, and its will comes."""
    topic, loop = fresh(), asyncio.get_running_loop()
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, 1))
    since = loop.time()
    peer = await Peer.connect(port, version, kept=kept, keep_alive=1, will=Will(topic))
    came = await peer.rest()
    assert 1.4 <= loop.time() - since < 40
    assert [each.code for each in came if isinstance(each, packets.Answer)] == ([0x8D] if version == 5 else [])
    assert (await watcher.take()).payload == b"gone"


async def _dripping(port: int, version: int) -> None:
    """A packet that never gets complete is no packet, however often a byte of it comes."""
    peer = await Peer.connect(port, version, keep_alive=1)
    peer.send(b"\x30\xff\x7f\x00\x01t")
    ended = asyncio.ensure_future(peer.rest())
    async with asyncio.timeout(40):
        while not (await asyncio.wait([ended], timeout=0.25))[0]:
            peer.send(b"x")


async def _speaking(port: int, version: int) -> None:
    """Who sends something within the time stays, and so does who has none.  Where the machine stood still so long that nothing could
    be sent within the time it begins anew."""
    without, topic, loop = await Peer.connect(port, version), fresh(), asyncio.get_running_loop()
    never: asyncio.Future[None] = loop.create_future()
    rounds, heard, peer = 0, 0.0, without
    while rounds < SPOKEN:
        spoke = loop.time()
        if not rounds:
            heard, peer = spoke, await Peer.connect(port, version, keep_alive=1)
        try:
            peer.send(b"\xc0\0")
            await peer.answer(packets.PINGRESP)
            await peer.publish(topic, qos=1)
            heard, rounds = spoke, rounds + 1
        except (Closed, AssertionError):
            assert loop.time() - heard >= 1.4, "it has spoken within the time"
            rounds = 0
        await asyncio.wait([never], timeout=0.25)
    await without.alive()


@pytest.mark.slow
async def test_a_client_that_is_silent_for_one_and_a_half_keep_alives_is_closed(port: int) -> None:
    """As if the network had failed, with its will; others stay.

    5: [MQTT-3.1.2-22] [MQTT-3.2.2-22] [MQTT-3.12.4-1]; 3.1.1: [MQTT-3.1.2-24] [MQTT-3.12.4-1].
    """
    silent = asyncio.ensure_future(asyncio.gather(*[_silent(port, version, kept) for version in (4, 5) for kept in (False, True)]))
    await asyncio.gather(*[kind(port, version) for version in (4, 5) for kind in (_speaking, _dripping)])
    await silent


@VERSIONS
async def test_a_ping_is_answered(port: int, version: int) -> None:
    """Each by one PINGRESP.  [MQTT-3.12.4-1] of both"""
    peer = await Peer.connect(port, version)
    peer.send(b"\xc0\0" * 3)
    for _ in range(3):
        await peer.answer(packets.PINGRESP)
    await peer.leave()  # and nothing has come besides


async def test_a_closed_connection_is_closed(port: int) -> None:
    """These tests would notice: a peer that has left hears nothing more."""
    peer = await Peer.connect(port, 5)
    await peer.leave()
    with pytest.raises(Closed):
        await peer.next()
