"""What shared groups have given to sessions here: from the rows of deliveries to the window, and what became of them (docs/groups.md).

    given: waiting -> assigned: in a range that names it -> finished: said in the next commit
                   -> returned: the session does not subscribe to the group any more

The home has the rows and tells of new ones while a session is attached; when it may have told of something that was not heard, the
rows are asked for again.  A session that has to do with groups is never reused from memory: what it had may have been taken from it
while its client was away.

Holds: a delivery is known here exactly once, until the commit that ends it is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mqtt.topics import is_shared
from sessions.bodies import DUP, QOS1, QOS2, Bodies, repeated
from sessions.committing import Committing
from sessions.deliveries import NO_DELIVERIES, Deliveries
from sessions.ranges import GIVEN, Range
from sessions.redelivery import Redelivery
from sessions.session import Session
from sessions.state import State
from sessions.window import NO_GATE, Batch
from shards.frames import Given, Load, Loaded, Told
from shards.rows import BEGUN, DELIVERY, FINISHED, LEAVES, OUTCOME, RETURNED, delivery_suffix, pack_row, unpack_row

_QOS_BITS = QOS1 | QOS2
_AT_ONCE = 100
"""Messages that are assigned together, at most."""


def restore(session: Session, rows: Sequence[tuple[bytes, bytes]], repeats: bool) -> None:
    """A session was read from its rows.  What was taken from it is closed: nothing is sent under these numbers any more.
    repeats: what has no number in the rows may have been sent."""
    ranges = [known for known in session.ranges.open.values() if known.shard == GIVEN]
    if rows or ranges:
        _restore(session, rows, ranges)
        session.given.repeats = len(session.given.waiting) if repeats else 0
    # What it has may be taken from it before a connection is attached to it.
    session.reload = in_groups(session)


def _restore(session: Session, rows: Sequence[tuple[bytes, bytes]], ranges: list[Range]) -> None:
    given = session.given = Deliveries()
    found = {suffix: unpack_row(value) for suffix, value in rows}
    given.known = dict.fromkeys(found)
    assigned: dict[bytes, None] = {}
    for known in ranges:
        qos, track, first = (1, session.one, known.first1) if known.count1 else (2, session.two, known.first2)
        for number, key in enumerate(known.copies, first):
            assigned[key] = None
            if key in found:
                given.values[key] = found[key][1]
                given.open[key] = (qos, number)
            elif not track.is_finished(number) and (qos == 1 or number not in session.received):
                _finish(session, qos, number)
                session.progress_dirty = True
    session.ranges.progressed1()
    session.ranges.progressed2()
    given.waiting.extend((key, fields[0], fields[1]) for key, fields in found.items() if key not in assigned)


def _finish(session: Session, qos: int, number: int) -> None:
    if qos == 1:
        session.one.finish(number)
    else:
        session.finish_two(number)


class Givens:
    def __init__(self, state: State, committing: Committing, redelivery: Redelivery) -> None:
        self._state = state
        self._committing = committing
        self._redelivery = redelivery

    # ---------------------------------------------------------------- from the home
    def received(self, frame: Given) -> None:
        """While rows are asked for it is dropped: home tells both in the order in which they came to be, so what is told before the rows
        is among them (tests/shards/test_deliveries.py)."""
        session = self._state.sessions.get(frame.client)
        if session is not None and session.attached and not session.given.asked:
            rows = zip([delivery_suffix(frame.group, number) for number in frame.numbers], frame.values, strict=True)
            self._add(session, [(key, frame.filter, value) for key, value in rows])

    def shard_linked(self, shard: int) -> None:
        """What the home has told while the link was away is lost: its rows say it."""
        for session in self._state.sessions.values():
            if session.home == shard and session.attached and in_groups(session):
                self._ask(session)

    def _ask(self, session: Session) -> None:
        given = self._own(session)
        given.asked = True

        def told(told: Told | None) -> None:
            if session.given is given:
                given.asked = False
            if isinstance(told, Loaded) and told.session_id == session.session_id:
                rows = [(suffix, unpack_row(value)) for family, suffix, value in told.rows if family == DELIVERY]
                self._add(session, [(key, fields[0], fields[1]) for key, fields in rows])

        self._state.query(session.home, Load(session.client), session.asks(), told)

    def _add(self, session: Session, rows: list[tuple[bytes, bytes, bytes]]) -> None:
        given = self._own(session)
        for row in rows:
            if row[0] not in given.known:
                given.known[row[0]] = None
                given.waiting.append(row)
        self._state.stir(session)

    def _own(self, session: Session) -> Deliveries:
        if session.given is NO_DELIVERIES:
            session.given = Deliveries()
        return session.given

    # ---------------------------------------------------------------- numbers
    def pump(self, session: Session) -> None:
        """Give numbers to what waits, behind everything that is sent again."""
        given = session.given
        while given.waiting and not session.asking.rereads and not session.held:
            room = session.room(session.window.size + _AT_ONCE)
            if room <= 0 or session.window.unsent_bytes > self._state.options.unsent_bytes_max:
                return
            filter = given.waiting[0][1]
            rows: list[tuple[bytes, bytes, bytes]] = []
            while given.waiting and given.waiting[0][1] == filter and len(rows) < min(room, _AT_ONCE):
                rows.append(given.waiting.popleft())
            self._assign(session, filter, rows)

    def _assign(self, session: Session, filter: bytes, rows: list[tuple[bytes, bytes, bytes]]) -> None:
        sub = session.subs.get(filter)
        if sub is None:
            self._said(session, [key for key, _, _ in rows], RETURNED)
            return
        bodies = Bodies([value for _, _, value in rows])
        _, firsts = bodies.select(range(len(rows)), session.reader, sub.terms)
        repeats = session.given.repeats > 0
        if repeats:
            session.given.repeats -= len(rows)
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or (firsts[end] ^ firsts[start]) & _QOS_BITS:
                self._run(session, filter, bodies, range(start, end), firsts[start:end], [key for key, _, _ in rows[start:end]], repeats)
                start = end

    def _run(
        self, session: Session, filter: bytes, bodies: Bodies, indexes: range, firsts: bytes, keys: list[bytes], repeats: bool
    ) -> None:
        """Messages that leave at the same QoS."""
        terms, count, gate = session.subs[filter].terms, len(keys), session.next_commit
        qos = (firsts[0] & _QOS_BITS) >> 1
        packet_ids, numbers = [0] * count, range(0)
        if not qos:
            # Once at most: that it is finished is committed before it leaves.
            self._said(session, keys, LEAVES)
        else:
            counts = (count, 0) if qos == 1 else (0, count)
            first = session.ranges.add(terms, GIVEN, False, [], 0, 0, *counts, keys, gate)[qos - 1]
            numbers = range(first, first + count)
            packet_ids = (session.one if qos == 1 else session.two).packet_ids(first, count)
            for number, key in enumerate(keys, first):
                session.given.open[key] = (qos, number)
        if qos == 1:
            if repeats:
                session.one.may_be_sent()
                firsts = repeated(firsts)
            gate = NO_GATE
            self._committing.assigned(session)
        elif qos == 2:
            for key in keys:
                self._committing.put(session, OUTCOME, key, pack_row((BEGUN,)))
        session.window.add(Batch(bodies, indexes, firsts, packet_ids, numbers or [0] * count, qos, terms.identifier, gate))
        self._state.counters.assigned += count

    def again(self, session: Session, known: Range) -> None:
        """A range after a reconnect: what of it is not finished, and was not taken away, is sent again."""
        given = session.given
        qos, track, first = (1, session.one, known.first1) if known.count1 else (2, session.two, known.first2)
        left = [
            (number, given.values[key])
            for number, key in enumerate(known.copies, first)
            if key in given.open and not track.is_finished(number) and number > track.out and (qos == 1 or number not in session.received)
        ]
        if left:
            left = self._without_poison(session, known, qos, left)
        if not left:
            return
        bodies = Bodies([value for _, value in left])
        indexes, plain = bodies.select(range(len(left)), session.reader, known.terms)
        firsts = bytes([byte | DUP if number <= track.sent else byte for byte, (number, _) in zip(plain, left, strict=True)])
        numbers = [number for number, _ in left]
        gate = known.gate if qos == 2 else NO_GATE
        if numbers[-1] > track.sent:
            session.progress_dirty = True
            if qos == 2:
                gate = session.next_commit
                self._committing.soon(session)
            else:
                self._committing.lazily(session)
        self._state.counters.sent_again += len(left)
        packet_ids = [track.packet_id(number) for number in numbers]
        session.window.add(Batch(bodies, indexes, firsts, packet_ids, numbers, 0, known.terms.identifier, gate))

    def _without_poison(self, session: Session, known: Range, qos: int, left: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """The oldest one becomes a dead letter if its client has ended with it too often; it is finished then."""
        number, value = left[0]
        message = Bodies([value]).messages[0]
        count = self._redelivery.sent(session, qos, number, message[0])
        if not count:
            return left
        self._redelivery.put_away(session, known, qos, number, message, count)
        self.acked(session)
        return left[1:]

    # ---------------------------------------------------------------- what became of them
    def acked(self, session: Session) -> None:
        """Some numbers were acknowledged; few deliveries are under way."""
        given = session.given
        done = [
            key for key, (qos, number) in given.open.items() if (session.one if qos == 1 else session.two).is_finished(number)
        ]  # fmt: skip
        for key in done:
            del given.open[key]
            given.values.pop(key, None)
        if done:
            self._said(session, done, FINISHED)

    def unsubscribed(self, session: Session, filter: bytes) -> None:
        """What was begun is completed [MQTT-3.10.4-3]; the others are for another member."""
        given = session.given
        left = [row for row in given.waiting if row[1] == filter]
        if left:
            given.waiting = deque([row for row in given.waiting if row[1] != filter])
            self._said(session, [key for key, _, _ in left], RETURNED)

    def purged(self, session: Session) -> None:
        """What had not left was closed by hand: it is for another member, unless it counts as begun at QoS 2."""
        given = session.given
        closed = [key for key, (qos, number) in given.open.items() if (session.one if qos == 1 else session.two).is_finished(number)]
        begun = [key for key in closed if given.open[key][0] == 2]
        for key in closed:
            del given.open[key]
        self._said(session, begun, FINISHED)
        self._said(session, [key for key in closed if key not in begun] + [key for key, _, _ in given.waiting], RETURNED)
        given.waiting.clear()

    def detached(self, session: Session) -> None:
        session.given = NO_DELIVERIES

    def _said(self, session: Session, keys: list[bytes], outcome: int) -> None:
        if not keys:
            return
        for key in keys:
            self._committing.put(session, OUTCOME, key, pack_row((outcome,)))
        known = session.given.known

        def committed() -> None:
            for key in keys:
                known.pop(key, None)

        session.on_commit(committed)


def in_groups(session: Session) -> bool:
    """Whether its home may do something with its deliveries while it is away."""
    return bool(session.given.known) or any(is_shared(filter) for filter in session.subs)
