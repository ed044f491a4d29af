"""SUBSCRIBE and UNSUBSCRIBE of durable sessions: rows and routes, in the order that loses nothing (PROTOCOLS 7).

    new, with a route   commit "adding" and the work row -> route in every shard -> commit "active", the places where each
                        shard starts, and the end of the work row -> SUBACK
    new, of a group     the same, and before it is active it joins the group at its home; the places are the group's (docs/groups.md)
    new, without        commit "active" -> SUBACK; it is live only
    known               the same row with the new options, committed -> SUBACK; the route and the places stay
    known, other kind   a new subscription takes the place of the old one in the commit that makes it active
    replay              the same, and in each shard it begins where the shard says; one with an end is removed there
    removed             commit the end of the rows and the work row -> UNSUBACK -> the routes are removed

A subscription granted QoS 1 or 2 has a route; one granted QoS 0 has one if store_qos0 was on when it was made.  One that is
changed to QoS 0 keeps its route until the connection has ended, for no message may be lost to the change [MQTT-3.8.4-4]: what
is stored and unread comes at QoS 0, and no moment is without either store or live delivery.  At the next connection it is live
only, since nothing is owed at QoS 0 to a client that is away.

The work row says "remove this route everywhere".  It is there from before the route is added until the subscription is
active, so a crash anywhere in between leaves nothing behind.  A shard that does not answer in time: 0x83 for that filter,
what was begun is removed again, and an earlier subscription to the filter stays as it was.

Packets that name the same filter are carried out one after the other, in the order in which they came.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial

from mqtt.reason import ReasonCode
from mqtt.topics import is_shared, matched_filter
from sessions.committing import Committing, Home
from sessions.frames import Replay, Subacked, Subscribe, Unsubacked, Unsubscribe
from sessions.given import Givens
from sessions.ranges import Terms
from sessions.reading import Reading
from sessions.retained import Retained, RetainedJob
from sessions.routes import Routes
from sessions.session import NO_REPLAY, Past, Session, Subscription, place_key, sub_key
from sessions.state import Later, State
from sessions.underway import NOT_CHANGING
from shards.frames import NO_END, Join, Joined, Place, Replayed, Reply
from shards.frames import PLACE as PLACE_KEPT
from shards.ids import sub_id
from shards.rows import ADDING, PLACE, SUBSCRIPTION, WORK, pack_row

_SUBS_PER_TOKEN = 1 << 24
_IF_NEW, _NEVER = 1, 2


class Operation:
    """One SUBSCRIBE or UNSUBSCRIBE.  left: filters that are not done.  granted: what new or changed subscriptions
    want of retained messages."""

    __slots__ = ("codes", "conn", "filters", "frame", "granted", "kept_since_ms", "left")

    def __init__(self, frame: Subscribe | Unsubscribe) -> None:
        self.frame = frame
        self.conn = frame.conn
        rows = frame.filters if isinstance(frame, Unsubscribe) else [row[0] for row in frame.filters]
        self.filters = dict.fromkeys(rows)
        self.codes = [0] * len(rows)
        self.left = 0
        self.granted: list[RetainedJob] = []
        self.kept_since_ms = 0

    def goes_on(self, session: Session) -> bool:
        """Whether the connection that asked for it is still there."""
        return session.attached and not session.dropped and session.conn == self.conn


class _Adding:
    """A subscription on its way to being active, in the place of `old`, which has no route unless this is a replay."""

    __slots__ = ("done", "finish", "old", "operation", "positions", "replay", "replayed", "session", "sub", "wants_retained")

    def __init__(
        self, session: Session, operation: Operation, sub: Subscription, old: Subscription | None, replay: Replay | None,
        wants_retained: bool, finish: Callable[[bool], None],
    ) -> None:  # fmt: skip
        self.session = session
        self.operation = operation
        self.sub = sub
        self.old = old
        self.replay = replay
        self.wants_retained = wants_retained
        self.finish = finish
        self.positions: dict[int, int] = {}
        self.replayed: dict[int, Replayed] = {}
        self.done = False

    @property
    def goes_on(self) -> bool:
        return not self.done and self.operation.goes_on(self.session)


class Subscriptions:
    def __init__(
        self, state: State, homes: dict[int, Home], committing: Committing, routes: Routes, reading: Reading, retained: Retained,
        givens: Givens,
    ) -> None:  # fmt: skip
        self._state = state
        self._homes = homes
        self._committing = committing
        self._routes = routes
        self._reading = reading
        self._retained = retained
        self._givens = givens
        self._adding: dict[int, _Adding] = {}
        """By the id of the subscription; those whose session is gone are let go when they are late."""
        self._late: Later[int] = Later(state.options.route_wait_ms)

    # ---------------------------------------------------------------- from the gateway
    def receive(self, session: Session, frame: Subscribe | Unsubscribe) -> None:
        session.changes().operations.append(Operation(frame))
        self._start(session)

    def _start(self, session: Session) -> None:
        """Begin what does not touch a filter that is being changed; nothing overtakes one that waits."""
        changing = session.changing
        while changing.operations and not any(filter in changing.busy for filter in changing.operations[0].filters):
            operation = changing.operations.pop(0)
            changing.busy.update(operation.filters)
            changing.running += 1
            if isinstance(operation.frame, Subscribe):
                self._subscribe(session, operation, operation.frame)
            else:
                self._unsubscribe(session, operation, operation.frame)

    def detached(self, session: Session) -> None:
        """Nobody waits for the answers any more.  The rows say how far each change came: when the session is attached again
        it is loaded from them, and what was only begun is undone."""
        if not session.changing.over:
            session.uncertain = True
            session.changing.operations.clear()

    # ---------------------------------------------------------------- SUBSCRIBE
    def _subscribe(self, session: Session, operation: Operation, frame: Subscribe) -> None:
        last = {row[0]: index for index, row in enumerate(frame.filters)}
        operation.left = len(last)
        replay = Replay(*frame.replay) if frame.replay else None
        for index, (filter, qos, options, handling) in enumerate(frame.filters):
            if last[filter] != index:
                # Named again further on: only the last one takes effect, as if they had come in separate packets.
                operation.codes[index] = qos
                continue
            self._one_filter(session, operation, index, filter, qos, options, handling, frame.identifier, replay)

    def _one_filter(
        self, session: Session, operation: Operation, index: int, filter: bytes, qos: int, options: int, handling: int, identifier: int,
        replay: Replay | None,
    ) -> None:  # fmt: skip
        old = session.subs.get(filter)
        shared = is_shared(filter)
        if shared:
            # A group begins with its first member.
            replay = None
        # One that was to end goes on as another one.
        begins = replay is not None or (old is not None and old.ends)
        # A shared subscription brings no retained messages (MQTT 5, 4.8.2).
        wants_retained = not shared and handling != _NEVER and (handling != _IF_NEW or old is None)
        routed = shared or replay is not None or qos > 0 or self._state.options.store_qos0
        routed = routed or (old is not None and old.routed and not old.ends)
        if old is not None and old.routed == routed and not begins:
            terms = Terms(old.sub_id, filter, qos, options, identifier)
            changed = Subscription(session, terms, old.starts)
            changed.past = old.past
            self._committing.put(session, SUBSCRIPTION, sub_key(old.sub_id), changed.row())
            job = self._retained.want(session, old, filter) if wants_retained else None
            self._then(session, operation, lambda: self._changed(session, operation, index, old, terms, job))
            return
        home = self._homes[session.home]
        code = 0
        if old is None and len(session.subs) + session.changing.adding >= self._state.options.max_subscriptions:
            code = ReasonCode.QUOTA_EXCEEDED
        elif home.last_sub + 1 == _SUBS_PER_TOKEN:
            # Ids of this owner are used up, after 16 million subscriptions; the next owner has new ones.
            code = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
        if code:
            operation.codes[index] = code
            self._filter_done(session, operation)
            return
        home.last_sub += 1
        terms = Terms(sub_id(home.shard, home.token, home.last_sub), filter, qos, options, identifier)
        sub = Subscription(session, terms)
        sub.ends = replay is not None and replay.until != NO_END
        wants_retained = wants_retained and not sub.ends
        session.changing.adding += 1

        def finish(active: bool) -> None:
            session.changing.adding -= 1
            if active:
                self._activate(session, sub, old)
                if sub.to_copy is not None:
                    operation.granted.append(sub.to_copy)
            operation.codes[index] = qos if active else ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
            self._filter_done(session, operation)

        if routed:
            self._add(_Adding(session, operation, sub, old, replay, wants_retained, finish))
        else:
            self._committing.put(session, SUBSCRIPTION, sub_key(sub.sub_id), sub.row())
            if wants_retained:
                self._retained.want(session, sub, filter)
            if old is not None and old.routed:
                self._end(session, old)
            self._put_replaced(session, old)
            self._then(session, operation, lambda: finish(True))

    def _changed(
        self, session: Session, operation: Operation, index: int, sub: Subscription, terms: Terms, job: RetainedJob | None
    ) -> None:
        sub.terms = terms
        operation.codes[index] = terms.qos
        if job is not None:
            operation.granted.append(job)
        self._filter_done(session, operation)

    # ---------------------------------------------------------------- adding, step by step
    def _add(self, adding: _Adding) -> None:
        session, sub = adding.session, adding.sub
        self._committing.put(session, SUBSCRIPTION, sub_key(sub.sub_id), sub.row(ADDING))
        self._committing.put(session, WORK, sub_key(sub.sub_id), pack_row((sub.terms.filter,)))
        session.on_commit(lambda: self._row_committed(adding))
        self._adding[sub.sub_id] = adding
        self._late.add(self._state.now_ms, sub.sub_id)

    def _row_committed(self, adding: _Adding) -> None:
        if adding.goes_on:
            sub = adding.sub
            filter = matched_filter(sub.terms.filter) if sub.shared else sub.terms.filter
            self._routes.add(adding.session.client, sub.sub_id, filter, partial(self._routed, adding), adding.replay)

    def _routed(self, adding: _Adding, shard: int, position: int, replayed: Replayed | None) -> None:
        adding.positions[shard] = position
        if replayed is not None:
            adding.replayed[shard] = replayed
        if len(adding.positions) < self._state.n_shards or not adding.goes_on:
            return
        sub, starts = adding.sub, sorted(adding.positions.items())
        if sub.shared and self._routes.removing(sub.sub_id):
            # Its session has ended.  The removal ends memberships, too, and nothing may join behind it.
            return
        if sub.shared:
            group = self._state.slots.shard_of(sub.terms.filter)
            self._state.ask(group, [Join(sub.terms.filter, sub.sub_id, starts)], lambda replies: self._joined(adding, replies))
        else:
            self._begin(adding, starts)

    def _joined(self, adding: _Adding, replies: list[Reply]) -> None:
        (joined,) = replies
        assert isinstance(joined, Joined)
        if not joined.code and adding.goes_on:
            self._begin(adding, [])

    def _begin(self, adding: _Adding, starts: list[tuple[int, int]]) -> None:
        session, sub = adding.session, adding.sub
        places = [_begins(adding, shard) for shard, _ in starts]
        sub.starts = array("q", [place.cut for place in places])
        kept = adding.replay.since_value if adding.replay is not None and adding.replay.since == PLACE_KEPT else 0
        if adding.replayed:
            sub.past = {shard: Past(found.upto, found.since_ms or kept, found.until_ms) for shard, found in sorted(adding.replayed.items())}
        adding.operation.kept_since_ms = max(
            [adding.operation.kept_since_ms, *(found.kept_since_ms for found in adding.replayed.values())]
        )  # fmt: skip
        self._committing.put(session, SUBSCRIPTION, sub_key(sub.sub_id), sub.row())
        self._committing.put(session, WORK, sub_key(sub.sub_id), None)
        if adding.wants_retained:
            self._retained.want(session, sub, sub.terms.filter)
        for place in places:
            session.places[sub.add_cursor(place, place)] = None
        old = adding.old
        if old is not None and old.routed:
            # From here on nothing takes this back but the end of the connection, and then the rows decide.
            self._end(session, old)
        self._put_replaced(session, old)
        session.on_commit(lambda: self._active(adding))

    def _active(self, adding: _Adding) -> None:
        if adding.goes_on:
            self._over(adding)
            adding.finish(True)

    def _give_up(self, adding: _Adding) -> None:
        """A shard is away for too long: take back what was begun.  Requests behind the outstanding ones undo them."""
        self._over(adding)
        session, sub = adding.session, adding.sub
        self._state.counters.subscribe_late += 1
        for cursor in sub.cursors:
            session.places.pop(cursor, None)
        sub.let_go()
        if adding.old is not None:
            self._committing.put(session, SUBSCRIPTION, sub_key(adding.old.sub_id), adding.old.row())
        self._put_removed(session, sub)
        adding.finish(False)

    def _over(self, adding: _Adding) -> None:
        adding.done = True
        self._adding.pop(adding.sub.sub_id, None)

    # ---------------------------------------------------------------- rows of what is removed
    def _put_replaced(self, session: Session, old: Subscription | None) -> None:
        """An older subscription to the filter ends in the commit in which the new one begins."""
        if old is None:
            return
        if old.routed:
            self._put_removed(session, old)
        else:
            self._retained.forget(session, old)
            self._committing.put(session, SUBSCRIPTION, sub_key(old.sub_id), None)

    def _put_removed(self, session: Session, sub: Subscription) -> None:
        """The rows of a subscription with a route end, and when that is committed the route is removed."""
        self._retained.forget(session, sub)
        self._committing.put(session, SUBSCRIPTION, sub_key(sub.sub_id), None)
        for shard in range(self._state.n_shards):
            self._committing.put(session, PLACE, place_key(sub.sub_id, shard), None)
        self._committing.put(session, WORK, sub_key(sub.sub_id), pack_row((sub.terms.filter,)))
        home, client = self._homes[session.home], session.client
        remove = partial(self._routes.remove, home, client, sub.sub_id, sub.terms.filter)
        session.tell_when_committed(remove)

    def remove_unfinished(self, session: Session, sub: Subscription) -> None:
        """A subscription that was being added when its session was lost: it was never acknowledged."""
        self._put_removed(session, sub)

    # ---------------------------------------------------------------- in memory
    def _activate(self, session: Session, sub: Subscription, old: Subscription | None) -> None:
        if old is not None and not old.ended:
            self._end(session, old)
        session.subs[sub.terms.filter] = sub
        self._state.counters.subscribed += 1
        self._reading.begin(session, sub)

    def attaching(self, session: Session) -> None:
        """Before a connection reads: what was changed to QoS 0 is live only from now on."""
        self._retained.resume(session)
        if self._state.options.store_qos0:
            return
        for sub in [sub for sub in session.subs.values() if sub.ends and not sub.terms.qos]:
            for cursor in sub.cursors:
                session.places.pop(cursor, None)
            self._put_removed(session, sub)
            del session.subs[sub.terms.filter]
            sub.let_go()
        for sub in session.subs.values():
            if sub.routed and not sub.shared and not sub.terms.qos:
                for cursor in sub.cursors:
                    session.places.pop(cursor, None)
                sub.cursors, sub.starts, sub.past = [], array("q"), NO_REPLAY
                job = sub.to_copy
                self._put_removed(session, sub)
                self._committing.put(session, SUBSCRIPTION, sub_key(sub.sub_id), sub.row())
                if job is not None:
                    self._retained.keep(session, job)

    def through(self, session: Session, sub: Subscription) -> None:
        """It has read what it was made for.  One that is being changed is looked at again, unless that is its end."""
        if sub.terms.filter not in session.changing.busy:
            self._state.counters.replays_ended += 1
            self._end(session, sub)
            self._put_replaced(session, sub)

    def _end(self, session: Session, sub: Subscription) -> None:
        self._reading.end(session, sub)
        sub.ended = True
        sub.let_go()
        del session.subs[sub.terms.filter]
        if sub.shared:
            self._givens.unsubscribed(session, sub.terms.filter)

    # ---------------------------------------------------------------- UNSUBSCRIBE
    def _unsubscribe(self, session: Session, operation: Operation, frame: Unsubscribe) -> None:
        operation.left = 1
        for index, filter in enumerate(frame.filters):
            sub = session.subs.get(filter)
            if sub is None:
                operation.codes[index] = ReasonCode.NO_SUBSCRIPTION_EXISTED
                continue
            self._state.counters.unsubscribed += 1
            self._end(session, sub)
            self._put_replaced(session, sub)
        if session.rows:
            self._then(session, operation, lambda: self._filter_done(session, operation))
        else:
            self._filter_done(session, operation)

    # ---------------------------------------------------------------- done
    def _filter_done(self, session: Session, operation: Operation) -> None:
        operation.left -= 1
        if operation.left:
            return
        changing = session.changing
        changing.running -= 1
        for filter in operation.filters:
            changing.busy.pop(filter, None)
        frame = operation.frame
        if isinstance(frame, Subscribe):
            self._state.to_gateway(session.link, Subacked(session.conn, frame.packet_id, operation.codes, operation.kept_since_ms))
            for job in operation.granted:
                self._retained.begin(session, job)
        else:
            self._state.to_gateway(session.link, Unsubacked(session.conn, frame.packet_id, operation.codes))
        self._start(session)
        if session.changing.over:
            session.changing = NOT_CHANGING

    def _then(self, session: Session, operation: Operation, do: Callable[[], None]) -> None:
        """When what is changed now is committed, unless the connection is gone by then."""
        session.on_commit(lambda: do() if operation.goes_on(session) else None)

    def turn(self) -> None:
        for late in self._late.due(self._state.now_ms):
            adding = self._adding.pop(late, None)
            if adding is None:
                continue
            if not adding.goes_on:
                adding.sub.let_go()
            elif adding.old is None or not adding.old.ended:
                self._give_up(adding)

    @property
    def next_ms(self) -> int | None:
        return self._late.next_ms


def _begins(adding: _Adding, shard: int) -> Place:
    """Where it begins to read a shard.  A place that a client has kept is taken as it is, unless it is beyond this shard: then the shard
    has lost what it stood for, and it begins with what comes."""
    position, found, replay = adding.positions[shard], adding.replayed.get(shard), adding.replay
    if found is None or replay is None:
        return Place(position)
    if replay.since == PLACE_KEPT:
        place = Place(*replay.places[shard])
        if max(place.cut, place.horizon) <= position:
            return place
    return Place(found.after)
