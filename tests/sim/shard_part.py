"""A shard: the shipped core, committer and engine twin, with actors.shard's order of calls on virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shards import committer as commits
from shards.clock import AgeClock, AgeMark, Reading
from shards.core import ShardCore
from shards.engine import HOME_FAMILY, Engine, Op, StoreFailed, StoreFull
from shards.events import (
    CloseLink,
    Committed,
    Contended,
    Effect,
    FrameReceived,
    LinkDown,
    LinkUp,
    Send,
    SendToShard,
    SpaceChanged,
    Submit,
    TickEnded,
)
from shards.frames import Beat, Entry, FeedTaken, Frame, Reply, Retain, Retained, decode, encode
from shards.options import ShardOptions, StoreOptions
from shards.rows import META
from shards.slots import SlotTable
from shards.steady import WALL_ROW, SteadyClock, WallRow
from shards.store import Put, Store, TopicKey
from tests.sim.asker import Asker
from tests.sim.contest import Contest
from tests.sim.disk import Disk
from tests.sim.late_engine import LateEngine
from tests.sim.network import End, Network, taken
from tests.sim.process import TURN_US, Process, Turns
from tests.sim.world import MS, SECOND

AGE_ROW = META + b"age"
SPACE_EVERY_US = SECOND
HELD_RETRY_US = 250 * MS


@dataclass(frozen=True, slots=True)
class ShardSetting:
    n_shards: int
    options: ShardOptions
    store: StoreOptions
    made: Callable[[ShardCore], None]
    """Told of every core that is made: where planted faults come in."""
    check_every: int
    late: bool = False
    """tests.sim.late_engine"""


class ShardPart:
    """One incarnation of a shard's process."""

    def __init__(self, process: Process, network: Network, disk: Disk, setting: ShardSetting) -> None:
        self.process = process
        self.index = process.index
        self._world = process.world
        self._network = network
        self._disk = disk
        self._setting = setting
        self._links: dict[int, End] = {}
        self._turns_taken = 0
        self._held: deque[commits.Record] = deque()
        """Records that the full disk has not taken, in the order of their positions."""
        self._disk_level = 0
        self._space_level = 0

    def start(self) -> None:
        """A store without room cannot be opened: the process ends, and the next one tries again."""
        world = self._world
        try:
            self._open_core()
        except StoreFull as error:
            self.process.die(str(error))
            return
        self._pump = Turns(self.process, self._tick)
        self._committer = commits.LocalCommitter()
        others = [shard for shard in range(self._setting.n_shards) if shard != self.index]
        self._others = {shard: Asker(self._network, self.process, shard, _Outbox(self)) for shard in others}
        self._drive(self._committer.handle(commits.Opened(self.core.recovered)))
        self._network.listen(("shard", self.index), self.process, lambda: self)
        for asker in self._others.values():
            asker.start()
        self._watch_space()
        world.note(self.process.name, "started", f"recovered {self.core.recovered}")

    def _reading(self) -> Reading:
        return Reading(self._world.wall_ms, self._world.boot_id, self._world.boottime_ms)

    def _open_core(self) -> None:
        now = self._reading()
        self._late = LateEngine(self._disk.engine) if self._setting.late else None
        engine: Engine = self._late or self._disk.engine
        if self._disk.room >= 3:
            raise StoreFull("no room to open the store")
        row = engine.get(HOME_FAMILY, AGE_ROW)
        mark = AgeMark.decode(row) if row else None
        self._age = AgeClock(mark, now)
        age_ms = self._age.age_ms(now)
        if mark is not None:
            passed_ms = self._world.passed_ms(mark.reading.boot_id, mark.reading.boottime_ms)
            self._world.step_counted |= age_ms - mark.age_ms > passed_ms + SECOND // MS
        wall = engine.get(HOME_FAMILY, WALL_ROW)
        self._wall_written = WallRow.decode(wall) if wall else None
        self._steady = SteadyClock(self._wall_written, mark, age_ms, now.wall_ms)
        steady_ms = self._steady.steady_ms(age_ms)
        if not self.index:
            self._world.tell_steady(steady_ms)
        self.store = Store.open(engine, self._setting.store, age_ms, steady_ms)
        slots = SlotTable.initial(self._setting.n_shards)
        self.core = ShardCore(self.index, slots, engine, self.store, self._setting.options, replicated=self._setting.late)
        self._appended: deque[tuple[int, bytes]] = deque()
        self._watch_messages()
        self._setting.made(self.core)
        self._contest = Contest(self.core)
        self._opened_us = self._world.now_us

    def _watch_messages(self) -> None:
        """Which messages are stored, whatever a layout makes of them."""
        writing_to, appended = self.store.writing_to, self._appended

        def watched(generation: int) -> tuple[Put, Callable[[bytes], None]]:
            put, count = writing_to(generation)

            def noted(ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
                appended.append((position, value))
                put(ops, key, position, value)

            return noted, count

        append_all = self.store.append_all

        def watched_all(ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
            appended.extend(zip(positions, values, strict=True))
            append_all(ops, keys, positions, values)

        self.store.writing_to = watched  # type: ignore[method-assign]
        self.store.append_all = watched_all  # type: ignore[method-assign]

    # ------------------------------------------------------------------ the tick

    def _tick(self) -> None:
        world = self._world
        reading = self._reading()
        if self._age.wants_mark(reading):
            self.core.note(AGE_ROW, self._age.mark(reading).encode())
        age_ms = self._age.age_ms(reading)
        self._steady.look(self.core.next_position, age_ms, reading.wall_ms)
        if self._wall_written is not self._steady.row:
            self._wall_written = self._steady.row
            self.core.note(WALL_ROW, self._wall_written.encode())
        now = TickEnded(world.now_us - self._opened_us, age_ms, self._steady.steady_ms(age_ms), self._age.suspended)
        self._carry_out(self.core.handle(now))
        self._check()
        if self.core.busy:
            self._pump.soon()
        self._pump.within(self.core.wait_ms)

    def _check(self) -> None:
        self._turns_taken += 1
        if self._turns_taken % self._setting.check_every == 0:
            self.check()

    def check(self) -> None:
        """What each part says always holds."""
        self.core.check()
        assert not any(self.core.gc_found.values()), f"the sweep found {self.core.gc_found}"
        self.store.check()
        self._committer.check()
        self._contest.check()

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(number, frame):
                    link = self._links.get(number)
                    if link is not None:
                        link.hand_on(frame, encode)
                case Submit(record):
                    if self._held:
                        self._held.append(record)
                    else:
                        self._drive(self._committer.handle(commits.Submit(record)))
                case SendToShard(shard, source, items):
                    entries: list[Entry] = [Retain(source, items)]
                    self._others[shard].ask(items[-1][0], entries)
                case CloseLink(number, why):
                    link = self._links.get(number)
                    if link is not None:
                        link.close(why)
                case Contended():
                    self._contest.reported(effect)

    def _drive(self, effects: list[commits.Effect]) -> None:
        for effect in effects:
            match effect:
                case commits.Write(record):
                    try:
                        self._disk.write(list(record.ops), [item for item in self._appended if item[0] <= record.position])
                        if self._late is not None:
                            self._late.written(record.position, record.ops)
                        while self._appended and self._appended[0][0] <= record.position:
                            self._appended.popleft()
                    except StoreFull as error:
                        self._hold(record, str(error))
                    except StoreFailed as error:
                        self.process.die(f"write at position {record.position}: {error}")
                        return
                case commits.StartSync():
                    self.process.after(self._world.between(*TURN_US), self._begin_sync)
                case commits.Committed(position):
                    if self._late is not None:
                        self._late.committed(position)
                    self._carry_out(self.core.handle(Committed(position)))
                    if self.core.busy:
                        self._pump.soon()
                case commits.Refused():
                    pass  # It is held, and submitted again.
                case commits.Failed(reason):
                    self.process.die(f"sync: {reason}")
                    return

    def _begin_sync(self) -> None:
        self._drive(self._committer.handle(commits.SyncStarted()))
        self._world.later(self._disk.sync_time_us(), self._sync_ends, self._disk.sync_begin())

    def _sync_ends(self, covered: int) -> None:
        """The thread's part: it goes on while the process is stopped, and ends with it."""
        if not self.process.alive:
            return
        try:
            self._disk.sync_end(covered)
        except StoreFailed as error:
            self.process.deliver(None, self._synced, str(error))
        else:
            self.process.deliver(None, self._synced, "")

    def _synced(self, fault: str) -> None:
        self._world.note(self.process.name, "synced", fault)
        self._drive(self._committer.handle(commits.SyncFailed(fault) if fault else commits.SyncDone()))

    # ------------------------------------------------------------------ room on the disk

    def _hold(self, record: commits.Record, reason: str) -> None:
        self._held.appendleft(record)
        self._drive(self._committer.handle(commits.WriteRefused(record.position, reason)))
        self._space_changed()
        self.process.after(HELD_RETRY_US, self._write_held)

    def _write_held(self) -> None:
        waiting, self._held = self._held, deque()
        while waiting:
            self._drive(self._committer.handle(commits.Submit(waiting.popleft())))
            if self._held:
                self._held.extend(waiting)
                return
        self._space_changed()

    def _space_changed(self) -> None:
        level = 2 if self._held else self._disk_level
        if level != self._space_level:
            self._space_level = level
            self._carry_out(self.core.handle(SpaceChanged(level)))

    def _watch_space(self) -> None:
        seen = min(2, self._disk.room)
        if seen != self._disk_level:
            self._disk_level = seen
            self._space_changed()
        self.process.after(SPACE_EVERY_US, self._watch_space)

    # ------------------------------------------------------------------ Owner

    def link_up(self, end: End) -> None:
        self._links[end.number] = end
        self._carry_out(self.core.handle(LinkUp(end.number, end.peer_role, end.peer_name)))
        self._pump.soon()

    def link_frame(self, end: End, data: bytes) -> None:
        frame = taken(data, decode)
        if not isinstance(frame, Beat):
            self._world.note(self.process.name, f"<{end.peer_name}", frame, data)
        self._carry_out(self.core.handle(FrameReceived(end.number, frame)))
        if not isinstance(frame, Beat) and not (self._world.patient and isinstance(frame, FeedTaken)):
            # A beat by itself is heard by the next turn, which is never far.
            self._pump.soon()

    def link_down(self, end: End) -> None:
        self._links.pop(end.number, None)
        self.core.handle(LinkDown(end.number))

    def outbox_arrived(self, shard: int, upto: int) -> None:
        """A retained message of ours is at its home."""
        self._carry_out(self.core.outbox_arrived(shard, upto))
        self._pump.soon()


class _Outbox:
    """Hears from the homes of retained messages."""

    def __init__(self, part: ShardPart) -> None:
        self._part = part

    def shard_linked(self, shard: int) -> None:
        pass

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Retained):
                self._part.outbox_arrived(shard, reply.applied)

    def shard_told(self, shard: int, frame: Frame) -> None:
        raise AssertionError(f"shard {shard} told shard {self._part.index} {frame}")
