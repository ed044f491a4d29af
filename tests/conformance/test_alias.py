"""Topic aliases, of the client and of the server."""

from __future__ import annotations

import pytest

from tests.conformance.cases import KEPT, ONE_LOOP, PROTOCOL_ERROR
from tests.conformance.packets import ALIAS_MAXIMUM, RESPONSE_TOPIC, TOPIC_ALIAS, publish
from tests.conformance.peer import Peer, fresh

pytestmark = ONE_LOOP

TOPIC_ALIAS_INVALID = 0x94


async def _most(port: int) -> int:
    most = (await Peer.connect(port, 5)).connack.get(ALIAS_MAXIMUM)
    assert isinstance(most, int) and most > 1
    return most


# ---------------------------------------------------------------------------------------------- from clients
async def test_every_alias_up_to_the_announced_one_is_accepted(port: int) -> None:
    """Each stands for the topic it was last given, at every QoS.  [MQTT-3.3.2-12]"""
    root, most = fresh(), await _most(port)
    publisher, peer = await Peer.connect(port, 5), await Peer.connect(port, 5)
    await peer.subscribe((f"{root}/#", 2))
    for number in (1, 2, most):
        await publisher.publish(f"{root}/{number}", b"named", 1, properties=[(TOPIC_ALIAS, number)])
    for qos in (0, 1, 2):
        for number in (most, 1, 2):
            await publisher.publish("", b"by alias", qos, properties=[(TOPIC_ALIAS, number)])
    await publisher.publish(f"{root}/other", b"named", 1, properties=[(TOPIC_ALIAS, 1)])
    await publisher.publish("", b"by alias", 1, properties=[(TOPIC_ALIAS, 1)])
    topics = [came.topic.removeprefix(f"{root}/") for came in await peer.take_all(14)]
    wanted = ["1", "2", str(most), *[str(most), "1", "2"] * 3, "other", "other"]
    assert sorted(topics) == sorted(wanted) and topics[:3] == wanted[:3]


@pytest.mark.parametrize("above", [0, 1])
async def test_alias_0_and_those_above_the_announced_one_close_the_connection(port: int, above: int) -> None:
    """[MQTT-3.3.2-8] [MQTT-3.3.2-12]"""
    peer = await Peer.connect(port, 5)
    peer.send(publish(5, "t", properties_=[(TOPIC_ALIAS, await _most(port) + 1 if above else 0)]))
    await peer.closed(TOPIC_ALIAS_INVALID)


async def test_an_alias_that_was_given_no_topic_closes_the_connection(port: int) -> None:
    """[MQTT-3.3.2-7]"""
    peer = await Peer.connect(port, 5)
    peer.send(publish(5, "", properties_=[(TOPIC_ALIAS, 1)]))
    await peer.closed(PROTOCOL_ERROR)


@KEPT
async def test_aliases_end_with_the_connection(port: int, kept: bool) -> None:
    """A session does not keep them, and those of one client are not another's.  [MQTT-3.3.2-7]"""
    topic = fresh()
    peer = await Peer.connect(port, 5, kept=kept)
    await peer.publish(topic, properties=[(TOPIC_ALIAS, 1)])
    other = await Peer.connect(port, 5)
    other.send(publish(5, "", properties_=[(TOPIC_ALIAS, 1)]))
    await other.closed(PROTOCOL_ERROR)
    await peer.leave()
    peer = await Peer.connect(port, 5, peer.client, kept=kept)
    peer.send(publish(5, "", properties_=[(TOPIC_ALIAS, 1)]))
    await peer.closed(PROTOCOL_ERROR)


async def test_the_alias_of_a_publisher_is_not_passed_on(port: int) -> None:
    """Neither as an alias nor as a message without a topic, to whoever has no room for aliases.  [MQTT-3.1.2-27]"""
    topic = fresh()
    publisher = await Peer.connect(port, 5)
    peers = [await Peer.connect(port, version, kept=kept) for version in (4, 5) for kept in (False, True)]
    for peer in peers:
        await peer.subscribe((topic, 1))
    await publisher.publish(topic, properties=[(TOPIC_ALIAS, 1), (RESPONSE_TOPIC, "r")])
    await publisher.publish("", properties=[(TOPIC_ALIAS, 1)])
    for peer in peers:
        for came in await peer.take_all(2):
            assert came.topic == topic and came.get(TOPIC_ALIAS) is None


# ---------------------------------------------------------------------------------------------- from the server
@KEPT
@pytest.mark.parametrize("most", [None, 0, 1, 3])
async def test_the_server_uses_no_alias_above_what_the_client_allows(port: int, kept: bool, most: int | None) -> None:
    """An alias it uses stands for what it was given on this connection.

    [MQTT-3.1.2-26, -27] [MQTT-3.3.2-7] [MQTT-3.3.2-8] [MQTT-3.3.2-11]
    """
    root = fresh()
    publisher = await Peer.connect(port, 5)
    allowed = [] if most is None else [(ALIAS_MAXIMUM, most)]
    peer = await Peer.connect(port, 5, kept=kept, properties=allowed)
    for _ in range(2):
        await peer.subscribe((f"{root}/#", 1))
        wanted = [f"{root}/{index % 5}" for index in range(10)]
        for topic in wanted:
            await publisher.publish(topic)
        known: dict[int, str] = {}
        found = []
        for came in await peer.take_all(10):
            alias = came.get(TOPIC_ALIAS)
            if alias is None:
                found.append(came.topic)
                continue
            assert isinstance(alias, int) and 0 < alias <= (most or 0)
            if came.topic:
                known[alias] = came.topic
            found.append(known[alias])
        assert found == wanted
        await peer.leave()
        peer = await Peer.connect(port, 5, peer.client, kept=kept, properties=allowed)
