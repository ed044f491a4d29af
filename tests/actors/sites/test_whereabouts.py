"""Who is where, as the site process says it and everybody else reads it."""

from __future__ import annotations

from pathlib import Path

from actors.endpoints import Endpoint
from actors.sites.whereabouts import LedBy, SeveralSites, SiteAt, Sites, tell_sites
from actors.topology import Topology
from tests.actors.places import topology_in


def _sites(epoch: int = 3, leader: str = "b") -> Sites:
    at = {name: SiteAt(name, f"127.0.0.{place}", 7000, 2, "node", True) for place, name in enumerate("abc", 1)}
    return Sites("a", 2, at, {0: LedBy(epoch, leader), 1: LedBy(0, "")}, "5555555555555555:1", 2)


def test_ports_are_counted_from_that_of_the_site() -> None:
    """Whoever knows role and index knows the port; a shard that nobody leads is nowhere."""
    sites = _sites()
    assert sites.shard(0) == Endpoint(host="127.0.0.2", port=7001)
    assert sites.session(0) == Endpoint(host="127.0.0.2", port=7003)
    assert sites.replica("c", 1) == Endpoint(host="127.0.0.3", port=7002)
    assert sites.gateways()["b", 1] == Endpoint(host="127.0.0.2", port=7006)
    assert sites.shard(1) is None and sites.session(1) is None
    assert not sites.leads_here(0) and _sites(leader="a").leads_here(0)


def test_what_is_written_is_read_and_a_change_is_seen(tmp_path: Path) -> None:
    """The file is read when it is another one, and only then."""
    topology: Topology = topology_in(tmp_path)
    where = SeveralSites(topology)
    assert where.shard(0) is None
    tell_sites(topology.run_dir, _sites())
    assert where.look() and where.known == _sites()
    assert not where.look()
    tell_sites(topology.run_dir, _sites(4, "c"))
    assert where.look() and where.shard(0) == Endpoint(host="127.0.0.3", port=7001)


def test_a_file_that_is_none_changes_nothing(tmp_path: Path) -> None:
    """Of another version, or torn: what was known is kept.  One that was left by a program that knew no formats is read."""
    topology = topology_in(tmp_path)
    tell_sites(topology.run_dir, _sites())
    where = SeveralSites(topology)
    (topology.run_dir / "sites.json").write_text('[9, "a"]')
    assert not where.look() and where.known == _sites()
    assert Sites.from_json('[2, "a", 2, [], [], "5:1"]') == Sites("a", 2, store="5:1", format=1)
