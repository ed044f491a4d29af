"""SUBSCRIBE and SUBACK."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.wire import packet, text
from tests.conformance import packets
from tests.conformance.cases import KEPT, MALFORMED, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import SUBACK, SUBSCRIPTION_IDENTIFIER, number, subscribe
from tests.conformance.peer import NO_LOCAL, NO_RETAINED, Peer, fresh

pytestmark = ONE_LOOP

TOPIC_FILTER_INVALID = 0x8F


# ---------------------------------------------------------------------------------------------- what is malformed
@VERSIONS
async def test_a_subscribe_without_a_filter_closes_the_connection(port: int, version: int) -> None:
    """5: [MQTT-3.8.3-2]; 3.1.1: [MQTT-3.8.3-3]."""
    peer = await Peer.connect(port, version)
    peer.send(subscribe(version, 1))
    await peer.closed(PROTOCOL_ERROR)


@VERSIONS
async def test_a_filter_without_options_closes_the_connection(port: int, version: int) -> None:
    """5: [MQTT-3.8.3-2]; 3.1.1: [MQTT-3.8.3-3]."""
    peer = await Peer.connect(port, version)
    peer.send(packet(0x82, number(1) + (b"\0" if version == 5 else b"") + text("t")))
    await peer.closed(MALFORMED)


@VERSIONS
@pytest.mark.parametrize("options", [0x80, 0x40, 0xC1])
async def test_reserved_bits_of_options_close_the_connection(port: int, version: int, options: int) -> None:
    """5: [MQTT-3.8.3-5]; 3.1.1: [MQTT-3.8.3-4]."""
    peer = await Peer.connect(port, version)
    peer.send(subscribe(version, 1, ("t", options)))
    await peer.closed(MALFORMED)


@pytest.mark.parametrize("options", [3, 4, 8, 0x10, 0x20, 0x0B])
async def test_3_1_1_has_no_options_but_the_qos(port: int, options: int) -> None:
    """3.1.1: [MQTT-3.8.3-4]"""
    peer = await Peer.connect(port, 4)
    peer.send(subscribe(4, 1, ("t", options)))
    await peer.closed()


@pytest.mark.parametrize("options", [3, 7, 0x30, 0x31])
async def test_qos_3_and_retain_handling_3_close_the_connection(port: int, options: int) -> None:
    """A protocol error, says 3.8.3.1 of MQTT 5."""
    peer = await Peer.connect(port, 5)
    peer.send(subscribe(5, 1, ("t", options)))
    await peer.closed(PROTOCOL_ERROR)


@KEPT
async def test_no_local_on_a_shared_subscription_closes_the_connection(port: int, kept: bool) -> None:
    """[MQTT-3.8.3-4]"""
    peer = await Peer.connect(port, 5, kept=kept)
    peer.send(subscribe(5, 1, ("$share/g/t", 1 | NO_LOCAL)))
    await peer.closed(PROTOCOL_ERROR)


@pytest.mark.parametrize("rows", [[(SUBSCRIPTION_IDENTIFIER, 0)], [(SUBSCRIPTION_IDENTIFIER, 1)] * 2])
async def test_an_identifier_is_one_and_not_0(port: int, rows: list[tuple[int, int]]) -> None:
    """A protocol error, says 3.8.2.1.2 of MQTT 5."""
    peer = await Peer.connect(port, 5)
    peer.send(subscribe(5, 1, ("t", 0), properties_=rows))
    await peer.closed(PROTOCOL_ERROR)


# ---------------------------------------------------------------------------------------------- SUBACK
@VERSIONS
@KEPT
async def test_each_filter_has_its_code_in_its_place(port: int, version: int, kept: bool) -> None:
    """The QoS granted, of every filter in the packet.

    5: [MQTT-3.8.4-1, -5, -6, -7] [MQTT-3.9.3-1, -2]; 3.1.1: [MQTT-3.8.4-1, -4, -5] [MQTT-3.9.3-1, -2].
    """
    topic = fresh()
    peer = await Peer.connect(port, version, kept=kept)
    wanted = [2, 0, 1, 1, 0, 2]
    assert await peer.subscribe(*[(f"{topic}/{index}", qos) for index, qos in enumerate(wanted)]) == bytes(wanted)
    publisher = await Peer.connect(port, version)
    for index, qos in enumerate(wanted):
        await publisher.publish(f"{topic}/{index}", b"m", 2)
        assert (await peer.take()).qos == qos


@KEPT
async def test_a_filter_that_is_refused_does_not_harm_the_others(port: int, kept: bool) -> None:
    """5: [MQTT-3.8.4-5, -7] [MQTT-3.9.3-1, -2]"""
    topic = fresh()
    peer = await Peer.connect(port, 5, kept=kept)
    assert await peer.subscribe((f"{topic}/a", 1), ("a/#/b", 1), (f"{topic}/b", 2)) == bytes([1, TOPIC_FILTER_INVALID, 2])
    publisher = await Peer.connect(port, 5)
    for name in ("a", "b"):
        await publisher.publish(f"{topic}/{name}")
        assert (await peer.take()).topic == f"{topic}/{name}"


@VERSIONS
@KEPT
async def test_one_packet_is_like_several(port: int, version: int, kept: bool) -> None:
    """The same filter twice: the second replaces the first.  5: [MQTT-3.8.4-5]; 3.1.1: [MQTT-3.8.4-4]."""
    topic = fresh()
    peer = await Peer.connect(port, version, kept=kept)
    assert await peer.subscribe((topic, 2), (topic, 1)) == b"\2\1"
    publisher = await Peer.connect(port, version)
    await publisher.publish(topic, b"m", 2)
    assert (await peer.take()).qos == 1
    await peer.nothing_but(publisher, topic)


@VERSIONS
@KEPT
async def test_many_filters_in_a_packet(port: int, version: int, kept: bool) -> None:
    """A thousand codes in one SUBACK.  5: [MQTT-3.8.4-6]; 3.1.1: [MQTT-3.8.4-5]."""
    topic = fresh()
    peer = await Peer.connect(port, version, kept=kept)
    peer.send(subscribe(version, 1, *[(f"{topic}/{index}", index % 3) for index in range(300)]))
    assert (await peer.answer(SUBACK, 1)).codes == bytes([0, 1, 2] * 100)


# ---------------------------------------------------------------------------------------------- replaced
@VERSIONS
@KEPT
@pytest.mark.parametrize(("before", "after"), [(0, 1), (0, 2), (1, 0), (1, 2), (2, 1)])
async def test_the_same_filter_again_replaces_the_subscription(port: int, version: int, kept: bool, before: int, after: int) -> None:
    """One copy of a message comes, at the new QoS.  [MQTT-3.8.4-3] of both"""
    topic = fresh()
    peer = await Peer.connect(port, version, kept=kept)
    publisher = await Peer.connect(port, version)
    for qos in (before, after):
        assert await peer.subscribe((topic, qos)) == bytes([qos])
        await publisher.publish(topic, b"m", 2)
        assert (await peer.take()).qos == qos
        await peer.nothing_but(publisher, topic)


@KEPT
async def test_a_replaced_subscription_has_its_new_options(port: int, kept: bool) -> None:
    """5: [MQTT-3.8.4-3]"""
    topic = fresh()
    peer, other = await Peer.connect(port, 5, kept=kept), await Peer.connect(port, 5)
    await peer.subscribe((topic, 1 | NO_LOCAL))
    await peer.publish(topic, b"not to me")
    await peer.subscribe((topic, 1))
    await peer.publish(topic, b"to me")
    assert (await peer.take()).payload == b"to me"
    await peer.nothing_but(other, topic)


@VERSIONS
@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_no_message_is_lost_while_a_subscription_is_replaced(port: int, version: int, kept: bool, qos: int) -> None:
    """Messages flow, and the same filter is subscribed again and again.  [MQTT-3.8.4-4]; 3.1.1: [MQTT-3.8.4-3]."""
    topic = fresh()
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    await peer.subscribe((topic, qos))

    async def publish() -> None:
        for index in range(30):
            await publisher.publish(topic, b"%d" % index, qos)

    publishing = asyncio.create_task(publish())
    found: list[bytes] = []
    for packet_id in range(1000, 1010):
        peer.send(subscribe(version, packet_id, (topic, qos | (NO_RETAINED if version == 5 else 0))))
        while isinstance(came := await peer.next(), packets.Message):
            found.append(came.payload)
            await peer.complete(came)
        assert (came.kind, came.packet_id, came.codes) == (SUBACK, packet_id, bytes([qos]))
    await publishing
    found += [came.payload for came in await peer.take_all(30 - len(found))]
    assert found == [b"%d" % index for index in range(30)]
    await peer.nothing_but(publisher, topic)


@VERSIONS
@KEPT
async def test_after_suback_every_message_comes(port: int, version: int, kept: bool) -> None:
    """Whatever is published once SUBACK is there.  [MQTT-4.5.0-1] of both"""
    publisher = await Peer.connect(port, version)
    peer = await Peer.connect(port, version, kept=kept)
    for _ in range(10):
        topic = fresh()
        await peer.subscribe((topic, 1))
        await publisher.publish(topic)
        assert (await peer.take()).topic == topic
