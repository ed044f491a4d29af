"""What operators may change about sites and replicas: from what the register says to the values that are to be put there.  Pure.

    up          linked with the site where the command was given
    down        not up
    lost        an operator has said so of a site that was down: it does not come back.  Nothing else makes a site lost, no time and no
                silence; when it is started all the same, it is a member again
    forgotten   lost, without replicas, and nothing is to be moved there: it is not shown any more, and cannot come back

Always holds: a change that is asked for again, when it was made, is none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from actors.inquiry.sites import Refused
from actors.sites.keys import shard_key, site_key
from actors.sites.looking import Seen, sites_of
from shards.replication.allocation import moved_copies
from shards.replication.configuration import Configuration, claimed, targeted
from shards.replication.membership import next_step

Nonce = Callable[[], str]


class Change(NamedTuple):
    """To be put there if the register still has this version."""

    key: str
    version: int
    value: bytes


def wanted_now(seen: Seen) -> frozenset[str]:
    """The sites that have replicas or shall have some."""
    return frozenset().union(*[seen.wanted(shard) for shard in seen.shards])


def set_replicas(seen: Seen, sites: Collection[str], replication_factor: int, nonce: Nonce) -> list[Change]:
    """Replicas are to be on exactly these sites.  Raises Refused."""
    wanted = frozenset(site.lower() for site in sites)
    if unknown := sorted(site for site in sites if site.lower() not in seen.sites):
        raise Refused(f"Unknown sites: {', '.join(unknown)}")
    if not wanted:
        raise Refused("Replica sets would become too small")
    if lost := sorted(wanted & seen.lost):
        raise Refused(f"Replication still targets lost sites: {_shown(lost)}")
    if not seen.shards:
        raise Refused("The shards have no replicas yet: not all sites have come")
    changes = []
    shards = list(seen.shards)
    rows = moved_copies([sites_of(seen.shards[shard]) for shard in shards], wanted, replication_factor)
    for shard, row in zip(shards, rows, strict=True):
        now, key = seen.shards[shard], shard_key(shard)
        if seen.wanted(shard) != frozenset(row):
            changes.append(Change(key, seen.version(key), targeted(now, row, nonce()).pack()))
    return changes


def join(seen: Seen, site: str, replication_factor: int, nonce: Nonce) -> list[Change]:
    """None: it has replicas already.  Raises Refused."""
    now = wanted_now(seen)
    if site.lower() in now and site.lower() not in seen.lost:
        return []
    return set_replicas(seen, [*sorted(now - seen.lost), site], replication_factor, nonce)


def leave(seen: Seen, site: str, replication_factor: int, nonce: Nonce) -> list[Change]:
    """None: it has left already.  Raises Refused."""
    now = wanted_now(seen)
    if site.lower() not in now:
        return []
    return set_replicas(seen, sorted(now - {site.lower()}), replication_factor, nonce)


def declare_lost(seen: Seen, site: str, up: Collection[str]) -> list[Change]:
    """It is down and does not come back.  Raises Refused."""
    record = seen.sites.get(site.lower())
    if record is None:
        raise Refused(f"Site not found: {site}")
    if record.site in up:
        raise Refused("Site is still up")
    if record.state == "lost":
        return []
    key = site_key(record.site)
    return [Change(key, seen.version(key), replace(record, state="lost").pack())]


def forget(seen: Seen, site: str, up: Collection[str]) -> list[Change]:
    """Raises Refused."""
    record = seen.sites.get(site.lower())
    if record is None:
        raise Refused(f"Site not found: {site}")
    if record.site in up:
        raise Refused("Site is still up")
    if record.state != "lost":
        raise Refused(f"Site is temporarily down: if it does not come back, say `holdfast ds lost {site}` first")
    if any(record.site in sites_of(now) for now in seen.shards.values()):
        raise Refused("Site still has replicas of shards")
    if record.site in wanted_now(seen):
        raise Refused("Site is still to have replicas of shards")
    key = site_key(record.site)
    return [Change(key, seen.version(key), replace(record, state="forgotten").pack())]


def lost_steps(seen: Seen, led_here: Callable[[Configuration], bool], nonce: Nonce) -> list[Change]:
    """Steps of membership that the leader does not know to be the first: replicas of lost sites go before anything else moves.  All other
    steps are claimed by the leader itself."""
    changes = []
    for shard, now in seen.shards.items():
        step = next_step(now, seen.lost) if led_here(now) else None
        if step is not None and step.op == "del" and step.site in seen.lost:
            key = shard_key(shard)
            changes.append(Change(key, seen.version(key), claimed(now, step, nonce()).pack()))
    return changes


def moving(now: Configuration) -> list[tuple[str, str]]:
    """Sites that copies are to come to ("+") and to go from ("-"), of one shard, additions first."""
    if now.target is None:
        return []
    there, wanted = sites_of(now), frozenset(now.target)
    return [*[("+", site) for site in sorted(wanted - there)], *[("-", site) for site in sorted(there - wanted)]]


def _shown(sites: Sequence[str]) -> str:
    return ", ".join(site.upper() for site in sites)
