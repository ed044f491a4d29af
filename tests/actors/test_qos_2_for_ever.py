"""QoS 2 from publishers, between real sockets: an id is taken until PUBREL, whatever happens to connections and processes.

A message is repeated with and without DUP; every repeat is answered, and every subscriber has it once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.broker.wire import Version

pytestmark = [pytest.mark.slow]
VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["v3.1.1", "v5"])
REPEATS = 5
YEAR_MS = 365 * 86_400_000


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[OneLoop]:
    sets = ("mqtt.session_expiry_interval=3650d", "durable_sessions.message_retention_period=3650d")
    async with OneLoop(tmp_path, n_shards=2, n_gateways=2, sets=sets) as running:
        yield running


def ports(broker: OneLoop) -> list[int]:
    """The port of each gateway alone."""
    started = [gateway._started for gateway in broker.gateways]
    return [info.port for each in started if each is not None for info in each.listeners if not info.shared]


class Listening:
    """A durable subscriber at QoS 2 and an ephemeral one at each gateway; what they have got."""

    def __init__(self, hands: list[Hand]) -> None:
        self._hands = hands

    @classmethod
    async def to(cls, broker: OneLoop, topic: str) -> Listening:
        hands = [await Hand.connect(port, f"live-{port}", 5, clean=True, expiry_s=0) for port in ports(broker)]
        hands.append(await Hand.connect(broker.port, "durable", 4))
        for hand in hands:
            await hand.subscribe(topic, 2)
        return cls(hands)

    async def got(self, *payloads: str) -> None:
        """Exactly these come to each, and never with DUP [MQTT-3.3.1-3]."""
        for hand in self._hands:
            messages = await hand.messages(len(payloads))
            assert [(message.payload, message.qos, message.dup) for message in messages] == [(payload, 2, False) for payload in payloads]
            await hand.complete_all(*messages)
            await hand.alive()


async def repeated(hand: Hand, topic: str, payload: str, packet_id: int, *, dup: bool) -> None:
    hand.publish(topic, payload, 2, packet_id, dup=dup)
    assert await hand.answer(wire.PUBREC, packet_id) == 0


async def released(hand: Hand, packet_id: int, reason: int = 0) -> None:
    hand.acknowledge(wire.PUBREL, packet_id)
    assert await hand.answer(wire.PUBCOMP, packet_id) == (reason if hand.version == 5 else 0)


@VERSIONS
@pytest.mark.parametrize("between", ["nothing", "reconnect", "other gateway", "shard restarted", "session actor killed", "a year"])
async def test_a_message_that_is_repeated_is_delivered_once(broker: OneLoop, version: Version, between: str) -> None:
    """Known by its id, never by the DUP flag [MQTT-4.3.3-10]; after PUBCOMP the id is that of a new message, with DUP too."""
    listening = await Listening.to(broker, "t")
    at = 0
    hand = await Hand.connect(ports(broker)[at], "p", version)
    await repeated(hand, "t", "once", 7, dup=False)
    for number in range(REPEATS if between in ("nothing", "reconnect", "other gateway") else 2):
        match between:
            case "shard restarted":
                for shard in range(2):
                    await broker.restart_shard(shard)
            case "session actor killed":
                # Connections of durable sessions end with it.
                await broker.kill_session()
            case "a year":
                await broker.pass_time(YEAR_MS)
        if between != "nothing":
            hand.drop()
            at = 1 - at if between == "other gateway" else at
            hand = await Hand.connect(ports(broker)[at], "p", version, expiry_s=0xFFFFFFFE)
            assert hand.present
        await repeated(hand, "t", "once", 7, dup=bool(number & 1))
    await released(hand, 7)
    if between == "session actor killed":
        durable = await Hand.connect(broker.port, "durable", 4)
        (message,) = await durable.messages(1)
        assert message.payload == "once"
        return
    await repeated(hand, "t", "a new one", 7, dup=True)
    await repeated(hand, "t", "a new one", 7, dup=False)
    await released(hand, 7)
    await listening.got("once", "a new one")
    await hand.published("t", "the end", qos=2)
    await listening.got("the end")


@VERSIONS
async def test_repeats_in_one_write_are_each_answered(broker: OneLoop, version: Version) -> None:
    """Before the first PUBREC is out, too: the shard sees them one after the other."""
    listening = await Listening.to(broker, "t")
    hand = await Hand.connect(broker.port, "p", version)
    for number in range(REPEATS):
        hand.publish("t", "once", 2, 9, dup=number > 0)
    for _ in range(REPEATS):
        assert await hand.answer(wire.PUBREC, 9) == 0
    await released(hand, 9)
    await listening.got("once")


@VERSIONS
async def test_repeats_within_an_ephemeral_session(broker: OneLoop, version: Version) -> None:
    """Its ids end with the connection: the same id on the next one is a new message."""
    listening = await Listening.to(broker, "t")
    for payload in ("first", "second"):
        hand = await Hand.connect(broker.port, "p", version, clean=True, expiry_s=0)
        for number in range(REPEATS):
            await repeated(hand, "t", payload, 3, dup=bool(number & 1))
        if payload == "second":
            await released(hand, 3)
            await released(hand, 3, 0x92)
        hand.drop()
    await listening.got("first", "second")


@VERSIONS
async def test_pubrel_may_be_repeated(broker: OneLoop, version: Version) -> None:
    """On the same connection, the next one and another gateway: always answered, with 0x92 once the id is free."""
    listening = await Listening.to(broker, "t")
    first, second = ports(broker)
    hand = await Hand.connect(first, "p", version)
    await repeated(hand, "t", "once", 7, dup=False)
    await released(hand, 7)
    await released(hand, 7, 0x92)
    hand.drop()
    hand = await Hand.connect(second, "p", version)
    await released(hand, 7, 0x92)
    await repeated(hand, "t", "again", 7, dup=True)
    hand.drop()
    hand = await Hand.connect(first, "p", version)
    await released(hand, 7)
    await listening.got("once", "again")


@VERSIONS
async def test_an_id_is_taken_although_nobody_wanted_its_message(broker: OneLoop, version: Version) -> None:
    """Who subscribes after PUBREC is owed nothing by a repeat."""
    hand = await Hand.connect(broker.port, "p", version)
    hand.publish("t", "unheard", 2, 7)
    assert await hand.answer(wire.PUBREC, 7) == (0x10 if version == 5 else 0)
    listening = await Listening.to(broker, "t")
    await repeated(hand, "t", "unheard", 7, dup=True)
    await released(hand, 7)
    await repeated(hand, "t", "heard", 7, dup=True)
    await released(hand, 7)
    await listening.got("heard")


@VERSIONS
async def test_the_ids_of_a_session_end_with_it(broker: OneLoop, version: Version) -> None:
    """Clean start: what was under way is forgotten on both sides, and its id is free."""
    listening = await Listening.to(broker, "t")
    hand = await Hand.connect(broker.port, "p", version)
    await repeated(hand, "t", "before", 7, dup=False)
    hand.drop()
    hand = await Hand.connect(broker.port, "p", version, clean=True)
    assert not hand.present
    await repeated(hand, "t", "after", 7, dup=True)
    await released(hand, 7)
    await listening.got("before", "after")


@VERSIONS
async def test_where_a_timeout_is_configured_an_id_is_free_after_it(tmp_path: Path, version: Version) -> None:
    """mqtt.await_rel_timeout: the repeat of a message that waited longer is a new message, over a reconnect too."""
    async with OneLoop(tmp_path, sets=("mqtt.await_rel_timeout=1h", "durable_storage.messages.generation_length=1h")) as broker:
        durable = await Hand.connect(broker.port, "durable", 5, expiry_s=0xFFFFFFFE)
        await durable.subscribe("t", 2)
        hand = await Hand.connect(broker.port, "p", version)
        await repeated(hand, "t", "twice", 7, dup=False)
        await repeated(hand, "t", "twice", 7, dup=True)
        hand.drop()
        await broker.pass_time(7_200_000)
        hand = await Hand.connect(broker.port, "p", version)
        await repeated(hand, "t", "twice", 7, dup=True)
        await released(hand, 7)
        assert [message.payload for message in await durable.messages(2)] == ["twice", "twice"]
        await durable.alive()


@VERSIONS
async def test_many_ids_wait_at_once_and_each_is_released_alone(broker: OneLoop, version: Version) -> None:
    """In any order, over a reconnect; those that were released are new, the others are not."""
    listening = await Listening.to(broker, "t")
    hand = await Hand.connect(broker.port, "p", version)
    ids = [1, 2, 300, 65535]
    for packet_id in ids:
        await repeated(hand, "t", f"m{packet_id}", packet_id, dup=False)
    await released(hand, 300)
    hand.drop()
    hand = await Hand.connect(broker.port, "p", version)
    for packet_id in ids:
        await repeated(hand, "t", f"m{packet_id}", packet_id, dup=True)
    for packet_id in reversed(ids):
        await released(hand, packet_id)
    await listening.got("m1", "m2", "m300", "m65535", "m300")
