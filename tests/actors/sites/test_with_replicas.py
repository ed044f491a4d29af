"""Site processes and shard processes together: copies are allocated, led, moved by operators and brought back, with nothing played."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from actors.backup.restoring import BACKEND, Target, restore
from actors.backup.taking import Source, take
from actors.datadir import read_site
from actors.sites.asked import ask, ask_info
from actors.sites.claiming import CannotJoin
from actors.sites.whereabouts import Sites
from actors.topology import Topology, write_whole
from shards.engine_rocks import RocksEngine
from shards.generations import Generations
from shards.store import Store
from tests.actors.sites.several import moved, running, server, site_id, told, topologies
from tests.cli.test_storage import Kept

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
    """If the test fails, what they said and where they stand is in its report."""
    shards = [Shard(topology, directory / f"{topology.site[:1]}.log") for topology in of]
    try:
        yield shards
    except BaseException:
        for topology in of:
            for path in sorted([*directory.glob(f"{topology.site[:1]}.log"), *topology.run_dir.glob("*.json")]):
                print(f"{topology.site[:1]}: {path.name}: {path.read_text()[-4_000:]}")
        raise
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


def kept_in(path: Path) -> list[tuple[int, bytes]]:
    """Of a process that has ended: all messages, with their positions."""
    engine = RocksEngine(str(path))
    try:
        store = Store(engine, Generations.view(engine))
        streams = [(generation, stream.static) for generation, stream in store.streams(b"#", 0)]
        return list(store.read_range(b"#", streams, 0, 1 << 62))
    finally:
        engine.close()


async def test_a_restored_site_begins_a_cluster_and_the_others_get_what_it_has(tmp_path: Path) -> None:
    """As the next incarnation of the store that was backed up; who joins later with another backup is refused."""
    kept = Kept(tmp_path / "data")
    kept.publish(*[b"plant/%d" % number for number in range(200)])
    kept.engine.close()
    stores = tmp_path / "data" / "shards"
    before = read_site(tmp_path / "data")
    assert before is not None
    backup = take(Source(tmp_path / "data", before, [stores / "0"], BACKEND, {}), tmp_path / "backups").backup
    messages = kept_in(stores / "0")
    assert len(messages) == 200
    with topologies(tmp_path, 3, n_shards=1) as three:
        restore(backup, Target(three[0].data_dir, three[0].store_dir, 3, 3))
        site = read_site(three[0].data_dir)
        assert site is not None and (site.site, site.incarnation, site.n_sites, site.replication_factor) == (before.site, 2, 3, 3)
        full = replace(three[0], site=site.site, incarnation=2)
        every = (full, *three[1:])
        names = sorted([topology.site for topology in every])
        async with running(*every), shards_of(tmp_path, *every):
            await replicas(three[2], *names)
            assert {told(topology).store for topology in every} == {f"{before.site}:2"}
            other = replace(moved(three[1], 9), site=site_id(9), incarnation=2)
            late = server(other)
            with pytest.raises(CannotJoin, match="was restored from a backup, and this cluster has 1 shards already: join it with"):
                await late.start()
            await late.stop()
        for topology in every:
            assert kept_in(topology.engine_path(0)) == messages
