"""CONNACK: session present, codes, what it says about the server and what not."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.actors.one_loop import OneLoop
from tests.conformance import packets
from tests.conformance.cases import ONE_LOOP, VERSIONS
from tests.conformance.packets import Will, connect, raw_connect
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

RETAIN_NOT_SUPPORTED, PACKET_TOO_LARGE = 0x9A, 0x95


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def without_retain(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[OneLoop]:
    """A broker that keeps no retained messages and allows a keep-alive of a minute."""
    sets = ("mqtt.retain_available=false", "mqtt.keepalive_max=60s")
    async with OneLoop(tmp_path_factory.mktemp("without-retain"), sets=sets) as running:
        yield running


# ---------------------------------------------------------------------------------------------- session present
@VERSIONS
async def test_session_present_says_whether_there_was_one(port: int, version: int) -> None:
    """5: [MQTT-3.1.4-5] [MQTT-3.2.2-1, -2, -3]; 3.1.1: [MQTT-3.1.4-4] [MQTT-3.2.2-1, -2, -3]."""
    client = fresh("c")
    for clean, present in [(False, False), (False, True), (True, False), (False, version == 5), (True, False)]:
        peer = await Peer.connect(port, version, client, kept=True, clean=clean)
        assert (peer.connack.code, peer.present) == (0, present), (clean, present)
        await peer.leave()


async def test_a_refusal_says_that_no_session_is_present(port: int) -> None:
    """Even if there is one.  5: [MQTT-3.2.2-6, -7]."""
    client = fresh("c")
    await (await Peer.connect(port, 5, client, kept=True)).leave()
    peer = await Peer.open(port, 5, connect(5, client, clean=False, properties_=[(packets.AUTH_METHOD, "no such method")]))
    (came,) = await peer.rest()
    assert isinstance(came, packets.Answer) and (came.code, came.flags) == (0x8C, 0)
    assert (await Peer.connect(port, 5, client, kept=True)).present


async def test_a_refusal_of_3_1_1_says_that_no_session_is_present(port: int) -> None:
    """Even if there is one.  3.1.1: [MQTT-3.2.2-4, -5]."""
    client = fresh("c")
    await (await Peer.connect(port, 4, client, kept=True)).leave()
    peer = await Peer.open(port, 4, raw_connect(4, 0, packets.binary(client.encode()), level=3))
    await peer.refused(1)
    assert (await Peer.connect(port, 4, client, kept=True)).present


async def test_a_refusal_for_which_3_1_1_has_no_code_is_a_close_without_a_word(port: int) -> None:
    """A CONNECT that is larger than we read of a stranger.  3.1.1: [MQTT-3.2.2-6]."""
    peer = await Peer.open(port, 4, connect(4, fresh("c"), username="x" * 60_000, password=b"x" * 60_000))
    await peer.refused(None)


async def test_connack_has_a_code_of_its_table(port: int) -> None:
    """Whatever the CONNECT.  5: [MQTT-3.2.2-8]."""
    wrong = [
        connect(5, fresh("c")),
        connect(5, fresh("c"), properties_=[(packets.AUTH_METHOD, "none")]),
        connect(5, fresh("c"), properties_=[(packets.RECEIVE_MAXIMUM, 0)]),
        connect(5, fresh("c"), will=Will("$SYS/x")),
        connect(5, fresh("c"), will=Will("a/#")),
        connect(5, fresh("c"), will=Will("t", qos=3)),
        raw_connect(5, 3, packets.binary(b"c")),
        raw_connect(5, 2, b"", level=9),
    ]
    for data in wrong:
        peer = await Peer.open(port, 5, data)
        assert (await peer.answer(packets.CONNACK)).code in packets.CODES[packets.CONNACK]


@VERSIONS
async def test_one_connack_and_no_more(port: int, version: int) -> None:
    """5: [MQTT-3.2.0-2]"""
    peer = await Peer.connect(port, version)
    await peer.alive()
    peer.send(connect(version, peer.client))
    assert packets.CONNACK not in [came.kind for came in await peer.rest() if isinstance(came, packets.Answer)]


@VERSIONS
async def test_connack_comes_before_what_a_session_has_waiting(port: int, version: int) -> None:
    """[MQTT-3.2.0-1] of both"""
    publisher, client, topic = await Peer.connect(port, version), fresh("c"), fresh()
    peer = await Peer.connect(port, version, client, kept=True)
    await peer.subscribe((topic, 1))
    await peer.leave()
    for _ in range(5):
        await publisher.publish(topic)
    peer = await Peer.connect(port, version, client, kept=True)  # the first packet is its CONNACK
    assert [(await peer.take()).topic for _ in range(5)] == [topic] * 5


# ---------------------------------------------------------------------------------------------- what the server can
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_every_qos_is_supported(port: int, qos: int) -> None:
    """So CONNACK names no Maximum QoS.  5: [MQTT-3.2.2-9, -10, -12]."""
    peer = await Peer.connect(port, 5, will=Will(fresh(), qos=qos))
    assert peer.connack.get(packets.MAXIMUM_QOS) is None
    topic = fresh()
    assert await peer.subscribe((topic, qos)) == bytes([qos])
    peer.send(packets.publish(5, topic, b"m", qos, 9 if qos else 0))
    came = [await peer.next() for _ in range(1 + bool(qos))]
    assert [each.qos for each in came if isinstance(each, packets.Message)] == [qos]


async def test_without_retain_a_will_that_is_to_be_retained_is_refused(without_retain: OneLoop) -> None:
    """5: [MQTT-3.2.2-13]"""
    peer = await Peer.open(without_retain.port, 5, connect(5, fresh("c"), will=Will(fresh(), retain=True)))
    await peer.refused(RETAIN_NOT_SUPPORTED)


async def test_without_retain_clients_are_told_so(without_retain: OneLoop) -> None:
    """A client that publishes with RETAIN all the same is closed with that code."""
    peer = await Peer.connect(without_retain.port, 5)
    assert peer.connack.get(packets.RETAIN_AVAILABLE) == 0
    peer.send(packets.publish(5, fresh(), b"m", 1, 1, retain=True))
    await peer.closed(RETAIN_NOT_SUPPORTED)


@pytest.mark.parametrize(("asked", "told"), [(30, None), (60, None), (61, 60), (0, 60)])
async def test_a_keep_alive_that_is_too_long_is_told_another(without_retain: OneLoop, asked: int, told: int | None) -> None:
    """5: [MQTT-3.2.2-22]"""
    peer = await Peer.connect(without_retain.port, 5, keep_alive=asked)
    assert peer.connack.get(packets.SERVER_KEEP_ALIVE) == told


@pytest.mark.parametrize("wanted", [None, 0, 1])
async def test_response_information_is_not_given_unasked(port: int, wanted: int | None) -> None:
    """5: [MQTT-3.1.2-28]"""
    peer = await Peer.connect(port, 5, properties=[] if wanted is None else [(packets.REQUEST_RESPONSE, wanted)])
    if not wanted:
        assert peer.connack.get(packets.RESPONSE_INFORMATION) is None


async def test_no_authentication_method_is_named_to_who_named_none(port: int) -> None:
    """And no AUTH is sent.  5: [MQTT-4.12.0-6]."""
    peer = await Peer.connect(port, 5)
    assert peer.connack.get(packets.AUTH_METHOD) is None and peer.connack.get(packets.AUTH_DATA) is None
    await peer.alive()


# ---------------------------------------------------------------------------------------------- its size
async def test_connack_is_not_larger_than_the_client_takes(port: int) -> None:
    """What does not fit is left out, or the connection is closed.  5: [MQTT-3.1.2-24] [MQTT-3.2.2-19, -20]."""
    whole = (await Peer.connect(port, 5, "")).connack.size
    for most in range(1, whole + 1):
        peer = await Peer.open(port, 5, connect(5, "", properties_=[(packets.MAXIMUM_PACKET_SIZE, most)]))
        peer.send(b"\xe0\0")
        for came in await peer.rest():
            assert came.size <= most, f"{came} to a client that takes {most} bytes"


async def test_who_cannot_be_sent_a_connack_is_told_why(port: int) -> None:
    """A refusal has five bytes.  5: [MQTT-3.1.2-24]."""
    peer = await Peer.open(port, 5, connect(5, "", properties_=[(packets.MAXIMUM_PACKET_SIZE, 5)]))
    await peer.refused(PACKET_TOO_LARGE)
