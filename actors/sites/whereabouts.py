"""Where each part is reached, of one site or of several: what links are dialled by.

Of one site nothing ever moves.  Of several, whoever leads a shard changes: the site process writes who is where into the run directory
(`SITES_FILE`, whole or not at all), and every process reads it there when it has changed.  So the data path asks nobody, and
goes by what was true a moment ago; a link to who leads no more is refused by him, and dialled anew.

Ports of a site are a function of role and index, counted from the one that it listens at (`cluster.listen`):
    +0                      the site process
    +1 + shard              the shard
    +1 + n_shards + shard   the session actor that serves the sessions at home in this shard
    +1 + 2 n_shards + i     gateway i

Always holds: a file that cannot be read changes nothing; what was known is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from actors.endpoints import Endpoint
from actors.sites.formats import FIRST
from actors.topology import Topology, write_whole

SITES_FILE = "sites.json"
SITES_VERSION = 3
SITES_VERSION_FIRST = 2
"""Without a format: it is read too, as a data directory may have one."""


@dataclass(frozen=True, slots=True)
class SiteAt:
    """One site.  host, port: where the others reach it.  name: of its machine, for people.  up: linked with the one that says this."""

    site: str
    host: str
    port: int
    n_gateways: int
    name: str = ""
    up: bool = False


@dataclass(frozen=True, slots=True)
class LedBy:
    """site: who leads in this epoch; empty: nobody yet.  incarnation: of the shard; it grows when leadership is forced."""

    epoch: int
    site: str
    incarnation: int = 1


@dataclass(frozen=True, slots=True)
class Sites:
    """What the site process says.  here: the site of this machine.  store: `id:incarnation` of what the sites share; empty: nobody knows
    yet.  format: that the cluster has in use (actors.sites.formats); what is newer is written to no log and no record yet."""

    here: str
    n_shards: int
    sites: Mapping[str, SiteAt] = field(default_factory=dict)
    leads: Mapping[int, LedBy] = field(default_factory=dict)
    store: str = ""
    format: int = FIRST

    def to_json(self) -> str:
        sites = [[each.site, each.host, each.port, each.n_gateways, each.name, each.up] for each in self.sites.values()]
        leads = [[shard, each.epoch, each.site, each.incarnation] for shard, each in sorted(self.leads.items())]
        return json.dumps([SITES_VERSION, self.here, self.n_shards, sites, leads, self.store, self.format])

    @staticmethod
    def from_json(text: str) -> Sites:
        """Raises ValueError, TypeError."""
        version, *rest = json.loads(text)
        if version not in (SITES_VERSION_FIRST, SITES_VERSION):
            raise ValueError(f"{SITES_FILE} of version {version!r}, wanted {SITES_VERSION}")
        here, n_shards, sites, leads, store, *more = rest
        (format,) = more or (FIRST,)
        return Sites(here, n_shards, {row[0]: SiteAt(*row) for row in sites}, {row[0]: LedBy(*row[1:4]) for row in leads}, store, format)

    def replica(self, site: str, shard: int) -> Endpoint | None:
        """The process with the copy of this shard at that site."""
        return self._at(site, 1 + shard)

    def shard(self, shard: int) -> Endpoint | None:
        """Of the site that leads it."""
        return self._at(self._leader(shard), 1 + shard)

    def session(self, shard: int) -> Endpoint | None:
        """The session actor for the sessions at home in this shard."""
        return self._at(self._leader(shard), 1 + self.n_shards + shard)

    def gateways(self) -> dict[tuple[str, int], Endpoint]:
        """By site and index."""
        return {
            (each.site, index): Endpoint(host=each.host, port=each.port + 1 + 2 * self.n_shards + index)
            for each in self.sites.values()
            for index in range(each.n_gateways)
        }

    def leads_here(self, shard: int) -> bool:
        return self._leader(shard) == self.here

    def _leader(self, shard: int) -> str:
        led = self.leads.get(shard)
        return "" if led is None else led.site

    def _at(self, site: str, offset: int) -> Endpoint | None:
        found = self.sites.get(site)
        return None if found is None else Endpoint(host=found.host, port=found.port + offset)


def shard_listens(topology: Topology, index: int) -> list[Endpoint]:
    """Where the shard process of this site is reached; of several sites by other copies too."""
    return [Endpoint(topology.shard_endpoint(index)), *_of_others(topology, 1 + index)]


def session_listens(topology: Topology, index: int) -> list[Endpoint]:
    """Where a session actor of this site is reached."""
    return [Endpoint(topology.session_endpoint(index)), *_of_others(topology, 1 + topology.n_shards + index)]


def gateway_listens(topology: Topology, index: int) -> list[Endpoint]:
    return [Endpoint(topology.gateway_endpoint(index)), *_of_others(topology, 1 + 2 * topology.n_shards + index)]


def _of_others(topology: Topology, offset: int) -> list[Endpoint]:
    plan = topology.sites
    return [] if plan is None else [Endpoint(host=plan.host, port=plan.port + offset)]


class Whereabouts(Protocol):
    """None: nobody knows yet; whoever dials looks again."""

    def shard(self, shard: int) -> Endpoint | None: ...

    def session(self, index: int) -> Endpoint | None:
        """Of several sites there is one session actor for each shard, with its index."""

    def gateways(self) -> Mapping[tuple[str, int], Endpoint]:
        """All, also of this process, by site and index."""


class OneSite:
    """A broker that stands alone: unix sockets of its run directory."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def shard(self, shard: int) -> Endpoint | None:
        return Endpoint(self._topology.shard_endpoint(shard))

    def session(self, index: int) -> Endpoint | None:
        return Endpoint(self._topology.session_endpoint(index))

    def gateways(self) -> Mapping[tuple[str, int], Endpoint]:
        topology = self._topology
        return {(topology.site, index): Endpoint(topology.gateway_endpoint(index)) for index in range(topology.n_gateways)}


class SeveralSites:
    """As SITES_FILE says; `look` reads it again."""

    def __init__(self, topology: Topology) -> None:
        self._path = topology.run_dir / SITES_FILE
        self._seen = (0, 0)
        self.known = Sites(topology.site, topology.n_shards)
        self.look()

    def look(self) -> bool:
        """Whether it says something else than before.  A stat, and a read of some hundred bytes of memory when it has changed."""
        try:
            about = self._path.stat()
            seen = (about.st_mtime_ns, about.st_ino)
            if seen == self._seen:
                return False
            found = Sites.from_json(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError):
            return False
        changed = found != self.known
        self._seen, self.known = seen, found
        return changed

    def shard(self, shard: int) -> Endpoint | None:
        return self.known.shard(shard)

    def session(self, index: int) -> Endpoint | None:
        return self.known.session(index)

    def gateways(self) -> Mapping[tuple[str, int], Endpoint]:
        return self.known.gateways()


def tell_sites(run_dir: Path, sites: Sites) -> None:
    """What every process of this site goes by."""
    write_whole(run_dir / SITES_FILE, sites.to_json())
