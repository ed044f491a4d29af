"""Site processes find each other, allocate, say who leads, notice who goes and comes; a register that is away changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from actors.alarms import read_alarms
from actors.sites.agreeing import NotAgreed, shards_of_cluster
from actors.sites.asked import ask, ask_info
from actors.sites.claiming import CannotJoin
from actors.sites.forcing import ACCEPTED
from actors.sites.formats import Known
from actors.sites.keys import CLUSTER
from actors.sites.records import Cluster
from actors.sites.server import SiteServer
from actors.sites.whereabouts import SITES_FILE, LedBy
from actors.topology import Topology
from shards.replication.configuration import Configuration, shrunk, taken_over
from shards.replication.ports import Outcome, RegisterAway
from tests.actors.register.etcds import etcds, ready
from tests.actors.sites.several import (
    SECRET,
    changed,
    made,
    moved,
    register_of,
    rid,
    running,
    says,
    server,
    site_id,
    told,
    topologies,
    until,
)

pytestmark = pytest.mark.slow


def alarms(topology: Topology) -> list[str]:
    return [alarm.kind for alarm in read_alarms(topology.run_dir)]


async def test_three_sites_find_each_other_and_allocate_when_all_have_their_copies(tmp_path: Path) -> None:
    """Nothing is allocated before; then each shard has three replicas, all in sync, and nobody leads yet."""
    with topologies(tmp_path, 3) as three:
        async with running(*three) as servers:
            await until(lambda: all(len(each.up()) == 3 for each in servers))
            await until(lambda: all([site.up for site in told(topology).sites.values()] == [True] * 3 for topology in three))
            await made(three[0], 2)
            await made(three[1], 2)
            assert not servers[0]._seen.shards
            await made(three[2], 2)
            await until(lambda: all(len(each._seen.shards) == 2 for each in servers))
            record = servers[2]._seen.shards[1]
            assert (record.ver, record.epoch, record.leader) == (1, 0, "")
            assert record.replicas == record.isr == {rid(1), rid(2), rid(3)}
            assert told(three[0]).leads == {}
            stores = {told(topology).store for topology in three}
            assert len(stores) == 1 and stores.pop().endswith(":1"), "readers of all sites have one name for what they read"


async def test_what_replicas_and_the_register_say_of_leaders_is_told(tmp_path: Path) -> None:
    """By the greater epoch: a replica of the own site hears of a new leader before the register is looked at."""
    with topologies(tmp_path, 2, n_shards=1) as two:
        async with running(*two) as servers:
            for topology in two:
                await made(topology, 1)
            await until(lambda: all(each._seen.shards for each in servers))
            async with register_of(two[1]) as register:
                await changed(register, 0, lambda now: taken_over(now, rid(1), "n"))
            await until(lambda: all(told(topology).leads == {0: LedBy(1, site_id(1))} for topology in two))
            says(two[1], 0, role="leader", epoch=2, leader=rid(2), behind={rid(1): 7})
            await until(lambda: told(two[1]).leads == {0: LedBy(2, site_id(2))})
            assert told(two[0]).leads == {0: LedBy(1, site_id(1))}
            async with register_of(two[1]) as register:
                await changed(register, 0, lambda now: taken_over(now, rid(2), "n"))
            await until(lambda: told(two[0]).leads == {0: LedBy(2, site_id(2))})
            # What the leader says of the others is seen at all sites.
            await until(lambda: bool(servers[0]._peers.copies()))
            shard = (await ask_info(two[0])).shards[0]
            assert (shard.leader, shard.epoch, shard.behind) == (site_id(2).upper(), 2, {site_id(1).upper(): 7})


async def test_a_site_that_goes_is_down_and_comes_back(tmp_path: Path) -> None:
    """The others say so at once, raise an alarm after a while, and clear it."""
    with topologies(tmp_path, 3) as three:
        async with running(*three[:2]) as servers:
            async with running(three[2]):
                await until(lambda: all(len(each.up()) == 3 for each in servers))
                assert alarms(three[0]) == []
            await until(lambda: [site.up for site in told(three[0]).sites.values()] == [True, True, False])
            await until(lambda: alarms(three[0]) == ["sites-down"])
            assert site_id(3).upper() in read_alarms(three[0].run_dir)[0].cause
            async with running(three[2]):
                await until(lambda: all(site.up for site in told(three[0]).sites.values()))
                await until(lambda: alarms(three[0]) == [])


async def test_while_the_register_is_away_what_was_told_stays(tmp_path: Path) -> None:
    """It is an alarm at those who ask it; with the register back all goes on."""
    with topologies(tmp_path, 3) as three:
        first = server(three[0])
        await first.start()
        async with running(*three[1:]) as others:
            await until(lambda: all(len(each._seen.sites) == 3 for each in others))
            before = told(three[1])
            await first.stop()
            await until(lambda: "register" in alarms(three[1]) and "register" in alarms(three[2]))
            assert list(told(three[1]).sites) == list(before.sites)
            info = await ask_info(three[1])
            assert "it does not answer" in info.register and "a single point" in info.register
            with pytest.raises(Exception, match="the register did not answer"):
                await ask(three[1], "leave", site_id(1))
            async with running(three[0]):
                await until(lambda: "register" not in alarms(three[1]))
                await until(lambda: len(others[0].up()) == 3)


async def test_a_site_with_other_settings_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Both values are in it, and nothing is told to its processes."""
    with topologies(tmp_path, 2, n_shards=2) as two:
        async with running(two[0]):
            other = server(replace(two[1], n_shards=5))
            with pytest.raises(CannotJoin, match="n_shards is 5 here and 2 in the register of this cluster"):
                await other.start()
            await other.stop()
            assert not (two[1].run_dir / "sites.json").exists()


@pytest.mark.parametrize(("record", "why"), [(b"nothing that can be read", "cluster"), (None, "n_shards is 2 here and 5")])
async def test_a_record_of_the_cluster_that_goes_bad_before_shards_are_allocated_is_an_alarm(
    tmp_path: Path, record: bytes | None, why: str
) -> None:
    """And is looked at again: when it is as it was, the sites go on to allocate."""
    with topologies(tmp_path, 2) as two:
        async with running(*two) as servers, register_of(two[0]) as register:
            await until(lambda: all(len(each.up()) == 2 for each in servers))
            good = await register.read(CLUSTER)
            assert good is not None
            bad = record or replace(Cluster.unpack(good.value), n_shards=5).pack()
            assert await register.cas(CLUSTER, good.version, bad) is Outcome.DONE
            await until(lambda: all("cluster-record" in alarms(each) for each in two))
            (said,) = [alarm.cause for alarm in read_alarms(two[1].run_dir) if alarm.kind == "cluster-record"]
            assert why in said
            for topology in two:
                await made(topology, 2)
            for _ in range(2):
                before = [each._seen for each in servers]
                await until(lambda: all(now._seen is not then for now, then in zip(servers, before, strict=True)))  # noqa: B023
            assert not any(each._seen.shards for each in servers)
            now = await register.read(CLUSTER)
            assert now is not None and await register.cas(CLUSTER, now.version, good.value) is Outcome.DONE
            await until(lambda: all(len(each._seen.shards) == 2 for each in servers))
            await until(lambda: all("cluster-record" not in alarms(each) for each in two))


async def test_two_data_directories_with_one_id_do_not_both_run(tmp_path: Path) -> None:
    """The second is refused while the first is up; when it is not, the site has moved, and the others dial it there."""
    with topologies(tmp_path, 3) as three:
        copied = moved(replace(three[2], data_dir=three[1].data_dir, site=three[1].site), 9)
        async with running(three[0]) as (first,):
            async with running(three[1]):
                await until(lambda: len(first.up()) == 2)
                second = server(copied)
                with pytest.raises(CannotJoin, match=r"runs at 127\.0\.0\.2:.* with the same id: stop one of the two"):
                    await second.start()
            await second.start()
            await until(lambda: told(three[0]).sites[site_id(2)].host == "127.0.0.9" and told(three[0]).sites[site_id(2)].up)
            # The other one comes back where it was: it is refused as well.
            again = server(three[1])
            with pytest.raises(CannotJoin, match=r"runs at 127\.0\.0\.9:"):
                await again.start()
            await again.stop()
            await second.stop()


async def test_replicas_are_moved_by_what_operators_say(tmp_path: Path) -> None:
    """Targets are set in the register; asked again nothing changes; what cannot be is refused in the words of the design."""
    a, b, c = [site_id(number) for number in (1, 2, 3)]
    with topologies(tmp_path, 3) as three:
        async with running(*three) as servers:
            for topology in three:
                await made(topology, 2)
            await until(lambda: all(len(each._seen.shards) == 2 and len(each.up()) == 3 for each in servers))
            assert await ask(three[1], "leave", c.upper())
            assert not await ask(three[2], "leave", c)
            await until(lambda: all(now.target == (a, b) for each in servers for now in each._seen.shards.values()))
            info = await ask_info(three[2])
            assert [shard.transitions for shard in info.shards] == [(f"-{c.upper()}",)] * 2
            # A reversal on the way.
            assert await ask(three[0], "join", c)
            await until(lambda: all(now.target == (a, b, c) for now in servers[0]._seen.shards.values()))
            assert not await ask(three[0], "join", c)
            for verb, words, said in (
                ("join", ("ff",), "Unknown sites: ff"),
                ("set-replicas", (), "Replica sets would become too small"),
                ("lost", (b,), "Site is still up"),
                ("forget", (b,), "Site is still up"),
                ("forget", ("ff",), "Site not found: ff"),
            ):
                with pytest.raises(Exception, match=f"^{said}$"):
                    await ask(three[0], verb, *words)


async def test_a_site_that_does_not_come_back_is_lost_leaves_and_is_forgotten(tmp_path: Path) -> None:
    """In this order and no other; its replicas go first; started again, it is told that it was forgotten."""
    a, b, c = [site_id(number) for number in (1, 2, 3)]
    with topologies(tmp_path, 3, n_shards=1) as three:
        async with running(*three[:2]) as servers:
            async with running(three[2]):
                for topology in three:
                    await made(topology, 1)
                await until(lambda: bool(servers[0]._seen.shards))
            async with register_of(three[0]) as register:
                await changed(register, 0, lambda now: taken_over(now, rid(1), "n"))
                await until(lambda: len(servers[0].up()) == 2)
                with pytest.raises(Exception, match="Site is temporarily down"):
                    await ask(three[0], "forget", c)
                assert await ask(three[0], "lost", c)
                with pytest.raises(Exception, match="Site still has replicas of shards"):
                    await ask(three[0], "forget", c)
                with pytest.raises(Exception, match=f"Replication still targets lost sites: {c.upper()}"):
                    await ask(three[0], "set-replicas", a, b, c)
                assert await ask(three[0], "leave", c)
                # The site process of the leading site claims this one; the leader carries it out.
                await until(lambda: servers[0]._seen.shards[0].trans is not None)
                await changed(register, 0, _without_lost)
            await until(lambda: len(servers[0]._seen.shards[0].replicas) == 2)
            assert await ask(three[0], "forget", c)
            await until(lambda: c not in told(three[1]).sites)
            gone = server(three[2])
            with pytest.raises(CannotJoin, match="was forgotten by an operator"):
                await gone.start()
            await gone.stop()


async def test_leadership_is_forced_when_all_that_were_in_sync_are_gone(tmp_path: Path) -> None:
    """By the word that accepts it, once; every process of the site hears of the incarnation, and readers of another store."""
    a, b, c = [site_id(number) for number in (1, 2, 3)]
    with topologies(tmp_path, 3, n_shards=1) as three:
        async with running(three[0]) as servers, register_of(three[0]) as register:
            async with running(*three[1:]):
                for topology in three:
                    await made(topology, 1)
                await until(lambda: bool(servers[0]._seen.shards))
                await changed(register, 0, lambda now: taken_over(now, rid(2), "n"))
                await changed(register, 0, lambda now: shrunk(now, rid(1), "m"))
                says(three[1], 0, role="leader", epoch=1, leader=rid(2), last=20, last_epoch=1)
                says(three[0], 0, epoch=1, leader=rid(2), last=12, last_epoch=1)
                await until(lambda: any(copy.site == b for copy in servers[0].around().copies))
                with pytest.raises(Exception, match="goes on by itself"):
                    await ask(three[0], "force-leader", "0", a, ACCEPTED)
            await until(lambda: servers[0].up() == {a} and b in servers[0].around().down_s)
            store = told(three[0]).store
            for words in (("0", a, ""), ("all", a.upper(), "")):
                why = rf"in sync {b.upper()} \(down for \d+ s\), {c.upper()} .* its log reaches entry 12 of epoch 1"
                with pytest.raises(Exception, match=why):
                    await ask(three[0], "force-leader", *words)
            assert await ask(three[0], "force-leader", "all", a, ACCEPTED) is True
            assert await ask(three[0], "force-leader", "0", a, ACCEPTED) is False
            await until(lambda: told(three[0]).leads[0].incarnation == 2)
            assert told(three[0]).leads_here(0) and told(three[0]).store != store
            (shard,) = (await ask_info(three[0])).shards
            (loss,) = shard.forced
            assert (shard.leader, shard.in_sync, shard.incarnation) == (a.upper(), (a.upper(),), 2)
            assert (loss.leader, loss.gone, loss.complete) == (a.upper(), (b.upper(), c.upper()), False)


def _without_lost(now: Configuration) -> Configuration:
    assert now.trans is not None and (now.trans.op, now.trans.site) == ("del", site_id(3))
    left = now.replicas - {rid(3)}
    return replace(now, ver=now.ver + 1, replicas=left, isr=left, trans=None)


@pytest.mark.needs("etcd")
async def test_all_of_it_with_a_register_in_etcd(tmp_path: Path) -> None:
    """Below the prefix of the settings, and no site has a register of its own."""
    with etcds(1) as (member,):
        await ready([member])
        with topologies(tmp_path, 3, endpoints=[member.endpoint]) as three:
            async with running(*three) as servers:
                for topology in three:
                    await made(topology, 2)
                await until(lambda: all(len(each._seen.shards) == 2 and len(each.up()) == 3 for each in servers))
                async with register_of(three[0]) as register:
                    await changed(register, 0, lambda now: taken_over(now, rid(2), "n"))
                await until(lambda: all(told(topology).leads == {0: LedBy(1, site_id(2))} for topology in three))
                member.pause()
                await until(lambda: all("register" in alarms(topology) for topology in three))
                member.resume()
                await until(lambda: not any("register" in alarms(topology) for topology in three))
            assert not (three[0].data_dir / "register").exists()


async def test_a_site_that_starts_while_the_register_is_away_goes_by_what_it_knew(tmp_path: Path) -> None:
    """Where it is still where it was; a copy of its data directory elsewhere is told nothing."""
    with topologies(tmp_path, 3) as three:
        async with running(*three):
            await until(lambda: all(len(told(topology).sites) == 3 for topology in three))
        for topology in (three[1], moved(three[1], 9)):
            (topology.run_dir / SITES_FILE).unlink(missing_ok=True)
            alone = server(topology)
            with pytest.raises(RegisterAway):
                await alone.start()
            await alone.stop()
            known = (topology.run_dir / SITES_FILE).exists()
            assert known == (topology is three[1])


async def test_a_site_with_another_secret_says_so_and_the_others_too(tmp_path: Path) -> None:
    """Not that it is down, or that the register does not answer: in what `ds info`, `status` and a start that takes too long show."""
    with topologies(tmp_path, 2, n_shards=1) as two:
        stranger = replace(two[1], secret=b"of another cluster")
        async with running(two[0]):
            alone = server(stranger)
            try:
                with pytest.raises(RegisterAway, match=r"the register did not answer: .*the secrets differ"):
                    await alone.start()
            finally:
                await alone.stop()


def _why(of: SiteServer) -> str:
    """What `ds info` says of the sites that are not up."""
    return " ".join([site.refused for site in of.info().sites if not site.up])


@pytest.mark.needs("etcd")
async def test_what_keeps_sites_from_being_linked_is_shown(tmp_path: Path) -> None:
    """With a register in etcd a site with another secret is in it, and linked with nobody."""
    with etcds(1) as (etcd,):
        await ready([etcd])
        with topologies(tmp_path, 2, n_shards=1, endpoints=[etcd.endpoint]) as two:
            async with running(two[0], replace(two[1], secret=b"of another cluster")) as servers:
                await until(lambda: ["the secrets differ" in _why(each) for each in servers] == [True, True])
                await until(lambda: all("sites-down" in alarms(topology) for topology in two))
                (alarm,) = [each for each in read_alarms(two[0].run_dir) if each.kind == "sites-down"]
                assert "is down (127.0.0.2:" in alarm.cause and alarm.cause.endswith("the secrets differ)")
                assert (await servers[1].health()).detail.startswith("1 of 2 sites are up; 127.0.0.1:")


@pytest.mark.needs("etcd")
async def test_a_new_site_has_as_many_shards_as_the_cluster(tmp_path: Path) -> None:
    """Whatever its own machine would take; and the first one says how many that are."""
    with etcds(1) as (etcd,):
        await ready([etcd])
        (tmp_path / "three").mkdir()
        with topologies(tmp_path / "three", 3, endpoints=[etcd.endpoint]) as three:
            for topology, own in zip(three, (12, 16, 5), strict=True):
                assert topology.sites is not None
                assert await asyncio.to_thread(shards_of_cluster, topology.config_json, {}, SECRET, topology.sites, own) == 12
        with topologies(tmp_path, 1, endpoints=["http://127.0.0.1:9"]) as (one,):
            assert one.sites is not None
            with pytest.raises(NotAgreed, match="n_shards is auto, so the register of the cluster has to say how many"):
                await asyncio.to_thread(shards_of_cluster, one.config_json, {}, SECRET, one.sites, 4, 0.1)


async def test_a_newer_format_is_in_use_when_the_last_site_knows_it(tmp_path: Path) -> None:
    """Not before; every process of a site is told, and one that goes back to the release before is refused and told nothing."""
    newer = Known(1, 2)
    with topologies(tmp_path, 3, n_shards=1) as three:
        async with running(*three[:2], knows=newer) as servers:
            async with running(three[2]):
                for topology in three:
                    await made(topology, 1)
                await until(lambda: all(each._agreed and len(each.up()) == 3 for each in servers))
                assert [site.knows for site in servers[0].info().sites] == [(1, 2), (1, 2), (1, 1)]
            # It is down, and counts: it may come back as it was.
            await until(lambda: "sites-down" in alarms(three[0]))
            assert servers[0].info().format == 1 and told(three[0]).format == 1
            async with running(three[2], knows=newer):
                await until(lambda: [told(topology).format for topology in three] == [2, 2, 2])
                assert (await ask_info(three[1])).format == 2
            (three[2].run_dir / SITES_FILE).unlink()
            older = server(three[2])
            with pytest.raises(CannotJoin, match=r"write format 2, and this Holdfast \(.*\) knows format 1: start this site with"):
                await older.start()
            await older.stop()
            assert not (three[2].run_dir / SITES_FILE).exists()


async def test_a_site_that_is_lost_holds_no_format_back(tmp_path: Path) -> None:
    """It need never come back; when it does, it has to know what is in use."""
    with topologies(tmp_path, 3, n_shards=1) as three:
        async with running(*three[:2], knows=Known(1, 2)) as servers:
            async with running(three[2]):
                for topology in three:
                    await made(topology, 1)
                await until(lambda: all(each._agreed and len(each.up()) == 3 for each in servers))
            await until(lambda: len(servers[0].up()) == 2)
            assert await ask(three[0], "lost", site_id(3))
            await until(lambda: told(three[1]).format == 2)
            older = server(three[2])
            with pytest.raises(CannotJoin, match="write format 2, and this Holdfast"):
                await older.start()
            await older.stop()
