"""PUBLISH: its flags, its topic name, what is passed on of it, and who gets it."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.wire import packet
from tests.conformance import packets
from tests.conformance.cases import KEPT, MALFORMED, ONE_LOOP, PROTOCOL_ERROR, VERSIONS
from tests.conformance.packets import (
    CONTENT_TYPE,
    CORRELATION_DATA,
    MESSAGE_EXPIRY,
    PAYLOAD_FORMAT,
    PUBACK,
    PUBREC,
    RESPONSE_TOPIC,
    SUBSCRIPTION_IDENTIFIER,
    USER_PROPERTY,
    Answer,
    Properties,
    publish,
)
from tests.conformance.peer import NO_LOCAL, NO_RETAINED, Peer, fresh

pytestmark = ONE_LOOP

TOPIC_NAME_INVALID = 0x90
QOS = pytest.mark.parametrize("qos", [0, 1, 2])


async def _pair(port: int, version: int, kept: bool, topic: str, options: int = 2) -> tuple[Peer, Peer]:
    """A publisher, and a subscriber to the topic."""
    subscriber = await Peer.connect(port, version, kept=kept)
    await subscriber.subscribe((topic, options))
    return await Peer.connect(port, version), subscriber


# ---------------------------------------------------------------------------------------------- flags
@VERSIONS
@KEPT
@QOS
async def test_what_is_new_goes_out_without_dup(port: int, version: int, kept: bool, qos: int) -> None:
    """Whatever DUP the publisher had set.

    5: [MQTT-3.3.1-2, -3] [MQTT-4.3.1-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2];
    3.1.1: [MQTT-3.3.1-2, -3] [MQTT-4.3.1-1] [MQTT-4.3.2-1] [MQTT-4.3.3-1].
    """
    topic = fresh()
    publisher, subscriber = await _pair(port, version, kept, topic)
    publisher.send(publish(version, topic, b"m", qos, 1 if qos else 0, dup=bool(qos)))
    came = await subscriber.take()
    assert (came.dup, came.qos) == (False, qos)


@VERSIONS
async def test_dup_at_qos_0_closes_the_connection(port: int, version: int) -> None:
    """[MQTT-3.3.1-2] of both"""
    peer = await Peer.connect(port, version)
    peer.send(publish(version, "t", dup=True))
    await peer.closed(MALFORMED)


@VERSIONS
@pytest.mark.parametrize("flags", [6, 7, 14, 15])
async def test_qos_3_closes_the_connection(port: int, version: int, flags: int) -> None:
    """[MQTT-3.3.1-4] of both"""
    peer = await Peer.connect(port, version)
    peer.send(packet(0x30 | flags, packets.binary(b"t") + b"\0\1\0m"))
    await peer.closed(MALFORMED)


# ---------------------------------------------------------------------------------------------- topic name
@VERSIONS
@QOS
@pytest.mark.parametrize("topic", ["#", "+", "a/#", "a/+/b", "a+", "a#b", "/+"])
async def test_a_wildcard_in_a_topic_name_closes_the_connection(port: int, version: int, qos: int, topic: str) -> None:
    """5: [MQTT-3.3.2-2] [MQTT-4.7.0-1]; 3.1.1: [MQTT-3.3.2-2] [MQTT-4.7.1-1]."""
    watcher = await Peer.connect(port, 5)
    await watcher.subscribe(("#", NO_RETAINED))
    peer = await Peer.connect(port, version)
    peer.send(publish(version, topic, b"m", qos, 1 if qos else 0))
    await peer.closed(TOPIC_NAME_INVALID)
    await watcher.nothing_but(await Peer.connect(port, version), fresh())


@VERSIONS
async def test_a_topic_name_is_not_empty(port: int, version: int) -> None:
    """[MQTT-4.7.3-1] of both"""
    peer = await Peer.connect(port, version)
    peer.send(publish(version, ""))
    await peer.closed(PROTOCOL_ERROR if version == 5 else None)


@VERSIONS
@KEPT
@pytest.mark.parametrize(
    "name",
    ["/", "//", "a/", "/a", "a//b", " ", "a b", "\u00c5", "\u212b", "A\u030a", "\ufffe", "漢/字", "\U0001f600", "x" * 60_000, "tab\t"],
)
async def test_a_topic_name_is_passed_on_as_it_is(port: int, version: int, kept: bool, name: str) -> None:
    """It matches what equals it, byte for byte.  5: [MQTT-3.3.2-3] [MQTT-4.7.3-4]; 3.1.1: [MQTT-3.3.2-3] [MQTT-4.7.3-4]."""
    root = fresh()
    name = f"{root}{name}"
    publisher, subscriber = await _pair(port, version, kept, name)
    await publisher.publish(name, b"m")
    assert (await subscriber.take()).topic == name


@VERSIONS
@KEPT
async def test_names_that_only_look_alike_are_others(port: int, version: int, kept: bool) -> None:
    """Case, composition, spaces, a slash at an end, escapes.  [MQTT-4.7.3-4] of both"""
    root = fresh()
    publisher, subscriber = await _pair(port, version, kept, f"{root}/\u00c5")
    for other in ("\u00e5", "\u00c5 ", "\u00c5/", "/\u00c5", "A\u030a", "\u212b", "%C3%85"):
        await publisher.publish(f"{root}/{other}", b"another")
    await subscriber.nothing_but(publisher, f"{root}/\u00c5")


@VERSIONS
@pytest.mark.parametrize("size", [65_535])
async def test_a_topic_name_may_have_65535_bytes(port: int, version: int, size: int) -> None:
    """More cannot be written: its length has two bytes.  [MQTT-4.7.3-3] of both"""
    name = fresh("long").ljust(size, "x")
    publisher, subscriber = await _pair(port, version, False, name)
    await publisher.publish(name, b"m")
    assert (await subscriber.take()).topic == name


# ---------------------------------------------------------------------------------------------- answers
@VERSIONS
@KEPT
@QOS
async def test_the_answer_is_that_of_the_qos(port: int, version: int, kept: bool, qos: int) -> None:
    """None, PUBACK or PUBREC, subscribed or not.  [MQTT-3.3.4-1] of both"""
    topic = fresh()
    publisher = await Peer.connect(port, version, kept=kept)
    for wanted in (False, True):
        if wanted:
            await (await Peer.connect(port, version)).subscribe((topic, 2))
        publisher.send(publish(version, topic, b"m", qos, 7 if qos else 0))
        if qos:
            await publisher.answer(PUBACK if qos == 1 else PUBREC, 7)
        if qos == 2:
            publisher.send(packets.ack(packets.PUBREL, 7))
            await publisher.answer(packets.PUBCOMP, 7)
        await publisher.alive()


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_publish_that_is_not_allowed_is_answered_all_the_same(port: int, qos: int) -> None:
    """Nobody gets it.  3.1.1 cannot be told and is acknowledged [MQTT-3.3.5-2]; 5 gets a code."""
    watcher = await Peer.connect(port, 5)
    await watcher.subscribe(("$SYS/forged", 0))
    for version in (4, 5):
        peer = await Peer.connect(port, version)
        assert await peer.publish("$SYS/forged", b"m", qos) == (TOPIC_NAME_INVALID if version == 5 else 0)
        await peer.alive()
    await watcher.alive()


@VERSIONS
@KEPT
@QOS
async def test_a_message_goes_to_every_session_that_subscribed(port: int, version: int, kept: bool, qos: int) -> None:
    """To all of them, to each once, and to no other.  [MQTT-4.5.0-1] of both"""
    topic = fresh()
    publisher = await Peer.connect(port, version)
    peers = [await Peer.connect(port, version, kept=kept) for _ in range(4)]
    for peer, filter in zip(peers, (topic, f"{topic}/#", "+", f"{topic}x"), strict=True):
        await peer.subscribe((filter, qos))
    await publisher.publish(topic, b"m", qos)
    for peer in peers[:3]:
        came = await peer.take()
        assert (came.topic, came.payload, came.qos) == (topic, b"m", qos)
        await peer.nothing_but(publisher, topic)
    await peers[3].nothing_but(publisher, f"{topic}x")


@VERSIONS
@KEPT
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
async def test_qos_is_the_lower_of_two(port: int, version: int, kept: bool, published: int, granted: int) -> None:
    """That of the message and that of the subscription.  5: [MQTT-3.8.4-8]; 3.1.1: [MQTT-3.8.4-6]."""
    topic = fresh()
    publisher, subscriber = await _pair(port, version, kept, topic, granted)
    await publisher.publish(topic, b"m", published)
    assert (await subscriber.take()).qos == min(published, granted)


@VERSIONS
@KEPT
@pytest.mark.parametrize("order", [(0, 2), (2, 0), (1, 2), (2, 1)])
async def test_overlapping_subscriptions_have_the_highest_qos_of_all(port: int, version: int, kept: bool, order: tuple[int, int]) -> None:
    """Further copies may come, each at most with its own subscription's QoS.  5: [MQTT-3.3.4-2]; 3.1.1: [MQTT-3.3.5-1]."""
    topic = fresh()
    publisher, subscriber = await Peer.connect(port, version), await Peer.connect(port, version, kept=kept)
    await subscriber.subscribe((f"{topic}/#", order[0]))
    await subscriber.subscribe((f"{topic}/+", order[1]))
    await publisher.publish(f"{topic}/a", b"m", 2)
    found: list[int] = []
    while 2 not in found:
        found.append((await subscriber.take()).qos)
    assert set(found) <= set(order) and len(found) <= 2
    await publisher.publish(f"{topic}/a", b"the end", 0)
    while (came := await subscriber.take()).payload != b"the end":
        found.append(came.qos)
    assert set(found) <= set(order) and len(found) <= 2


# ---------------------------------------------------------------------------------------------- properties
ROWS: list[Properties] = [
    [(PAYLOAD_FORMAT, 0)],
    [(PAYLOAD_FORMAT, 1)],
    [(CONTENT_TYPE, "a/b; c=é")],
    [(CONTENT_TYPE, "")],
    [(RESPONSE_TOPIC, "answers/漢")],
    [(CORRELATION_DATA, bytes(range(256)))],
    [(CORRELATION_DATA, b"")],
]


@KEPT
@QOS
@pytest.mark.parametrize("rows", ROWS)
async def test_a_property_of_a_message_is_passed_on_unaltered(port: int, kept: bool, qos: int, rows: Properties) -> None:
    """[MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-20]"""
    topic = fresh()
    publisher, subscriber = await _pair(port, 5, kept, topic)
    await publisher.publish(topic, b"m", qos, properties=rows)
    assert list((await subscriber.take()).properties) == rows


@KEPT
@QOS
async def test_user_properties_are_passed_on_in_their_order(port: int, kept: bool, qos: int) -> None:
    """Equal names and empty strings included.  [MQTT-3.3.2-17, -18]"""
    pairs = [("b", "1"), ("a", "2"), ("b", "1"), ("", ""), ("é", "漢"), ("b", "0")]
    topic = fresh()
    publisher, subscriber = await _pair(port, 5, kept, topic)
    rows = [(USER_PROPERTY, pair) for pair in pairs]
    await publisher.publish(topic, b"m", qos, properties=[*rows[:3], (PAYLOAD_FORMAT, 1), *rows[3:]])
    assert (await subscriber.take()).all(USER_PROPERTY) == pairs


@KEPT
async def test_properties_do_not_reach_3_1_1(port: int, kept: bool) -> None:
    """Which gets the payload, and nothing before it."""
    topic = fresh()
    _, subscriber = await _pair(port, 4, kept, topic)
    publisher = await Peer.connect(port, 5)
    await publisher.publish(topic, b"m", properties=[(PAYLOAD_FORMAT, 1), (USER_PROPERTY, ("a", "b"))])
    assert (await subscriber.take()).payload == b"m"


@pytest.mark.parametrize("topic", ["a/#", "+", "a/+/b"])
async def test_a_response_topic_with_a_wildcard_closes_the_connection(port: int, topic: str) -> None:
    """[MQTT-3.3.2-14]"""
    peer = await Peer.connect(port, 5)
    peer.send(publish(5, "t", properties_=[(RESPONSE_TOPIC, topic)]))
    came = await peer.rest()
    assert [each.code in (MALFORMED, PROTOCOL_ERROR, TOPIC_NAME_INVALID) for each in came if isinstance(each, Answer)] == [True]


async def test_a_subscription_identifier_from_a_client_closes_the_connection(port: int) -> None:
    """[MQTT-3.3.4-6]"""
    peer = await Peer.connect(port, 5)
    peer.send(publish(5, "t", properties_=[(SUBSCRIPTION_IDENTIFIER, 1)]))
    await peer.closed(PROTOCOL_ERROR)


# ---------------------------------------------------------------------------------------------- subscription identifiers
@KEPT
@QOS
@pytest.mark.parametrize("identifier", [1, 127, 128, 268_435_455])
async def test_a_message_names_the_subscription_it_comes_by(port: int, kept: bool, qos: int, identifier: int) -> None:
    """[MQTT-3.3.4-3]"""
    topic = fresh()
    publisher, subscriber = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept)
    await subscriber.subscribe((topic, qos), identifier=identifier)
    await publisher.publish(topic, b"m", qos)
    assert (await subscriber.take()).all(SUBSCRIPTION_IDENTIFIER) == [identifier]


@KEPT
@QOS
async def test_a_message_names_all_subscriptions_it_comes_by(port: int, kept: bool, qos: int) -> None:
    """In one copy, or in one copy for each; one that has no identifier adds none.  [MQTT-3.3.4-3, -4, -5]"""
    topic = fresh()
    publisher, subscriber = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept)
    for filter, identifier in ((f"{topic}/#", 5), (f"{topic}/+", 6), (f"{topic}/a", 0), (f"{topic}/b", 7)):
        await subscriber.subscribe((filter, qos), identifier=identifier)
    await publisher.publish(f"{topic}/a", b"m", qos)
    found: list[packets.Value] = []
    copies = 0
    while len(found) < 2:
        found += (await subscriber.take()).all(SUBSCRIPTION_IDENTIFIER)
        copies += 1
    assert sorted(map(int, found)) == [5, 6] and copies <= 3  # type: ignore[arg-type]  # a subscription identifier is an int


@KEPT
async def test_a_subscription_that_is_replaced_has_its_new_identifier(port: int, kept: bool) -> None:
    """Or none any more.  [MQTT-3.3.4-3] [MQTT-3.8.4-3]"""
    topic = fresh()
    publisher, subscriber = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept)
    for identifier in (1, 2, 0):
        await subscriber.subscribe((topic, 1), identifier=identifier)
        await publisher.publish(topic)
        assert (await subscriber.take()).all(SUBSCRIPTION_IDENTIFIER) == ([identifier] if identifier else [])


# ---------------------------------------------------------------------------------------------- expiry
@KEPT
@QOS
async def test_what_is_left_of_an_expiry_goes_along(port: int, kept: bool, qos: int) -> None:
    """[MQTT-3.3.2-6]"""
    topic = fresh()
    publisher, subscriber = await _pair(port, 5, kept, topic)
    await publisher.publish(topic, b"m", qos, properties=[(MESSAGE_EXPIRY, 1000)])
    assert (await subscriber.take()).get(MESSAGE_EXPIRY) in range(900, 1001)


async def _expiring(port: int, kept: bool, qos: int) -> None:
    topic, clock = fresh(), fresh()
    publisher, subscriber = await Peer.connect(port, 5), await Peer.connect(port, 5, kept=kept, receive_max=1)
    await subscriber.subscribe((topic, qos))
    await publisher.publish(topic, b"fills the window", qos)
    first = await subscriber.message()
    await publisher.publish(topic, b"short", qos, properties=[(MESSAGE_EXPIRY, 1)])
    await publisher.publish(topic, b"long", qos, properties=[(MESSAGE_EXPIRY, 1000)])
    for name, expiry_s in (("short", 1), ("long", 1000)):
        await publisher.publish(f"{topic}/{name}", b"retained", qos, retain=True, properties=[(MESSAGE_EXPIRY, expiry_s)])
    watcher = await Peer.connect(port, 5)
    await watcher.subscribe((clock, 0))
    will = packets.Will(clock, properties=[(packets.WILL_DELAY, 2)])
    (await Peer.connect(port, 5, kept=True, will=will)).drop()
    await watcher.take()  # two seconds have passed
    await subscriber.complete(first)
    came = await subscriber.take()
    assert came.payload == b"long"
    await subscriber.subscribe((f"{topic}/+", qos))
    retained = await subscriber.take()
    assert retained.topic == f"{topic}/long"
    for each in (came, retained):
        left = each.get(MESSAGE_EXPIRY)
        assert isinstance(left, int) and 900 < left <= 998
    await subscriber.nothing_but(publisher, topic)


@pytest.mark.slow
async def test_what_has_expired_is_not_sent(port: int) -> None:
    """While there was no room for it, or retained; what has waited has less left.  [MQTT-3.3.2-5, -6]"""
    await asyncio.gather(*[_expiring(port, kept, qos) for kept in (False, True) for qos in (1, 2)])


# ---------------------------------------------------------------------------------------------- back to the publisher
@KEPT
@QOS
async def test_no_local_keeps_a_message_from_its_publisher(port: int, kept: bool, qos: int) -> None:
    """And from nobody else; without it the publisher gets what it wants.  [MQTT-3.8.3-3]"""
    topic = fresh()
    peer, other = await Peer.connect(port, 5, kept=kept), await Peer.connect(port, 5, kept=kept)
    for each in (peer, other):
        await each.subscribe((topic, qos | NO_LOCAL))
    await peer.publish(topic, b"own", qos)
    assert (await other.take()).payload == b"own"
    await peer.nothing_but(other, topic)
