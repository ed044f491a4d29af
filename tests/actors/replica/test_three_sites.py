"""Three processes over real logs, stores and links: nothing acknowledged is lost, whoever ends, whenever."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from actors.alarms import read_alarms
from tests.actors.replica.three_sites import NAMES, TAKEOVER_S, Producer, ThreeSites, check_disks
from tests.actors.two_sites import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def all_killed(sites: ThreeSites, producer: Producer) -> None:
    """At rest, all at once."""
    await producer.finish()
    await sites.whole()
    for site in sites.sites.values():
        await site.down()


async def test_a_killed_leader_is_followed_within_ten_seconds_and_loses_nothing(tmp_path: Path) -> None:
    """At any moment, under a producer that never waits: one that is started again at once leads again, one that stays away does not."""
    rng = random.Random(7)
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        for stays_away in (False, True):
            await producer.reaches(200)
            leader = sites.leader()
            assert leader is not None
            await asyncio.sleep(rng.uniform(0, 0.05))
            killed_s = time.monotonic()
            if stays_away:
                await leader.down()
            else:
                leader.kill()
            await producer.reaches(20)
            assert time.monotonic() - killed_s < TAKEOVER_S
            if stays_away:
                assert sites.leader() is not leader
                leader.keep()
            await sites.in_sync()
        await all_killed(sites, producer)
    check_disks(sites, producer)


async def test_who_was_away_longer_than_the_log_comes_back_by_a_checkpoint(tmp_path: Path) -> None:
    """Also when it is killed in the middle of it."""
    async with ThreeSites(tmp_path) as sites, Producer(sites, body=20_000) as producer:
        await producer.reaches(20)
        leader = sites.leader()
        away = next(site for site in sites.sites.values() if site is not leader)
        await away.down()
        await producer.reaches(600)
        log = tmp_path / f"{away.name[0]}.log"
        log.write_bytes(b"")
        away.keep()
        coming = away.directory / "shards" / "0" / "new.tmp"
        async with asyncio.timeout(60):
            while not coming.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        away.kill()
        await sites.in_sync()
        assert b"copy.replaced" in log.read_bytes()
        await all_killed(sites, producer)
    check_disks(sites, producer)


async def test_a_leader_that_stood_still_answers_nothing_of_its_epoch(tmp_path: Path) -> None:
    """Five seconds: another leads meanwhile; the process of the former one ends, and it follows."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(200)
        stood = sites.leader()
        assert stood is not None
        starts, epoch = stood.starts, stood.says()["epoch"]
        stood.send(signal.SIGSTOP)
        await asyncio.sleep(5)
        assert sites.leader() is not stood
        stood.send(signal.SIGCONT)
        await producer.reaches(200)
        await sites.in_sync()
        assert stood.starts == starts + 1 and stood.says()["epoch"] > epoch
        await all_killed(sites, producer)
    check_disks(sites, producer)


async def test_a_leader_that_stops_in_order_hands_over(tmp_path: Path) -> None:
    """Another leads sooner than silence would have told it to; what was taken is answered by either."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(200)
        leader = sites.leader()
        assert leader is not None
        await leader.stop()
        assert sites.leader() is not leader
        await producer.reaches(100)
        leader.keep()
        await sites.in_sync()
        await all_killed(sites, producer)
    check_disks(sites, producer)


@pytest.mark.parametrize("whose", ["a follower's", "the leader's"])
async def test_a_copy_whose_disk_is_lost_is_made_anew_and_joins_by_itself(tmp_path: Path, whose: str) -> None:
    """Under a producer, also when it leads: the copy in its place has another id, catches up, and is counted; then no alarm is left."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(200)
        leader = sites.leader()
        assert leader is not None
        lost = leader if whose == "the leader's" else next(site for site in sites.sites.values() if site is not leader)
        former = lost.says()["rid"]
        await lost.down()
        shutil.rmtree(lost.directory / "shards")
        lost.keep()
        async with asyncio.timeout(60):
            while former in (await sites.record()).replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await producer.reaches(100)
        await sites.in_sync()
        assert lost.says()["rid"] in (await sites.record()).replicas
        await until(lambda: not read_alarms(lost.topology.run_dir))
        await all_killed(sites, producer)
    check_disks(sites, producer)


async def test_a_copy_that_is_dismissed_is_erased(tmp_path: Path) -> None:
    """Its site leaves, with a disk that is whole, and joins again with another copy."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(200)
        leader = sites.leader()
        assert leader is not None
        other, third = (site for site in sites.sites.values() if site is not leader)
        former = other.says()["rid"]
        await sites.target(leader.name, third.name)
        async with asyncio.timeout(60):
            while other.says()["rid"] == former:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await sites.target(*NAMES)
        await sites.in_sync()
        await all_killed(sites, producer)
    check_disks(sites, producer)


async def test_more_than_may_wait_for_replicas_is_held_until_they_are_back(tmp_path: Path) -> None:
    """With both followers away nothing is answered, and more than 64 MiB are handed in; then all of it is stored, in order."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(50)
        leader = sites.leader()
        assert leader is not None
        others = [site for site in sites.sites.values() if site is not leader]
        for site in others:
            site.send(signal.SIGSTOP)
        await asyncio.sleep(0.3)
        answered = len(producer.acknowledged)
        producer.grow(window=60, body=2 << 20)
        log = tmp_path / f"{leader.name[0]}.log"
        async with asyncio.timeout(60):
            while b"shard.record_held" not in log.read_bytes():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert len(producer.acknowledged) <= answered + 8
        for site in others:
            site.send(signal.SIGCONT)
        producer.grow(window=8, body=100)
        await producer.reaches(100)
        assert leader.starts == 1
        await sites.in_sync()
        await all_killed(sites, producer)
    check_disks(sites, producer)
