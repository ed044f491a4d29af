"""SUBSCRIBE into the past, over real servers on one loop: what arrives is what was asked for, then what comes."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from access.rules import compile_access
from access.rules_file import parse_rules
from gateway.events import AccessChanged
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]
NOBODY = 0x10
CAPTURE = 'durable_storage.messages.capture=["#"]'


def moment() -> str:
    """A time between what was published and what will be."""
    time.sleep(0.002)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    time.sleep(0.002)
    return now


async def test_a_durable_subscription_begins_where_it_says_and_goes_on_live(tmp_path: Path) -> None:
    """Of topics that nobody had subscribed to: all, since a time, until a time, from a position on; then what comes, each once."""
    async with OneLoop(tmp_path, n_shards=2, sets=(CAPTURE,)) as broker:
        writers = [await Replayer.connect(broker.port, name, 5, expiry_s=0) for name in ("w-0", "w-1", "w-2")]
        times = []
        for part in range(3):
            for number, writer in enumerate(writers):
                await writer.published(f"a/{number}", *(f"{number}.{part}.{n}" for n in range(5)))
            times.append(moment())

        def of(number: int, *parts: int) -> list[str]:
            return [f"{number}.{part}.{n}" for part in parts for n in range(5)]

        async def check(reader: Replayer, *parts: int) -> None:
            found = await reader.payloads(15 * len(parts))
            assert {number: [each for each in found if each[0] == str(number)] for number in range(3)} == {
                number: of(number, *parts) for number in range(3)
            }

        reader = await Replayer.connect(broker.port, "all", 5)
        assert (await reader.replay("a/+", replay_from="earliest")).codes == b"\x01"
        await check(reader, 0, 1, 2)
        since = await Replayer.connect(broker.port, "since", 5)
        assert (await since.replay("a/+", qos=2, replay_from=times[0])).codes == b"\x02"
        await check(since, 1, 2)
        until = await Replayer.connect(broker.port, "until", 5)
        assert (await until.replay("a/+", replay_from=times[0], replay_until=times[1])).codes == b"\x01"
        await check(until, 1)
        for writer, name in zip(writers, "012", strict=True):
            await writer.published(f"a/{name}", *(f"{name}.3.{n}" for n in range(5)))
        await check(reader, 3)
        await check(since, 3)
        # A rewind of what is there: the subscription begins anew, and its place is a row of its home.
        assert (await reader.replay("a/+", replay_from=times[1])).codes == b"\x01"
        await check(reader, 2, 3)
        for each in (reader, since, until):
            await each.alive()
        await reader.close()
        await writers[0].published("a/0", "late")
        reader = await Replayer.connect(broker.port, "all", 5)
        assert reader.present and await reader.payloads(1) == ["late"]
        await reader.alive()


async def test_what_cannot_be_understood_is_refused_as_a_whole_with_one_sentence(tmp_path: Path) -> None:
    """The older subscription stays as it was, and a good filter beside a bad value is not made."""
    async with OneLoop(tmp_path, sets=(CAPTURE,)) as broker:
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        reader = await Replayer.connect(broker.port, "reader", 5)
        await reader.replay("a")
        sentences: dict[str, dict[str, str]] = {
            "yesterday": {"replay_from": "yesterday"},
            "a replay-from": {"replay_until": "latest"},
            "2026-13-01": {"replay_from": "2026-13-01T00:00:00Z"},
            "carried": {"replay_from": "@AAAA"},
            "true or false": {"replay_positions": "yes"},
            "replay-form": {"replay_form": "earliest"},
        }
        for words, properties in sentences.items():
            told = await reader.replay("a", "b", qos=1, **properties)
            assert told.codes == b"\x83\x83" and words in told.reason, told
        told = await reader.replay("$share/g/a", replay_from="earliest")
        assert told.codes == b"\x83" and "shared" in told.reason
        await writer.published("b", "no")
        await writer.published("a", "yes")
        assert await reader.payloads(1) == ["yes"]
        await reader.alive()


async def test_a_client_goes_on_by_itself_from_the_position_of_any_message(tmp_path: Path) -> None:
    """Each message carries where it stands; whoever begins there gets exactly the others, from history and live."""
    async with OneLoop(tmp_path, n_shards=2, sets=(CAPTURE,)) as broker:
        writers = [await Replayer.connect(broker.port, f"w-{n}", 5, expiry_s=0) for n in range(4)]
        for number, writer in enumerate(writers):
            for level in range(3):
                await writer.published(f"a/{number}/{level}/x", *(f"{number}.{level}.{n}" for n in range(4)))
    # After a start nothing is in memory: the history is swept, stream by stream.
    async with OneLoop(tmp_path, n_shards=2, sets=(CAPTURE,)) as broker:
        writers = [await Replayer.connect(broker.port, f"w-{n}", 5, expiry_s=0) for n in range(4)]
        reader = await Replayer.connect(broker.port, "reader", 5)
        assert (await reader.replay("a/#", replay_from="earliest", replay_positions="true")).codes == b"\x01"
        found = [await reader.got() for _ in range(48)]
        await asyncio.gather(*(writer.published("a/live", f"live.{n}") for n, writer in enumerate(writers)))
        found += [await reader.got() for _ in range(4)]
        everything = [each.payload for each in found]
        assert len(set(everything)) == 52
        for at in (0, 7, 20, 33, 47, 49, 51):
            other = await Replayer.connect(broker.port, f"at-{at}", 5)
            assert (await other.replay("a/#", replay_from=found[at].position)).codes == b"\x01"
            rest = await other.payloads(51 - at)
            assert sorted(rest) == sorted(everything[at + 1 :])
            await other.alive()


async def test_what_is_published_to_be_kept_is_there_though_nobody_had_subscribed(tmp_path: Path) -> None:
    """By the property and by the prefix, at QoS 1 and 2, of MQTT 3.1.1 too; it is answered as stored, and comes with its property."""
    async with OneLoop(tmp_path, sets=('durable_sessions.persistence.except_topic_prefixes=["out/"]',)) as broker:
        old = await Hand.connect(broker.port, "old", 4, clean=True)
        await old.published("$persist/a/1", "prefix", qos=2)
        await old.published("a/1", "lost")
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        codes = []
        rows = [("a/1", 1, "true"), ("a/1", 2, "true"), ("a/1", 1, "false"), ("out/1", 1, "true")]
        rows += [("$persist/", 1, ""), ("$persist/$SYS/x", 1, "")]
        for number, (topic, qos, value) in enumerate(rows, 1):
            await writer.persist(topic, f"{topic} {qos} {value}", qos, number, value)
            codes.append(await writer.answer(wire.PUBACK if qos == 1 else wire.PUBREC, number))
        assert codes == [0, 0, NOBODY, NOBODY, 0x90, 0x90]
        reader = await Replayer.connect(broker.port, "reader", 5)
        assert (await reader.replay("#", qos=2, replay_from="earliest")).codes == b"\x02"
        found = [await reader.got() for _ in range(3)]
        assert [(each.topic, each.payload, each.qos, each.properties) for each in found] == [
            ("a/1", "prefix", 2, {}), ("a/1", "a/1 1 true", 1, {"persist": "true"}), ("a/1", "a/1 2 true", 2, {"persist": "true"}),
        ]  # fmt: skip
        await reader.alive()


async def test_an_ephemeral_client_gets_history_and_what_comes_each_once_in_one_window(tmp_path: Path) -> None:
    """While messages flow, beside live subscriptions of its own, and nothing of it is left when its connection ends."""
    async with OneLoop(tmp_path, n_shards=2, sets=(CAPTURE,)) as broker:
        writers = [await Replayer.connect(broker.port, f"w-{n}", 5, expiry_s=0) for n in range(3)]

        async def write(part: int) -> None:
            for number, writer in enumerate(writers):
                await writer.published(f"a/{number}", *(f"{number}.{part}.{n}" for n in range(20)), qos=1 + part % 2)
                await writer.published("own", f"own.{part}.{number}")

        for part in range(2):
            await write(part)
        reader = await Replayer.connect(broker.port, "reader", 5, expiry_s=0, receive_max=3)
        await reader.subscribe("own", 1)
        writing = asyncio.create_task(write(2))
        assert (await reader.replay("a/+", qos=2, replay_from="earliest", replay_positions="true")).codes == b"\x02"
        found = [await reader.got() for _ in range(180 + 3)]
        await writing
        await write(3)
        found += [await reader.got() for _ in range(60 + 3)]
        mine = [each.payload for each in found if each.topic == "own"]
        assert sorted(mine) == [f"own.{part}.{number}" for part in (2, 3) for number in range(3)]
        for number in range(3):
            assert [each.payload for each in found if each.topic == f"a/{number}"] == [
                f"{number}.{part}.{n}" for part in range(4) for n in range(20)
            ]
        await reader.alive()
        # It goes on by itself after its connection is lost, from the last position that it had.
        last = [each for each in found if each.topic != "own"][-50]
        reader.drop()
        again = await Replayer.connect(broker.port, "reader", 5, expiry_s=0)
        assert (await again.replay("a/+", qos=1, replay_from=last.position)).codes == b"\x01"
        assert len({(await again.got()).payload for _ in range(49)}) == 49
        await again.unsubscribe("a/+")
        await write(4)
        await again.alive()
        until = await Replayer.connect(broker.port, "until", 5, expiry_s=0)
        assert (await until.replay("a/0", "a/1", qos=0, replay_from="earliest", replay_until="latest")).codes == b"\0\0"
        assert len(await until.payloads(200)) == 200
        await write(5)
        await until.alive()
        for each in (again, until):
            await each.close()
        async with asyncio.timeout(60):
            while any(shard._core.counters["routes"] or shard._core._homes._sessions.count for shard in broker.shards):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not any(gateway._core._state.seconds for gateway in broker.gateways)


RULES = """version = 1
[[rule]]
deny = ["replay"]
topics = ["{secret}"]
[[rule]]
allow = ["all"]
topics = ["#"]
"""


def ruled(broker: OneLoop, secret: str, version: int) -> None:
    access = compile_access(version, parse_rules(RULES.format(secret=secret)), claims=False, decides=False)
    for gateway in broker.gateways:
        gateway._feed(AccessChanged(access))


async def test_history_needs_a_right_of_its_own_and_stops_when_it_is_taken_away(tmp_path: Path) -> None:
    """None of a filter that may not be replayed; only what may be of one that is partly so; after a revocation, what is live alone."""
    async with OneLoop(tmp_path, sets=(CAPTURE,)) as broker:
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", *(f"1.{n}" for n in range(100)))
        await writer.published("a/2", *(f"2.{n}" for n in range(100)))
        ruled(broker, "a/1", 1)
        for expiry_s in (0, 100):
            reader = await Replayer.connect(broker.port, f"reader-{expiry_s}", 5, expiry_s=expiry_s, receive_max=10)
            refused = await reader.replay("a/1", replay_from="earliest")
            assert refused.codes == b"\x87"
            assert (await reader.replay("a/1")).codes == b"\x01"
            assert (await reader.replay("a/+", replay_from="earliest")).codes == b"\x01"
            found = [(await reader.got()).payload for _ in range(20)]
            assert found == [f"2.{n}" for n in range(20)]
            ruled(broker, "a/+", 2)
            await writer.published("a/1", "live")
            while (payload := (await reader.got()).payload) != "live":
                found.append(payload)
            assert len(found) <= 20 + 10, "what was in the window when the right went"
            await reader.close()
            ruled(broker, "a/1", 3)


async def test_history_alone_becomes_an_ordinary_subscription_when_it_is_subscribed_to_again(tmp_path: Path) -> None:
    """From then on each message comes once, at whichever QoS; what was not read of the history does not come."""
    async with OneLoop(tmp_path, sets=(CAPTURE,)) as broker:
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a", *(f"{n}" for n in range(300)))
        for expiry_s in (0, 100):
            for qos in (0, 1):
                reader = await Replayer.connect(broker.port, f"reader-{expiry_s}-{qos}", 5, expiry_s=expiry_s, receive_max=5)
                assert (await reader.replay("a", replay_from="earliest", replay_until="latest")).codes == b"\x01"
                early = [await reader.message() for _ in range(5)]
                assert (await reader.replay("a", qos=qos)).codes == bytes([qos])
                await writer.published("a", "live", "last")
                await reader.complete(*early)
                found = [each.payload for each in early]
                while not {"live", "last"} <= set(found):
                    found.append((await reader.got()).payload)
                # What was read ahead for the window of the first one comes all the same.
                found += await reader.rest()
                assert len(set(found)) == len(found) < 302
                await reader.close()
