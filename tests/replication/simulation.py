"""Five sites with the shipped core, three of them replicas at first, and everything that may break.

What must hold, always: what any copy applies at an index is the same everywhere; when it is first applied, it is on the disk of everybody
who may lead; the register is given only what may follow. And in the end, when all is mended: everything acknowledged is on every replica in
sync, once, in the order of its producer; all of them hold the same; nobody waits for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from shards.replication.applying import applied_in
from shards.replication.configuration import Configuration, Rid, first, rid_of, site_of, targeted
from shards.replication.entry import Entry, Kind
from shards.replication.events import Committed, Failed, HandOver, Refused, Serve, SteppedDown
from tests.replication.losing_disks import EVERY_MS, FIRST_MS, LosingDisks
from tests.replication.register import SimRegister
from tests.replication.shard import Producer, SimShard
from tests.replication.site import Site
from tests.replication.world import Violation, World

NAMES = ("a", "b", "c", "d", "e")
BREAKING_MS = 25_000
LOSING = 4
"""Every so many histories sites lose their disks too."""
HEALING_MS = 90_000
POSITIONS_PER_INCARNATION = 1_000_000

Planter = Callable[[Site], None]


@dataclass(slots=True)
class Incarnation:
    """history: index -> what was applied there first. last: the highest of them. position: of the last record."""

    history: dict[int, Entry] = field(default_factory=dict)
    last: int = 0
    position: int = 0

    def apply(self, site: Site, entries: tuple[Entry, ...]) -> bool:
        """Whether any of it is new."""
        for entry in entries:
            new = entry.index not in self.history
            known = self.history.setdefault(entry.index, entry)
            if new and entry.kind is Kind.RECORD:
                position = entry.position()
                if position <= self.position:
                    raise Violation(f"{site.name} applies position {position} at {entry.index}, behind {self.position}")
                self.position = position
            if known != entry:
                raise Violation(f"{site.name} applies at {entry.index} {_shown(entry)}, and {_shown(known)} was applied there")
        if entries[-1].index <= self.last:
            return False
        self.last = entries[-1].index
        return True

    def forked(self, site: Site) -> Incarnation:
        """What goes on from the log of this site, when it is forced to lead."""
        log, applied = site.disk.log, applied_in(site.disk.engine).index
        kept = {at: one for at, one in self.history.items() if at <= applied or (at <= log.last and log.epoch_at(at) == one.epoch)}
        return Incarnation(kept, max(kept, default=0), max((one.position() for one in kept.values() if one.kind is Kind.RECORD), default=0))


class Simulation:
    """plant: changes the replica of a site that has just started (planted faults)."""

    loses_disks = True

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        replicas = frozenset(rid_of(name, "1") for name in NAMES[:3])
        self.register = SimRegister(self.world, first(replicas, "first"), self._changed)
        self.register.delayed = self._delayed
        self.sites = {name: Site(name, self) for name in NAMES}
        self.incarnations = {1: Incarnation()}
        self.slow: set[str] = set()
        self.cut: set[str] = set()
        self.cut_ways: set[tuple[str, str]] = set()
        self.slow_ms = 0
        self._shards: dict[str, tuple[int, SimShard]] = {}
        self.disks = LosingDisks(self.world, self.sites)
        self.producers = [Producer(b"p%d" % number, self.world, self) for number in range(3)]
        for site in self.sites.values():
            site.start()
        self.world.later(1500, self._break)
        if self.loses_disks and seed % LOSING == LOSING - 1:
            self.world.later(FIRST_MS, self._lose)

    def run(self) -> None:
        self.world.run(BREAKING_MS)
        self._heal()
        if not self.world.run(self.world.now_ms + HEALING_MS, self._whole):
            leaders = [site.name for site in self.sites.values() if site.alive and site.replica.role == "leader"]
            raise Violation(f"not whole {HEALING_MS} ms after everything was mended: {self.register.now}, leaders {leaders}")
        self._check_end()

    # ------------------------------------------------------------------ around the sites

    def carry(self, source: Site, to: Rid, data: bytes) -> None:
        world, target = self.world, site_of(to)
        lost = {source.name, target} & self.cut or (source.name, target) in self.cut_ways
        if lost or (world.happens(0.02) and not world.healing):
            return
        for _ in range(2 if world.happens(0.02) else 1):
            delay = world.between(1, 12) + (world.between(0, self.slow_ms) if self.slow_ms else 0)
            if world.happens(0.6 if source.name in self.slow else 0.03) and not world.healing:
                delay += world.between(50, 2500)
            world.later(delay, self._deliver, source.rid, to, data)

    def _deliver(self, source: Rid, to: Rid, data: bytes) -> None:
        site = self.sites[site_of(to)]
        if site.alive and site.rid == to:
            site.receive(source, data)

    def applied(self, site: Site, entries: tuple[Entry, ...]) -> None:
        number = site.disk.log.incarnation
        if number not in self.incarnations:
            self.incarnations[number] = self.incarnations[max(self.incarnations)].forked(site)
        if self.incarnations[number].apply(site, entries):
            self._complete()

    def _complete(self) -> None:
        """Whoever may lead has everything that is committed on its disk."""
        now = self.register.now
        known = self.incarnations.get(now.incarnation)
        if known is None or not known.last:
            return
        index, epoch = known.last, known.history[known.last].epoch
        for rid in sorted(now.isr | now.elr):
            disk = self.disks.of(rid)
            if disk is None:
                continue  # it is lost, so it leads nobody; the others are looked at
            if index < disk.log.first:
                continue
            log, stable = disk.log, disk.log.stable()
            if index - log.first >= len(stable) or stable[index - log.first].epoch != epoch:
                raise Violation(f"{index} is committed, and {rid}, who may lead, has not got it on its disk")

    def _changed(self, before: Configuration, now: Configuration) -> None:
        """The worst moment for its author to lose its power, for a site to be cut off, for messages to be late."""
        self._complete()
        world = self.world
        if world.healing or now.leader not in now.replicas:
            return
        author = self.sites[site_of(now.leader)]
        if now.epoch != before.epoch and world.happens(0.25):
            self.slow.add(author.name)
            world.later(1500, self.slow.discard, author.name)
            world.later(world.between(1, 30), self._end, author, author.life, True)
        elif now.isr - before.isr and world.happens(0.25):
            joined = site_of(sorted(now.isr - before.isr)[0])
            self.cut.add(joined)
            self.register.cut.add(author.name)
            world.later(world.between(1200, 3000), self.cut.discard, joined)
            world.later(world.between(500, 3000), self.register.cut.discard, author.name)

    def _delayed(self, before: Configuration, new: Configuration) -> None:
        """The worst moment for who is to join: it falls behind while nobody knows."""
        joining = sorted(new.isr - before.isr)
        if joining and self.world.happens(0.6):
            self.cut.add(site_of(joining[0]))
            self.world.later(6000, self.cut.discard, site_of(joining[0]))

    def told(self, site: Site, effect: Serve | Committed | Refused | SteppedDown | Failed) -> None:
        if isinstance(effect, Serve):
            self.world.note(site.name, f"serves epoch {effect.epoch} from {effect.position}")
            self.world.happened["serves"] += 1
            position = max(effect.position, (site.disk.log.incarnation - 1) * POSITIONS_PER_INCARNATION)
            self._shards[site.name] = site.life, SimShard(self.world, site.disk.engine, position, site.bring)
            return
        life, shard = self._shards.get(site.name, (-1, None))
        if shard is not None and life == site.life:
            shard.committer.told(effect)
        if isinstance(effect, SteppedDown | Failed):
            self._shards.pop(site.name, None)
        elif isinstance(effect, Refused):
            # What comes behind it would leave a gap: the shard's process begins anew, as a follower.
            self.world.later(0, self._end, site, site.life, False)

    def shards(self) -> list[SimShard]:
        return [shard for name, (life, shard) in sorted(self._shards.items()) if self.sites[name].life == life and not shard.over]

    # ------------------------------------------------------------------ faults

    def _break(self) -> None:
        world = self.world
        if world.healing:
            return
        site = self.sites[world.rng.choice(NAMES)]
        if world.happens(0.3):
            # Whoever leads is worth more.
            site = self.sites[site_of(self.register.now.leader)] if self.register.now.leader else site
        length = world.between(100, 3500)
        match world.between(0, 15):
            case 0 | 1:
                self._end(site, site.life, world.happens(0.6))
            case 2 | 3:
                site.fuse, site.power = world.between(0, 30), world.happens(0.6)
            case 4:
                self.cut.add(site.name)
                world.later(length, self.cut.discard, site.name)
            case 5:
                way = (site.name, world.rng.choice(NAMES))
                self.cut_ways.add(way)
                world.later(length, self.cut_ways.discard, way)
            case 6:
                self.register.cut.add(site.name)
                world.later(length, self.register.cut.discard, site.name)
            case 7 if world.happens(0.3):
                self.register.cut.update(NAMES)
                world.later(length, self.register.cut.clear)
            case 8:
                site.slow_ms = world.between(20, 900)
                world.later(length, setattr, site, "slow_ms", 0)
            case 9:
                site.disk.log.full = True
            case 10 if world.happens(0.4):
                site.disk.log.broken = True
            case 11:
                site.bring(HandOver(world.rng.choice(sorted(self.register.now.isr))))
            case 12:
                sites = tuple(world.rng.sample(NAMES, world.rng.choice((3, 3, 3, 2, 4))))
                self.register.operate(lambda now: targeted(now, tuple(sorted(sites)), f"{world.rng.random()}"))
                world.happened["target"] += 1
            case 13:
                self.slow_ms = world.between(10, 600)
                world.later(length, setattr, self, "slow_ms", 0)
            case 14 if world.happens(0.3):
                for each in self.sites.values():
                    self._end(each, each.life, power=True)
            case _:
                pass
        world.later(world.between(50, 900), self._break)

    def _lose(self) -> None:
        if not self.world.healing:
            self.disks.turn(self.register.now)
            self.world.later(EVERY_MS, self._lose)

    def _end(self, site: Site, life: int, power: bool) -> None:
        if site.alive and site.life == life:
            site.end(power)
            self.world.later(self.world.between(50, 3000), self._start, site, site.life)

    def _start(self, site: Site, life: int) -> None:
        if not site.alive and site.life == life:
            site.start()

    def _heal(self) -> None:
        self.world.note("world", "is mended")
        self.world.healing = True
        self.cut.clear()
        self.cut_ways.clear()
        self.register.cut.clear()
        self.slow_ms = 0
        self.slow.clear()
        for site in self.sites.values():
            site.slow_ms, site.fuse = 0, None
            site.disk.log.full = site.disk.log.broken = False
            if not site.alive:
                self._start(site, site.life)
        for producer in self.producers:
            self.world.later(1000, partial(setattr, producer, "resting", True))

    # ------------------------------------------------------------------ the end

    def _whole(self) -> bool:
        now = self.register.now
        if now.replicas & self.disks.gone.keys():
            return False
        if now.isr != now.replicas or now.trans is not None or not all(producer.resting and producer.done for producer in self.producers):
            return False
        if now.target is not None and {site_of(rid) for rid in now.replicas} != set(now.target):
            return False
        if now.incarnation not in self.incarnations:
            return False
        leader, last = self.sites[site_of(now.leader)], self.incarnations[now.incarnation].last
        replicas = [self.sites[site_of(rid)] for rid in sorted(now.replicas)]
        return leader.alive and leader.replica.quiet and all(site.alive and site.replica.applied == last for site in replicas)

    def _check_end(self) -> None:
        now = self.register.now
        engines = {rid: self.sites[site_of(rid)].disk.engine for rid in sorted(now.replicas)}
        found = {
            rid: {family: engine.scan(family, b"", b"\xff" * 64, 1 << 30) for family in engine.families()}
            for rid, engine in engines.items()
        }
        leader = found[now.leader]
        for rid, rows in found.items():
            if rows != leader:
                raise Violation(f"{rid} and {now.leader} hold something else")
        stored: dict[bytes, list[int]] = {}
        for key, value in leader[0]:
            if key[:1] == b"e":
                stored.setdefault(value[:2], []).append(int.from_bytes(value[3:], "big"))
        for producer in self.producers:
            seqs = stored.get(producer.name, [])
            if seqs != list(range(1, len(seqs) + 1)):
                raise Violation(f"messages of {producer.name!r} are stored as {seqs}")
            if (lost := sorted(producer.acked - set(seqs))) and not self.may_lose(producer):
                raise Violation(f"acknowledged messages {lost} of {producer.name!r} are lost")

    def may_lose(self, producer: Producer) -> bool:
        """Never, here."""
        return False


def _shown(entry: Entry) -> str:
    return f"{entry.kind.name} of epoch {entry.epoch}"


def run(seed: int, made: Callable[[int], Simulation] = Simulation) -> World:
    """One history. Raises Violation, or whatever assertion of the core found it first; the last notes are in the message."""
    simulation = made(seed)
    try:
        simulation.run()
    except Exception as error:
        raise Violation(f"seed {seed}, at {simulation.world.now_ms} ms: {type(error).__name__}: {error}") from error
    return simulation.world
