"""The simulation with an operator who forces leadership, whether the others are gone for good or only believed to be.

What must hold besides: copies of two incarnations never mix (each incarnation has a history of its own, which begins with the log of who
was forced); what was lost is lost from the end; and nothing is lost while whoever was forced was in sync.

The producers of before begin anew, as the processes of a broker do, and talk to the new incarnation alone; what the former ones had
acknowledged is looked for in the end.
"""

from __future__ import annotations

from shards.replication.configuration import NOBODY, Configuration, Rid, forced, site_of
from tests.replication.shard import Producer, SimShard
from tests.replication.simulation import BREAKING_MS, NAMES, Simulation
from tests.replication.site import Site

BEHIND_MS = 4000
GONE = 0.5
"""Of the replicas that are given up: its disk is gone. The others come back as they were."""


class Forcing(Simulation):
    loses_disks = False

    def __init__(self, seed: int) -> None:
        self._behind = NOBODY
        super().__init__(seed)
        self.former: dict[bytes, int] = {}
        """Producers that have ended, and in which incarnation."""
        for at_ms in sorted(self.world.between(BEHIND_MS + 1000, BREAKING_MS - 2000) for _ in range(self.world.between(1, 2))):
            if self.world.happens(0.8):
                self.world.later(at_ms - BEHIND_MS, self._leave_behind)
            self.world.later(at_ms, self._force)

    def _leave_behind(self) -> None:
        """One that is to be forced does not hear the others for a while."""
        now, world = self.register.now, self.world
        self._behind = world.rng.choice(sorted(now.replicas))
        self.cut.add(site_of(self._behind))
        world.later(BEHIND_MS, self.cut.discard, site_of(self._behind))

    def _force(self) -> None:
        world, now = self.world, self.register.now
        if world.healing or not now.epoch:
            return
        chosen = self._behind if self._behind in now.replicas else world.rng.choice(sorted(now.replicas))
        if self.sites[site_of(chosen)].rid != chosen:
            return
        others = [self.sites[site_of(rid)] for rid in sorted(now.replicas - {chosen})]
        for site in others:
            if world.happens(GONE):
                self._destroy(site)
        target = tuple(sorted({site_of(chosen), *world.rng.sample(NAMES, 2)}))
        self.register.operate(lambda before: self._forced(before, chosen, target))
        for number, producer in enumerate(tuple(self.producers)):
            if producer.name not in self.former:
                producer.end()
                self.former[producer.name] = now.incarnation
                self.producers.append(Producer(b"%d%d" % (now.incarnation, number), world, self))

    def _forced(self, before: Configuration, chosen: Rid, target: tuple[str, ...]) -> Configuration:
        after = forced(before, chosen, target, self.world.now_ms, f"{self.world.rng.random()}")
        self.world.happened["forced in sync" if after.forced[-1].complete else "forced with loss"] += 1
        return after

    def _destroy(self, site: Site) -> None:
        self.world.note(site.name, "loses its disk")
        site.begin_anew()

    def shards(self) -> list[SimShard]:
        newest = self.register.now.incarnation
        here = {id(shard) for name, (_, shard) in self._shards.items() if self.sites[name].disk.log.incarnation == newest}
        return [shard for shard in super().shards() if id(shard) in here]

    def may_lose(self, producer: Producer) -> bool:
        """Who ended in an incarnation of which, or of one before it that was its, something was given up."""
        ended = self.former.get(producer.name)
        if ended is None:
            return False
        return not all(each.complete for each in self.register.now.forced if each.incarnation > ended)
