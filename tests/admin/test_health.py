"""/health: who is away, and what survives what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from actors.admin.broker import Broker
from actors.admin.health import Health, survives_what
from actors.alarms import Alarm
from actors.census import Census, Row
from config.load import from_json, load
from tests.actors.one_loop import OneLoop

NAMES = ("shard-0", "shard-1", "session-0", "gateway-0", "controller-0")


class Counted:
    """A table of processes that a test sets."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = NAMES
        self.listening = True
        self.hanging: threading.Event | None = None
        self.counts = 0

    def __call__(self) -> Census:
        self.counts += 1
        if self.hanging is not None:
            self.hanging.wait(60)
        rows = tuple(Row(1, name.partition("-")[0], name) for name in self.names)
        return Census(True, self.listening, Path("/"), (), rows, (Alarm("shard-0", "disk", "full"),))


@asynccontextmanager
async def looked_at(broker: OneLoop, counted: Counted) -> AsyncIterator[Health]:
    asked = Broker(broker.topology, from_json(broker.topology.config_json))
    health = Health(asked, counted)
    try:
        yield health
    finally:
        await health.stop()
        await asked.close()


@pytest.mark.slow
async def test_who_does_not_answer_is_away_at_once_and_back_at_once(tmp_path: Path) -> None:
    """Over links, whatever the table of processes says; and by the table who has no link."""
    counted = Counted()
    async with OneLoop(tmp_path, n_shards=2) as broker, looked_at(broker, counted) as health:
        found = await health.ready()
        assert (found.ready, found.away, found.listening, found.alarms) == (True, [], True, 1)
        await broker.shards[1].stop()
        health._shared._kept = None
        found = await health.ready()
        assert (found.ready, found.away) == (False, ["shard-1"]) and found.because[0].startswith("shard-1 does not answer: ")
        await broker.restart_shard(1)
        while not (found := await health.ready()).ready:
            assert found.away in ([], ["shard-1"])
            health._shared._kept = None
        counted.names, counted.listening = NAMES[:-1], False
        health._shared._kept = None
        found = await health.ready()
        assert (found.ready, found.away, found.listening) == (False, ["controller-0"], False)
        assert counted.counts >= 4


@pytest.mark.slow
async def test_an_answer_is_there_in_time_when_the_machine_stands_still(tmp_path: Path) -> None:
    """Nobody is told that all is well when nobody could look."""
    counted = Counted()
    async with OneLoop(tmp_path, n_shards=2) as broker, looked_at(broker, counted) as health:
        counted.hanging = threading.Event()
        asked = [asyncio.create_task(health.ready()) for _ in range(3)]
        found = await asyncio.wait_for(asked[0], 60)
        assert not found.ready and "could not be read in time" in found.because[0]
        counted.hanging.set()
        assert await asyncio.gather(*asked[1:]) == [found, found]


THREE_SITES = (
    "durable_storage.messages.n_sites=3",
    "durable_storage.messages.replication_factor=3",
    'register.endpoints=["http://127.0.0.1:2379"]',
    "cluster.listen=127.0.0.1:7400",
    "cluster.secret=env:WORD",
)


@pytest.mark.parametrize(
    ("sets", "disk", "wanted", "because"),
    [
        ((), "ext4", (True, True, False), "is on disk"),
        (THREE_SITES, "ext4", (True, True, True), "2 of 3 or more: losing a node loses nothing"),
        ((), "tmpfs", (True, False, False), "in memory"),
        ((), "nfs4", (True, None, None), "over a network"),
        (("durable_storage.messages.backend=memory",), "ext4", (False, False, False), "backend is memory"),
        (("durable_storage.messages.backend=other",), "ext4", (None, None, None), "the backend other"),
        (("durable_sessions.enable=false",), "ext4", (False, False, False), "durable_sessions.enable is false"),
    ],
)
def test_what_survives_what_follows_from_the_settings(
    sets: tuple[str, ...], disk: str, wanted: tuple[bool | None, ...], because: str
) -> None:
    """And the sentence says why."""
    survives, said = survives_what(load(sets=sets, environ={}), disk)
    assert (survives.process_kill, survives.power_loss, survives.node_loss) == wanted
    assert because in " ".join(said)
