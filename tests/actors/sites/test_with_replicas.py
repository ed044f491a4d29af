"""Site processes and shard processes together: copies are allocated, led, moved by operators and brought back, with nothing played."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from actors.sites.asked import ask, ask_info
from actors.sites.whereabouts import Sites
from actors.topology import Topology, write_whole
from tests.actors.sites.several import running, site_id, told, topologies

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
WITHIN_S = 60.0


class Shard:
    """The process of shard 0 of one site, started again whenever it ends, as Ray does it."""

    def __init__(self, topology: Topology, log: Path) -> None:
        self._topology = topology
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        path = self._topology.run_dir / "topology.json"
        write_whole(path, self._topology.to_json())
        while True:
            with self._log.open("ab") as said:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "tests.actors.replica.host", str(path),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=said, cwd=Path(__file__).parents[3],
                )  # fmt: skip
            await self._process.wait()
            await asyncio.sleep(0.2)

    async def end(self) -> None:
        """For good."""
        self._keeper.cancel()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


@asynccontextmanager
async def shards_of(directory: Path, *of: Topology) -> AsyncIterator[list[Shard]]:
    shards = [Shard(topology, directory / f"{topology.site[:1]}.log") for topology in of]
    try:
        yield shards
    finally:
        for shard in shards:
            await shard.end()


async def replicas(topology: Topology, *wanted: str) -> None:
    """Exactly these sites have replicas, all in sync, and nothing is under way."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            shard = (await ask_info(topology)).shards[0]
            there = tuple(replica.site for replica in shard.replicas)
            if there == shard.in_sync == tuple(site.upper() for site in wanted) and not shard.transitions:
                return
            await asyncio.sleep(0.05)


async def led(topology: Topology, *, by_other_than: str = "") -> str:
    """As its site process tells all others."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            known: Sites = told(topology)
            if 0 in known.leads and known.leads[0].site not in ("", by_other_than):
                return known.leads[0].site
            await asyncio.sleep(0.05)


async def test_copies_are_allocated_led_moved_and_brought_back(tmp_path: Path) -> None:
    """A site leaves and joins again, the leader's too; one whose process is gone is taken over, lost, and leaves without it."""
    a, b, c = [site_id(number) for number in (1, 2, 3)]
    with topologies(tmp_path, 3, n_shards=1) as three:
        async with running(*three), shards_of(tmp_path, *three) as shards:
            first = await led(three[0])
            await replicas(three[2], a, b, c)
            assert await ask(three[1], "leave", first)
            others = [site for site in (a, b, c) if site != first]
            await replicas(three[0], *others)
            assert await led(three[0], by_other_than=first) in others
            assert await ask(three[2], "join", first)
            await replicas(three[1], a, b, c)
            # One of two that the first does not serve: its register has to stay.
            second = await led(three[0])
            gone = second if second != a else b
            await shards[int(gone[0]) - 1].end()
            assert await led(three[0], by_other_than=gone)
            assert await ask(three[0], "leave", gone)
            await replicas(three[0], *[site for site in (a, b, c) if site != gone])
