"""A shard that serves: its core, the links to it, room on the disk, quota and access rules.  What both forms of it share.

Where its store is opened and how its records are committed is said by who derives from it: a site that stands alone has them in its own
store (actors.shard), several sites in the log of a replica that leads (actors.replica.leading).

A full disk ends nothing: the store has nothing of the refused record.  It and those behind it are held, in their order,
and written when there is room; until then nobody is answered, and gateways are refused further frames, so what is held is
bounded by the frames that others may have without an answer.
"""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import structlog

from access.bundle import Bundle
from access.rules import Access
from actors import notices
from actors.accepted import clock_accepted
from actors.access.watch import AccessWatch
from actors.alarms import Alarm, clear_alarm, raise_alarm
from actors.clocks import read_clocks, tell_steady
from actors.fatal import die, die_of, dies_with
from actors.links import Carried, Link, taken
from actors.metrics.of_shard import ShardFigures
from actors.outbox import Outbox
from actors.pump import Pump
from actors.quota import Quota, quota_bytes
from actors.retention import tell
from actors.settings import shard_options, store_options
from actors.shard_client import ShardClient
from actors.sites.whereabouts import Whereabouts
from actors.topology import Topology, incarnation_of, member_name
from actors.wire import Wire
from config.schema import Config
from shards.clock import AgeClock, AgeMark, Reading
from shards.committer import Record
from shards.core import ShardCore
from shards.engine import HOME_FAMILY, Engine
from shards.events import (
    AccessChanged,
    Adopted,
    AskShard,
    CloseLink,
    Committed,
    Contended,
    Effect,
    Event,
    FrameReceived,
    GroupDeclared,
    GroupDropped,
    LinkDown,
    LinkUp,
    Peace,
    QuotaChanged,
    Send,
    SendToShard,
    SettingsChanged,
    ShardTold,
    SpaceChanged,
    Submit,
    TickEnded,
)
from shards.frames import Entry, FeedTaken, Result, Retain, decode, encode
from shards.housekeeping import AGE_ROW
from shards.slots import SlotTable
from shards.steady import WALL_ROW, SteadyClock, WallRow
from shards.store import Store

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

log = structlog.get_logger(__name__)

SPACE_EVERY_SECONDS = 1.0
SPACE_LOW_BYTES = 256 << 20
SPACE_NONE_BYTES = 64 << 20
HELD_RETRY_SECONDS = 0.25
_CLOCK_JUMPED = "nothing expires and nothing is dropped until `holdfast storage accept-clock`"


class ShardServing(ABC):
    """Owns one shard's core, over the engine that `_engine` is set to before `_open_core`."""

    _engine: Engine
    _config: Config
    _not_taken, _taken = "shard.disk_full", "shard.disk_has_room"
    """What is logged when a record is refused, and when all are taken again."""
    _replicated = False
    """Somebody else may lead the shard, and we have not heard of it."""
    _salvages = True
    """Where there is one copy: a generation that cannot be read is gone on without, if the configuration says so."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._index = index
        self._links: dict[int, Link] = {}
        self._failed = ""
        self._held: deque[Record] = deque()
        """Records that the full disk has not taken, in the order of their positions."""
        self._disk_level = 0
        self._space_level = 0
        self._figures = ShardFigures(index)
        self._released = -1
        """How many generations had gone when the log was released last."""

    # ------------------------------------------------------------------ how records are committed

    @abstractmethod
    def _hand_in(self, record: Record) -> None:
        """To the committer.  `_committed` follows when it is durable, or `_hold` at once."""

    @abstractmethod
    def _set_pace(self) -> None:
        """The configuration says when a sync begins."""

    @property
    @abstractmethod
    def _idle(self) -> bool:
        """Everything handed in is committed."""

    def _committed(self, position: int) -> None:
        self._figures.committed(position)
        self._carry_out(self._handle(Committed(position)))
        if self._core.busy:
            self._pump.soon()

    # ------------------------------------------------------------------ opening and ending

    def _open_core(self) -> None:
        """Raises StoreFailed.  May be called in another thread, and again."""
        now = read_clocks()
        self._boot_id = now.boot_id
        mark = self._engine.get(HOME_FAMILY, AGE_ROW)
        self._age = AgeClock(AgeMark.decode(mark) if mark else None, now)
        name = member_name("shard", self._index)
        if self._age.suspended:
            jump = self._age.jump
            log.error(
                "shard.clock_jumped", shard=self._index, before_ms=jump.before_ms if jump else None, after_ms=now.wall_ms,
                cause=_CLOCK_JUMPED,
            )  # fmt: skip
            raise_alarm(self._topology.run_dir, Alarm(name, "clock", f"the wall clock jumped over a reboot: {_CLOCK_JUMPED}"))
        else:
            clear_alarm(self._topology.run_dir, name, "clock")
        notices.forget_alarm(self._topology.run_dir, name)
        age_ms = self._age.age_ms(now)
        wall = self._engine.get(HOME_FAMILY, WALL_ROW)
        self._wall_written = WallRow.decode(wall) if wall else None
        self._steady = SteadyClock(self._wall_written, AgeMark.decode(mark) if mark else None, age_ms, now.wall_ms)
        steady_ms = self._steady.steady_ms(age_ms)
        tell_steady(self._topology.run_dir, self._index, steady_ms, now)
        salvage = self._salvages and self._config.durable_storage.messages.on_damage == "salvage"
        self._store = Store.open(self._engine, store_options(self._config), age_ms, steady_ms, salvage, derives=not self._replicated)
        self._damage_told = 0
        slots = SlotTable.initial(self._topology.n_shards)
        options = shard_options(self._config)
        self._core = ShardCore(self._index, slots, self._engine, self._store, options, time.monotonic_ns, self._replicated)
        self._opened = time.monotonic_ns()
        self._gc_found = dict(self._core.gc_found)

    def _ready(self, wire: Wire, where: Whereabouts) -> None:
        """When the core is open: whoever links with it from now on is heard."""
        topology, index = self._topology, self._index
        self._space_thread = ThreadPoolExecutor(1, thread_name_prefix="space")
        self._space_task: asyncio.Task[None] | None = None
        self._pump = Pump(self._tick)
        name = incarnation_of(topology, "shard", index)
        others = [shard for shard in range(topology.n_shards) if shard != index]
        heard = Outbox(self.outbox_arrived, self.shard_told)
        self._others = {shard: ShardClient(shard, partial(where.shard, shard), heard, wire, "shard", name) for shard in others}
        self._access = AccessWatch(topology.run_dir, self._take_access)
        quota = quota_bytes(self._config, topology.data_dir)
        self._quota = Quota(
            topology.store_dir, topology.run_dir, member_name("shard", index), quota, self._quota_changed, self._release_log
        )  # fmt: skip

    def _begin(self) -> None:
        """It is linked with the others, and looks after its disk."""
        for client in self._others.values():
            client.start()
        self._space_task = asyncio.get_running_loop().create_task(self._watch_space())
        dies_with(self._space_task, "watching the room on the disk")
        self._quota.start()

    async def _end(self) -> None:
        """What was taken is committed; nobody is linked any more."""
        for client in self._others.values():
            await client.stop()
        self._tick()
        for _ in range(1000):
            if self._idle and not self._core.busy:
                break
            await asyncio.sleep(0.01)
        if self._space_task is not None:
            self._space_task.cancel()
        self._quota.stop()
        self._access.stop()
        self._pump.stop()

    def reconfigure(self, config: Config) -> None:
        self._config = config
        self._set_pace()
        self._carry_out(self._handle(SettingsChanged(shard_options(config), store_options(config))))
        self._quota.allow(quota_bytes(config, self._topology.data_dir))
        self._pump.soon()

    def _take_access(self, _bundle: Bundle, access: Access) -> None:
        self._carry_out(self._handle(AccessChanged(access)))
        self._pump.soon()

    def counters(self) -> dict[str, int]:
        store = self._store
        return {
            **self._core.counters, **self._quota.counters,
            "reads_damaged": sum(store.damage_met.values()), "generations_lost": len(store.lost_at_open),
        }  # fmt: skip

    def measure(self, sheet: Sheet) -> None:
        self._figures.tell(sheet, self.counters(), self._store.moves(), len(self._store.generations()), len(self._held))

    # ------------------------------------------------------------------ the tick

    def _tick(self) -> None:
        reading = Reading(time.time_ns() // 1_000_000, self._boot_id, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)
        if self._age.wants_mark(reading):
            self._core.note(AGE_ROW, self._age.mark(reading).encode())
        elapsed_us = (time.monotonic_ns() - self._opened) // 1000
        age_ms = self._age.age_ms(reading)
        step = self._steady.look(self._core.next_position, age_ms, reading.wall_ms)
        if step is not None:
            log.warning(
                "shard.clock_stepped", shard=self._index, before_ms=step.before_ms, after_ms=step.after_ms,
                cause="the wall clock was set; nothing that waits for its time goes by it",
            )  # fmt: skip
        if self._wall_written is not self._steady.row:
            self._wall_written = self._steady.row
            self._core.note(WALL_ROW, self._wall_written.encode())
        now = TickEnded(elapsed_us, age_ms, self._steady.steady_ms(age_ms), self._age.suspended)
        self._carry_out(self._handle(now))
        if self._core.busy:
            self._pump.soon()
        self._pump.next_within(self._core.wait_ms)
        for denial in self._core.denied():
            log.info("client.denied", shard=self._index, **denial.fields())
        if self._core.retention.news:
            tell(self._index, self._core.retention.news)
        if self._core.gc_found != self._gc_found:
            self._tell_found()
        if len(self._store.damage_met) != self._damage_told:
            self._tell_damage()

    def _tell_found(self) -> None:
        """The sweep has found what timers and records had missed: our fault, and mended."""
        found = dict(self._core.gc_found)
        kinds = {kind: count - self._gc_found.get(kind, 0) for kind, count in found.items() if count != self._gc_found.get(kind, 0)}
        self._gc_found = found
        log.warning("shard.gc_found", shard=self._index, **kinds)

    def _tell_damage(self) -> None:
        """What sessions could not read, and will not get."""
        for sentence in list(self._store.damage_met)[self._damage_told :]:
            log.error("shard.damage", shard=self._index, cause=f"{sentence}; sessions go on without what they had not read of it")
        self._damage_told = len(self._store.damage_met)

    def _handle(self, event: Event) -> list[Effect]:
        try:
            return self._core.handle(event)
        except Exception as error:
            die_of(error, type(event).__name__)

    def _carry_out(self, effects: list[Effect]) -> None:
        links = self._links
        for effect in effects:
            match effect:
                case Send(number, frame):
                    link = links.get(number)
                    if link is not None:
                        link.hand_on(frame, encode)
                case Submit(record):
                    self._figures.submitted(record.position, self._store.counting)
                    if self._held:
                        self._held.append(record)
                    else:
                        self._hand_in(record)
                case SendToShard(shard, source, items):
                    entries: list[Entry] = [Retain(source, items)]
                    self._others[shard].ask(items[-1][0], entries)
                case AskShard(shard, query):
                    self._others[shard].query(query.id, query.ask)
                case CloseLink(number, why):
                    link = links.get(number)
                    if link is not None:
                        link.close(why)
                case Adopted() | Contended() | Peace() | GroupDeclared() | GroupDropped():
                    notices.tell(effect, self._topology.run_dir, member_name("shard", self._index))

    def _stored(self) -> int:
        return self._store.counting.stored

    def _die(self, reason: str) -> NoReturn:
        """RAM and disk may differ from here on: the process ends, the next one reads the disk."""
        self._failed = reason
        self._figures.lost()
        die("shard.failed", shard=self._index, cause=reason)

    # ------------------------------------------------------------------ room on the disk

    def _hold(self, record: Record, reason: str) -> None:
        """This record was refused; it and what comes behind it is handed in again."""
        if self._space_level < 2:
            log.error(self._not_taken, shard=self._index, position=record.position, cause=reason)
        self._held.appendleft(record)
        self._figures.retried += 1
        self._space_changed()
        asyncio.get_running_loop().call_later(HELD_RETRY_SECONDS, self._write_held)

    def _write_held(self) -> None:
        waiting, self._held = self._held, deque()
        while waiting:
            self._hand_in(waiting.popleft())
            if self._held:
                # The disk is still full; it has this one back, and the rest stays behind it.
                self._held.extend(waiting)
                return
        log.warning(self._taken, shard=self._index)
        self._space_changed()

    def _space_changed(self) -> None:
        level = 2 if self._held else self._disk_level
        if level != self._space_level:
            self._space_level = level
            self._carry_out(self._handle(SpaceChanged(level)))

    def _quota_changed(self, level: int) -> None:
        self._carry_out(self._handle(QuotaChanged(level)))
        self._pump.soon()

    def _release_log(self) -> bool:
        """At the hard mark, once, and again when a generation has gone: the log still has what it held.  In the thread of the quota."""
        release, dropped = getattr(self._engine, "release_log", None), self._core.retention.dropped
        if release is None or dropped == self._released:
            return False
        self._released = dropped
        release()
        return True

    async def _watch_space(self) -> None:
        path = str(self._topology.store_path(self._index))
        while True:
            free = await asyncio.get_running_loop().run_in_executor(self._space_thread, _free_bytes, path)
            seen = 2 if free < SPACE_NONE_BYTES else 1 if free < SPACE_LOW_BYTES else 0
            if seen != self._disk_level:
                self._disk_level = seen
                log.warning("shard.space", shard=self._index, free_bytes=free, level=seen)
                self._space_changed()
            if self._age.suspended and clock_accepted(self._topology.data_dir):
                self._age.accept()
                clear_alarm(self._topology.run_dir, member_name("shard", self._index), "clock")
                log.warning("shard.clock_accepted", shard=self._index)
            await asyncio.sleep(SPACE_EVERY_SECONDS)

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        self._links[link.number] = link
        self._carry_out(self._handle(LinkUp(link.number, link.peer_role, link.peer_name)))
        self._pump.soon()

    def link_frame(self, link: Link, data: Carried) -> None:
        try:
            frame = taken(data, decode)
        except ValueError as error:
            link.close(str(error))
            return
        self._carry_out(self._handle(FrameReceived(link.number, frame)))
        if type(frame) is not FeedTaken:
            self._pump.soon()

    def link_down(self, link: Link) -> None:
        self._links.pop(link.number, None)
        self._handle(LinkDown(link.number))

    def outbox_arrived(self, shard: int, upto: int) -> None:
        """A retained message of ours is at its home."""
        self._carry_out(self._core.outbox_arrived(shard, upto))
        self._pump.soon()

    def shard_told(self, shard: int, result: Result | None) -> None:
        """Another shard has answered; None: the link to it is up."""
        self._handle(ShardTold(shard, result))
        self._pump.soon()


def _free_bytes(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
