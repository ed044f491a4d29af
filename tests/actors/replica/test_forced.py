"""Leadership is forced when a majority is gone for good: three shard processes over real logs and stores, two of them lost."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from pathlib import Path

import pytest

from actors.inquiry.sites import Refused
from actors.replica.copy import DATA, FORMER
from actors.sites.copies import CopyStatus
from actors.sites.forcing import ACCEPTED, Around, force_leader
from actors.sites.keys import SHARDS, site_key
from actors.sites.looking import Seen, seen_of
from actors.sites.records import SiteRecord
from shards.begun_anew import FORCED
from shards.dropped import Dropped, dropped_key
from shards.engine import HOME_FAMILY
from shards.engine_rocks import RocksEngine
from shards.replacement import POSITIONS_PER_INCARNATION
from shards.replication.ports import Outcome
from shards.replication.register import Held
from shards.restored import INCARNATION_ROW
from shards.rows import unpack_row
from tests.actors.replica.three_sites import NAMES, Producer, ThreeSites

A, B, C = NAMES
BODY_BEFORE, BODY_AFTER = 100, 50


async def seen_in(sites: ThreeSites) -> Seen:
    records = {site_key(name): Held(SiteRecord(name, "127.0.0.1", 7883, 1, name[0], 1, 1).pack(), 1) for name in NAMES}
    return seen_of(records, await sites.register.list(SHARDS))


async def say(sites: ThreeSites, site: str, up: tuple[str, ...], word: str = ACCEPTED) -> None:
    """What the desk of a site does with the command (actors.sites.desk)."""
    copies = [found for name in up if (found := CopyStatus.of(sites.sites[name].says())) is not None]
    around = Around(up, copies, dict.fromkeys(set(NAMES) - set(up), 77.0), time.time_ns() // 1_000_000)
    (change,) = force_leader(await seen_in(sites), "0", site, word, around, lambda: secrets.token_hex(8))
    assert await sites.register.cas(*change) is Outcome.DONE


async def shrunk_to(sites: ThreeSites, *names: str) -> None:
    async with asyncio.timeout(30):
        while {rid.partition("/")[0] for rid in (await sites.record()).isr} != set(names):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def says_so(sites: ThreeSites, name: str, former: float) -> None:
    """It has written a status since then."""
    path = sites.sites[name].topology.run_dir / "replica-0.json"
    async with asyncio.timeout(30):
        while path.stat().st_mtime <= former:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def payloads(sites: ThreeSites, name: str) -> tuple[list[int], list[int]]:
    """Numbers of messages of before, and of after, in their order."""
    found = [(len(payload.split()[1]), int(payload.split()[0])) for payload in sites.stored(name)]
    return [number for size, number in found if size == BODY_BEFORE], [number for size, number in found if size == BODY_AFTER]


@pytest.mark.slow
async def test_two_are_gone_for_good_and_the_third_was_behind(tmp_path: Path) -> None:
    """What it lacks is lost, and that is on the disk; publishers go on; the others come back and bring nothing of it along."""
    async with ThreeSites(tmp_path) as sites:
        async with Producer(sites, body=BODY_BEFORE) as producer:
            await producer.reaches(30)
            kept = len(producer.acknowledged)
            await sites.sites[C].down()
            await shrunk_to(sites, A, B)
            await producer.reaches(100)
            await producer.finish()
        await sites.sites[A].down()
        await sites.sites[B].down()
        shutil.rmtree(sites.sites[A].directory / "shards")
        before = time.time()
        sites.sites[C].keep()
        await says_so(sites, C, before)
        with pytest.raises(Refused, match=r"messages/0: in sync A+ \(down for 77 s\), B+ \(down for 77 s\)\. Site C+ is not: .* is lost"):
            await say(sites, C, (C,), "")
        with pytest.raises(Refused, match="is down"):
            await say(sites, A, (C,))
        await say(sites, C, (C,))
        async with Producer(sites, body=BODY_AFTER) as after:
            await after.reaches(30)
            sites.sites[B].keep()
            await after.reaches(30)
            former = sites.sites[B].directory / "shards" / "0" / FORMER
            async with asyncio.timeout(30):
                while not (former / DATA).exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            sites.sites[A].keep()
            await sites.target(*NAMES)
            await after.finish()
        await sites.whole()
        record = await sites.record()
        assert (record.incarnation, record.complete, record.forced[-1].leader.partition("/")[0]) == (2, False, C)
        for site in sites.sites.values():
            await site.down()
        leader = sites.rows(A)
        assert sites.rows(B) == leader == sites.rows(C)
        old, new = payloads(sites, A)
        assert old == list(range(1, len(old) + 1)) and kept <= len(old) < len(producer.acknowledged), (kept, len(old))
        assert new == sorted(set(new)) and set(after.acknowledged) <= set(new), "what came after is not there once, in order"
        rows = dict(leader[HOME_FAMILY])
        assert unpack_row(rows[INCARNATION_ROW])[0] == 2
        gone = [Dropped.decode(key, value) for key, value in rows.items() if key.startswith(dropped_key(0)[:1])]
        (lost,) = [each for each in gone if each.reason == FORCED]
        assert lost.until > POSITIONS_PER_INCARNATION, "what was handed out before comes never again"
        assert _count(former / DATA) > 0


def _count(path: Path) -> int:
    engine = RocksEngine(str(path))
    try:
        return len(engine.scan(HOME_FAMILY, b"", b"\xff" * 64, 1 << 30))
    finally:
        engine.close()


@pytest.mark.slow
async def test_two_are_gone_for_good_and_the_third_was_in_sync(tmp_path: Path) -> None:
    """Nothing that was acknowledged is lost, and nobody is told of a loss; the publisher that was linked goes on."""
    async with ThreeSites(tmp_path) as sites, Producer(sites, body=BODY_BEFORE) as producer:
        await producer.reaches(30)
        with pytest.raises(Refused, match="goes on by itself"):
            await say(sites, C, NAMES)
        await asyncio.gather(sites.sites[A].down(), sites.sites[B].down())
        for name in (A, B):
            shutil.rmtree(sites.sites[name].directory / "shards")
        with pytest.raises(Refused, match="nothing that was acknowledged is lost"):
            await say(sites, C, (C,), "")
        await say(sites, C, (C,))
        await producer.reaches(30)
        sites.sites[A].keep()
        sites.sites[B].keep()
        await sites.target(*NAMES)
        await producer.finish()
        await sites.whole()
        for site in sites.sites.values():
            await site.down()
        assert sites.rows(A) == sites.rows(B) == sites.rows(C)
        old, _ = payloads(sites, C)
        assert old == sorted(set(old)) and set(producer.acknowledged) <= set(old)
        assert not [row for row in sites.rows(C)[HOME_FAMILY] if FORCED.encode() in row[1]]
