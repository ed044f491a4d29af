"""The core of one shard: frames in, one record per tick, answers out when it is committed.

It decides what is stored, for whom, in which order, and who may write; the shell (actors.shard) carries bytes, syncs and
reads clocks.  The engine is a port: its writes happen in the committer, its short reads here.

Holds after every event (see check):
1. an answer, a notification or a message leaves only when the record that holds its cause is committed;
2. positions grow over everything ever submitted; the watermark is the highest committed one;
3. everything a connection or a session actor asks is checked against the newest connection number or owner token in the
   same record as its effect;
4. the store replayed from disk equals the state in RAM (tests/sim/replay.py).
"""

from __future__ import annotations

from collections import deque
from typing import assert_never

from access.denials import Denial
from shards.answering import NO_CLOCK, Answering, Clock
from shards.clock import PositionClock
from shards.committer import Record
from shards.cuts import Cuts
from shards.delayed import Delayed
from shards.deliveries import Deliveries
from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.events import (
    AccessChanged,
    AskShard,
    CloseLink,
    Committed,
    Effect,
    Event,
    FrameReceived,
    LinkDown,
    LinkUp,
    QuotaChanged,
    Send,
    SendToShard,
    SettingsChanged,
    ShardTold,
    SpaceChanged,
    Submit,
    TickEnded,
)  # fmt: skip
from shards.feeds import Feeds
from shards.fences import RouteFences
from shards.frames import (
    Append,
    Beat,
    Begin,
    Check,
    Checked,
    Commit,
    Connect,
    Declare,
    Delay,
    Disconnect,
    Disconnected,
    Drop,
    Entry,
    FeedTaken,
    FeedWant,
    Frame,
    Give,
    Join,
    LeaseAck,
    LeaseDrop,
    LeasePut,
    Open,
    Own,
    Publish,
    Query,
    Refused,
    Release,
    Reply,
    Request,
    Retain,
    Retained,
    Route,
    Settle,
    TakeBack,
    WorkDone,
)  # fmt: skip
from shards.groups import Groups
from shards.homes import Homes, Outcome
from shards.housekeeping import POSITION_ROW, Housekeeping
from shards.inbox import Inbox, Pending
from shards.incoming import Incoming
from shards.judging import Judging
from shards.leases import LeaseTable
from shards.options import ShardOptions
from shards.owners import Owners
from shards.past import Past
from shards.publishing import Publishing
from shards.questions import Questions
from shards.reading import Reader
from shards.retained import RetainedHome
from shards.retention import Retention
from shards.routes import CAPTURE_OF_SETTINGS, Routes
from shards.rows import pack_row, unpack_row
from shards.settling import Settling
from shards.slots import SlotTable
from shards.store import Store
from shards.succession import Succession
from shards.tail import Tail
from shards.telling import Telling
from shards.timers import Timers
from shards.writers import Writers

REFUSED_RETRY_MS = 1000
_TIME_MARK_EVERY_MS = 10_000


class ShardCore:
    def __init__(
        self, shard: int, slots: SlotTable, engine: Engine, store: Store, options: ShardOptions, ns: Clock = NO_CLOCK,
        replicated: bool = False,
    ) -> None:  # fmt: skip
        self.shard = shard
        self._slots = slots
        self._options = options
        row = engine.get(HOME_FAMILY, POSITION_ROW)
        last = max(unpack_row(row)[0] if row else 0, store.generations()[-1].since)
        self.recovered = last
        """The highest position found in the store; the shell reports it Committed after a sync."""
        self._clock = PositionClock(last)
        self._submitted_upto = last
        self.watermark = -1
        self._draft = Draft(engine)
        self._judging = Judging()
        self._retained = RetainedHome(engine, self._judging)
        self._inbox = Inbox(engine, self._retained.newest_waiting)
        timers = Timers(engine)
        self._routes = Routes(engine, options.capture)
        self._fences = RouteFences(engine)
        self._homes = Homes(engine, shard, timers, options.takeovers_max)
        self._deliveries = Deliveries(engine, self._homes, self._fences)
        self._groups = Groups(engine, shard, self._homes, self._fences)
        self._owners = Owners(engine, self._homes, self._deliveries)
        self._tail = Tail(last, options.tail_bytes_max)
        self._store = store
        self._feeds = Feeds(self._tail)
        self._reader = Reader(store, self._tail)
        self._publishing = Publishing(
            shard, slots, store, self._tail, self._routes, self._homes, self._retained, self._clock,
            options.store_qos0, options.persistence, Incoming(options.await_rel_ms), options.run_min,
        )  # fmt: skip
        self._delayed = Delayed(
            engine, self._homes, timers, self._clock, self._publishing.incoming, lambda: self._publishing.room, options.delayed_max
        )  # fmt: skip
        self._roles: dict[int, tuple[str, str]] = {}
        self._arrived: deque[tuple[int, Frame]] = deque()
        self._heard: dict[int, None] = {}
        """Links that brought something since the last tick: after a pause of ours nobody counts as silent whose frames wait."""
        self._telling = Telling(self._roles)
        self._cuts = Cuts(engine, store)
        self._taken: list[Pending] = []
        self._refusing: dict[str, int] = {}
        self._writers = Writers(engine, shard, slots, self._publishing, self._telling.tell_subscribers)
        self._leases = LeaseTable(engine, store, self._clock, self._routes)
        self.retention = Retention(shard, max(slots.shards) + 1, engine, store, self._leases, options)
        self._past = Past(store, self._clock, self.retention.rewound)
        self._answering = Answering(
            self._draft, self._owners, self._reader, self._routes, self._retained, self._leases, self.retention, self._cuts, self._homes,
            store, self._groups, ns,
        )  # fmt: skip
        self._succession = Succession(self._owners, self._telling)
        self._questions = Questions(self._answering, self._telling, replicated)
        self._settling = Settling(self._judging, self._publishing, self._telling, self._owners, self._homes, self._deliveries)
        self._housekeeping = Housekeeping(
            engine, store, self._homes, self._owners, self._inbox, timers, self._clock, options, self.retention, self._writers,
            self._delayed, self._retained,
        )  # fmt: skip
        self._space = self._elapsed_us = self._marked_ms = 0
        self._begun = self._many = False

    # ------------------------------------------------------------------ what the shell may look at

    @property
    def busy(self) -> bool:
        """Frames, or work of our own, wait for the next tick: feed TickEnded soon."""
        arrived = (bool(self._arrived) and self._synced) or self._questions.press
        return arrived or self._housekeeping.presses(self._telling.in_flight, self._draft.bundles_full)

    @property
    def wait_ms(self) -> int:
        """When nothing happens, the next tick is wanted after this: a timer may be due then."""
        return self._housekeeping.wait_ms

    @property
    def counters(self) -> dict[str, int]:
        found, stored = self._publishing.counters, self._store.counting
        return {
            "messages_stored": stored.stored, "bytes_stored": stored.stored_bytes, "payload_bytes_stored": stored.payload_bytes,
            "messages_nobody": found.nobody, "messages_repeated": found.repeated, "messages_stale": found.stale,
            "messages_refused": found.refused, "ids_timed_out": self._publishing.incoming.timed_out, "away": self._homes.away,
            "routes": len(self._routes), "connections": len(self._homes.live), "tail_bytes": self._tail.held_bytes,
            "bundled_rows": self._draft.bundled_rows,
            "filters_matched": self._reader.matched, "reads": self._answering.reads, "read_ns": self._answering.read_ns,
            "sessions_expired": self._homes.sessions_expired, "sessions_ended": self._homes.sessions_ended,
            "sessions_being_erased": len(self._homes.ending.clients), "session_rows_collected": self._homes.ending.rows_erased,
            "timers_fired": self._housekeeping.timers_fired, "timers_late_ms_max": self._housekeeping.timers_late_ms_max,
            "expiry_suspended": int(self._homes.suspended),
            **{f"gc_found_{kind}": count for kind, count in self.gc_found.items()}, **self.retention.counters,
            "wills_denied": self._judging.wills_denied, "retained_withheld": self._judging.retained_withheld,
            "messages_delayed": self._delayed.count, "delayed_denied": self._judging.delayed_denied,
            "retained": self._retained.held.count, "retained_expired": self._retained.expired,
            "writers": len(self._writers), "messages_appended": self._writers.appended, "appends_repeated": self._writers.repeated,
        }  # fmt: skip

    @property
    def publisher(self) -> bytes:
        """Whose messages were taken last."""
        return self._publishing.publisher

    def denied(self) -> list[Denial]:
        """Of what was left behind: what the rules have refused, as far as the log is to hear of it now."""
        return self._judging.denials.take(self._elapsed_us // 1000)

    @property
    def gc_found(self) -> dict[str, int]:
        """What the sweep has found, by kind (shards.sweep): anything but zeros is a fault of ours, and is mended."""
        return self._housekeeping.found

    @property
    def _synced(self) -> bool:
        """What was recovered is on disk.  Before that it may sit in the page cache only, so nothing can be told of it: neither
        an old answer nor what a range holds; no frame is taken."""
        return self.watermark >= 0

    # ------------------------------------------------------------------ events

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case FrameReceived(link, FeedTaken(upto)) if self._synced and link in self._roles:
                self._heard[link] = None  # Credit needs no record, and no turn.
                self._feeds.taken(link, upto)
                return [Send(to, feed) for to, feed in self._feeds.advance(self.watermark)]
            case FrameReceived(link, frame):
                self._arrived.append((link, frame))
                self._heard[link] = None
            case TickEnded():
                return self._tick(event)
            case Committed(position):
                return self._committed(position)
            case LinkUp(link, role, sender):
                return self._link_up(link, role, sender)
            case LinkDown(link):
                self._link_down(link)
            case SpaceChanged(level):
                self._space = level
                self._publishing.room = level == 0 and self.retention.quota_level < 2
            case QuotaChanged(level):
                self.retention.quota_level = level
                self._publishing.room = self._space == 0 and level < 2
            case ShardTold(shard, result):
                self.retention.told(shard, result)
            case SettingsChanged(options, store):
                self._options, self._tail.bytes_max = options, options.tail_bytes_max
                self._routes.capture(CAPTURE_OF_SETTINGS, options.capture)
                self._housekeeping.settings_changed(options, store)
            case AccessChanged(access):
                self._judging.changed(access)
            case _ as never:
                assert_never(never)
        return []

    def check(self) -> None:
        self._draft.check()
        self._inbox.check()
        self._homes.check()
        self._homes.ending.check(self._draft)
        self._leases.check(self._draft)
        self._delayed.check(self._draft)
        self._deliveries.check(self._draft)
        self._groups.check(self._draft)
        self._writers.check(self._draft)
        self._tail.check()
        self._feeds.check()
        self._retained.check()
        self._telling.check()
        assert self.watermark <= self._submitted_upto

    # ------------------------------------------------------------------ links

    def _link_up(self, link: int, role: str, sender: str) -> list[Effect]:
        if self._inbox.refuses(sender):
            return [CloseLink(link, f"sender {sender} was silent for too long and is refused for ever; it has to start anew")]
        self._roles[link] = (role, sender)
        heard_before = self._inbox.knows(sender)
        known = self._inbox.sender(sender, self._elapsed_us)
        effects: list[Effect] = []
        if known.link is not None and known.link != link:
            # The same incarnation has connected again: what still comes over the older socket is dropped.
            self._roles.pop(known.link, None)
            self._feeds.drop(known.link)
            effects.append(CloseLink(known.link, f"{sender} has connected again"))
        known.link, known.reached = link, 0
        if role == "gateway":
            self._housekeeping.gateway_linked(sender, heard_before)
        self._succession.linked(link, role, sender)
        return effects

    def _link_down(self, link: int) -> None:
        role = self._roles.pop(link, None)
        self._feeds.drop(link)
        if role is not None:
            sender = self._inbox.sender(role[1], self._elapsed_us)
            if sender.link == link:
                sender.link = None
            self._succession.lost(role[1])

    # ------------------------------------------------------------------ the tick

    def _tick(self, now: TickEnded) -> list[Effect]:
        elapsed_us, age_ms, wall_ms = now.elapsed_us, now.age_ms, now.wall_ms
        self._elapsed_us = elapsed_us
        if not self._begun:
            self._begun = True
            self._inbox.begin(elapsed_us)
        for link in self._heard:
            if link in self._roles:
                self._inbox.sender(self._roles[link][1], elapsed_us)
        self._heard.clear()
        self._clock.at(elapsed_us)
        self._publishing.incoming.at(age_ms, now.age_suspended)
        out, draft = Outcome(), self._draft
        self._housekeeping.turn(draft, now, self._space < 2, self._telling.in_flight, out)
        self._settling.settle(draft, out, wall_ms)
        effects: list[Effect] = [AskShard(*asked) for asked in self.retention.ask(draft, self._owners.token, elapsed_us)]
        self._publishing.taken = 0
        self._answering.begin_turn(len(self._arrived))
        messages_max = self._options.messages_per_record_max
        while self._arrived and self._synced and self._publishing.taken < messages_max and self._answering.room > 0:
            link, frame = self._arrived.popleft()
            self._receive(link, frame, age_ms, wall_ms, effects)
        effects += self._homes.take_notices(age_ms)
        self._settling.tell_groups()
        self._submit(effects, wall_ms)
        works = self._space == 0 and self._synced
        self._housekeeping.derives = works and self._store.work(self.watermark, self._publishing.taken)
        return effects

    def _mark_time(self, wall_ms: int, stored: bool) -> None:
        """Every so often, where in the log this wall-clock time is; only in a record that stores messages."""
        if stored and wall_ms - self._marked_ms >= _TIME_MARK_EVERY_MS:
            self._store.note_time(self._draft.ops, self._submitted_upto + 1, wall_ms)
            self._marked_ms = wall_ms
        elif wall_ms < self._marked_ms:
            self._marked_ms = wall_ms

    def _receive(self, link: int, frame: Frame, age_ms: int, wall_ms: int, effects: list[Effect]) -> None:
        known = self._roles.get(link)
        if known is None:
            return
        role, name = known
        sender = self._inbox.sender(name, self._elapsed_us)
        if isinstance(frame, Request):
            verdict = self._inbox.verdict(sender, frame.number)
            if verdict != "gap":
                sender.reached = frame.number
            if verdict == "next":
                self._take(link, role, name, frame, age_ms, wall_ms, effects)
            elif verdict == "repeat":
                told = self._inbox.told(sender, frame.number)
                if told is not None:
                    effects.append(Send(link, told))
            elif name not in self._refusing:
                effects.append(CloseLink(link, f"{name}: frame {frame.number} after {sender.last}, a gap"))
        elif isinstance(frame, Query):
            effects += self._questions.asked(link, frame, max(self.watermark, 0), self._elapsed_us)
        elif isinstance(frame, FeedWant):
            effects.extend(Send(link, feed) for feed in self._feeds.want(link, frame, max(self.watermark, 0)))
        elif not isinstance(frame, Beat | FeedTaken):
            effects.append(CloseLink(link, f"{name}: {type(frame).__name__} is not for a shard"))

    def _take(self, link: int, role: str, name: str, frame: Request, age_ms: int, wall_ms: int, effects: list[Effect]) -> None:
        if self._space >= 2 and role == "gateway":
            # Not even the answers fit on the disk: the whole frame stays with its sender and uses no number.
            self._refusing[name] = frame.number
            effects.append(Send(link, Refused(frame.number, REFUSED_RETRY_MS)))
            return
        self._refusing.pop(name, None)
        outbox = 0
        replies: list[Reply] = [*self._publishing.publish_all(self._draft, frame.entries)]
        self._many = len(frame.entries) >= self._options.bundled_commits_min
        for entry in frame.entries[len(replies) :]:
            reply, waits = self._enter(entry, role, name, age_ms, wall_ms)
            replies.append(reply)
            outbox = max(outbox, waits)
        self._taken.append(self._inbox.take(self._draft, self._inbox.sender(name, self._elapsed_us), frame.number, replies, outbox))

    def _enter(self, entry: Entry, role: str, name: str, age_ms: int, wall_ms: int) -> tuple[Reply, int]:
        """One entry of a frame: its reply, and the outbox position the answer has to wait for."""
        draft = self._draft
        if isinstance(entry, Publish):
            published, waits = self._publishing.publish(draft, entry)
            return published, max(waits, self._settling.refused(draft, entry, published, age_ms, wall_ms))
        out = Outcome()
        match entry:
            case Delay():
                delayed = self._delayed.take(draft, entry, age_ms)
                return delayed, self._settling.refused(draft, entry, delayed, age_ms, wall_ms)
            case Release():
                return self._publishing.release(draft, entry), 0
            case Connect():
                connected = self._homes.connect(draft, entry, name, age_ms, out, self._owners.token)._replace(owner=self._owners.token)
                return connected, self._settling.settle(draft, out, wall_ms)
            case Disconnect(client, conn, how, expiry_s):
                done = self._homes.disconnect(draft, client, conn, how, expiry_s, age_ms, out)
                return Disconnected(not done), self._settling.settle(draft, out, wall_ms)
            case Check(connections):
                return Checked([conn for client, conn in connections if self._homes.newest_conn(draft, client) != conn]), 0
            case Own():
                return self._succession.own(draft, name, self._groups.found()), 0
            case Commit():
                return self._owners.commit(draft, entry, out, self._many), self._settling.settle(draft, out, wall_ms)
            case Route(add, remove, clients, fences):
                for home, token in fences:
                    self._fences.raise_to(draft, home, token)
                owners = dict(entry.owners)
                for index, (sub_id, topic_filter) in enumerate(add):
                    if self._fences.admits(sub_id, owners.get(index, 0)):
                        self._routes.add(draft, sub_id, topic_filter, clients[index] if clients else b"")
                for sub_id, _ in remove:
                    self._routes.remove(draft, sub_id)
                    self._deliveries.group_gone(draft, sub_id)
                    self._groups.leave(draft, sub_id, age_ms, out)
                self._settling.settle(draft, out, wall_ms)
                # The retained copies of everything before this point must be home before the subscriber is told.
                return self._past.routed(draft, entry), self._retained.newest_waiting
            case Join() | Declare() | Drop() | Begin():
                reply, made = self._groups.take(draft, entry, role, self._owners.token, age_ms, out)
                self._settling.settle(draft, out, wall_ms, made)
                return reply, 0
            case Open() | Give() | TakeBack() | Settle():
                return self._deliveries.take(draft, entry, name), 0
            case WorkDone():
                return self._owners.work_done(draft, entry), 0
            case Retain(source, items):
                return Retained(self._retained.apply(draft, source, items)), 0
            case LeasePut() | LeaseAck() | LeaseDrop():
                return self._leases.take(draft, entry, role, age_ms), 0
            case Append():
                return self._writers.take(draft, entry, role, age_ms, wall_ms)
            case _ as never:
                assert_never(never)

    def _submit(self, effects: list[Effect], wall_ms: int) -> None:
        draft = self._draft
        self._mark_time(wall_ms, self._store.flush(draft.ops))
        growth = self._store.take_growth()
        if growth:
            draft.ops[:0] = growth
        self._succession.tell_work(draft)
        draft.close_bundle(self._elapsed_us // 1000)
        if not draft.ops and not self._questions.press:
            effects.extend(self._telling.nothing_submitted())
            return
        position = self._clock.last if self._clock.last > self._submitted_upto else self._clock.take()
        self._questions.submitting(position, self.watermark, self._elapsed_us, made_for_them=not draft.ops)
        draft.ops.append((HOME_FAMILY, POSITION_ROW, pack_row((position,))))
        for pending in self._taken:
            pending.position = position
        self._taken = []
        self._submitted_upto = position
        self._telling.submitted(position)
        self._cuts.submitted(position)
        effects.append(Submit(Record(position, draft.seal(position))))

    def _committed(self, position: int) -> list[Effect]:
        self.watermark = position
        self._draft.committed(position)
        self._cuts.committed(position)
        self._questions.committed(position)
        effects = self._telling.committed(position)
        effects.extend(Send(link, answer) for link, answer in self._inbox.release(position, self._retained.done))
        effects.extend(Send(link, feed) for link, feed in self._feeds.advance(position))
        # Retained messages set out for their homes.
        effects.extend(SendToShard(target, self.shard, items) for target, items in self._retained.set_out(position).items())
        self._housekeeping.committed(position)
        self._tail.trim(position)
        return effects

    @property
    def next_position(self) -> int:
        """Whatever is taken from now on has this position or a higher one."""
        return self._submitted_upto + 1

    def note(self, key: bytes, value: bytes) -> None:
        """A home row of the shell's own (the age mark, the wall row): it goes into the record of the next tick."""
        self._draft.put(key, value)

    def outbox_arrived(self, target: int, upto: int) -> list[Effect]:
        """The home of some retained messages has them all up to this position: their publishers can be answered."""
        self._retained.arrived(self._draft, target, upto)
        released = self._inbox.release(self.watermark, self._retained.done)
        return [Send(link, answer) for link, answer in released if link in self._roles]
