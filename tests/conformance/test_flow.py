"""Receive Maximum, Maximum Packet Size, and what a client may not exceed."""

from __future__ import annotations

import pytest

from tests.conformance import packets
from tests.conformance.cases import KEPT, ONE_LOOP, VERSIONS
from tests.conformance.packets import (
    CONTENT_TYPE,
    MAXIMUM_PACKET_SIZE,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    REASON_STRING,
    RECEIVE_MAXIMUM,
    REQUEST_PROBLEM,
    USER_PROPERTY,
    Answer,
    Message,
    Properties,
    ack,
    publish,
)
from tests.conformance.peer import NO_LOCAL, Peer, fresh

pytestmark = ONE_LOOP

RECEIVE_MAXIMUM_EXCEEDED, PACKET_TOO_LARGE = 0x93, 0x95


# ---------------------------------------------------------------------------------------------- receive maximum
@KEPT
@pytest.mark.parametrize("most", [1, 2, 10])
@pytest.mark.parametrize("qos", [1, 2])
async def test_no_more_is_under_way_than_the_client_takes(port: int, kept: bool, most: int, qos: int) -> None:
    """Neither before nor after some of it was acknowledged; of QoS 2 until PUBCOMP; QoS 0 and other packets are not held up.

    [MQTT-3.3.4-9, -10] [MQTT-4.9.0-1, -2, -3]
    """
    topic = fresh()
    publisher, peer = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept, receive_max=most)
    await peer.subscribe((f"{topic}/#", 2))
    for index in range(most + 2):
        await publisher.publish(f"{topic}/x", b"%d" % index, qos)
    under_way = [await peer.message() for _ in range(most)]
    for _ in range(3):  # the quota is zero: what needs none goes on
        await publisher.publish(f"{topic}/now", b"QoS 0", 0)
        assert (await peer.message()).payload == b"QoS 0"
        await peer.subscribe((fresh(), 1))
        await peer.unsubscribe(fresh())
        await peer.publish(fresh())
        await peer.alive()
    for index in range(2):
        came = under_way[index]
        if qos == 1:
            peer.acknowledge(PUBACK, came.packet_id)
        else:
            peer.acknowledge(PUBREC, came.packet_id)
            await peer.answer(PUBREL, came.packet_id)
            await peer.alive()  # PUBREC has made no room
            peer.acknowledge(PUBCOMP, came.packet_id)
        under_way.append(await peer.message())
        assert under_way[-1].payload == b"%d" % (most + index)
        await peer.alive()


@KEPT
async def test_a_resumed_session_keeps_to_the_new_receive_maximum(port: int, kept: bool) -> None:
    """Each connection has its own.  [MQTT-4.9.0-1]"""
    topic = fresh()
    publisher, peer = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept, receive_max=5)
    await peer.subscribe((topic, 1))
    await peer.leave()
    peer = await Peer.connect(port, 5, peer.client, kept=kept, receive_max=1)
    await peer.subscribe((topic, 1))
    for index in range(3):
        await publisher.publish(topic, b"%d" % index)
    for index in range(3):
        came = await peer.message()
        assert came.payload == b"%d" % index
        await peer.alive()
        await peer.complete(came)


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("most", [1, 2])
async def test_what_is_sent_again_keeps_to_the_new_receive_maximum(port: int, qos: int, most: int) -> None:
    """More was under way on the older connection than the client takes now.  [MQTT-3.3.4-9] [MQTT-4.9.0-1, -2]"""
    topic = fresh()
    publisher, peer = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=True, receive_max=5)
    await peer.subscribe((topic, qos))
    for index in range(7):
        await publisher.publish(topic, b"%d" % index, qos)
    older = [await peer.message() for _ in range(5)]
    peer.drop()
    peer = await Peer.connect(port, 5, peer.client, kept=True, receive_max=most)
    under_way: list[Message] = []
    for index in range(7):
        while len(under_way) < min(most, 7 - index):
            under_way.append(await peer.message())
        for _ in range(3):  # a packet too many would come in between
            await publisher.publish(fresh())
            await peer.alive()
        came = under_way.pop(0)
        assert (came.payload, came.dup) == (b"%d" % index, index < 5)
        assert index >= 5 or came.packet_id == older[index].packet_id
        await peer.complete(came)
    await peer.nothing_but(publisher, topic)


@KEPT
@pytest.mark.parametrize("qos", [1, 2])
async def test_retained_messages_keep_to_the_receive_maximum(port: int, kept: bool, qos: int) -> None:
    """[MQTT-3.3.4-9] [MQTT-4.9.0-2]"""
    topic = fresh()
    publisher, peer = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept, receive_max=2)
    for index in range(6):
        await publisher.publish(f"{topic}/{index}", b"kept", qos, retain=True)
    await peer.subscribe((f"{topic}/#", qos))
    found = []
    under_way: list[Message] = []
    for index in range(6):
        while len(under_way) < min(2, 6 - index):
            under_way.append(await peer.message())
        for _ in range(3):
            await publisher.publish(fresh())
            await peer.alive()
        found.append(under_way[0].topic)
        await peer.complete(under_way.pop(0))
    assert sorted(found) == [f"{topic}/{index}" for index in range(6)]
    await peer.nothing_but(publisher, f"{topic}/1")


@KEPT
async def test_who_sends_more_than_we_take_is_closed(port: int, kept: bool) -> None:
    """QoS 2 messages are ours until PUBREL.  The other side of [MQTT-3.3.4-7]"""
    peer = await Peer.connect(port, 5, kept=kept)
    most = peer.connack.get(RECEIVE_MAXIMUM)
    assert isinstance(most, int)
    peer.send(b"".join(publish(5, "t", b"", 2, packet_id) for packet_id in range(1, most + 2)))
    came = await peer.rest()
    assert [each.code for each in came if isinstance(each, Answer) and each.kind == packets.DISCONNECT] == [RECEIVE_MAXIMUM_EXCEEDED]


# ---------------------------------------------------------------------------------------------- maximum packet size
@KEPT
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_that_is_too_large_is_left_out(port: int, kept: bool, qos: int) -> None:
    """As if it had been delivered: the rest comes, and the window keeps its room.  [MQTT-3.1.2-24, -25]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    peer = await Peer.connect(port, 5, kept=kept, receive_max=1, properties=[(MAXIMUM_PACKET_SIZE, 100)])
    await peer.subscribe((topic, qos))
    overhead = 1 + 1 + 2 + len(topic) + (2 if qos else 0) + 1
    for size in (100 - overhead, 101 - overhead, 20_000, 3):
        await publisher.publish(topic, b"x" * size, qos)
    rows: Properties = [(CONTENT_TYPE, "x" * 100)]
    await publisher.publish(topic, b"too much with its properties", qos, properties=rows)
    found = await peer.take_all(2)
    assert [len(came.payload) for came in found] == [100 - overhead, 3] and found[0].size == 100
    await peer.nothing_but(publisher, topic)


@KEPT
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_retained_message_that_is_too_large_is_left_out(port: int, kept: bool, qos: int) -> None:
    """The others come.  [MQTT-3.1.2-24, -25]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    for name, size in (("a", 10), ("b", 200), ("c", 10), ("d", 300)):
        await publisher.publish(f"{topic}/{name}", b"x" * size, qos, retain=True)
    peer = await Peer.connect(port, 5, kept=kept, receive_max=1, properties=[(MAXIMUM_PACKET_SIZE, 100)])
    await peer.subscribe((f"{topic}/#", qos))
    assert sorted([came.topic[-1] for came in await peer.take_all(2)]) == ["a", "c"]
    await peer.nothing_but(publisher, f"{topic}/a")


async def _provoke(peer: Peer) -> list[Answer]:
    """All that a server may want to explain: refusals of every kind, at last a DISCONNECT."""
    peer.send(publish(5, "$SYS/forged", b"m", 1, 1))
    peer.send(publish(5, "$SYS/forged", b"m", 2, 2))
    peer.send(publish(5, fresh(), b"m", 1, 3))
    peer.send(ack(PUBREL, 4))
    peer.send(ack(PUBREC, 5))
    peer.send(packets.subscribe(5, 6, ("a/#/b", 0), ("$share/g", 1)))
    peer.send(packets.unsubscribe(5, 7, "nothing"))
    found = [await peer.next() for _ in range(7)]
    peer.send(packets.subscribe(5, 8, ("$share/g/t", NO_LOCAL)))
    found += await peer.rest()
    kinds = {each.kind for each in found if isinstance(each, Answer)}
    assert kinds == {PUBACK, PUBREC, PUBREL, PUBCOMP, packets.SUBACK, packets.UNSUBACK, packets.DISCONNECT}
    return [each for each in found if isinstance(each, Answer)]


@KEPT
async def test_no_answer_is_larger_than_the_client_takes(port: int, kept: bool) -> None:
    """Whatever it would like to explain.

    [MQTT-3.1.2-24] [MQTT-3.4.2-2, -3] [MQTT-3.5.2-2, -3] [MQTT-3.6.2-2, -3] [MQTT-3.7.2-2, -3] [MQTT-3.9.2-1, -2] [MQTT-3.11.2-1, -2]
    [MQTT-3.14.2-3, -4]
    """
    most = (await Peer.connect(port, 5, kept=kept)).connack.size
    peer = await Peer.connect(port, 5, kept=kept, properties=[(MAXIMUM_PACKET_SIZE, most)])
    assert max(each.size for each in await _provoke(peer)) <= most


@KEPT
async def test_who_wants_no_explanations_gets_none(port: int, kept: bool) -> None:
    """Request Problem Information 0; a DISCONNECT may explain all the same.  [MQTT-3.1.2-29]"""
    peer = await Peer.connect(port, 5, kept=kept, properties=[(REQUEST_PROBLEM, 0)])
    for each in await _provoke(peer):
        if each.kind != packets.DISCONNECT:
            assert not {REASON_STRING, USER_PROPERTY} & {key for key, _ in each.properties}


@KEPT
@pytest.mark.parametrize("kind", ["SUBACK", "UNSUBACK"])
async def test_more_codes_than_the_client_takes_in_a_packet_close_the_connection(port: int, kept: bool, kind: str) -> None:
    """It could not be told what it has.  [MQTT-3.1.2-24]"""
    peer = await Peer.connect(port, 5, kept=kept, properties=[(MAXIMUM_PACKET_SIZE, 60)])
    filters = [f"f{index}" for index in range(70)]
    peer.send(packets.subscribe(5, 1, *[(name, 1) for name in filters]) if kind == "SUBACK" else packets.unsubscribe(5, 1, *filters))
    await peer.closed(PACKET_TOO_LARGE)


@VERSIONS
async def test_a_packet_that_is_too_large_for_us_closes_the_connection(port: int, version: int) -> None:
    """As soon as its header says so.  The other side of [MQTT-3.2.2-15]"""
    peer = await Peer.connect(port, version)
    peer.send(b"\x30\xff\xff\xff\x7f\x00\x01t")
    await peer.closed(PACKET_TOO_LARGE)
