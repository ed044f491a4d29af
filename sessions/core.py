"""The session core: all sessions that one session actor serves.  Events in, effects out.

Of durable sessions it is a cache of their rows and can be lost at any moment: what must survive is committed at the home before
anything leaves that depends on it (PROTOCOLS 12).  What goes to one gateway within a tick is joined into few frames at
TickEnded; everything that asks a shard for messages, or commits, happens there as well, once for all events of the tick.

The parts: attaching (connections, owner tokens), committing (group commit), subscriptions and routes, feed and reading (from
stored messages to the window), retained, acks, moving (of places, by hand); session.py holds the state of one session.  Sessions that
are not durable are in the package memory.
"""

from __future__ import annotations

from typing import assert_never

from mqtt.reason import ReasonCode
from sessions import underway
from sessions.acks import Acks
from sessions.attaching import Attaching
from sessions.committing import Committing, Home
from sessions.events import (
    Effect,
    Event,
    FeedReceived,
    FromGateway,
    FromInquirer,
    GatewayLinked,
    GatewayLost,
    LiveEntered,
    OfGroup,
    Replied,
    SettingsChanged,
    ShardLinked,
    ShardLost,
    TickEnded,
    ToInquirer,
    ToldBy,
    Wake,
    WorkReceived,
)  # fmt: skip
from sessions.frames import PUBACK, Acked, Attach, Detach, Hold, Subscribe, Unsubscribe
from sessions.frames import Frame as GatewayFrame
from sessions.given import Givens
from sessions.groups import Dispatcher
from sessions.inquiry import Inquiry
from sessions.inquiry_frames import Move
from sessions.memory.attaching import Owner
from sessions.memory.core import Memory
from sessions.moving import Moving
from sessions.options import Counters, SessionOptions
from sessions.output import Output
from sessions.reading import Reading
from sessions.redelivery import Redelivery
from sessions.rerouting import Rerouting
from sessions.retained import Retained
from sessions.routes import Routes
from sessions.session import Session
from sessions.state import GROUPS, State
from sessions.subscriptions import Subscriptions
from sessions.sweeping import Sweeping
from sessions.underway import NOT_ASKING
from sessions.window import PLENTY
from shards.frames import Given, GroupNews
from shards.slots import SlotTable


class SessionCore:
    def __init__(self, shards: int, served: frozenset[int], slots: SlotTable, options: SessionOptions) -> None:
        self._state = state = State(shards, served, slots, options)
        self._homes = homes = {shard: Home(shard) for shard in sorted(served)}
        self._reading = Reading(state)
        self._committing = Committing(state, homes, self._reading.place_of)
        self._reading.committing = self._committing
        self._reading.redelivery = redelivery = Redelivery(state, self._committing)
        self._reading.givens = self._givens = Givens(state, self._committing, redelivery)
        self._routes = Routes(state, self._replaced)
        self._retained = Retained(state, self._committing, self._reading)
        self._subscriptions = Subscriptions(
            state, homes, self._committing, self._routes, self._reading, self._retained, self._givens
        )  # fmt: skip
        self._acks = Acks(state, self._committing)
        self._attaching = Attaching(
            state, homes, self._committing, self._routes, self._reading, self._subscriptions, self._acks, redelivery, self._givens
        )
        self._committing.listener = self._attaching
        self._reading.through = self._subscriptions.through
        self._sweeping = Sweeping(state, homes)
        self._memory = Memory(state, homes, Owner(self._attaching.own, self._attaching.replaced))
        self._inquiry = Inquiry(state, self._reading.place_of, self._memory.session)
        self._moving = Moving(
            state, homes, self._committing, self._reading, self._attaching, self._memory.session, self._subscriptions.remove_unfinished
        )
        self._groups = Dispatcher(state, homes, self._committing, self._attaching, self._acks, self._routes)
        self._rerouting = Rerouting(state, self._routes)
        self._attaching.owner_changed = self._owner_changed
        self._timed = (self._committing, self._subscriptions, self._reading, self._retained, self._memory, self._moving, self._groups)
        self._wake_at_ms = -1
        self.patient = False
        """What the last event has brought may wait a moment for company: nobody waits for it."""

    @property
    def counters(self) -> Counters:
        return self._state.counters

    @property
    def loaded(self) -> int:
        """Durable sessions in memory."""
        return len(self._state.sessions)

    @property
    def online(self) -> int:
        return len(self._state.by_conn) - self._groups.attached

    def handle(self, event: Event) -> list[Effect]:
        state = self._state
        self.patient = False
        match event:
            case FromGateway(link, frame):
                if link in state.outputs:
                    self._from_gateway(link, frame)
            case FeedReceived(shard, feed):
                self._reading.feeds[shard].receive(feed)
            case ToldBy(shard, id, told):
                state.told(shard, id, told)
            case Replied(_, id, replies):
                state.replied(id, replies)
            case TickEnded(now_ms, wall_ms):
                state.wall_ms = wall_ms
                self._turn(now_ms)
            case GatewayLinked(link, gateway):
                state.outputs[link] = Output(link, gateway, state.options.deliver_bytes_max)
                self._memory.linked(link)
            case GatewayLost(link):
                self._attaching.gateway_lost(link)
                self._memory.lost(link)
            case ShardLinked(shard):
                if state.linked[shard]:
                    self._shard_lost(shard)
                state.linked[shard] = True
                self._attaching.shard_linked(shard)
                self._reading.linked(shard)
                state.ask_again(shard)
                self._givens.shard_linked(shard)
                self._groups.shard_linked(shard)
            case ShardLost(shard):
                self._shard_lost(shard)
            case WorkReceived(shard, work):
                home = self._homes.get(shard)
                if home is not None and work.owner > home.token:
                    self._attaching.superseded(home, work.owner, heir=bool(work.work) or work.left)
                elif home is not None and home.token:
                    for client, sub_id, filter in work.work:
                        self._groups.ended(sub_id)
                        self._routes.remove(home, client, sub_id, filter)
            case OfGroup(shard, frame):
                if isinstance(frame, Given):
                    self._givens.received(frame)
                elif isinstance(frame, GroupNews):
                    self._groups.news(shard, frame)
                else:
                    self._groups.made(shard, frame)
            case LiveEntered(_, live):
                self._memory.entered(live)
            case FromInquirer(link, Move() as ask):
                self._moving.ask(link, ask)
            case FromInquirer(link, ask):
                state.effects.append(ToInquirer(link, self._inquiry.told(ask)))
            case SettingsChanged(options):
                state.options, state.reads = options, options.reads
                self._sweeping.interval_changed()
                self._committing.settings_changed()
                self._groups.settings_changed()
            case _ as never:
                assert_never(never)
        effects, state.effects = state.effects, []
        return effects

    def _from_gateway(self, link: int, frame: GatewayFrame) -> None:
        if isinstance(frame, Attach):
            if frame.memory:
                self._memory.attach(link, frame)
            else:
                self._memory.superseded(frame.client, frame.conn)
                self._attaching.attach(link, frame)
            return
        if isinstance(frame, Detach):
            self._attaching.detach_conn(link, frame.conn)
            self._memory.detach_conn(link, frame)
            return
        session = self._state.by_conn.get(frame.conn) if isinstance(frame, Acked | Subscribe | Unsubscribe | Hold) else None
        if session is None:
            self._memory.received(link, frame)
            return
        if session.link != link:
            return
        if isinstance(frame, Acked):
            window = session.window
            self.patient = frame.kind == PUBACK and window.inflight * PLENTY <= window.size and not window.queue and not session.given.open
            if not self._acks.acked(session, frame):
                self._attaching.close(session, ReasonCode.PROTOCOL_ERROR)
            elif session.given.open:
                self._givens.acked(session)
        elif isinstance(frame, Hold):
            session.held = frame.held
            self._state.stir(session)
        elif isinstance(frame, Subscribe | Unsubscribe):
            self._subscriptions.receive(session, frame)

    def _shard_lost(self, shard: int) -> None:
        self._state.linked[shard] = False
        self._reading.lost(shard)
        self._groups.shard_lost(shard)

    def _owner_changed(self, home: Home) -> None:
        self._memory.owner_changed(home)
        self._moving.owner_changed(home)
        self._groups.owner_changed(home)
        self._rerouting.owner_changed(home)

    def _replaced(self, home: Home) -> None:
        self._attaching.replaced(home)

    # ---------------------------------------------------------------- a turn of the loop
    def _turn(self, now_ms: int) -> None:
        state = self._state
        state.now_ms = now_ms
        self._moving.turn()
        self._subscriptions.turn()
        self._reading.turn()
        self._retained.turn()
        for feed in self._reading.feeds:
            feed.turn()
        self._groups.turn()
        stirred, state.stirred = state.stirred, {}
        for session in stirred:
            self._pump(session)
        self._groups.dispatch()
        self._committing.turn()
        self._routes.turn()
        self._sweeping.turn()
        self._memory.turn()
        for output in state.outputs.values():
            if output.pending:
                state.effects.extend(output.take())
        self._wake()

    def _pump(self, session: Session) -> None:
        """Send what may be sent, ask for what there is room for, and send what that brought at once."""
        state, window = self._state, session.window
        one, two = session.one, session.two
        output = state.outputs[session.link]
        while True:
            # That of a group goes to its members, each of whom may be held by himself.
            if window.queue and (not session.held or session.link == GROUPS):
                state.counters.sent += window.send(output, session.conn, session.commits_done, one, two)
            unsent = window.unsent
            self._reading.pump(session)
            if session.asking.retained:
                self._retained.pump(session)
            if session.given.waiting:
                self._givens.pump(session)
            if window.unsent == unsent:
                break
        if session.asking is not NOT_ASKING and session.asking.over:
            session.asking = NOT_ASKING

    def _wake(self) -> None:
        state = self._state
        due_ms: int | None = None
        for part in self._timed:
            at_ms = part.next_ms
            if at_ms is not None and (due_ms is None or at_ms < due_ms):
                due_ms = at_ms
        if due_ms is None:
            return
        at_ms = max(due_ms, state.now_ms + 1)
        if at_ms < self._wake_at_ms or self._wake_at_ms <= state.now_ms:
            self._wake_at_ms = at_ms
            state.effects.append(Wake(at_ms - state.now_ms))

    def check(self) -> None:
        self._state.check()
        underway.check()
        self._attaching.check()
        self._memory.check()
        self._groups.check()
        self._reading.check()
        self._moving.check()
