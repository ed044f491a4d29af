"""Subscriptions while messages are in flight, between real sockets: QoS up and down, options, unsubscribe and subscribe again,
overlap, generations that roll.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actors.hand import AS_PUBLISHED, IF_NEW, NO_LOCAL, NO_RETAINED, Hand
from tests.actors.meeting import VERSIONS, nothing_else, publisher, resumed
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.broker.wire import Version

pytestmark = [pytest.mark.slow]


@pytest.fixture(params=["spread", "compact"])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OneLoop]:
    async with OneLoop(tmp_path, n_shards=2, n_gateways=1, compact=request.param == "compact") as running:
        yield running


# ---------------------------------------------------------------------------------------------- QoS up and down


@VERSIONS
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("again", ["same connection", "reconnect", "session actor killed"])
async def test_qos_changes_while_qos_2_messages_are_in_flight(broker: OneLoop, version: Version, granted: int, again: str) -> None:
    """One between PUBLISH and PUBREC, one after PUBREC: both end as QoS 2; what comes later has the new QoS."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t/#", 2)
    await publishing.published("t/1", "a", "b", qos=2)
    a, b = await hand.messages(2)
    hand.acknowledge(wire.PUBREC, b.packet_id)
    assert await hand.answer(wire.PUBREL, b.packet_id) == 0
    await hand.subscribe("t/#", granted | (NO_RETAINED if version == 5 else 0))
    await publishing.published("t/1", "c", qos=2)
    c = await hand.message()
    assert (c.payload, c.qos, c.dup) == ("c", granted, False)
    if again != "same connection":
        hand.drop()
        if again == "session actor killed":
            await broker.ranges_committed()
            await broker.kill_session()
        hand = await resumed(broker, version)
        assert await hand.answer(wire.PUBREL, b.packet_id) == 0
        again_a = await hand.message()
        assert (again_a.payload, again_a.qos, again_a.packet_id, again_a.dup) == ("a", 2, a.packet_id, True)
        if granted:
            again_c = await hand.message()
            assert (again_c.payload, again_c.qos, again_c.packet_id, again_c.dup) == ("c", granted, c.packet_id, True)
    hand.acknowledge(wire.PUBCOMP, b.packet_id)
    await hand.complete(a, c)
    await nothing_else(broker, "t/1", hand)
    await hand.close()
    hand = await resumed(broker, version)
    await nothing_else(broker, "t/1", hand)


@VERSIONS
async def test_no_message_is_missed_or_doubled_while_qos_goes_up_and_down(broker: OneLoop, version: Version) -> None:
    """Messages flow at QoS 2 all the time, and the subscription changes under them [MQTT-3.8.4-4].

    To QoS 0 and from it, too: while connected a change to QoS 0 leaves the subscription in the store.
    """
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t", 2)
    stop = False

    async def publish() -> int:
        number = 0
        while not stop:
            await publishing.published("t", str(number), qos=2)
            number += 1
        return number

    publishing_on = asyncio.create_task(publish())
    got: list[str] = []
    waiting: list[int] = []

    async def until_subscribed(packet_id: int) -> None:
        while True:
            packet = await hand.packet()
            if packet.kind == wire.PUBLISH:
                read = wire.read_publish(version, packet.flags, packet.body)
                got.append(read.payload.decode())
                if read.qos == 1:
                    hand.acknowledge(wire.PUBACK, read.packet_id)
                elif read.qos == 2:
                    hand.acknowledge(wire.PUBREC, read.packet_id)
            elif packet.kind == wire.PUBREL:
                hand.acknowledge(wire.PUBCOMP, wire.read_answer(packet.body)[0])
            elif packet.kind == wire.SUBACK:
                found, codes = wire.read_suback(version, packet.body)
                assert found == packet_id and codes[0] < 3
                return

    for n in range(40):
        await asyncio.sleep(0.005)
        await until_subscribed(hand.ask("t", (0, 2, 1, 0, 1, 2)[n % 6]))
    stop = True
    count = await publishing_on
    await publishing.published("end", "x", qos=0)
    await until_subscribed(hand.ask("u", 1))
    await publishing.published("t", "last", qos=2)
    while "last" not in got:
        waiting.append(len(got))
        await until_subscribed(hand.ask("u", 1))
    assert got == [*map(str, range(count)), "last"]


@VERSIONS
async def test_what_waits_in_the_store_survives_a_change_to_qos_0(tmp_path: Path, version: Version) -> None:
    """The window is full of QoS 1 messages; the rest comes at QoS 0, each once, in the order of its QoS.  At the next connection
    the subscription is live only: what was published meanwhile does not come."""
    async with OneLoop(tmp_path, sets=("mqtt.max_inflight=10",)) as broker:
        publishing = await publisher(broker)
        hand = await Hand.connect(broker.port, "s", version)
        await hand.subscribe("t", 1)
        await hand.close()
        await publishing.published("t", *map(str, range(300)))
        hand = await resumed(broker, version)
        got = await hand.messages(10)
        await hand.subscribe("t", 0)
        await hand.complete_all(*got)
        while len(got) < 300:
            got.append(await hand.taken())
        by_qos = [[int(message.payload) for message in got if message.qos == qos] for qos in (0, 1)]
        assert by_qos == [sorted(by_qos[0]), sorted(by_qos[1])] and sorted(by_qos[0] + by_qos[1]) == list(range(300))
        assert by_qos[0]
        await publishing.published("t", "live", qos=1)
        live = await hand.message()
        assert (live.payload, live.qos) == ("live", 0)
        await hand.close()
        await publishing.published("t", "while away", qos=1)
        hand = await resumed(broker, version)
        await publishing.published("t", "live again", qos=2)
        assert (await hand.message()).payload == "live again"
        await hand.subscribe("t", 1)
        await nothing_else(broker, "t", hand)


# ---------------------------------------------------------------------------------------------- options and identifiers


async def test_options_hold_from_the_suback_on_and_ranges_keep_theirs(broker: OneLoop) -> None:
    """Identifier, no local and retain as published change in place; what was sent before comes again as it was."""
    hand = await Hand.connect(broker.port, "s", 5)
    await hand.subscribe("t", 1, identifier=7)
    other = await publisher(broker)
    await other.published("t", "a", retain=True)
    a = await hand.message()
    assert (a.identifiers, a.retain) == ((7,), False)
    await hand.subscribe("t", 1 | NO_LOCAL | AS_PUBLISHED | NO_RETAINED, identifier=8)
    await hand.published("t", "own")
    await other.published("t", "b", retain=True)
    b = await hand.message()
    assert (b.payload, b.identifiers, b.retain) == ("b", (8,), True)
    await hand.subscribe("t", 1 | NO_RETAINED)
    await hand.published("t", "own again")
    c = await hand.message()
    assert (c.payload, c.identifiers, c.retain) == ("own again", (), False)
    hand.drop()
    hand = await resumed(broker, 5)
    again = await hand.messages(3)
    assert [(got.payload, got.identifiers, got.retain, got.dup) for got in again] == [
        ("a", (7,), False, True),
        ("b", (8,), True, True),
        ("own again", (), False, True),
    ]
    await hand.complete(*again)
    await nothing_else(broker, "t", hand)


async def test_retain_handling_of_a_durable_session(broker: OneLoop) -> None:
    """0: at every SUBSCRIBE; 1: only when there was no such subscription, whatever its QoS was; 2: never."""
    other = await publisher(broker)
    await other.published("t", "kept", retain=True)
    hand = await Hand.connect(broker.port, "s", 5)
    for options, comes in (
        (1 | NO_RETAINED, False), (1, True), (1 | IF_NEW, False), (2, True), (0 | IF_NEW, False), (0, True), (1 | IF_NEW, False),
    ):  # fmt: skip
        await hand.subscribe("t", options, identifier=3)
        if comes:
            got = await hand.message()
            assert (got.payload, got.retain, got.qos, got.identifiers) == ("kept", True, min(1, options & 3), (3,))
            await hand.complete(got)
    await hand.unsubscribe("t")
    await hand.subscribe("t", 1 | IF_NEW)
    got = await hand.message()
    assert (got.payload, got.retain) == ("kept", True)
    await hand.complete(got)
    await nothing_else(broker, "t", hand)


# ---------------------------------------------------------------------------------------------- overlap


@VERSIONS
@pytest.mark.parametrize("how", ["live", "stored", "retained"])
async def test_overlapping_subscriptions_bring_one_copy_each(broker: OneLoop, version: Version, how: str) -> None:
    """Each at the QoS and with the identifier of its own subscription, however the message comes [MQTT-3.3.4-2]."""
    other = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    if how == "retained":
        await other.published("t/1", "m", qos=2, retain=True)
        got = []
        for qos, topic_filter in enumerate(("t/1", "t/+", "t/#")):
            await hand.subscribe(topic_filter, qos, identifier=10 + qos)
            got.append(await hand.message())
    else:
        for qos, topic_filter in enumerate(("t/1", "t/+", "t/#")):
            await hand.subscribe(topic_filter, qos, identifier=10 + qos)
        if how == "stored":
            await hand.close()
        await other.published("t/1", "m", qos=2)
        if how == "stored":
            hand = await resumed(broker, version)
        got = await hand.messages(2 if how == "stored" else 3)
    assert sorted((message.qos, message.identifiers) for message in got) == [
        (qos, (10 + qos,) if version == 5 else ()) for qos in ((1, 2) if how == "stored" else (0, 1, 2))
    ]
    assert len({message.packet_id for message in got}) == len(got)
    await hand.complete(*got)
    await other.published("t/1", "at QoS 0", qos=0)
    again = await hand.messages(3)
    assert sorted((message.payload, message.qos, message.identifiers) for message in again) == [
        ("at QoS 0", 0, (10 + n,) if version == 5 else ()) for n in range(3)
    ]
    await hand.alive()


# ---------------------------------------------------------------------------------------------- unsubscribe, subscribe again


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("again", ["same connection", "reconnect", "session actor killed"])
async def test_what_was_in_flight_at_unsubscribe_completes_and_a_new_subscription_begins_anew(
    broker: OneLoop, version: Version, qos: int, again: str
) -> None:
    """[MQTT-3.10.4-3]; between UNSUBACK and SUBACK nothing is owed, and from SUBACK on everything."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t", qos)
    await publishing.published("t", "a", "b", qos=qos)
    first = await hand.messages(2)
    if qos == 2:
        hand.acknowledge(wire.PUBREC, first[0].packet_id)
        assert await hand.answer(wire.PUBREL, first[0].packet_id) == 0
    await hand.unsubscribe("t")
    await publishing.published("t", "unheard", qos=qos)
    await hand.subscribe("t", qos)
    await publishing.published("t", "c", qos=qos)
    c = await hand.message()
    assert (c.payload, c.dup) == ("c", False) and c.packet_id not in {message.packet_id for message in first}
    if again != "same connection":
        hand.drop()
        if again == "session actor killed":
            await broker.ranges_committed()
            await broker.kill_session()
        hand = await resumed(broker, version)
        if qos == 2:
            assert await hand.answer(wire.PUBREL, first[0].packet_id) == 0
        expected = [*first[qos - 1 :], c]
        repeated = await hand.messages(len(expected))
        assert [(m.payload, m.packet_id, m.qos) for m in repeated] == [(m.payload, m.packet_id, m.qos) for m in expected]
        assert all(message.dup for message in repeated)
    if qos == 2:
        hand.acknowledge(wire.PUBCOMP, first[0].packet_id)
    await hand.complete(*first[qos - 1 :], c)
    await nothing_else(broker, "t", hand)
    await hand.close()
    await nothing_else(broker, "t", await resumed(broker, version))


# ---------------------------------------------------------------------------------------------- generations


@VERSIONS
@pytest.mark.parametrize("killed", [False, True], ids=["reconnect", "session actor killed"])
async def test_three_generations_roll_while_a_session_is_away(tmp_path: Path, version: Version, killed: bool) -> None:
    """Unacknowledged QoS 1 and 2 messages of the oldest, a backlog over all of them: first what was sent, then the rest, in order."""
    hour = 3_600_000
    async with OneLoop(tmp_path, sets=("durable_storage.messages.generation_length=1h", "mqtt.max_inflight=6")) as broker:
        publishing = await publisher(broker)
        hand = await Hand.connect(broker.port, "s", version, expiry_s=0xFFFFFFFE)
        await hand.subscribe("t/1/#", 1)
        await hand.subscribe("t/2/#", 2)

        async def publish(generation: int) -> None:
            for n in range(4):
                for topic in ("t/1/x", "t/2/x", f"t/1/{generation}", f"t/2/{generation}"):
                    await publishing.published(topic, f"{topic} {generation}.{n}", qos=2)

        await publish(0)
        first = await hand.messages(6)
        received = next(got for got in first if got.qos == 2)
        hand.acknowledge(wire.PUBREC, received.packet_id)
        assert await hand.answer(wire.PUBREL, received.packet_id) == 0
        hand.drop()
        for generation in (1, 2, 3):
            await broker.pass_time(hour)
            await publish(generation)
        if killed:
            await broker.ranges_committed()
            await broker.kill_session()
        hand = await resumed(broker, version)
        assert await hand.answer(wire.PUBREL, received.packet_id) == 0
        unfinished = [got for got in first if got is not received]
        again = await hand.messages(5)
        assert [(got.payload, got.packet_id, got.qos, got.dup) for got in again] == [
            (got.payload, got.packet_id, got.qos, True) for got in unfinished
        ]
        hand.acknowledge(wire.PUBCOMP, received.packet_id)
        await hand.complete_all(*again)
        got = {message.payload: message for message in first}
        while len(got) < 64:
            message = await hand.taken()
            assert message.payload not in got and not message.dup
            got[message.payload] = message
        for topic in ("t/1/x", "t/2/x"):
            order = [payload for payload in got if payload.startswith(topic)]
            assert order == [f"{topic} {generation}.{n}" for generation in range(4) for n in range(4)]
        await nothing_else(broker, "t/1/x", hand)


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
async def test_generations_roll_under_a_session_that_is_connected(tmp_path: Path, version: Version, qos: int) -> None:
    """With a full window and a backlog behind it, and with everything acknowledged: each message once, in order."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.generation_length=1h", "mqtt.max_inflight=5")) as broker:
        publishing = await publisher(broker)
        hand = await Hand.connect(broker.port, "s", version, expiry_s=0xFFFFFFFE)
        await hand.subscribe("t/#", qos)
        got = []
        for generation in range(4):
            await publishing.published("t/1", *[f"{generation}.{n}" for n in range(30)], qos=qos)
            if generation % 2:
                got += [await hand.taken() for _ in range(60)]
            await broker.pass_time(3_600_000)
        assert [message.payload for message in got] == [f"{generation}.{n}" for generation in range(4) for n in range(30)]
        assert not any(message.dup for message in got)
        await nothing_else(broker, "t/1", hand)
