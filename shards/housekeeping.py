"""What a shard does by itself, as time goes by: timers, ends of lost gateways, erasing, generations, and the sweep.

    timers        every tick: what is due by now, in the record that holds its effects
    erasing       every tick: rows of sessions that ended with many (shards.ending)
    lost          every tick: connections of gateways that were replaced, or not heard for 20 s
    idle          every tick: a record with nothing in it, when messages wait for the end of their epoch (layouts.port, wants_tick)
    once a second: silent senders, rolls and drops of generations, rows of writers that are not used any more
    sweep         every session_gc_interval: whether anything was missed (shards.sweep)

Everything is bounded per record.  While records wait for their sync, no more than IN_FLIGHT_MAX are made for this work, so
it neither outruns the disk nor keeps frames waiting.  A full disk stops it: it would only add to what is held.

Holds: timers go before everything else, so a crowd of sessions that ends at once ends at once, and is erased afterwards.
"""

from __future__ import annotations

from collections import deque

from shards.clock import AgeMark, PositionClock
from shards.delayed import Delayed
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.events import TickEnded
from shards.generations import GenerationInfo
from shards.homes import Homes, Outcome
from shards.inbox import Inbox
from shards.options import GENERATIONS_MAX_BY_SIZE, ShardOptions, StoreOptions
from shards.owners import Owners
from shards.retained import RetainedHome
from shards.retention import Retention
from shards.rows import META, pack_row
from shards.store import Store
from shards.sweep import Sweep
from shards.timers import DELAYED_DUE, Timer, Timers
from shards.writers import Writers

AGE_ROW = META + b"age"
POSITION_ROW = META + b"position"
AGE_EVERY_MS = 10_000
"""The age is on the disk at least so often (clock.AgeClock.wants_mark)."""
GATEWAY_LOST_AFTER_US = 20_000_000
LOST_CONNECTIONS_PER_RECORD = 500
TIMERS_PER_RECORD = 250
DUE_BYTES_PER_RECORD = 1 << 20
"""Of delayed messages that are due; what is over it enters with the next record, so that a crowd of large ones keeps nothing waiting."""
ROWS_ERASED_PER_RECORD = 500
IN_FLIGHT_MAX = 4
PREPARED_AT = 0.9
"""Of its length or size: from here on the family of the next generation is made ahead."""
WORK_PAUSE_MS = 20
"""Between turns that have nothing but a slice of work to do for which nobody waits."""
TURN_MS = 500
"""The longest between two turns."""
_EVERY_US = 1_000_000


class Housekeeping:
    def __init__(
        self, engine: Engine, store: Store, homes: Homes, owners: Owners, inbox: Inbox, timers: Timers, clock: PositionClock,
        options: ShardOptions, retention: Retention, writers: Writers, delayed: Delayed,
        retained: RetainedHome,
    ) -> None:  # fmt: skip
        self._store = store
        self._homes = homes
        self._owners = owners
        self._inbox = inbox
        self._timers = timers
        self._clock = clock
        self._options = options
        self._retention = retention
        self._writers = writers
        self._delayed = delayed
        self._sweep = Sweep(homes, timers, inbox, delayed, retained, options.gc_interval_ms, options.gc_batch)
        mark = engine.get(HOME_FAMILY, AGE_ROW)
        self._heard_before_ms = AgeMark.decode(mark).age_ms + AGE_EVERY_MS if mark else None
        """Not later than this anybody was heard by a former process of the shard: the age is stored so often."""
        self._formers = set(homes.by_gateway)
        """Gateways that are known from rows only, and have not been heard by this process."""
        self._newest: dict[str, str] = {}
        """The greatest incarnation of each gateway that was heard for the first time: names of later ones are greater."""
        self._started_age_ms: int | None = None
        self._erasing: deque[tuple[int, int]] = deque()
        self._committed = 0
        self._age_ms = 0
        self._elapsed_us = 0
        self._wall_ms = 0
        self._housekept_us = -_EVERY_US
        self._room = True
        self._crowded = False
        """So many records wait for a sync that timers wait too; the commit that makes room says so, not the clock."""
        self._folding = False
        self.derives = False
        """The store had something to derive in the last turn, and may have more."""
        self.timers_fired = 0
        self.timers_late_ms_max = 0

    # ------------------------------------------------------------------ what is to be done

    @property
    def found(self) -> dict[str, int]:
        """What the sweep found, by kind: things that timers and records have missed."""
        return self._sweep.found

    def presses(self, in_flight: int, folding: bool) -> bool:
        """There is more to do than one turn took: take the next one soon.  folding: there are too many rows in bundles."""
        due = self._timers.next_due_ms <= self._age_ms and not self._homes.suspended
        return self._room and in_flight < IN_FLIGHT_MAX and bool(due or self._homes.ending.clients or self._homes.lost or folding)

    @property
    def wait_ms(self) -> int:
        """When nothing happens, the next turn is wanted after this."""
        if not self._room or self._homes.suspended or self._crowded:
            return TURN_MS
        wait = min(TURN_MS, self._timers.next_due_ms - self._age_ms)
        if self._sweep.running:
            wait = min(wait, self._sweep.PAUSE_MS)
        if self._folding or self.derives or self._store.map_changed:
            wait = min(wait, WORK_PAUSE_MS)
        if self._retention.asking:
            wait = min(wait, self._retention.PAUSE_MS)
        return max(1, wait)

    def settings_changed(self, options: ShardOptions, store: StoreOptions) -> None:
        self._homes.contention.takeovers_max = options.takeovers_max
        self._options = self._retention.options = options
        self._delayed.count_max = options.delayed_max
        self._store.change(store)
        self._sweep.settings_changed(options.gc_interval_ms, options.gc_batch)

    # ------------------------------------------------------------------ a turn

    def turn(self, draft: Draft, now: TickEnded, room: bool, in_flight: int, out: Outcome) -> None:
        """room: the disk takes records."""
        homes = self._homes
        self._age_ms, self._elapsed_us, self._wall_ms = now.age_ms, now.elapsed_us, now.wall_ms
        homes.suspended = now.age_suspended
        self._room = room
        self._crowded = in_flight >= IN_FLIGHT_MAX
        if room and in_flight < IN_FLIGHT_MAX:
            self._expire(draft, out)
            self._folding = draft.fold(now.elapsed_us // 1000 - self._options.bundled_ms)
        self._note_lost()
        if homes.lost and room:
            homes.lose_gateways(draft, now.age_ms, LOST_CONNECTIONS_PER_RECORD, out)
        if room and self._store.wants_tick(self._clock.last, self._clock.now):
            draft.ops.append((HOME_FAMILY, POSITION_ROW, pack_row((self._clock.take(),))))
        if self._store.map_changed and room:
            self._change_classes(draft, now)
        if now.elapsed_us - self._housekept_us >= _EVERY_US:
            self._housekept_us = now.elapsed_us
            self._inbox.forget_silent(draft, now.elapsed_us)
            erased = self._erase()
            if room:
                if not erased:
                    self._generations(draft, now)
                if not now.age_suspended:
                    self._writers.forget_unused(draft, now.age_ms)

    def _expire(self, draft: Draft, out: Outcome) -> None:
        homes, age_ms = self._homes, self._age_ms
        due = [] if homes.suspended or age_ms < self._timers.next_due_ms else self._due(draft)
        if self._started_age_ms is None:
            self._started_age_ms = age_ms
        if due:
            self.timers_fired += len(due)
            if due[-1].due_ms > self._started_age_ms:
                # What was due while the shard was away is late by that, and says nothing of how it works.
                self.timers_late_ms_max = max(self.timers_late_ms_max, age_ms - max(due[0].due_ms, self._started_age_ms))
        crowded = len(due) == TIMERS_PER_RECORD
        upto = homes.ending.rows_erased + (0 if crowded else ROWS_ERASED_PER_RECORD)
        for timer in due:
            if timer.kind == DELAYED_DUE:
                self._delayed.fire(draft, timer, out)
                continue
            homes.fire(draft, timer, age_ms, max(0, upto - homes.ending.rows_erased), out)
        if homes.ending.clients:
            homes.ending.turn(draft, max(0, upto - homes.ending.rows_erased), out.work)
        elif not due and not homes.suspended:
            sweeps = self._sweep.sweeps
            self._sweep.turn(draft, age_ms, self._elapsed_us, self._wall_ms)
            if self._sweep.sweeps != sweeps:
                # Work that was told and went astray is told again.
                self._owners.look_again()

    def _due(self, draft: Draft) -> list[Timer]:
        return self._timers.take_due(draft, self._age_ms, TIMERS_PER_RECORD, self._delayed.size, DUE_BYTES_PER_RECORD)

    # ------------------------------------------------------------------ lost gateways

    def gateway_linked(self, gateway: str, known: bool) -> None:
        """known: it was heard before, by this process of the shard or by a former one.  After a restart of ours those that are
        known link in any order: the first need not be the newest, and the one that is not there yet may be alive.  One that is not
        known may have stood still since before the others were there."""
        self._formers.discard(gateway)
        member = _member(gateway)
        if not known and gateway > self._newest.get(member, ""):
            self._newest[member] = gateway

    def _note_lost(self) -> None:
        """One that was silent for 20 s, and one in whose place another has started: it has ended, or is cut off for good."""
        lost, inbox, elapsed_us = self._homes.lost, self._inbox, self._elapsed_us
        for gateway in self._homes.by_gateway:
            heard_us = inbox.sender_heard(gateway, elapsed_us)
            replaced = self._newest.get(_member(gateway), gateway) > gateway and inbox.linked(gateway) is None
            if not replaced and elapsed_us - heard_us <= GATEWAY_LOST_AFTER_US:
                # One that is heard again keeps what it has left, and may have new connections.
                lost.pop(gateway, None)
            elif gateway not in lost:
                self._lose(gateway)

    def _lose(self, gateway: str) -> None:
        """Its connections ended when it was last heard."""
        if gateway in self._formers:
            self._formers.discard(gateway)
            before_ms = self._heard_before_ms
            self._homes.lost[gateway] = self._age_ms if before_ms is None else min(before_ms, self._age_ms)
        else:
            silent_us = self._elapsed_us - self._inbox.sender_heard(gateway, self._elapsed_us)
            self._homes.lost[gateway] = self._age_ms - silent_us // 1000

    # ------------------------------------------------------------------ generations

    def _generations(self, draft: Draft, now: TickEnded) -> None:
        """Making and dropping families writes to the disk at once."""
        if not self._store.map_changed:
            self._roll(draft, now)
        gone = self._retention.look(draft, now.age_ms, now.wall_ms, now.age_suspended)
        if gone is not None:
            self._erasing.append((self._clock.take(), gone))

    def _roll(self, draft: Draft, now: TickEnded) -> None:
        """At most one class in a turn, the one whose generation is oldest: so the loop waits for one family, which is there already if
        it was to be seen that it would be wanted."""
        store, options = self._store, self._options
        due: list[GenerationInfo] = []
        soon = False
        for info in store.currents():
            age_ms, size = now.age_ms - info.created_age_ms, store.bytes_put[info.id]
            length_ms = min(options.generation_ms, store.period_ms(info, options.retention_ms))
            full = size >= options.generation_bytes and len(store.generations()) < GENERATIONS_MAX_BY_SIZE
            if (age_ms >= length_ms or full or store.misplaced(info)) and self._clock.last > info.since:
                due.append(info)
            soon = soon or age_ms >= length_ms * PREPARED_AT or size >= options.generation_bytes * PREPARED_AT
        if due:
            oldest = min(due, key=lambda info: info.created_age_ms)
            draft.ops.extend(store.roll(self._clock.take(), now.age_ms, now.wall_ms, oldest.klass))
        elif soon:
            store.create_next()

    def _change_classes(self, draft: Draft, now: TickEnded) -> None:
        """All classes roll at one position; the families for that are made before, one in a turn."""
        if not self._store.create_next(of_all=True):
            draft.ops.extend(self._store.roll(self._clock.take(), now.age_ms, now.wall_ms))

    def committed(self, position: int) -> None:
        self._committed = position
        self._erase()

    def _erase(self) -> bool:
        """One family at most, with each record, or each second where there are none, as on a full disk, which waits for just that: it
        takes longer the more families there are, with a hundred generations some 30 ms. False: there is none to erase."""
        if not self._erasing or self._erasing[0][0] > self._committed:
            return False
        generation = self._erasing[0][1]
        if not self._store.erase_index(generation):
            self._erasing.popleft()
            self._store.erase(generation)
        return True


def _member(sender: str) -> str:
    """The name without the incarnation."""
    return sender.partition(":")[0]
