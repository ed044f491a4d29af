"""The shell of one replica in a simulation: it carries out what the shipped core wants, on a disk and a network that fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, assert_never

import msgpack

from shards.engine import StoreFailed
from shards.engine_memory import MemoryEngine
from shards.replication.applying import applied_in, apply
from shards.replication.bounds import Retained
from shards.replication.configuration import Configuration, Rid, rid_of
from shards.replication.entry import Entry
from shards.replication.events import (
    Apply,
    BeginTransfer,
    CheckpointMade,
    ChunkWritten,
    Committed,
    DataSynced,
    Dismissed,
    Effect,
    EraseCheckpoint,
    Event,
    Failed,
    Install,
    Installed,
    MakeCheckpoint,
    Propose,
    Proposed,
    ReadRegister,
    Received,
    Refused,
    RegisterRead,
    Send,
    SendChunk,
    Serve,
    StartSync,
    SteppedDown,
    StoreBroke,
    Superseded,
    SyncData,
    SyncDone,
    SyncStarted,
    Tick,
    WriteChunk,
)  # fmt: skip
from shards.replication.messages import Ack, Append, Chunk, Message, Nak, pack, unpack
from shards.replication.ports import Outcome
from shards.replication.replica import Replica
from tests.replication.disk import Disk
from tests.replication.register import SimRegister
from tests.replication.world import Violation, World

TICK_MS = 60
CHUNK = 150
RETAINED = Retained(entries=5, sync_data_ms=700)


class Surroundings(Protocol):
    """What a site is in."""

    world: World
    register: SimRegister

    def carry(self, source: Site, to: Rid, data: bytes) -> None:
        """Over the network, if at all."""

    def applied(self, site: Site, entries: tuple[Entry, ...]) -> None: ...

    def told(self, site: Site, effect: Serve | Committed | Refused | SteppedDown | Failed) -> None: ...


class Ended(Exception):
    """The process of this site has ended in the middle of what it did."""


class Site:
    """`life` counts processes. `fuse`: so many effects are carried out before the process ends, None: no end is planned."""

    def __init__(self, name: str, around: Surroundings) -> None:
        self.name = name
        self.around = around
        self.copies = 1
        """Made so far."""
        self.disk = Disk()
        self.life = 0
        self.alive = False
        self.replica: Replica
        self.fuse: int | None = None
        self.power = False
        self.slow_ms = 0
        self._world = around.world

    @property
    def rid(self) -> Rid:
        return rid_of(self.name, str(self.disk.copy))

    def start(self) -> None:
        self.life += 1
        self.alive = True
        self.fuse = None
        applied = applied_in(self.disk.engine)
        self.replica = Replica(self.rid, self.disk.log, applied, self._world.rng, RETAINED)
        log = self.disk.log
        self._world.note(self.name, f"starts: log {log.first}..{log.last}, promised {log.promised}, applied {applied.index}")
        self._tick(self.life)

    def end(self, power: bool, kept: int | None = None) -> None:
        if self.alive:
            self._world.note(self.name, "loses its power" if power else "is killed")
            self._world.happened["power cut" if power else "kill"] += 1
            self.alive = False
            self.life += 1
            self.disk.crash(power, self._world.rng, kept)

    def lose_disk(self, back: Disk | None) -> tuple[Rid, Disk]:
        """Its power goes, and it comes back with another disk, or with an empty one. What it had."""
        self._world.happened["disk lost" if back is None else "disk back"] += 1
        lost = self.rid, self.disk
        self.end(power=True)
        self.life += 1
        self._world.note(self.name, "has another disk")
        self.disk = self._anew() if back is None else back
        return lost

    def _anew(self) -> Disk:
        self.copies += 1
        return Disk(self.copies)

    def bring(self, event: Event) -> None:
        if self.alive:
            self._carry_out(self.replica.handle(event))
            if self.alive:
                self.replica.check()

    def later(self, delay_ms: int, make: Callable[[], Event | None]) -> None:
        """An event for this process, if it is still there then."""
        self._world.later(delay_ms, self._later, self.life, make)

    # ---- within

    def _later(self, life: int, make: Callable[[], Event | None]) -> None:
        if life == self.life and self.alive:
            event = make()
            if event is not None:
                self.bring(event)

    def _tick(self, life: int) -> None:
        if life == self.life and self.alive:
            self._world.later(TICK_MS, self._tick, life)
            self.bring(Tick(self._world.now_ms))

    def _carry_out(self, effects: list[Effect]) -> None:
        life = self.life
        for effect in effects:
            if self.fuse is not None:
                self.fuse -= 1
                if self.fuse < 0:
                    self._world.happened[f"ends before {type(effect).__name__}"] += 1
                    self.end(self.power)
                    self._world.later(self._world.between(50, 1500), self._again, self.life)
            if life != self.life:
                return
            self._do(effect)

    def _again(self, life: int) -> None:
        if life == self.life and not self.alive:
            self.start()

    def _do(self, effect: Effect) -> None:
        world, disk = self._world, self.disk
        match effect:
            case Send(to, message):
                self._keeps_quiet(message)
                self.around.carry(self, to, pack(message))
            case StartSync():
                self.later(world.between(0, 3), self._sync)
            case ReadRegister():
                self.around.register.read(self.name, partial(self._register_read, self.life))
            case Propose(new):
                self.around.register.propose(self.name, new, partial(self._proposed, self.life, new))
            case Apply(entries, position):
                self.around.applied(self, entries)
                apply(disk.engine, entries, position)
            case SyncData(index):
                slow = world.happens(0.2)
                covered = partial(self._data_synced, index, disk.engine, disk.engine.sync_begin())
                self.later(world.between(1, 1200 if slow else 30), covered)
            case Serve() | Committed() | Refused() | SteppedDown():
                self.around.told(self, effect)
            case Failed(reason):
                self.around.told(self, effect)
                world.note(self.name, f"fails: {reason}")
                self.end(power=True)
                world.later(world.between(50, 800), self._again, self.life)
            case MakeCheckpoint(number):
                self.later(world.between(1, 40), partial(self._make_checkpoint, number))
            case EraseCheckpoint(number):
                disk.checkpoints.pop(number, None)
            case SendChunk(to, pull):
                files = disk.checkpoints.get(pull.number)
                if files is not None:
                    self.around.carry(self, to, pack(Chunk.of(pull, files[pull.file][pull.offset : pull.offset + CHUNK])))
            case BeginTransfer(files):
                disk.half = {place: bytearray() for place in range(len(files))}
            case WriteChunk(file, offset, data):
                disk.half[file][offset:] = data
                self.later(world.between(1, 5), lambda: ChunkWritten(file, offset + len(data)))
            case Install(index, epoch):
                self.later(world.between(1, 10), partial(self._install, index, epoch))
            case Dismissed():
                # A new copy, should its site be wanted again.
                if disk.log.last or self.copies == 1:
                    world.note(self.name, "is dismissed")
                    self.begin_anew()
            case Superseded(incarnation):
                world.note(self.name, f"is of before incarnation {incarnation}")
                world.happened["superseded"] += 1
                self.begin_anew()
            case _ as never:
                assert_never(never)

    def begin_anew(self) -> None:
        """With another disk, and so as another copy."""
        self.alive, self.disk = False, self._anew()
        self.life += 1
        self._world.later(self._world.between(10, 500), self._again, self.life)

    def _keeps_quiet(self, message: Message) -> None:
        """Nothing is said in an epoch before a power cut would leave its promise."""
        if isinstance(message, Append | Ack | Nak) and message.epoch > self.disk.log.stable_promise:
            promise = self.disk.log.stable_promise
            raise Violation(f"{self.name} sends {type(message).__name__} of epoch {message.epoch}, and {promise} is on its disk")

    def _sync(self) -> Event:
        covered = self.disk.log.sync_begin()
        self.later(self._world.between(1, 8) + self.slow_ms, partial(self._synced, covered))
        return SyncStarted()

    def _synced(self, covered: int) -> Event:
        try:
            self.disk.log.sync_end(covered)
        except StoreFailed as error:
            return StoreBroke(str(error))
        return SyncDone()

    def _data_synced(self, index: int, engine: MemoryEngine, covered: int) -> Event | None:
        if engine is not self.disk.engine:
            return None  # it was replaced by a checkpoint
        engine.sync_end(covered)
        return DataSynced(index)

    def _register_read(self, life: int, now: Configuration | None) -> None:
        if life == self.life:
            self.bring(RegisterRead(now))

    def _proposed(self, life: int, new: Configuration, outcome: Outcome) -> None:
        if life == self.life:
            self.bring(Proposed(new, outcome))

    def _make_checkpoint(self, number: int) -> Event:
        engine = self.disk.engine
        families = {family: engine.scan(family, b"", b"\xff" * 64, 1 << 30) for family in engine.families()}
        data = bytes(msgpack.packb(families))
        self.disk.checkpoints[number] = [data[: len(data) // 2], data[len(data) // 2 :], b""]
        applied = applied_in(engine)
        self._world.happened["checkpoint"] += 1
        names = ("one", "two", "three")
        files = tuple((name, len(part)) for name, part in zip(names, self.disk.checkpoints[number], strict=True))
        return CheckpointMade(number, applied.index, applied.epoch, files)

    def _install(self, index: int, epoch: int) -> Event | None:
        """Synced, then renamed: one step here, and the worst moments are before and after it."""
        if self._ends_at_the_worst_moment(0.12):
            return None
        engine = MemoryEngine()
        families = msgpack.unpackb(b"".join(self.disk.half.values()), strict_map_key=False)
        for family, rows in families.items():
            if family not in engine.families():
                engine.create_family(family)
            engine.write([(family, key, value) for key, value in rows])
        engine.sync()
        self.disk.engine, self.disk.half = engine, {}
        self._world.happened["install"] += 1
        self._world.note(self.name, f"installs a checkpoint at {index}")
        if self._ends_at_the_worst_moment(0.2):
            return None
        return Installed(index, epoch, applied_in(engine).position)

    def _ends_at_the_worst_moment(self, probability: float) -> bool:
        if self._world.healing or not self._world.happens(probability):
            return False
        self.end(power=self._world.happens(0.5))
        self._world.later(self._world.between(50, 500), self._again, self.life)
        return True

    def receive(self, source: Rid, data: bytes) -> None:
        self.bring(Received(source, unpack(data)))
