"""Nothing can be written in the run directory, as its disk is full: who has something to tell goes on, and tells it when there is room."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import actors.bridge.server
import actors.metrics.meter
from actors import notices
from actors.alarms import Alarm, clear_alarm, raise_alarm, read_alarms, write_again
from actors.bridge.server import STATUS_FILE
from actors.host import NOT_STARTED, Host
from actors.metrics.meter import Meter
from actors.quota import Quota
from actors.snapshot import taken
from actors.topology import Announcement, Health
from config.dump import dump_json
from config.load import load
from config.schema import Config
from shards.events import Contended
from tests.actors.bridge.carried import Bridges
from tests.actors.one_loop import OneLoop
from tests.actors.places import in_the_way, topology_in

CLOCK = Alarm("shard-0", "clock", "it jumped")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def test_an_alarm_is_written_when_there_is_room(tmp_path: Path) -> None:
    """With its newest cause; what was cleared meanwhile is not raised any more."""
    with in_the_way(tmp_path / "shard-0.clock.alarm"), in_the_way(tmp_path / "shard-0.x.alarm"):
        assert not raise_alarm(tmp_path, replace(CLOCK, cause="an older cause"))
        assert not raise_alarm(tmp_path, CLOCK)
        assert not raise_alarm(tmp_path, replace(CLOCK, kind="x"))
        write_again()
        clear_alarm(tmp_path, "shard-0", "x")
    assert read_alarms(tmp_path) == []
    write_again()
    assert read_alarms(tmp_path) == [CLOCK]
    clear_alarm(tmp_path, "shard-0", "clock")
    write_again()
    assert read_alarms(tmp_path) == []


def test_an_alarm_that_cannot_be_written_holds_up_no_other(tmp_path: Path) -> None:
    """Raised before it."""
    with in_the_way(tmp_path / "shard-0.x.alarm"):
        with in_the_way(tmp_path / "shard-0.clock.alarm"):
            assert not raise_alarm(tmp_path, replace(CLOCK, kind="x"))
            assert not raise_alarm(tmp_path, CLOCK)
        write_again()
        assert (tmp_path / "shard-0.clock.alarm").is_file()
    write_again()
    assert read_alarms(tmp_path) == [CLOCK, replace(CLOCK, kind="x")]


async def test_each_process_writes_its_alarms_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its figures."""
    monkeypatch.setattr(actors.metrics.meter, "EVERY_S", 0.005)
    with in_the_way(tmp_path / "shard-0.clock.alarm"):
        raise_alarm(tmp_path, CLOCK)
    meter = Meter(tmp_path, "shard-0", None)
    meter.start()
    await until(lambda: read_alarms(tmp_path) == [CLOCK])
    meter.stop()


async def test_the_quota_is_kept(tmp_path: Path) -> None:
    """Its alarm waits; publishers are refused all the same, and let in again."""
    (tmp_path / "file").write_bytes(random.Random(1).randbytes(1 << 20))
    told: list[int] = []
    quota = Quota(tmp_path, tmp_path, "shard-0", 1 << 19, told.append, lambda: False)
    with in_the_way(tmp_path / "shard-0.quota.alarm"):
        quota.start()
        await until(lambda: told == [2])
    quota.allow(100 << 20)
    await until(lambda: told == [2, 0])
    quota.stop()


def test_a_shard_tells_of_a_client_that_two_want(tmp_path: Path) -> None:
    """In a turn of its core, which must not raise."""
    with in_the_way(tmp_path / "shard-0.contended.alarm"):
        notices.tell(Contended(b"c", (b"ann", "127.0.0.1:1"), (b"bob", "127.0.0.1:2"), 1000), tmp_path, "shard-0")
    write_again()
    assert "bob" in read_alarms(tmp_path)[0].cause


class Failing:
    """A server whose first start fails."""

    def __init__(self) -> None:
        self.failed = False
        self.levels: list[str] = []

    async def start(self) -> Announcement:
        if not self.failed:
            self.failed = True
            raise OSError("no space left on device")
        return Announcement("shard", "shard-0", 1)

    async def stop(self) -> None: ...

    async def health(self) -> Health:
        return Health(True, "")

    def reconfigure(self, config: Config) -> None:
        self.levels.append(config.log.level)


async def test_a_process_that_cannot_say_why_goes_on_starting(tmp_path: Path) -> None:
    """It takes new settings too, and is asked again until it has said so."""
    topology = topology_in(tmp_path)
    topology = replace(topology, config_json=dump_json(load(environ={})))
    server, debug = Failing(), dump_json(load(sets=["log.level=debug"], environ={}))
    host = Host(topology, "shard", 0, server, restarted=False, first_pause=0.001)
    with in_the_way(topology.run_dir / "shard-0.error"), in_the_way(topology.run_dir / "shard-0.settings"):
        await host.begin()
        assert server.failed and (await host.health()).ready
        assert [await host.reconfigure(1, debug) for _ in range(2)] == [NOT_STARTED, NOT_STARTED]
    assert await host.reconfigure(1, debug) == 1 == taken(topology.run_dir, "shard-0")
    assert server.levels == ["debug"]
    await host.stop()


@pytest.mark.slow
async def test_bridges_say_how_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, also after a time in which they could not."""
    monkeypatch.setattr(actors.bridge.server, "STATUS_EVERY_S", 0.005)
    tried, write_status = [], actors.bridge.server.write_status

    def try_it(run_dir: Path, bridges: dict[str, dict[str, object]]) -> None:
        tried.append(run_dir)
        write_status(run_dir, bridges)

    monkeypatch.setattr(actors.bridge.server, "write_status", try_it)
    async with OneLoop(tmp_path) as one:
        said = one.topology.run_dir / STATUS_FILE
        with in_the_way(said):
            async with Bridges(one):
                await until(lambda: len(tried) > 1)
                said.rmdir()
                await until(lambda: said.is_file() and json.loads(said.read_text())["bridges"] == {})
            said.unlink()
            said.mkdir()
