"""Topic names and filters: which filters there are, and what they match (4.7)."""

from __future__ import annotations

import pytest

from tests.conformance.cases import KEPT, ONE_LOOP, VERSIONS
from tests.conformance.packets import SUBACK, subscribe, unsubscribe
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

TOPIC_FILTER_INVALID = 0x8F


# ---------------------------------------------------------------------------------------------- which filters there are
@VERSIONS
@KEPT
@pytest.mark.parametrize("bad", ["a#", "#/a", "a/#/b", "a/b#", "a/#b", "##", "#/", "a+", "+a", "a/b+/c", "a/+b", "++", "+#", "a/++/b"])
async def test_a_wildcard_in_a_wrong_place_is_refused(port: int, version: int, kept: bool, bad: str) -> None:
    """3.1.1 has no code for it and is closed.  5: [MQTT-4.7.1-1, -2]; 3.1.1: [MQTT-4.7.1-2, -3]."""
    peer = await Peer.connect(port, version, kept=kept)
    peer.send(subscribe(version, 1, (bad, 1)))
    if version == 5:
        assert (await peer.answer(SUBACK, 1)).codes == bytes([TOPIC_FILTER_INVALID])
        await peer.alive()
    else:
        await peer.closed()


@VERSIONS
@KEPT
@pytest.mark.parametrize("filter", ["#", "+", "+/#", "/+", "+/+", "a/+/+/#", "/", "//", "a//#", "/#"])
async def test_a_wildcard_may_stand_alone_at_every_level(port: int, version: int, kept: bool, filter: str) -> None:
    """5: [MQTT-4.7.1-1, -2]; 3.1.1: [MQTT-4.7.1-2, -3] [MQTT-3.8.3-2]."""
    peer = await Peer.connect(port, version, kept=kept)
    assert await peer.subscribe((filter, 1)) == b"\1"


@VERSIONS
async def test_a_filter_is_not_empty(port: int, version: int) -> None:
    """[MQTT-4.7.3-1] of both"""
    peer = await Peer.connect(port, version)
    peer.send(subscribe(version, 1, ("", 1)))
    if version == 5:
        assert (await peer.answer(SUBACK, 1)).codes == bytes([TOPIC_FILTER_INVALID])
    else:
        await peer.closed()


@VERSIONS
@KEPT
async def test_a_filter_may_have_65535_bytes(port: int, version: int, kept: bool) -> None:
    """[MQTT-4.7.3-3] of both"""
    peer, publisher = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version)
    topic = fresh("long").ljust(65_535, "x")
    assert await peer.subscribe((topic, 1)) == b"\1"
    await peer.nothing_but(publisher, topic)
    peer.send(unsubscribe(version, 9, topic))


# ---------------------------------------------------------------------------------------------- what they match
MATCHES = [
    ("a/b", "a/b", True),
    ("a/b", "a/c", False),
    ("a/b", "a/b/", False),
    ("a/b", "/a/b", False),
    ("a/#", "a", True),
    ("a/#", "a/", True),
    ("a/#", "a/b", True),
    ("a/#", "a/b/c/d", True),
    ("a/#", "ab", False),
    ("a/#", "b/a", False),
    ("a/+", "a/b", True),
    ("a/+", "a/", True),
    ("a/+", "a", False),
    ("a/+", "a/b/c", False),
    ("+/b", "a/b", True),
    ("+/b", "/b", True),
    ("+/+", "/", True),
    ("/+", "/a", True),
    ("+", "/a", False),
    ("a/+/c", "a/b/c", True),
    ("a/+/c", "a//c", True),
    ("a/+/c", "a/b/b/c", False),
    ("+/b/#", "a/b", True),
    ("+/b/#", "a/b/c/d", True),
    ("+/b/#", "a/c/b", False),
    ("A/b", "a/b", False),
]


@pytest.mark.slow
@VERSIONS
@KEPT
async def test_filters_match_as_the_specification_has_it(port: int, version: int, kept: bool) -> None:
    """5: [MQTT-3.3.2-3] [MQTT-4.7.1-1, -2] [MQTT-4.7.3-4]; 3.1.1: [MQTT-3.3.2-3] [MQTT-4.7.1-2, -3] [MQTT-4.7.3-4]."""
    publisher = await Peer.connect(port, version)
    for filter, topic, matches in MATCHES:
        root = fresh()
        peer = await Peer.connect(port, version, kept=kept)
        # Below a root of its own, and with a leading level that makes "+/.." what it was.
        await peer.subscribe((f"{root}/{filter}", 1), (f"{root}-end", 1))
        await publisher.publish(f"{root}/{topic}", b"m")
        await publisher.publish(f"{root}-end", b"end")
        found = [(await peer.take()).topic]
        if found != [f"{root}-end"]:
            found.append((await peer.take()).topic)
        assert (f"{root}/{topic}" in found) == matches, (filter, topic)
        await peer.leave()


@VERSIONS
@KEPT
@pytest.mark.parametrize("filter", ["#", "+/x", "+/+", "+/#"])
async def test_a_filter_that_begins_with_a_wildcard_matches_no_dollar_topic(port: int, version: int, kept: bool, filter: str) -> None:
    """Live, stored or retained; named by its first level it comes.  [MQTT-4.7.2-1] of both"""
    root = f"${fresh()}"
    publisher = await Peer.connect(port, version)
    await publisher.publish(f"{root}/x", b"retained", 1, retain=True)
    peer, named = await Peer.connect(port, version, kept=kept), await Peer.connect(port, version, kept=kept)
    await peer.subscribe((filter, 1))
    await named.subscribe((f"{root}/+", 1))
    for qos in (0, 1, 2):
        await publisher.publish(f"{root}/x", b"live", qos)
    assert {(await named.take()).payload for _ in range(4)} == {b"retained", b"live"}
    end = f"{fresh()}/x"
    await publisher.publish(end, b"the end")
    while (came := await peer.take()).topic != end:
        assert not came.topic.startswith("$"), came  # what other tests have left retained comes too
    await publisher.publish(f"{root}/x", b"", retain=True)
