"""A site that is drained leads nothing any more, and a copy whose site has no place yet does nothing at all."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from actors.register.local import open_register
from actors.replica.draining import ask_to_drain, ask_to_hand_over, asked_heir
from actors.replica.server import ReplicaServer
from actors.sites.whereabouts import SITES_FILE, Sites, tell_sites
from shards.replication.configuration import rid_of
from tests.actors.replica.three_sites import NAMES, Producer, Site, ThreeSites, check_disks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def test_a_drained_leader_hands_over_and_nothing_is_lost(tmp_path: Path) -> None:
    """Each in turn, under a producer: another one leads in the next epoch, and goes on, though it was drained a moment ago as well."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        for _ in range(3):
            await producer.reaches(100)
            await sites.in_sync()
            drained = sites.leader()
            assert drained is not None
            epoch = (await sites.record()).epoch
            ask_to_drain(drained.topology.run_dir)
            async with asyncio.timeout(30):
                while sites.leader() is drained:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await producer.reaches(100)
            assert (await sites.record()).epoch == epoch + 1
        await producer.finish()
        await sites.whole()
        for site in sites.sites.values():
            await site.down()
    check_disks(sites, producer)


async def test_a_leader_gives_its_shard_to_whom_the_plan_has_for_it(tmp_path: Path) -> None:
    """To the one that is named and to no other, and once: whoever leads then goes on."""
    async with ThreeSites(tmp_path) as sites, Producer(sites) as producer:
        await producer.reaches(100)
        giver = sites.leader()
        assert giver is not None
        epoch = (await sites.record()).epoch
        for to in [site for site in sites.sites.values() if site is not giver]:
            await sites.in_sync()
            former = sites.leader()
            assert former is not None
            ask_to_hand_over(former.topology.run_dir, 0, to.says()["rid"])
            async with asyncio.timeout(30):
                while sites.leader() is not to:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await producer.reaches(100)
            epoch += 1
            assert (await sites.record()).epoch == epoch
        await producer.finish()
        await sites.whole()
        for site in sites.sites.values():
            await site.down()
    check_disks(sites, producer)


def test_a_shard_is_given_by_plan_once_and_to_a_site_that_is_up(tmp_path: Path) -> None:
    """While a leader gives its shard away it takes nothing: so not to somebody who cannot come, and not each second anew."""
    heir, since_s = rid_of("b", "1"), time.monotonic()
    assert asked_heir(tmp_path, 0, since_s, ["b", "c"]) is None
    ask_to_hand_over(tmp_path, 0, heir)
    assert asked_heir(tmp_path, 0, since_s, ["b", "c"]) == heir
    assert asked_heir(tmp_path, 0, since_s, ["b", "c"]) is None
    ask_to_hand_over(tmp_path, 0, heir)
    assert asked_heir(tmp_path, 0, since_s, ["a", "c"]) is None
    ask_to_hand_over(tmp_path, 0, heir)
    assert asked_heir(tmp_path, 0, time.monotonic(), ["b", "c"]) is None, "it was another term's"


async def test_a_copy_waits_until_its_site_has_its_place(tmp_path: Path) -> None:
    """A data directory that was copied is not told, so its replicas, which have the names of others, say nothing to anybody."""
    site = Site(NAMES[0], tmp_path, "")
    register = open_register(tmp_path / "register")
    server = ReplicaServer(site.topology, 0, register)
    starting = asyncio.create_task(server.start())
    await asyncio.sleep(0.5)
    assert not starting.done() and not site.topology.store_dir.exists()
    assert not (site.topology.run_dir / SITES_FILE).exists()
    tell_sites(site.topology.run_dir, Sites(site.name, 1, {site.name: site.at}))
    await asyncio.wait_for(starting, 30)
    await server.stop()
