"""Disks that are lost in a simulation: a site comes back with an empty one, and its copy has another id; some former disks come back too.

One site at a time has lost what is counted on: with two, what only they had would be gone, and no protocol can help that.  So the next
disk is lost when the former one is out of the register, and nothing that was proposed before is on its way any more.
"""

from __future__ import annotations

import random

from shards.replication.configuration import Configuration, Rid, site_of
from tests.replication.disk import Disk
from tests.replication.site import Site
from tests.replication.world import World

FIRST_MS, EVERY_MS = 2_000, 700
QUIET_MS = 8_000
"""Longer than any proposal is on its way, and than somebody silent is caught up."""
RETURNS = 0.4


class LosingDisks:
    """gone: what is not there, by rid; None: it does not come back."""

    def __init__(self, world: World, sites: dict[str, Site]) -> None:
        self._world = world
        self._sites = sites
        self._rng = random.Random(f"disks {world.seed}")
        self._last_ms = -QUIET_MS
        self.gone: dict[Rid, Disk | None] = {}

    def turn(self, now: Configuration) -> None:
        """Perhaps a disk is lost, or one comes back."""
        site = self._sites[site_of(self._rng.choice(sorted(now.replicas)))]
        if self._rng.random() < 0.3 and now.leader:
            site = self._sites[site_of(now.leader)]
        if self._world.now_ms - self._last_ms < QUIET_MS or len(now.replicas) < 2 or now.replicas & self.gone.keys():
            return
        self._last_ms = self._world.now_ms
        former = [rid for rid in sorted(self.gone) if site_of(rid) == site.name and self.gone[rid] is not None]
        back = self.gone.pop(former[0]) if former else None
        rid, disk = site.lose_disk(back)
        self.gone[rid] = disk if self._rng.random() < RETURNS else None
        self._world.later(self._rng.randint(50, 2500), self._start, site)

    def of(self, rid: Rid) -> Disk | None:
        """The disk that this copy is on; None: it is lost, and nobody will ever hear of it."""
        site = self._sites[site_of(rid)]
        return site.disk if site.rid == rid else self.gone.get(rid)

    def _start(self, site: Site) -> None:
        if not site.alive:
            site.start()
