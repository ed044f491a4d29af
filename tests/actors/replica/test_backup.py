"""Backups of one of three sites: while leaders are killed they hold what was acknowledged, and they become a site that stands alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from actors.asking import NotReached
from actors.backup.asked import source_of
from actors.backup.manifest import Backup
from actors.backup.restoring import BACKEND, Target, restore
from actors.backup.taking import take
from actors.datadir import FORMAT_VERSION, FORMAT_VERSION_SITES, Site, read_site, write_site
from cli.main import app
from mqtt.body import strip_properties
from shards.engine import HOME_FAMILY
from shards.engine_rocks import RocksEngine
from shards.generations import Generations
from shards.messages import header
from shards.replacement import POSITIONS_PER_INCARNATION
from shards.replication.applying import APPLIED_ROW
from shards.store import Store
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.actors.replica.three_sites import NAMES, STORE, Producer, ThreeSites
from tests.actors.replica.three_sites import Site as OneOf

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
STORE_ID = STORE.partition(":")[0]


def backed_up(of: OneOf, into: Path, within_s: float = 30) -> Backup:
    site = Site(FORMAT_VERSION_SITES, of.name, 1, 1, "2026-01-01T00:00:00Z", n_sites=3, replication_factor=3)
    return take(source_of(of.topology, site, BACKEND, within_s), into).backup


def numbers_in(store: Path) -> list[int]:
    """Of the messages that are stored there, in the order of their positions."""
    engine = RocksEngine(str(store))
    try:
        assert engine.get(HOME_FAMILY, APPLIED_ROW) is None
        found = Store(engine, Generations.view(engine))
        streams = [(generation, stream.static) for generation, stream in found.streams(b"#", 0)]
        return [int(strip_properties(header(value)[4]).split()[0]) for _, value in found.read_range(b"#", streams, 0, 1 << 62)]
    finally:
        engine.close()


async def test_a_backup_of_any_site_has_what_was_acknowledged_before_it_and_starts_alone(tmp_path: Path) -> None:
    """As a new incarnation of what the sites share; also when who led was killed a moment before."""
    into = tmp_path / "backups"
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        taken: list[tuple[Backup, set[int]]] = []
        for name in NAMES:
            await producer.reaches(100)
            leader = sites.leader()
            if leader is not None and leader.name != name:
                leader.kill()
            before = set(producer.acknowledged)
            taken.append((await asyncio.to_thread(backed_up, sites.sites[name], into), before))
        await producer.finish()
        everything = set(producer.acknowledged)
    for number, (backup, before) in enumerate(taken):
        assert (backup.manifest.store, backup.manifest.stopped, backup.manifest.number) == (STORE, False, number + 1)
        new = tmp_path / f"new-{number}"
        done = restore(backup, Target(new, new / "shards"))
        site = read_site(new)
        assert site is not None and done.incarnation == site.incarnation == 2
        assert (site.format, site.site, site.n_sites) == (FORMAT_VERSION, STORE_ID, 1)
        found = numbers_in(new / "shards" / "0")
        assert found == sorted(set(found)) and before <= set(found) <= everything
    async with OneLoop(tmp_path / "new-0", 1) as broker:
        assert broker.shards[0]._core.watermark > POSITIONS_PER_INCARNATION
        hand = await Hand.connect(broker.port, "later", 5)
        await hand.subscribe("t/#", 1)
        await hand.published("t/0", "after")
        assert (await hand.taken()).payload == "after"
        await hand.close()


async def test_what_cannot_be_backed_up_is_one_sentence(tmp_path: Path) -> None:
    """A copy that is behind, a site without a copy, one that is stopped."""
    into = tmp_path / "backups"
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(20)
        away = next(site for site in sites.sites.values() if site is not sites.leader())
        other = next(site for site in sites.sites.values() if site not in (sites.leader(), away))
        await away.down()
        await producer.reaches(20)
        with pytest.raises(NotReached, match=r"copy of shard 0 at this site is behind.* this copy has come to position \d+"):
            await asyncio.to_thread(backed_up, away, into, 2)
        (away.topology.run_dir / "replica-0.json").write_text(f'{{"rid": "{away.name}/0", "replicas": ["{other.name}/0"]}}')
        with pytest.raises(NotReached, match=f"site {away.name.upper()} has no copy of shard 0 that is counted on, and a backup has all"):
            await asyncio.to_thread(backed_up, away, into, 2)
    write_site(away.directory, Site(FORMAT_VERSION_SITES, away.name, 1, 1, "2026-01-01T00:00:00Z", n_sites=3, replication_factor=3))
    said = CliRunner().invoke(app, ["backup", str(into), "--data-dir", str(away.directory)])
    assert said.exit_code == 1 and "is of one of 3 sites, and it is stopped" in said.stderr and said.stderr.count("\n") == 1
