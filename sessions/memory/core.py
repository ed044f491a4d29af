"""Sessions in memory: persistent sessions that are not durable.  They outlive connections and gateways, not this process.

They get their messages live, as ephemeral sessions do: gateways are told which filters are wanted here and forward what
matches, of QoS 1 and 2 when its shard has answered (PROTOCOLS 9).  Several matching subscriptions of one client bring it one
copy each, with the identifier of that subscription, as everywhere in this broker.

The parts: attaching (connections, the begin and end of sessions), table (who wants what), links (gateways), retained; session
has the queue and the window.  What comes is handed out at the end of the tick, for only that one tells the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mqtt.reason import ReasonCode
from sessions.committing import Home
from sessions.frames import Acked, Attach, Detach, Frame, Hold, Subacked, Subscribe, Unsubacked, Unsubscribe
from sessions.live_frames import HANDED_ON, ForGroups, Forward, InterestSeen
from sessions.memory.attaching import MemoryAttaching, Owner
from sessions.memory.links import GatewayLinks
from sessions.memory.message import Message
from sessions.memory.retained import MemoryRetained
from sessions.memory.session import MemorySession
from sessions.memory.table import MemorySub, MemoryTable
from sessions.newest import NewestConnections
from sessions.state import Later, State, earlier
from shards.frames import Live

_NEVER, _IF_NEW = 2, 1
"""Retain handling of a subscription."""
_FAILED = 0x80


class _Arrived(NamedTuple):
    """plain: it is for plain subscribers.  groups: those of which a member is to get it."""

    publisher: bytes
    flags: int
    topic: bytes
    body: bytes
    plain: bool
    groups: Sequence[bytes]


class _Waiting:
    """A SUBACK on its way.  needs: link -> the Interest that this gateway has to confirm."""

    __slots__ = ("conn", "frame", "needs", "retained", "session")

    def __init__(self, session: MemorySession, frame: Subacked, retained: list[MemorySub]) -> None:
        self.session = session
        self.conn = session.conn
        self.frame = frame
        self.retained = retained
        self.needs: dict[int, int] = {}


class Memory:
    def __init__(self, state: State, homes: dict[int, Home], owner: Owner) -> None:
        self._state = state
        self._table = table = MemoryTable()
        self._links = links = GatewayLinks(table, state.options.deliver_bytes_max)
        self._retained = MemoryRetained(state)
        self._attaching = MemoryAttaching(state, homes, owner, table, links, self._retained)
        self._newest = NewestConnections(state.options.publishers_max)
        self._arrived: list[_Arrived] = []
        self._fresh: list[_Waiting] = []
        self._unconfirmed: list[_Waiting] = []
        self._late: Later[_Waiting] = Later(state.options.suback_wait_ms)
        self._stirred = False
        """Something has happened since the last turn: an actor without sessions in memory pays one test per turn for them."""

    @property
    def sessions(self) -> int:
        return len(self._attaching.sessions)

    def session(self, client: bytes) -> MemorySession | None:
        return self._attaching.sessions.get(client)

    @property
    def held_bytes(self) -> int:
        return self._attaching.held.bytes

    # ---------------------------------------------------------------- events
    def linked(self, link: int) -> None:
        self._stirred = True
        self._links.linked(link)

    def lost(self, link: int) -> None:
        self._stirred = True
        self._attaching.gateway_lost(link)
        self._links.lost(link)
        self._confirm()

    def owner_changed(self, home: Home) -> None:
        self._stirred = True
        self._attaching.owner_changed(home)

    def attach(self, link: int, frame: Attach) -> None:
        self._stirred = True
        self._attaching.attach(link, frame)

    def superseded(self, client: bytes, conn: int) -> None:
        if self._attaching.sessions:
            self._stirred = True
            self._attaching.superseded(client, conn)

    def detach_conn(self, link: int, frame: Detach) -> None:
        if self._attaching.by_conn or self._attaching.waiting:
            self._stirred = True
            self._attaching.detach_conn(link, frame.conn, frame.expiry_s)

    def received(self, link: int, frame: Frame) -> None:
        """A frame that is about no durable session."""
        self._stirred = True
        match frame:
            case Forward():
                self._forwarded(frame)
            case InterestSeen(number):
                self._links.seen(link, number)
                self._confirm()
            case Acked() | Subscribe() | Unsubscribe() | Hold():
                session = self._attaching.by_conn.get(frame.conn)
                if session is not None and session.link == link:
                    self._from_client(session, frame)
            case _:
                pass

    def entered(self, live: Live) -> None:
        """A message that a shard tells everybody who has live subscribers.  Its groups are the gateways' business."""
        self._stirred = True
        self._arrived.append(_Arrived(live.publisher, live.flags, live.topic, live.body, True, ()))

    def _from_client(self, session: MemorySession, frame: Acked | Subscribe | Unsubscribe | Hold) -> None:
        if isinstance(frame, Hold):
            session.hold(frame.held, self._state.wall_ms)
        elif isinstance(frame, Subscribe):
            self._subscribe(session, frame)
        elif isinstance(frame, Unsubscribe):
            codes: list[int] = []
            for filter in frame.filters:
                there = self._table.unsubscribe(session, filter)
                codes.append(ReasonCode.SUCCESS if there else ReasonCode.NO_SUBSCRIPTION_EXISTED)
            self._state.to_gateway(session.link, Unsubacked(session.conn, frame.packet_id, codes))
        elif session.acked(frame.kind, frame.packet_ids, frame.failed):
            session.pump(self._state.wall_ms)
            self._retained.stir(session)
        else:
            self._state.counters.acks_wrong += 1
            self._attaching.close(session, ReasonCode.PROTOCOL_ERROR)

    def _forwarded(self, frame: Forward) -> None:
        if frame.conn != HANDED_ON and not self._newest.takes(frame.publisher, frame.conn):
            self._state.counters.memory_forwards_stale += len(frame.topics)
            return
        for_groups = {at: (plain, groups) for at, plain, groups in frame.shared}
        for index, (topic, body) in enumerate(zip(frame.topics, frame.bodies, strict=True)):
            plain, groups = for_groups.get(index, (True, ()))
            self._arrived.append(_Arrived(frame.publisher, frame.flags[index], topic, body, plain, groups))

    # ---------------------------------------------------------------- SUBSCRIBE
    def _subscribe(self, session: MemorySession, frame: Subscribe) -> None:
        codes: list[int] = []
        retained: list[MemorySub] = []
        for filter, qos, options, handling in frame.filters:
            old = session.subs.get(filter)
            if old is None and len(session.subs) >= self._state.options.max_subscriptions:
                codes.append(ReasonCode.QUOTA_EXCEEDED)
                continue
            sub = MemorySub(session, filter, qos, options, frame.identifier)
            self._table.subscribe(sub)
            self._state.counters.subscribed += 1
            codes.append(qos)
            # An earlier subscription to the filter that is still being given its retained messages hands that on.
            new = old is None or old.retain_topics is not None
            # A shared subscription brings no retained messages (MQTT 5, 4.8.2).
            if filter not in self._table.groups and handling != _NEVER and (handling != _IF_NEW or new):
                retained.append(sub)
        self._fresh.append(_Waiting(session, Subacked(session.conn, frame.packet_id, codes), retained))

    def _confirm(self) -> None:
        """Something was confirmed, or a gateway is gone: send the SUBACKs that waited for nothing else."""
        if self._unconfirmed:
            waiting, self._unconfirmed = self._unconfirmed, []
            for suback in waiting:
                if self._links.confirmed(suback.needs):
                    self._send(suback)
                else:
                    self._unconfirmed.append(suback)

    def _send(self, suback: _Waiting) -> None:
        session = suback.session
        if session.attached and session.conn == suback.conn:
            self._state.to_gateway(session.link, suback.frame)
            for sub in suback.retained:
                self._retained.begin(sub)

    def _subacks(self) -> None:
        """When the gateways have been told: SUBACK, or wait for their answer."""
        needs = self._links.unconfirmed()
        for suback in self._fresh:
            if not needs or min(suback.frame.codes) >= _FAILED:
                self._send(suback)
            else:
                suback.needs = needs
                self._unconfirmed.append(suback)
                self._late.add(self._state.now_ms, suback)
        self._fresh.clear()
        for late in self._late.due(self._state.now_ms):
            if late in self._unconfirmed:
                self._unconfirmed.remove(late)
                self._state.counters.memory_subacks_unconfirmed += 1
                self._send(late)

    # ---------------------------------------------------------------- messages
    def _hand_out(self) -> None:
        wall_ms = self._state.wall_ms
        for arrived in self._arrived:
            message = Message(arrived.publisher, arrived.flags, arrived.topic, arrived.body, wall_ms)
            if arrived.plain:
                self._to_plain(message)
            for group in arrived.groups:
                self._to_group(group, message)
        self._arrived.clear()

    def _to_plain(self, message: Message) -> None:
        delivered = 0
        for wanted in self._table.match(message.topic):
            for sub in wanted.subs.values():
                if sub.options and sub.skips(message.publisher):
                    continue
                if sub.retain_topics is not None and message.kind & 1:
                    sub.retain_topics.add(message.topic)
                delivered += sub.session.offer(message, sub.first(message), sub.identifier)
        self._state.counters.memory_taken += delivered

    def _to_group(self, filter: bytes, message: Message) -> None:
        group = self._table.groups.get(filter)
        if group is None:
            self._hand_on(filter, message)
            return
        sub = group.next_member(message.size)
        self._state.counters.memory_taken += sub.session.offer(message, sub.first(message), sub.identifier, filter)

    def _hand_on(self, filter: bytes, message: Message) -> None:
        """To a member elsewhere: a gateway knows who has some.  It was told before that there is none here."""
        link = next(iter(self._links.links), None)
        if link is None:
            self._state.counters.memory_shared_lost += 1
            return
        self._state.counters.memory_handed_on += 1
        flags, body = bytes((message.kind,)), message.aged(self._state.wall_ms)
        frame = Forward(message.publisher, HANDED_ON, flags, [message.topic], [body], [ForGroups(0, False, [filter])])
        self._state.to_gateway(link, frame)

    def _orphans(self) -> None:
        """What ended sessions had from their groups goes to others."""
        orphans, self._attaching.orphans = self._attaching.orphans, []
        for filter, message in orphans:
            if message.is_over(self._state.wall_ms):
                self._state.counters.memory_dropped_expired += 1
            else:
                self._to_group(filter, message)

    # ---------------------------------------------------------------- a turn of the loop
    def turn(self) -> None:
        due_ms = self.next_ms
        if not self._stirred and not self._retained.stirred and (due_ms is None or due_ms > self._state.now_ms):
            return
        self._stirred = False
        self._attaching.turn()
        for link, frame in self._links.tell():
            self._state.to_gateway(link, frame)
        if self._fresh or self._late.next_ms is not None:
            # Also for those that were confirmed long ago: as long as they are kept they ask to be woken for.
            self._subacks()
        if self._arrived:
            self._hand_out()
        if self._attaching.orphans:
            self._orphans()
        self._retained.turn()
        for link, gateway in self._links.links.items():
            for frame in gateway.take():
                self._state.to_gateway(link, frame)

    @property
    def next_ms(self) -> int | None:
        return earlier(self._attaching.next_ms, earlier(self._late.next_ms, self._retained.next_ms))

    def check(self) -> None:
        self._attaching.check()
        self._table.check()
