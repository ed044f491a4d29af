"""QoS 1 and 2: what a receiver answers, what a sender does next (4.3), and the codes of acknowledgements (3.4 to 3.7)."""

from __future__ import annotations

import pytest

from tests.broker.wire import packet
from tests.conformance import packets
from tests.conformance.cases import KEPT, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import MESSAGE_EXPIRY, PUBACK, PUBCOMP, PUBREC, PUBREL, ack, number, publish
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

TOPIC_NAME_INVALID, NOT_FOUND, NO_SUBSCRIBERS = 0x90, 0x92, 0x10


async def _watched(port: int, version: int) -> tuple[Peer, str]:
    topic = fresh()
    watcher = await Peer.connect(port, version)
    await watcher.subscribe((topic, 2))
    return watcher, topic


# ---------------------------------------------------------------------------------------------- the server receives
@VERSIONS
@KEPT
@pytest.mark.parametrize("dup", [False, True])
async def test_after_puback_an_identifier_is_free(port: int, version: int, kept: bool, dup: bool) -> None:
    """What has it then is a new message, with DUP too.  5: [MQTT-4.3.2-4, -5]; 3.1.1: [MQTT-4.3.2-2]."""
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=kept)
    for payload in (b"first", b"second"):
        peer.send(publish(version, topic, payload, 1, 5, dup=dup))
        await peer.answer(PUBACK, 5)
    assert [came.payload for came in await watcher.take_all(2)] == [b"first", b"second"]


@VERSIONS
@KEPT
@pytest.mark.parametrize("dup", [False, True])
async def test_until_pubrel_an_identifier_is_one_message(port: int, version: int, kept: bool, dup: bool) -> None:
    """Every repetition gets its PUBREC and goes to nobody; PUBREL gets PUBCOMP; then the identifier is free.

    5: [MQTT-4.3.3-8, -10, -11, -12]; 3.1.1: [MQTT-4.3.3-2].
    """
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=kept)
    for _ in range(2):
        peer.send(publish(version, topic, b"one", 2, 5))
        await peer.answer(PUBREC, 5)
        for _ in range(3):
            peer.send(publish(version, topic, b"one", 2, 5, dup=dup))
            await peer.answer(PUBREC, 5)
        peer.send(ack(PUBREL, 5))
        assert (await peer.answer(PUBCOMP, 5)).code == 0
    assert [came.payload for came in await watcher.take_all(2)] == [b"one"] * 2
    await watcher.nothing_but(await Peer.connect(port, version), topic)


@VERSIONS
async def test_an_identifier_is_one_message_over_a_reconnect(port: int, version: int) -> None:
    """5: [MQTT-4.3.3-10]; 3.1.1: [MQTT-4.3.3-2]."""
    watcher, topic = await _watched(port, version)
    peer = await Peer.connect(port, version, kept=True)
    peer.send(publish(version, topic, b"one", 2, 5))
    await peer.answer(PUBREC, 5)
    peer.drop()
    peer = await Peer.connect(port, version, peer.client, kept=True)
    peer.send(publish(version, topic, b"one", 2, 5, dup=True))
    await peer.answer(PUBREC, 5)
    peer.send(ack(PUBREL, 5))
    assert (await peer.answer(PUBCOMP, 5)).code == 0
    assert (await watcher.take()).payload == b"one"
    await watcher.nothing_but(await Peer.connect(port, version), topic)


@KEPT
async def test_after_a_pubrec_that_refuses_an_identifier_is_free(port: int, kept: bool) -> None:
    """[MQTT-4.3.3-9]"""
    watcher, topic = await _watched(port, 5)
    peer = await Peer.connect(port, 5, kept=kept)
    peer.send(publish(5, "$SYS/forged", b"refused", 2, 5))
    assert (await peer.answer(PUBREC, 5)).code == TOPIC_NAME_INVALID
    peer.send(publish(5, topic, b"new", 2, 5))
    assert (await peer.answer(PUBREC, 5)).code < 0x80
    assert (await watcher.take()).payload == b"new"


@KEPT
async def test_the_exchange_goes_on_for_a_message_that_has_expired(port: int, kept: bool) -> None:
    """[MQTT-4.3.3-13]"""
    _, topic = await _watched(port, 5)
    peer = await Peer.connect(port, 5, kept=kept)
    for dup in (False, True):
        peer.send(publish(5, topic, b"m", 2, 5, dup=dup, properties_=[(MESSAGE_EXPIRY, 0)]))
        await peer.answer(PUBREC, 5)
    peer.send(ack(PUBREL, 5))
    assert (await peer.answer(PUBCOMP, 5)).code == 0


@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_answers_come_in_the_order_of_the_messages(port: int, version: int, kept: bool, qos: int) -> None:
    """Those that are refused in their turn too.  3.1.1: [MQTT-4.6.0-2, -3, -4, -6]."""
    topic = fresh()
    peer = await Peer.connect(port, version, kept=kept)
    ids = [9, 3, 700, 4, 65535, 1]
    peer.send(b"".join(publish(version, "$SYS/x" if index == 2 else topic, b"m", qos, packet_id) for index, packet_id in enumerate(ids)))
    for packet_id in ids:
        await peer.answer(PUBACK if qos == 1 else PUBREC, packet_id)
    if qos == 2:
        peer.send(b"".join(ack(PUBREL, packet_id) for packet_id in ids if packet_id != 700))
        for packet_id in [packet_id for packet_id in ids if packet_id != 700]:
            await peer.answer(PUBCOMP, packet_id)


# ---------------------------------------------------------------------------------------------- the server sends
@VERSIONS
@KEPT
async def test_pubrel_follows_pubrec_and_ends_with_pubcomp(port: int, version: int, kept: bool) -> None:
    """With the identifier of the message.  5: [MQTT-4.3.3-3, -4, -5] [MQTT-2.2.1-5]; 3.1.1: [MQTT-4.3.3-1] [MQTT-2.3.1-6]."""
    publisher, topic = await Peer.connect(port, version), fresh()
    peer = await Peer.connect(port, version, kept=kept)
    await peer.subscribe((topic, 2))
    for _ in range(3):
        await publisher.publish(topic, qos=2)
    messages = [await peer.message() for _ in range(3)]
    for came in reversed(messages):
        peer.acknowledge(PUBREC, came.packet_id)
        assert (await peer.answer(PUBREL, came.packet_id)).code == 0
    for came in messages:
        peer.acknowledge(PUBCOMP, came.packet_id)
    await peer.nothing_but(publisher, topic)


@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_nothing_is_sent_again_while_the_connection_lasts(port: int, version: int, kept: bool, qos: int) -> None:
    """However long an acknowledgement takes.  5: [MQTT-4.4.0-1]; 3.1.1: [MQTT-4.3.3-1]."""
    publisher, topic = await Peer.connect(port, version), fresh()
    peer = await Peer.connect(port, version, kept=kept)
    await peer.subscribe((topic, 2))
    await publisher.publish(topic, b"m", qos)
    came = await peer.message()
    for index in range(10):
        await publisher.publish(topic, b"%d" % index, qos)
        later = await peer.message()
        assert (later.payload, later.dup) == (b"%d" % index, False)
        await peer.complete(later)
    if qos == 2:
        peer.acknowledge(PUBREC, came.packet_id)
        await peer.released(came.packet_id)
    await peer.nothing_but(publisher, topic)


@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_an_acknowledgement_that_refuses_ends_the_exchange(port: int, kept: bool, qos: int) -> None:
    """No PUBREL comes, the identifier is free, and the window has room again.  [MQTT-4.4.0-2] [MQTT-4.3.3-4]"""
    publisher, topic = await Peer.connect(port, 5), fresh()
    peer = await Peer.connect(port, 5, kept=kept, receive_max=1)
    await peer.subscribe((topic, qos))
    for payload in (b"first", b"second"):
        await publisher.publish(topic, payload, qos)
    came = await peer.message()
    assert came.payload == b"first"
    peer.acknowledge(PUBACK if qos == 1 else PUBREC, came.packet_id, 0x80)
    assert (await peer.take()).payload == b"second"
    if kept:
        peer.drop()
        peer = await Peer.connect(port, 5, peer.client, kept=True)
        assert peer.present
    await peer.nothing_but(publisher, topic)


# ---------------------------------------------------------------------------------------------- codes
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_publisher_is_told_how_it_went(port: int, kept: bool, qos: int) -> None:
    """Taken, taken by nobody, refused: codes of the table.  [MQTT-3.4.2-1] [MQTT-3.5.2-1]"""
    _, topic = await _watched(port, 5)
    peer = await Peer.connect(port, 5, kept=kept)
    assert await peer.publish(topic, b"m", qos) == 0
    assert await peer.publish(fresh(), b"m", qos) == NO_SUBSCRIBERS
    assert await peer.publish("$SYS/forged", b"m", qos) == TOPIC_NAME_INVALID


@VERSIONS
@KEPT
async def test_pubrel_of_an_unknown_identifier_is_answered(port: int, version: int, kept: bool) -> None:
    """[MQTT-3.7.2-1]; 3.1.1: [MQTT-4.3.3-2]."""
    peer = await Peer.connect(port, version, kept=kept)
    peer.send(ack(PUBREL, 77))
    assert (await peer.answer(PUBCOMP, 77)).code == (NOT_FOUND if version == 5 else 0)


@VERSIONS
@KEPT
async def test_pubrec_of_an_unknown_identifier_is_answered(port: int, version: int, kept: bool) -> None:
    """[MQTT-3.6.2-1]; 3.1.1: [MQTT-4.3.3-1]."""
    peer = await Peer.connect(port, version, kept=kept)
    peer.send(ack(PUBREC, 77))
    assert (await peer.answer(PUBREL, 77)).code == (NOT_FOUND if version == 5 else 0)


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
@pytest.mark.parametrize("code", [0x01, 0x7F, 0x81, 0xFF])
async def test_a_code_of_no_table_closes_the_connection(port: int, kind: int, code: int) -> None:
    """[MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1], as a client has to keep them"""
    peer = await Peer.connect(port, 5)
    peer.send(ack(kind, 1, code))
    await peer.closed(PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
async def test_acknowledgements_are_read_in_all_their_forms(port: int, kind: int) -> None:
    """Without a code, with one, with a property length of zero, with a reason string and user properties.  [MQTT-2.2.2-1]"""
    peer = await Peer.connect(port, 5)
    first = kind << 4 | (2 if kind == PUBREL else 0)
    rows = packets.properties([(packets.REASON_STRING, "why"), (packets.USER_PROPERTY, ("a", "b"))])
    for rest in (b"", b"\0", b"\0\0", b"\0" + rows):
        peer.send(packet(first, number(9) + rest))
        if kind in (PUBREC, PUBREL):
            await peer.answer(PUBREL if kind == PUBREC else PUBCOMP, 9)
    await peer.alive()
