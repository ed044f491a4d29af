"""Sites and replicas, as `ds info` shows them.

With one site they are looked up here, and each shard has one replica there.  With several the site process is asked (actors.sites.asked).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from actors.census import take_census
from actors.datadir import read_site
from actors.topology import member_name

STORAGE: Final = "messages"
"""The only durable storage there is."""


@dataclass(frozen=True, slots=True)
class Replica:
    site: str
    up: bool


@dataclass(frozen=True, slots=True)
class SiteInfo:
    site: str
    node: str
    up: bool
    lost: bool = False
    """An operator has said that it does not come back."""
    address: str = ""
    """Where other sites reach it; empty: there are none."""
    refused: str = ""
    """Why the site that was asked is not linked with it, as far as that is known: one sentence."""
    release: str = ""
    """That it said last; empty: it stands alone, or has never said."""
    knows: tuple[int, int] = (1, 1)
    """The oldest and the newest format of a cluster that this release knows."""
    speaks: int = 0
    """The version of the link that the site that was asked has dialled to it; 0: there is none."""


@dataclass(frozen=True, slots=True)
class ForcedInfo:
    """Leadership was forced.  at: UTC.  leader, gone: sites.  complete: nothing that was acknowledged was lost."""

    incarnation: int
    at: str
    leader: str
    gone: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """leader, in_sync, eligible: sites; planned: the one that ought to lead; behind: entries that each of the others has not acknowledged.
    With one site nobody leads."""

    storage: str
    shard: int
    replicas: tuple[Replica, ...]
    transitions: tuple[str, ...] = ()
    leader: str = ""
    epoch: int = 0
    in_sync: tuple[str, ...] = ()
    eligible: tuple[str, ...] = ()
    behind: Mapping[str, int] = field(default_factory=dict)
    writable: bool = True
    """Enough are in sync."""
    incarnation: int = 1
    forced: tuple[ForcedInfo, ...] = ()
    """The last times, the oldest first."""
    planned: str = ""


@dataclass(frozen=True, slots=True)
class Sites:
    """this: empty when the data directory has no site yet: its broker was never started.  register: of several sites where it is, and
    whether it answers.  format: that several sites have in use."""

    this: str
    sites: tuple[SiteInfo, ...]
    shards: tuple[ShardInfo, ...]
    register: str = ""
    format: int = 1

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(one.site for one in self.sites if one.lost)


def look(data_dir: Path, node: str | None = None) -> Sites:
    """Of a broker that runs or is stopped; raises DirectoryError.  node: its name, made of the host's when it is not given."""
    site = read_site(data_dir)
    if site is None:
        return Sites("", (), ())
    running = {row.name for row in take_census(data_dir).processes}
    id = site.site.upper()
    up = "controller-0" in running
    shards = tuple(ShardInfo(STORAGE, shard, (Replica(id, member_name("shard", shard) in running),)) for shard in range(site.n_shards))
    return Sites(id, (SiteInfo(id, node or f"holdfast@{socket.gethostname()}", up),), shards)


# ---------------------------------------------------------------------------------------------------- changes of replicas


class Refused(Exception):
    """Why it cannot be like that, in the words of the design; one sentence."""


def set_replicas(known: Sites, wanted: list[str]) -> bool:
    """Whether anything is to change: with one site the set is what it is.  Raises Refused."""
    unknown = [site for site in wanted if site.upper() != known.this]
    if unknown:
        raise Refused(f"Unknown sites: {', '.join(unknown)}")
    if not wanted:
        raise Refused("Replica sets would become too small")
    return False


def join(known: Sites, site: str) -> bool:
    return set_replicas(known, [site])


def leave(known: Sites, site: str) -> bool:
    """A site that has no replica has left already.  Raises Refused."""
    if site.upper() == known.this:
        raise Refused("Replica sets would become too small")
    return False


def declare_lost(known: Sites, site: str) -> bool:
    """Raises Refused, always: who asks is the only site."""
    if site.upper() != known.this:
        raise Refused(f"Site not found: {site}")
    raise Refused("Site is still up" if known.sites[0].up else "Site is the only one")


def forget(known: Sites, site: str) -> None:
    """Raises Refused, always: the only site cannot be forgotten, and others are not known."""
    if site.upper() != known.this:
        raise Refused(f"Site not found: {site}")
    raise Refused("Site is still up" if known.sites[0].up else "Site still has replicas of shards")


def force_leader(known: Sites, shard: str, site: str) -> bool:
    """Raises Refused, always: with one site there is nobody to go on without."""
    if site.upper() != known.this:
        raise Refused(f"Site not found: {site}")
    raise Refused(
        "There is one site, and it leads every shard. For a store that is lost there is `holdfast restore`, "
        f"and `holdfast storage accept-loss` to go on without it: shard {shard}"
    )
