"""Who leads where, as the processes of a site hear of it (actors/sites/)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from actors.sites.following import Following, whereabouts_of
from actors.sites.whereabouts import LedBy, OneSite, SeveralSites, SiteAt, Sites, gateway_listens, session_listens, tell_sites
from actors.topology import RayPlan, SitesPlan, Topology, incarnation_of, write_whole

EVERY_MS = 1
PATIENCE_S = 60
A, B = "a" * 16, "b" * 16


def topology(run_dir: Path, several: bool = True) -> Topology:
    return Topology(
        data_dir=run_dir, run_dir=run_dir, site=A, incarnation=1, secret=b"secret", config_json="{}", store_dir=run_dir, n_shards=3,
        n_sessions=3, n_gateways=2, ray=RayPlan("local", "test", False, 0, 0),
        sites=SitesPlan(2, 2, "127.0.0.2", 4000) if several else None,
    )  # fmt: skip


def sites(*leaders: str) -> Sites:
    there = {A: SiteAt(A, "127.0.0.2", 4000, 2), B: SiteAt(B, "127.0.0.3", 5000, 1)}
    return Sites(A, 3, there, {shard: LedBy(1, leader) for shard, leader in enumerate(leaders)})


async def test_who_follows_is_told_of_each_change_and_goes_by_it(tmp_path: Path) -> None:
    """Of a file that says the same, or nothing that can be read, nobody is told."""
    whereabouts = whereabouts_of(topology(tmp_path))
    assert isinstance(whereabouts, SeveralSites) and whereabouts.shard(0) is None
    told: asyncio.Queue[tuple[str, ...]] = asyncio.Queue()
    following = Following(whereabouts, lambda: told.put_nowait(tuple(led.site for led in whereabouts.known.leads.values())), EVERY_MS)
    following.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            tell_sites(tmp_path, sites(A, B))
            assert await told.get() == (A, B)
            session = whereabouts.session(1)
            assert session is not None and (session.host, session.port) == ("127.0.0.3", 5000 + 1 + 3 + 1)
            write_whole(tmp_path / "sites.json", "[")
            tell_sites(tmp_path, sites(A, B))
            tell_sites(tmp_path, sites(B, B))
            assert await told.get() == (B, B)
            tell_sites(tmp_path, replace(sites(B, B), sites={}))
            assert await told.get() == (B, B)
            assert whereabouts.shard(0) is None and not whereabouts.gateways()
    finally:
        following.stop()
    assert told.empty()


async def test_of_one_site_nobody_looks(tmp_path: Path) -> None:
    """Whatever lies in the run directory."""
    whereabouts = whereabouts_of(topology(tmp_path, several=False))
    assert isinstance(whereabouts, OneSite)
    following = Following(whereabouts, lambda: None, EVERY_MS)
    following.start()
    assert following._timer is None
    following.stop()


def test_who_listens_is_where_the_others_look(tmp_path: Path) -> None:
    """At its unix socket, and with several sites at the port that whereabouts say."""
    here = topology(tmp_path)
    known = sites(A, A, A)
    for index in range(3):
        assert session_listens(here, index)[1] == known.session(index)
    for index in range(2):
        assert gateway_listens(here, index)[1] == known.gateways()[A, index]
    alone = topology(tmp_path, several=False)
    assert [each.path for each in session_listens(alone, 1)] == [alone.session_endpoint(1)]
    assert [each.path for each in gateway_listens(alone, 1)] == [alone.gateway_endpoint(1)]


def test_members_of_two_sites_have_different_names(tmp_path: Path) -> None:
    """What a home takes for the successor of a gateway is one of the same site."""
    assert incarnation_of(topology(tmp_path), "gateway", 0).partition(":")[0] == f"gateway-0@{A}"
    assert incarnation_of(topology(tmp_path, several=False), "gateway", 0).partition(":")[0] == "gateway-0"


async def test_who_talked_to_a_shard_of_before_is_told_that_leadership_was_forced(tmp_path: Path) -> None:
    """Once for several; not of a shard that it hears of for the first time, nor of one that others lead now."""
    tell_sites(tmp_path, sites(A, B))
    told: asyncio.Queue[list[int]] = asyncio.Queue()
    following = Following(whereabouts_of(topology(tmp_path)), lambda: None, EVERY_MS, told.put_nowait, 0.01)
    following.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            tell_sites(tmp_path, replace(sites(B, B), leads={0: LedBy(2, B), 1: LedBy(2, A, 2), 2: LedBy(2, A, 3)}))
            assert await told.get() == [1]
    finally:
        following.stop()
    assert told.empty()
