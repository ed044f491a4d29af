"""Sites and replicas as operators see them: what the register says, who is up, and what replicas say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from actors.inquiry.sites import STORAGE, ForcedInfo, Replica, ShardInfo, SiteInfo, Sites
from actors.sites.changing import moving
from actors.sites.copies import CopyStatus
from actors.sites.looking import Seen
from actors.sites.records import Cluster
from actors.sites.spreading import plan_of
from actors.sites.whereabouts import LedBy, SiteAt
from actors.sites.whereabouts import Sites as Places
from shards.replication.configuration import Configuration, Forced, Rid, site_of


def places(here: str, cluster: Cluster, seen: Seen, up: Collection[str], copies: Iterable[CopyStatus]) -> Places:
    """What every process of this site goes by.  copies: of this site; of two that say who leads the greater epoch counts."""
    sites = {
        site: SiteAt(site, record.host, record.port, record.n_gateways, record.name, site == here or site in up)
        for site, record in sorted(seen.sites.items())
    }
    leads = {shard: LedBy(now.epoch, site_of(now.leader), now.incarnation) for shard, now in seen.shards.items() if now.epoch}
    for copy in copies:
        if copy.leader and copy.epoch > (leads[copy.shard].epoch if copy.shard in leads else 0):
            known = seen.shards.get(copy.shard)
            leads[copy.shard] = LedBy(copy.epoch, site_of(Rid(copy.leader)), 1 if known is None else known.incarnation)
    return Places(here, cluster.n_shards, sites, dict(sorted(leads.items())), _store(cluster, seen), cluster.format)


def shown(
    here: str, cluster: Cluster, seen: Seen, up: Collection[str], copies: Iterable[CopyStatus], standing: str,
    refused: Callable[[str], str], speaks: Callable[[str], int],
) -> Sites:  # fmt: skip
    """What `ds info` shows.  copies: of all sites.  refused, speaks: as in Peers."""
    here_up = frozenset(up) | {here}
    leading = _leading(copies)
    sites = tuple([
        SiteInfo(
            site.upper(), f"holdfast@{record.name}", site in here_up, record.state == "lost", record.address, refused(site),
            record.release, record.knows, speaks(site),
        )
        for site, record in sorted(seen.sites.items())
    ])  # fmt: skip
    plan = plan_of(seen)
    shards = tuple([
        _shard(shard, seen.shards[shard], here_up, leading.get(shard), plan.get(shard, ""))
        if shard in seen.shards
        else ShardInfo(STORAGE, shard, ())
        for shard in range(cluster.n_shards)
    ])  # fmt: skip
    return Sites(here.upper(), sites, shards, standing, cluster.format)


def _leading(copies: Iterable[CopyStatus]) -> Mapping[int, CopyStatus]:
    """Of each shard what the leader of the greatest epoch says."""
    found: dict[int, CopyStatus] = {}
    for copy in copies:
        if copy.role == "leader" and (copy.shard not in found or found[copy.shard].epoch < copy.epoch):
            found[copy.shard] = copy
    return found


def _shard(shard: int, now: Configuration, up: Collection[str], leader: CopyStatus | None, planned: str) -> ShardInfo:
    replicas = tuple([Replica(site_of(rid).upper(), site_of(rid) in up) for rid in sorted(now.replicas)])
    behind = {} if leader is None or leader.epoch != now.epoch else leader.behind
    return ShardInfo(
        STORAGE, shard, replicas, tuple([f"{sign}{site.upper()}" for sign, site in moving(now)]),
        leader=site_of(now.leader).upper(),
        epoch=now.epoch,
        in_sync=tuple([site_of(rid).upper() for rid in sorted(now.isr)]),
        eligible=tuple([site_of(rid).upper() for rid in sorted(now.elr)]),
        behind={site_of(Rid(rid)).upper(): entries for rid, entries in sorted(behind.items())},
        writable=now.writable,
        incarnation=now.incarnation,
        forced=tuple([_forced(each) for each in now.forced]),
        planned=planned.upper(),
    )  # fmt: skip


def _forced(one: Forced) -> ForcedInfo:
    at = datetime.fromtimestamp(one.wall_ms / 1000, UTC).isoformat(timespec="seconds")
    return ForcedInfo(one.incarnation, at, site_of(one.leader).upper(), tuple([site_of(rid).upper() for rid in one.gone]), one.complete)


def _store(cluster: Cluster, seen: Seen) -> str:
    """Of which readers go on where they were: another one since leadership of any shard was forced."""
    if not cluster.store:
        return ""
    return replace(cluster, incarnation=cluster.incarnation + sum(now.incarnation - 1 for now in seen.shards.values())).store
