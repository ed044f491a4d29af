"""Acknowledgements of subscribers, between real sockets: in any order, of the wrong kind, for nothing, refused, and lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actors.hand import Hand
from tests.actors.meeting import VERSIONS, nothing_else, publisher, resumed
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.broker.wire import Version

pytestmark = [pytest.mark.slow]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[OneLoop]:
    async with OneLoop(tmp_path, n_shards=2, n_gateways=1) as running:
        yield running


@VERSIONS
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "ephemeral"])
@pytest.mark.parametrize(("qos", "wrong"), [(2, wire.PUBACK), (1, wire.PUBREC), (1, wire.PUBCOMP), (2, wire.PUBCOMP)])
async def test_an_acknowledgement_of_the_wrong_kind_ends_the_connection(
    broker: OneLoop, version: Version, durable: bool, qos: int, wrong: int
) -> None:
    """0x82 in MQTT 5; 3.1.1 has no words for it.  The message is still owed to a session that goes on."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version, clean=not durable, expiry_s=3600 if durable else 0)
    await hand.subscribe("t", qos)
    await publishing.published("t", "a", qos=qos)
    a = await hand.message()
    hand.acknowledge(wrong, a.packet_id)
    assert await hand.ended() == ("DISCONNECT 0x82" if version == 5 else "closed")
    if durable:
        hand = await resumed(broker, version)
        again = await hand.message()
        assert (again.payload, again.packet_id, again.qos, again.dup) == ("a", a.packet_id, qos, True)
        await hand.complete(again)
        await nothing_else(broker, "t", hand)


@VERSIONS
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "ephemeral"])
async def test_acknowledgements_of_unknown_ids_are_answered_as_the_specification_says(
    broker: OneLoop, version: Version, durable: bool
) -> None:
    """PUBREC by PUBREL and PUBREL by PUBCOMP, with 0x92 in MQTT 5; PUBACK and PUBCOMP by nothing."""
    reason = 0x92 if version == 5 else 0
    hand = await Hand.connect(broker.port, "s", version, clean=not durable, expiry_s=3600 if durable else 0)
    await hand.subscribe("t", 2)
    for packet_id in (1, 9, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        for kind in (wire.PUBACK, wire.PUBCOMP):
            hand.acknowledge(kind, packet_id)
        hand.acknowledge(wire.PUBREC, packet_id)
        assert await hand.answer(wire.PUBREL, packet_id) == reason
        hand.acknowledge(wire.PUBREL, packet_id)
        assert await hand.answer(wire.PUBCOMP, packet_id) == reason
    other = await publisher(broker)
    await other.published("t", "a", qos=2)
    a = await hand.message()
    hand.acknowledge(wire.PUBREC, a.packet_id)
    assert await hand.answer(wire.PUBREL, a.packet_id) == 0
    hand.acknowledge(wire.PUBREC, a.packet_id)
    assert await hand.answer(wire.PUBREL, a.packet_id) == 0
    hand.acknowledge(wire.PUBCOMP, a.packet_id)
    hand.acknowledge(wire.PUBREC, a.packet_id)
    assert await hand.answer(wire.PUBREL, a.packet_id) == reason
    await nothing_else(broker, "t", hand)


@pytest.mark.parametrize("reason", [0x80, 0x91, 0x97])
async def test_a_refused_qos_2_message_is_over(broker: OneLoop, reason: int) -> None:
    """Its PUBREC makes room in the window, no PUBREL follows, and it never comes again; 0x10 is no refusal."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", 5, receive_max=2)
    await hand.subscribe("t", 2)
    await publishing.published("t", "a", "b", "c", "d", qos=2)
    a, b = await hand.messages(2)
    hand.acknowledge(wire.PUBREC, b.packet_id, reason)
    c = await hand.message()
    assert c.payload == "c"
    hand.acknowledge(wire.PUBREC, c.packet_id, 0x10)
    assert await hand.answer(wire.PUBREL, c.packet_id) == 0
    hand.drop()
    hand = await resumed(broker, 5)
    assert await hand.answer(wire.PUBREL, c.packet_id) == 0
    again, d = await hand.messages(2)
    assert (again.payload, again.dup, d.payload) == ("a", True, "d")
    hand.acknowledge(wire.PUBCOMP, c.packet_id)
    await hand.complete(a, d)
    await nothing_else(broker, "t", hand)


@VERSIONS
async def test_qos_1_acknowledged_out_of_order_is_committed_up_to_the_gap(broker: OneLoop, version: Version) -> None:
    """A crash of the session actor repeats with DUP what is behind the gap, and loses nothing."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t", 1)
    await publishing.published("t", *"abcdef")
    first = await hand.messages(6)
    for at in (5, 1, 0, 3):
        hand.acknowledge(wire.PUBACK, first[at].packet_id)
    await hand.close()
    await broker.forgotten("s")
    await broker.kill_session()
    hand = await resumed(broker, version)
    again = await hand.messages(4)
    assert [(got.payload, got.packet_id, got.dup) for got in again] == [(got.payload, got.packet_id, True) for got in first[2:]], (
        "the contiguous prefix is committed, the rest comes again"
    )
    await hand.complete(*reversed(again))
    await nothing_else(broker, "t", hand)


@VERSIONS
@pytest.mark.parametrize("qos", [1, 2])
async def test_a_crash_right_after_acknowledgements_repeats_and_loses_nothing(broker: OneLoop, version: Version, qos: int) -> None:
    """Acknowledgements may be lost with the session actor: QoS 1 comes again with DUP and its id, QoS 2 goes on where it was."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t", qos)
    await publishing.published("t", *"abcd", qos=qos)
    first = await hand.messages(4)
    await broker.ranges_committed()
    await hand.complete(first[2], first[0])
    await broker.kill_session()
    assert await hand.ended() in ("closed", "DISCONNECT 0x8b")
    hand = await resumed(broker, version)
    owed = first
    if qos == 2:
        # That the third was completed is in the commit of the first's PUBREC; that the first was, in none.
        assert await hand.answer(wire.PUBREL, first[0].packet_id) == 0
        hand.acknowledge(wire.PUBCOMP, first[0].packet_id)
        owed = [first[1], first[3]]
    again = await hand.messages(len(owed))
    assert [(got.payload, got.packet_id, got.dup) for got in again] == [(got.payload, got.packet_id, True) for got in owed]
    await hand.complete_all(*again)
    await nothing_else(broker, "t", hand)


@VERSIONS
async def test_an_acknowledgement_in_the_same_process_is_not_asked_for_again(broker: OneLoop, version: Version) -> None:
    """Out of order too: as long as the session is in memory, which is until all is committed that somebody who left has left to commit."""
    publishing = await publisher(broker)
    hand = await Hand.connect(broker.port, "s", version)
    await hand.subscribe("t", 1)
    counters = broker.sessions[0].core.counters
    for _ in range(20):
        await publishing.published("t", *"abc")
        a, b, c = await hand.messages(3)
        hand.acknowledge(wire.PUBACK, c.packet_id)
        before = counters.resumed_in_ram
        hand = await resumed(broker, version)
        if counters.resumed_in_ram > before:
            break
        # The machine made a pause, and nobody was left who could remember.
        await hand.complete(*await hand.messages(3))
    else:
        pytest.fail("a session was never resumed in memory")
    again = await hand.messages(2)
    assert [(got.payload, got.packet_id, got.dup) for got in again] == [("a", a.packet_id, True), ("b", b.packet_id, True)]
    await hand.complete(*again)
    await nothing_else(broker, "t", hand)
