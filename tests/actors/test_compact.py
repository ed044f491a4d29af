"""The parts of a compact broker in this process, as Ray has them in one: each is begun, told, measured and stopped by its own name."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors import fatal
from actors.compact import COMPACT, Compact
from actors.directory import HERE
from actors.host import NOT_STARTED, RunEnded
from actors.metrics.scrape import Scrape
from actors.topology import Topology, read_announcements, write_whole
from config.dump import dump_json
from config.load import load
from config.schema import Config
from tests.actors.hand import Hand
from tests.actors.one_loop import free_port
from tests.actors.places import topology_in

PARTS = ("shard-0", "session-0", "gateway-0")
WITHIN_S = 60.0


class Made:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.config = self.settings()
        self.topology: Topology = replace(topology_in(directory), config_json=dump_json(self.config), compact=True)
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())
        self.compact: Compact | None = None

    def settings(self, *sets: str) -> Config:
        return load(sets=(f"listeners.tcp.bind=127.0.0.1:{self.port}", *sets), environ={})

    def start(self, *, restarted: bool) -> Compact:
        self.compact = Compact(self.topology, restarted=restarted)
        return self.compact

    async def stop(self) -> None:
        if self.compact is not None:
            for part in reversed(PARTS):
                await self.compact.stop(part)


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Made]:
    before = list(fatal.before_death)
    found = Made(tmp_path)
    yield found
    await found.stop()
    fatal.before_death[:] = before


async def serves(made: Made) -> None:
    """A durable session gets what is published while it is away."""
    away = await Hand.connect(made.port, "away", 5)
    await away.subscribe("c/#", 1)
    await away.close()
    hand = await Hand.connect(made.port, "publisher", 5)
    await hand.published("c/1", *[f"{number}" for number in range(5)])
    back = await Hand.connect(made.port, "away", 5)
    assert back.present
    assert [got.payload for got in await back.messages(5)] == [f"{number}" for number in range(5)]
    await back.close()
    await hand.close()


async def test_its_parts_are_begun_one_after_the_other_and_serve(made: Made) -> None:
    """As the controller does it; each announces itself, and all of them this process; links between them are direct."""
    compact = made.start(restarted=False)
    assert repr(compact) == f"{COMPACT} of {made.topology.data_dir}"
    for part in PARTS:
        assert not (await compact.health(part)).ready
        assert await compact.reconfigure(part, 1, dump_json(made.config)) == NOT_STARTED
        await compact.begin(part)
        assert (await compact.health(part)).ready
    announced = {each.announcement.name: each.announcement.pid for each in read_announcements(made.topology.run_dir)}
    assert announced == dict.fromkeys(PARTS, os.getpid())
    topology = made.topology
    for path in (topology.shard_endpoint(0), topology.session_endpoint(0), topology.gateway_endpoint(0)):
        assert HERE.found(path) is not None and Path(path).is_socket()
    await serves(made)
    changed = dump_json(made.settings("mqtt.max_inflight=7"))
    assert [await compact.reconfigure(part, 1, changed) for part in PARTS] == [1, 1, 1]
    for part in reversed(PARTS):
        await compact.stop(part)
    assert HERE.found(topology.shard_endpoint(0)) is None


async def test_started_again_by_ray_it_begins_by_itself(made: Made) -> None:
    """Nobody calls; who calls all the same waits for the same beginning."""
    compact = made.start(restarted=True)
    async with asyncio.timeout(WITHIN_S):
        await compact.begin("gateway-0")
    assert [(await compact.health(part)).ready for part in PARTS] == [True, True, True]
    await serves(made)


async def test_of_a_run_that_has_ended_it_is_not_made(made: Made) -> None:
    """Ray gives it up then."""
    with pytest.raises(RunEnded):
        Compact(replace(made.topology, generation="former"), restarted=True)


async def test_figures_of_each_part_are_there_and_those_of_the_process_once(made: Made) -> None:
    """CPU and memory are of the process, under its own name; starts are counted of each part too."""
    compact = made.start(restarted=False)
    for part in PARTS:
        await compact.begin(part)
    await serves(made)
    scrape = Scrape(made.topology)

    def values(name: str, label: str) -> dict[str, float]:
        samples = [sample for family in scrape.families() for sample in family.samples if sample.name == name]
        return {sample.labels[label]: sample.value for sample in samples}

    async with asyncio.timeout(WITHIN_S):
        # They are written once a second.
        while len(values("holdfast_process_starts_total", "process")) < 1 + len(PARTS):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        while values("holdfast_gateway_publishes_received_total", "gateway") != {"0": 5.0}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert values("holdfast_process_starts_total", "process") == dict.fromkeys((COMPACT, *PARTS), 1.0)
    assert values("holdfast_process_resident_bytes", "process").keys() == {COMPACT}
    assert values("holdfast_process_cpu_seconds_total", "process").keys() == {COMPACT}
