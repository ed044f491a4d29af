"""The replicated form behind the contract suite of committers: three sites over a network that loses, repeats and reorders a little."""

from __future__ import annotations

from shards.committer import Record
from shards.replication.committer import ReplicatedCommitter
from shards.replication.configuration import Rid, first, rid_of, site_of
from shards.replication.entry import Entry
from shards.replication.events import Committed, Failed, Refused, Serve, SteppedDown
from tests.contracts.committers import Heard
from tests.replication.register import SimRegister
from tests.replication.site import Site
from tests.replication.world import World

NAMES = ("a", "b", "c")
STEP_MS = 4
SERVES_MS = 30_000


class ReplicatedHarness:
    """Life cycle: some replica serves -> records are submitted to it -> all three end -> whoever serves then says what is found."""

    made = 0

    def __init__(self) -> None:
        ReplicatedHarness.made += 1
        self.heard: list[Heard] = []
        self.world = World(ReplicatedHarness.made)
        # The register answers in time: who is deposed has failed, and that is another property (tests/replication/simulation.py).
        self.world.healing = True
        self.register = SimRegister(self.world, first(frozenset(rid_of(name, "1") for name in NAMES), "first"), lambda before, now: None)
        self.sites = {name: Site(name, self) for name in NAMES}
        self._leader: Site | None = None
        self._committer: ReplicatedCommitter | None = None
        self._over = False
        self._start()
        self._until_served()
        self.heard.clear()

    @property
    def committer(self) -> ReplicatedHarness:
        return self

    def submit(self, record: Record) -> None:
        assert self._committer is not None, "nobody serves"
        self._committer.submit(record)

    def step(self) -> bool:
        """A little time passes; False when all there is is committed, or the committer is over."""
        leader = self._leader
        if self._over or (leader is not None and leader.replica.quiet and leader.replica.idle):
            return False
        self.world.run(self.world.now_ms + STEP_MS)
        return True

    def fail_next_write(self) -> None:
        assert self._leader is not None
        self._leader.disk.log.full = True

    def fail_next_sync(self) -> None:
        assert self._leader is not None
        self._leader.disk.log.broken = True

    def crash(self, power: bool, survivors: int = 0) -> list[int]:
        self._end(power, survivors)
        self._start()
        self._until_served()
        assert self._leader is not None
        found = [int(value) for _, value in self._leader.disk.engine.scan(0, b"0", b":", 1 << 30)]
        self._end(power=False, survivors=0)
        return sorted(found)

    def reopen(self, found: list[int]) -> None:
        self._start()

    # ---- around the sites

    def carry(self, source: Site, to: Rid, data: bytes) -> None:
        for _ in range(self.world.rng.choices((0, 1, 2), (2, 94, 4))[0]):
            late = self.world.happens(0.05)
            self.world.later(self.world.between(1, 60 if late else 3), self._deliver, source.rid, to, data)

    def _deliver(self, source: Rid, to: Rid, data: bytes) -> None:
        site = self.sites[site_of(to)]
        if site.alive:
            site.receive(source, data)

    def applied(self, site: Site, entries: tuple[Entry, ...]) -> None:
        pass

    def told(self, site: Site, effect: Serve | Committed | Refused | SteppedDown | Failed) -> None:
        if self._over:
            return
        if isinstance(effect, Serve):
            self._leader = site
            self._committer = ReplicatedCommitter(effect.position, self, site.bring)
        elif site is self._leader and self._committer is not None:
            self._committer.told(effect)

    # ---- the listener

    def committed(self, position: int) -> None:
        self.heard.append(("committed", position))

    def refused(self, position: int, reason: str) -> None:
        self.heard.append(("refused", position))

    def failed(self, reason: str) -> None:
        self._over = True
        self.heard.append(("failed", -1))

    # ---- within

    def _start(self) -> None:
        self._over, self._leader, self._committer = False, None, None
        for site in self.sites.values():
            site.start()

    def _end(self, power: bool, survivors: int) -> None:
        self._over = True
        for site in self.sites.values():
            site.end(power, survivors)

    def _until_served(self) -> None:
        assert self.world.run(self.world.now_ms + SERVES_MS, lambda: self._committer is not None), "nobody serves"
