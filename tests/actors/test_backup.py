"""Backups beside a broker under load, restored: against what clients know was acknowledged when they began. Servers of one loop."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from actors.datadir import open_data_directory
from cli.main import app
from shards.replacement import POSITIONS_PER_INCARNATION
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.broker import wire
from tests.cli.test_accept_loss import at_home
from tests.cli.test_backup import rewritten
from tests.cli.test_leases import announce

pytestmark = [pytest.mark.slow]
N_SHARDS = 2
HOMES = (0, 1)


async def told(*words: str | Path) -> Any:
    """The command, beside the loop of the broker, whose log comes in between."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line[:1] in "[{"]
    return json.loads(line)


class Publisher:
    """Publishes numbered messages until it is told to stop, and knows which of them were acknowledged."""

    def __init__(self, home: int, qos: int) -> None:
        self.home = home
        self.name = at_home(home, f"pub{qos}")
        self.qos = qos
        self.acknowledged = 0
        self.sent = 0
        self.done = asyncio.Event()

    async def run(self, port: int) -> None:
        hand = await Hand.connect(port, self.name, 5)
        for number in itertools.count(1):
            if self.done.is_set():
                break
            self.sent = number
            await hand.published(f"load/{self.name}/{number % 5}", f"{self.name}:{number}", qos=self.qos, retain=number % 7 == 0)
            self.acknowledged = number
            await asyncio.sleep(0)
        await hand.close()

    def upto(self, count: int) -> set[str]:
        return {f"{self.name}:{number}" for number in range(1, count + 1)}


class Reader:
    """Takes and acknowledges messages as they come, until its connection ends."""

    def __init__(self, home: int, qos: int) -> None:
        self.name = at_home(home, f"reads{qos}")
        self.qos = qos
        self.taken: list[str] = []

    async def run(self, hand: Hand) -> None:
        while True:
            self.taken.append((await hand.taken()).payload)


async def everything(hand: Hand, wanted: set[str]) -> list[str]:
    """What comes until all of these have come."""
    found: list[str] = []
    while not wanted <= set(found):
        packet = await hand.packet()
        if packet.kind == wire.PUBREL:
            # The session had its PUBREC when its home was copied.
            hand.acknowledge(wire.PUBCOMP, wire.read_answer(packet.body)[0])
            continue
        hand.put_back(packet)
        found.append((await hand.taken()).payload)
    return found


def in_order(payloads: list[str]) -> bool:
    by_topic: dict[tuple[str, int], list[int]] = defaultdict(list)
    for payload in payloads:
        name, _, number = payload.partition(":")
        by_topic[name, int(number) % 5].append(int(number))
    return all(numbers == sorted(numbers) for numbers in by_topic.values())


async def subscribed(broker: OneLoop, name: str, topic_filter: str = "load/#", qos: int = 1) -> None:
    """It has a session, and goes."""
    hand = await Hand.connect(broker.port, name, 5)
    # Not what is retained: only what comes.
    await hand.subscribe(topic_filter, qos | 0x20)
    await hand.close()


async def unsubscribed(broker: OneLoop, name: str, topic_filter: str) -> None:
    hand = await Hand.connect(broker.port, name, 5)
    await hand.unsubscribe(topic_filter)
    await hand.close()


@asynccontextmanager
async def load(broker: OneLoop, publishers: list[Publisher], readers: list[Reader]) -> AsyncIterator[None]:
    """Until the end of the context; then publishers have ended in order, and readers without a word."""
    hands = [await Hand.connect(broker.port, reader.name, 5) for reader in readers]
    for reader, hand in zip(readers, hands, strict=True):
        await hand.subscribe("load/#", reader.qos)
    reading = [asyncio.create_task(reader.run(hand)) for reader, hand in zip(readers, hands, strict=True)]
    publishing = [asyncio.create_task(publisher.run(broker.port)) for publisher in publishers]
    yield
    for publisher in publishers:
        publisher.done.set()
    await asyncio.gather(*publishing)
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    for hand in hands:
        hand.drop()


async def reached(publishers: list[Publisher], count: int) -> None:
    while any(publisher.acknowledged < count for publisher in publishers):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def of_two_moments(into: Path, first: Path, second: Path, older: int) -> Path:
    """A backup with the copy of one shard from the first, and everything else from the second."""
    mixed = shutil.copytree(second, into / "000009-20300101T000000Z")
    shutil.rmtree(mixed / "shards" / str(older))
    shutil.copytree(first / "shards" / str(older), mixed / "shards" / str(older))
    one, other = (json.loads((path / "manifest.json").read_text()) for path in (first, second))
    prefix = f"shards/{older}/"
    files = [file for file in other["files"] if not file["name"].startswith(prefix)]
    files += [file for file in one["files"] if file["name"].startswith(prefix)]
    shards = [one["shards"][shard] if shard == older else other["shards"][shard] for shard in HOMES]
    rewritten(mixed, files=files, shards=shards)
    return mixed


@pytest.mark.parametrize("older", [None, 0], ids=["of one moment", "one shard long before"])
async def test_a_backup_has_everything_that_was_acknowledged_when_the_copy_of_its_shard_was_taken(
    tmp_path: Path, older: int | None
) -> None:
    """Over two shards, each the home of publishers and of sessions that read both: away, reading, at QoS 1 and 2, and some that
    subscribe or unsubscribe between the two moments. What is restored gives each session all of that which it had not taken, once, in
    order. What is published afterwards comes once to whoever is subscribed, however much further it had read than the copy of a shard
    reaches. Retained messages and the ids of subscriptions hold, and everybody is told of the loss."""
    old, new, into = tmp_path / "old", tmp_path / "new", tmp_path / "backups"
    open_data_directory(old, n_shards=N_SHARDS, n_shards_new=N_SHARDS).close()
    publishers = [Publisher(home, qos) for home in HOMES for qos in (1, 2)]
    readers = [Reader(home, qos) for home in HOMES for qos in (1, 2)]
    away = [at_home(home, f"away{qos}") for home in HOMES for qos in (1, 2)]
    leaves, comes = [at_home(home, "leaves") for home in HOMES], [at_home(home, "comes") for home in HOMES]
    async with OneLoop(old, N_SHARDS) as broker:
        announce(broker)
        for name in away:
            await subscribed(broker, name, qos=2 if "away2" in name else 1)
        for name in leaves:
            await subscribed(broker, name, f"only/{name}")
        async with load(broker, publishers, readers):
            await reached(publishers, 25)
            moments = [{publisher.name: publisher.acknowledged for publisher in publishers}]
            first = await told("backup", into, "--data-dir", old)
            for name in leaves:
                await unsubscribed(broker, name, f"only/{name}")
            for name in comes:
                await subscribed(broker, name, f"only/{name}")
            await reached(publishers, 25 + max(publisher.acknowledged for publisher in publishers))
            moments.append({publisher.name: publisher.acknowledged for publisher in publishers})
            second = await told("backup", into, "--data-dir", old)
            possible = {payload for publisher in publishers for payload in publisher.upto(publisher.sent)}
            taken = {reader.name: set(reader.taken) for reader in readers}
    assert (first["number"], second["number"], second["stopped"]) == (1, 2, False)
    backup = Path(second["backup"])
    if older is not None:
        backup = of_two_moments(into, Path(first["backup"]), backup, older)
    acknowledged = {publisher.name: moments[0 if publisher.home == older else 1][publisher.name] for publisher in publishers}
    promised = {payload for publisher in publishers for payload in publisher.upto(acknowledged[publisher.name])}

    done = await told("restore", backup, "--data-dir", new)
    assert (done["backup"], done["incarnation"]) == (str(backup), 2)
    later = [at_home(home, "later") for home in HOMES]
    after = {f"{name}:{number}" for name in later for number in (1, 2, 3)}
    async with OneLoop(new, N_SHARDS) as broker:
        announce(broker)
        assert all(shard._core.watermark > POSITIONS_PER_INCARNATION for shard in broker.shards)
        got: dict[str, list[str]] = {}
        for name in (*away, *taken):
            hand = await Hand.connect(broker.port, name, 5)
            assert hand.present
            got[name] = await everything(hand, promised - taken.get(name, set()))
            await hand.close()
        for name in later:
            hand = await Hand.connect(broker.port, name, 5)
            await hand.published(f"load/{name}/1", *(f"{name}:{number}" for number in (1, 2, 3)))
            for subscriber in (*leaves, *comes):
                await hand.published(f"only/{subscriber}", name)
            await hand.close()
        for name, before in got.items():
            hand = await Hand.connect(broker.port, name, 5)
            assert hand.present
            before += await everything(hand, after)
            await hand.alive()
            await hand.close()
            assert Counter(before).most_common(1)[0][1] == 1, f"{name} got a message twice"
            assert set(before) <= possible | after
            assert in_order([payload for payload in before if payload not in after])
            if name in away:
                assert promised <= set(before)
        # Whose home had not heard yet that it goes, or knows that it has come, gets what others publish, in shards that know neither.
        for home in HOMES:
            for name, there in ((leaves[home], home == older), (comes[home], home != older)):
                hand = await Hand.connect(broker.port, name, 5)
                assert hand.present or name in comes
                assert sorted([(await hand.taken()).payload for _ in later if there]) == (sorted(later) if there else [])
                await hand.alive()
                await hand.close()
        # A new subscription has an id of its own: taking it away leaves the others alone.
        await subscribed(broker, at_home(0, "newcomer"))
        await unsubscribed(broker, at_home(0, "newcomer"), "load/#")
        hand = await Hand.connect(broker.port, at_home(1, "last"), 5)
        await hand.published("load/last/0", "last:5", "last:10", retain=True)
        await hand.close()
        for name in got:
            hand = await Hand.connect(broker.port, name, 5)
            assert [(await hand.taken()).payload for _ in range(2)] == ["last:5", "last:10"]
            await hand.alive()
            await hand.close()
        kept = {one["topic"] for one in await told("retained", "--data-dir", new)}
        upto = {publisher.name: min(moment[publisher.name] for moment in moments[older is None :]) for publisher in publishers}
        assert {f"load/{name}/{number % 5}" for name, count in upto.items() for number in range(7, count, 7)} | {"load/last/0"} <= kept
    losses = await told("storage", "losses", "--data-dir", new)
    assert {loss["client"] for loss in losses if loss["reason"] == "restored"} >= set(got)
    assert {loss["reason"] for loss in losses} == {"restored"}


async def test_one_shard_goes_back_and_the_others_lose_nothing(tmp_path: Path) -> None:
    """Its store is gone. Sessions of the other shard, also one that came after the backup, get everything of their own shard and all that
    comes from now on; those at home in it are as they were at the backup."""
    path, into = tmp_path / "data", tmp_path / "backups"
    open_data_directory(path, n_shards=N_SHARDS, n_shards_new=N_SHARDS).close()
    subs, late = [at_home(home, "sub") for home in HOMES], [at_home(home, "late") for home in HOMES]

    async def publish(broker: OneLoop, first: int) -> None:
        for home in HOMES:
            hand = await Hand.connect(broker.port, at_home(home, "pub"), 5)
            await hand.published(f"load/{home}", f"{home}:{first}", f"{home}:{first + 1}")
            await hand.close()

    async with OneLoop(path, N_SHARDS) as broker:
        announce(broker)
        for sub in subs:
            await subscribed(broker, sub)
        await publish(broker, 1)
        await told("backup", into, "--data-dir", path)
        for name in late:
            await subscribed(broker, name)
        await publish(broker, 3)
        hand = await Hand.connect(broker.port, subs[0], 5)
        assert len(await everything(hand, {f"{home}:{number}" for home in HOMES for number in (1, 2, 3, 4)})) == 8
        await hand.close()
        await broker.forgotten(subs[0])
    command = ("restore", into, "--shard", "1", "--data-dir", path)
    there = await asyncio.to_thread(CliRunner().invoke, app, list(map(str, command)))
    assert there.exit_code == 1 and "move it away" in there.stderr
    (path / "shards" / "1").rename(tmp_path / "away")

    assert (await told(*command))["incarnation"] == 2
    async with OneLoop(path, N_SHARDS) as broker:
        announce(broker)
        await publish(broker, 5)
        new = {"0:5", "0:6", "1:5", "1:6"}
        expected = {
            subs[0]: new,
            subs[1]: {"0:1", "0:2", "0:3", "0:4", "1:1", "1:2"} | new,
            late[0]: {"0:3", "0:4"} | new,
        }
        for name, wanted in expected.items():
            hand = await Hand.connect(broker.port, name, 5)
            assert hand.present
            got = await everything(hand, wanted)
            await hand.alive()
            assert sorted(got) == sorted(wanted)
            await hand.close()
        hand = await Hand.connect(broker.port, late[1], 5)
        assert not hand.present
        await hand.close()
