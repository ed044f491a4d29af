"""Another broker as target: what counts as accepted, the window, reasons, properties, and marks."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from bridge.port import Batch, Misconfigured, Outcome, Refusal, Unavailable
from bridge.targets.flight import Flight
from bridge.targets.mqtt import MqttTarget
from bridge.targets.origins import IDENTITY, ORIGIN, ORIGINS_MAX, arrived, came_from, marked, passed, passed_store, peer_of, was_at
from config.bridge_kinds import Mqtt
from config.secrets import Secret
from mqtt.packets import Properties
from mqtt.reason import ReasonCode
from sessions.origins import STORE as STORE_WORD
from tests.bridge.batches import STORE, batch, context, message
from tests.bridge.brokers import HoldingBroker

Version = Literal["3.1.1", "5"]
VERSIONS = pytest.mark.parametrize("version", ["3.1.1", "5"])
PUBACK_S = 30.0


async def opened(broker: HoldingBroker, tmp_path: Path, version: Version, **more: Any) -> MqttTarget:
    target = MqttTarget(Mqtt(url=broker.url, version=version, **more), context(tmp_path))
    assert await target.open() is None
    return target


@VERSIONS
async def test_a_message_is_accepted_at_its_puback_and_not_before(version: Version, tmp_path: Path) -> None:
    """`deliver` ends with the last PUBACK; everything is written once, in order."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, version)
        delivering = asyncio.create_task(target.deliver(batch(range(1, 31))))
        await broker.holds(30)
        broker.answer(29)
        await asyncio.sleep(0.05)
        assert not delivering.done()
        broker.answer(1)
        assert await delivering == Outcome(30)
        assert [each.payload for each in broker.publishes] == [f"payload {number}".encode() for number in range(1, 31)]
        assert not any(each.dup for each in broker.publishes) and {each.qos for each in broker.publishes} == {1}
        await target.close()
        await asyncio.sleep(0.05)
        assert broker.disconnected


@pytest.mark.slow
async def test_a_puback_that_takes_longer_than_libraries_wait_is_waited_for(tmp_path: Path) -> None:
    """amqtt gives up after five seconds, and would send again, aiomqtt after ten; here, with 30 s, nothing is sent twice, and all count as
    accepted when they are."""

    async def delayed(version: Version) -> None:
        async with HoldingBroker() as broker:
            broker.delay_s = PUBACK_S
            target = await opened(broker, tmp_path, version)
            began = time.monotonic()
            assert await target.deliver(batch(range(1, 11))) == Outcome(10)
            assert time.monotonic() - began > PUBACK_S - 1
            assert len(broker.publishes) == 10 and len(broker.connects) == 1
            await target.close()

    async with asyncio.TaskGroup() as both:
        both.create_task(delayed("3.1.1"))
        both.create_task(delayed("5"))


@VERSIONS
async def test_no_more_than_the_window_is_under_way(version: Version, tmp_path: Path) -> None:
    """What goes out next waits for an answer."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, version, window=7)
        delivering = asyncio.create_task(target.deliver(batch(range(1, 21))))
        await broker.holds(7)
        await asyncio.sleep(0.05)
        assert len(broker.held) == 7
        broker.answer(3)
        await broker.holds(7)
        assert len(broker.publishes) == 10
        broker.delay_s = 0.0
        broker.answer(7)
        assert await delivering == Outcome(20)
        await target.close()


async def test_the_receive_maximum_of_the_broker_bounds_the_window(tmp_path: Path) -> None:
    """[MQTT-3.3.4-7]"""
    async with HoldingBroker(Properties(receive_maximum=3)) as broker:
        target = await opened(broker, tmp_path, "5")
        delivering = asyncio.create_task(target.deliver(batch(range(1, 9))))
        await broker.holds(3)
        await asyncio.sleep(0.05)
        assert len(broker.held) == 3
        broker.delay_s = 0.0
        broker.answer(3)
        assert await delivering == Outcome(8)
        await target.close()


@VERSIONS
async def test_what_was_acknowledged_before_the_broker_died_need_not_come_again(version: Version, tmp_path: Path) -> None:
    """The first of them are settled, in one piece; the next delivery says that the connection is gone."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, version)
        delivering = asyncio.create_task(target.deliver(batch(range(1, 11))))
        await broker.holds(10)
        broker.answer(4)
        await asyncio.sleep(0.05)
        broker.die()
        assert await delivering == Outcome(4)
        with pytest.raises(Unavailable):
            await target.deliver(batch(range(5, 11)))
        await target.close()


@VERSIONS
async def test_a_broker_that_dies_before_it_acknowledges_is_away(version: Version, tmp_path: Path) -> None:
    """Nothing is known of the batch."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, version)
        delivering = asyncio.create_task(target.deliver(batch(range(1, 11))))
        await broker.holds(10)
        broker.die()
        with pytest.raises(Unavailable):
            await delivering
        await target.close()


@pytest.mark.parametrize(
    ("reason", "refused"),
    [
        (ReasonCode.NOT_AUTHORIZED, True),
        (ReasonCode.TOPIC_NAME_INVALID, True),
        (ReasonCode.PAYLOAD_FORMAT_INVALID, True),
        (ReasonCode.QUOTA_EXCEEDED, False),
        (ReasonCode.UNSPECIFIED_ERROR, False),
    ],
)
async def test_the_reason_of_a_puback_says_whether_it_is_about_the_message(reason: ReasonCode, refused: bool, tmp_path: Path) -> None:
    """One that is settles it, others stop the batch there: aiomqtt alone takes any PUBACK for acceptance."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, "5")
        delivering = asyncio.create_task(target.deliver(batch(range(1, 4))))
        await broker.holds(3)
        broker.answer(1)
        broker.answer(1, reason)
        broker.answer(1)
        outcome = await delivering
        if refused:
            assert outcome.done == 3 and [each.index for each in outcome.refused] == [1]
            assert f"0x{reason:02x}" in outcome.refused[0].reason
        else:
            assert outcome == Outcome(1)
            with pytest.raises(Unavailable, match=f"0x{reason:02x}"):
                await target.deliver(batch([2, 3]))
        await target.close()


async def test_no_matching_subscribers_is_acceptance(tmp_path: Path) -> None:
    """0x10 is less than 0x80: the broker has taken it."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, "5")
        delivering = asyncio.create_task(target.deliver(batch([1])))
        await broker.holds(1)
        broker.answer(1, ReasonCode.NO_MATCHING_SUBSCRIBERS)
        assert await delivering == Outcome(1)
        await target.close()


async def test_properties_of_a_message_go_with_it(tmp_path: Path) -> None:
    """All of MQTT 5, and beside them what the message is and where it has been."""
    async with HoldingBroker() as broker:
        broker.delay_s = 0.0
        target = await opened(broker, tmp_path, "5")
        sent = message(
            1,
            retain=True,
            user_properties=(("a", "1"), ("a", "2")),
            content_type="text/plain",
            response_topic="answers",
            correlation_data=b"\0\1",
            payload_is_text=True,
            expires_at_ms=time.time_ns() // 1_000_000 + 100_500,
        )
        assert await target.deliver(Batch("made-1", (sent,))) == Outcome(1)
        await target.close()
        got = broker.publishes[0]
        said = got.properties
        assert got.retain and (said.content_type, said.response_topic, said.correlation_data) == ("text/plain", "answers", b"\0\1")
        assert said.payload_format_indicator == 1 and said.message_expiry_interval in (99, 100)
        assert said.user_properties == (("a", "1"), ("a", "2"), (IDENTITY, f"{STORE}/2/1000001"), (ORIGIN, f"{STORE}/to-there"))


@VERSIONS
async def test_what_has_expired_meanwhile_is_settled_and_not_sent(version: Version, tmp_path: Path) -> None:
    """Nobody may be given it any more, so it is no dead letter either."""
    async with HoldingBroker() as broker:
        broker.delay_s = 0.0
        target = await opened(broker, tmp_path, version)
        assert await target.deliver(Batch("made-1", (message(1, expires_at_ms=1), message(2)))) == Outcome(2)
        assert [each.payload for each in broker.publishes] == [b"payload 2"]
        await target.close()


@VERSIONS
async def test_a_packet_that_is_too_large_is_refused_and_not_sent(version: Version, tmp_path: Path) -> None:
    """A broker would close the connection at it, for ever."""
    async with HoldingBroker(Properties(maximum_packet_size=2000)) as broker:
        broker.delay_s = 0.0
        target = await opened(broker, tmp_path, version, packet_bytes_max=2000)
        outcome = await target.deliver(Batch("made-1", (message(1, payload=b"x" * 2000), message(2))))
        assert outcome.done == 2 and [each.index for each in outcome.refused] == [0]
        assert len(broker.publishes) == 1
        await target.close()


@VERSIONS
@pytest.mark.parametrize(
    ("code", "kind"), [(ReasonCode.BAD_USER_NAME_OR_PASSWORD, Misconfigured), (ReasonCode.SERVER_UNAVAILABLE, Unavailable)]
)
async def test_a_refused_connection_says_whether_somebody_has_to_do_something(
    version: Version, code: ReasonCode, kind: type[Exception], tmp_path: Path
) -> None:
    """A wrong password stays wrong, a server that is busy does not."""
    async with HoldingBroker(code=code) as broker:
        target = MqttTarget(Mqtt(url=broker.url, version=version, user="u", password=Secret("env:P")), context(tmp_path, P=b"secret"))
        with pytest.raises(kind):
            await target.open()
        await target.close()
        assert (broker.connects[0].username, broker.connects[0].password) == ("u", b"secret")


@pytest.mark.slow
@VERSIONS
async def test_a_broker_that_does_not_answer_pings_is_away(version: Version, tmp_path: Path) -> None:
    """Nothing else ends a connection whose other side has vanished."""
    async with HoldingBroker() as broker:
        broker.answers_pings = False
        target = await opened(broker, tmp_path, version, keep_alive="5s")
        delivering = asyncio.create_task(target.deliver(batch([1])))
        with pytest.raises(Unavailable):
            await asyncio.wait_for(delivering, 40)
        await target.close()


async def test_opening_that_is_cancelled_leaves_no_connection(tmp_path: Path) -> None:
    """aiomqtt connects in a thread, which nobody can cancel."""
    async with HoldingBroker() as broker:
        for version in ("3.1.1", "5"):
            target = MqttTarget(Mqtt(url=broker.url, version=version), context(tmp_path))
            opening = asyncio.create_task(target.open())
            await asyncio.sleep(0.001)
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await target.close()
        for _ in range(100):
            if not broker._tasks:
                break
            await asyncio.sleep(0.02)
        assert not broker._tasks


def test_a_mark_is_put_behind_those_before_and_the_first_identity_stays() -> None:
    """So the way of a message can be read, and a receiver knows it by the store that had it first."""
    first = marked([("a", "1")], "s1/b1", "s1/2/3")
    second = marked(first, "s2/b2", "s2/4/5")
    assert second == [("a", "1"), (IDENTITY, "s1/2/3"), (ORIGIN, "s1/b1,s2/b2")]
    assert passed(second) == ("s1/b1", "s2/b2")
    assert passed_store(second, "s1") and passed_store(second, "s2") and not passed_store(second, "s3")


def test_marks_say_where_a_message_was_and_by_which_broker_it_came() -> None:
    """Carried out, brought in, brought from: by the id of a store, or by the address of a broker that says none."""
    here, there = "a" * 16, peer_of("mqtt://There:1883")
    assert there == peer_of("mqtt://there") != peer_of("mqtt://there:1884") and peer_of("no address") == ""
    carried = marked([("k", "v")], f"{here}/out", "id")
    came = arrived(carried, ("f" * 16, there), f"{here}/in")
    assert came == [("k", "v"), (IDENTITY, "id"), (ORIGIN, f"{here}/out,{'f' * 16}>{there}>{here}/in")]
    assert passed_store(carried, here) and not came_from(carried, there, here)
    assert came_from(came, there, here) and not came_from(came, there, "b" * 16) and not came_from(came, here, here)
    only_in = arrived([], ("f" * 16, there), f"{here}/in")
    assert not passed_store(only_in, here)
    assert all(was_at(only_in, each) for each in (here, there, "f" * 16)) and not was_at(only_in, "b" * 16)


async def test_what_was_at_a_broker_is_not_carried_there_again(tmp_path: Path) -> None:
    """A Holdfast says which store it is; the message is settled, and not sent."""
    async with HoldingBroker(Properties(user_properties=((STORE_WORD, "f" * 16),))) as broker:
        broker.delay_s = 0.0
        target = await opened(broker, tmp_path, "5")
        back = message(1, user_properties=((ORIGIN, f"{'f' * 16}/x"),))
        assert await target.deliver(Batch("made-1", (back, message(2)))) == Outcome(2)
        assert [each.payload for each in broker.publishes] == [b"payload 2"]
        assert (ORIGIN, f"{STORE}/to-there") in broker.connects[0].properties.user_properties
        await target.close()
    async with HoldingBroker(Properties(user_properties=((STORE_WORD, STORE),))) as broker:
        target = MqttTarget(Mqtt(url=broker.url), context(tmp_path))
        with pytest.raises(Misconfigured, match="is this broker itself"):
            await target.open()
        await target.close()


async def test_a_message_that_goes_round_is_refused(tmp_path: Path) -> None:
    """Among brokers that keep no marks nothing else would end it."""
    async with HoldingBroker() as broker:
        target = await opened(broker, tmp_path, "5")
        round_ = message(1, user_properties=((ORIGIN, ",".join(["x/y"] * ORIGINS_MAX)),))
        outcome = await target.deliver(Batch("made-1", (round_,)))
        assert outcome.done == 1 and len(outcome.refused) == 1
        await target.close()


def test_what_is_settled_ends_at_the_first_that_is_not() -> None:
    """Whatever is answered in which order."""
    flight = Flight(4)
    for index in range(4):
        flight.sent(10 + index, index)
    flight.settle(1, "no")
    flight.settle(3)
    assert flight.outcome() == Outcome(0)
    flight.settle(0)
    assert flight.outcome() == Outcome(2, (Refusal(1, "no"),))
    assert flight.answered(12) == 2 and flight.answered(12) is None and flight.answered(99) is None
