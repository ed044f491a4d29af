"""DISCONNECT and AUTH, and how errors end a connection (3.14, 3.15, 4.12, 4.13)."""

from __future__ import annotations

import pytest

from tests.broker.wire import packet
from tests.conformance import packets
from tests.conformance.cases import KEPT, MALFORMED, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import AUTH_METHOD, REASON_STRING, SESSION_EXPIRY, USER_PROPERTY, auth, publish
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP


@VERSIONS
@KEPT
async def test_the_server_closes_the_connection_after_disconnect(port: int, version: int, kept: bool) -> None:
    """Nothing comes back, and what stands behind it is not processed.  3.1.1: [MQTT-3.14.4-3]; 5: [MQTT-3.14.4-3]."""
    topic = fresh()
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, 0))
    peer = await Peer.connect(port, version, kept=kept)
    peer.send(packets.disconnect(version) + publish(version, topic, b"behind") + b"\xc0\0")
    await peer.closed()
    await watcher.nothing_but(await Peer.connect(port, version), topic)


@KEPT
async def test_after_its_own_disconnect_the_server_sends_nothing_and_closes(port: int, kept: bool) -> None:
    """Though a session has messages waiting.  [MQTT-3.14.4-1, -2] [MQTT-4.13.1-1] [MQTT-4.13.2-1]"""
    topic = fresh()
    peer = await Peer.connect(port, 5, kept=kept)
    await peer.subscribe((topic, 1))
    peer.send(packets.connect(5, peer.client) + publish(5, topic, b"behind", 1, 1))
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic)
    last = (await peer.rest())[-1]
    assert isinstance(last, packets.Answer) and (last.kind, last.code) == (packets.DISCONNECT, PROTOCOL_ERROR)


@VERSIONS
async def test_errors_close_the_connection_they_come_by_and_no_other(port: int, version: int) -> None:
    """5: [MQTT-4.13.1-1]; 3.1.1: [MQTT-4.8.0-1]."""
    peers = [await Peer.connect(port, version) for _ in range(3)]
    peers[1].send(b"\x00\x00")
    await peers[1].closed(MALFORMED)
    for peer in (peers[0], peers[2]):
        await peer.alive()


@KEPT
async def test_a_disconnect_of_the_server_says_nothing_of_the_session_expiry(port: int, kept: bool) -> None:
    """Its code is one of the table: the readers of these tests look at each.  [MQTT-3.14.2-1, -2]"""
    for data in (packets.connect(5, "c"), b"\x00\x00", publish(5, "t", dup=True), packets.subscribe(5, 1), publish(5, "a/+"), auth(0x19)):
        peer = await Peer.connect(port, 5, kept=kept)
        peer.send(data)
        (last,) = await peer.rest()
        assert isinstance(last, packets.Answer) and last.kind == packets.DISCONNECT and last.code >= 0x80
        assert last.get(SESSION_EXPIRY) is None


@pytest.mark.parametrize("reason", [0x01, 0x8E - 1 + 0x70, 0x7F])
async def test_a_disconnect_with_a_code_of_no_table_is_an_error(port: int, reason: int) -> None:
    """[MQTT-3.14.2-1], as a client has to keep it"""
    peer = await Peer.connect(port, 5)
    peer.send(packet(0xE0, bytes([reason])))
    await peer.closed(PROTOCOL_ERROR)


async def test_a_disconnect_may_have_a_reason_and_properties(port: int) -> None:
    """Of every form that there is.  [MQTT-2.2.2-1]"""
    for data in (
        b"\xe0\x00",
        b"\xe0\x01\x00",
        b"\xe0\x02\x00\x00",
        packets.disconnect(5, 0x98, [(REASON_STRING, "why"), (USER_PROPERTY, ("a", "b")), (SESSION_EXPIRY, 0)]),
    ):
        peer = await Peer.connect(port, 5)
        peer.send(data)
        await peer.closed()


# ---------------------------------------------------------------------------------------------- AUTH
@pytest.mark.parametrize("flags", [1, 2, 4, 8, 15])
async def test_reserved_bits_of_an_auth_close_the_connection(port: int, flags: int) -> None:
    """[MQTT-3.15.1-1]"""
    peer = await Peer.connect(port, 5)
    peer.send(packet(0xF0 | flags, b"\x19" + packets.properties([(AUTH_METHOD, "m")])))
    await peer.closed(MALFORMED)


@pytest.mark.parametrize("reason", [0x18, 0x19])
async def test_an_auth_of_a_client_that_named_no_method_closes_the_connection(port: int, reason: int) -> None:
    """The other side of [MQTT-4.12.0-7]"""
    peer = await Peer.connect(port, 5)
    peer.send(auth(reason, [(AUTH_METHOD, "SCRAM-SHA-256")]))
    await peer.closed(PROTOCOL_ERROR)


async def test_3_1_1_has_no_auth(port: int) -> None:
    """Type 15 is reserved there.  3.1.1: [MQTT-4.8.0-1]"""
    peer = await Peer.connect(port, 4)
    peer.send(b"\xf0\x00")
    await peer.closed()
