"""From stored messages to batches in a session's window: polls, what the feed brings, and ranges that are read again.

Reading follows the window: a session asks for more when less than half of its bound waits unsent, one poll at a time for
each subscription and shard.  A shard that is away is asked when it is back, and keeps no room until then.  After a reconnect the
unfinished ranges are read again first, all of them, in their order; only then does anything new get a number.

Messages that leave at QoS 0 (they are stored under store_qos0) have no number and are in no range: when the place behind them is
committed they leave, once at most, and what was on its way when the connection ended does not come again.

Holds: what waits unsent or was asked for is at most the window and one batch (one message when the byte bound is smaller
than it); a message gets a number when it is put into the window's queue, in the order in which its shard told it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from sessions.bodies import DUP, POSITIONS, QOS1, QOS2, Bodies, repeated
from sessions.columns import columns, counts
from sessions.committing import Committing
from sessions.feed import ShardFeed
from sessions.given import Givens
from sessions.idle import Idle
from sessions.losses import Losses
from sessions.origins import ORIGINS, is_bridge
from sessions.past import at_head, is_through, parts
from sessions.ranges import COPIES, GIVEN, Terms
from sessions.redelivery import Redelivery
from sessions.session import HEAD, Cursor, Doing, Reread, Session, Subscription
from sessions.stalls import Stalls
from sessions.state import GROUPS, Later, State, earlier
from sessions.underway import NOT_ASKING, Asking
from sessions.wanted import Wanted
from sessions.window import NO_GATE, Batch
from shards.frames import Place, Poll, Polled, RangeRead, ReadRange, RetainedPage, Segment, Told
from shards.messages import RETAIN

_QOS_BITS = QOS1 | QOS2
BATCH_FIRST = 100
"""Messages that a poll asks for while nobody knows whether there are so many."""
PLACE_UNSAVED_US_MAX = 600_000_000
"""A subscription at the head for which nothing comes is nowhere in the rows.  So that it has not lost, after a crash, what was dropped
since the last message for it, its place is saved when the saved one is older than that."""


class Reading:
    def __init__(self, state: State) -> None:
        self._state = state
        self._wanted = Wanted()
        self.feeds = [ShardFeed(state, shard, self._wanted, self) for shard in range(state.n_shards)]
        self._retry: Later[tuple[Session, Cursor | Reread]] = Later(state.options.retry_ms)
        self._stalls = Stalls(state, self.feeds)
        self._idle = Idle(state.n_shards, self._stalls.look_again, self._stalls.wake)
        self._losses = Losses(state)
        self.committing: Committing
        self.givens: Givens
        self.redelivery: Redelivery
        self.through: Callable[[Session, Subscription], None]
        """Told when a subscription that ends with its history has read it."""

    def place_of(self, cursor: Cursor) -> Place:
        return self.feeds[cursor.shard].place_of(cursor)

    # ---------------------------------------------------------------- subscriptions come and go
    def begin(self, session: Session, sub: Subscription) -> None:
        """Read for this subscription from the places of its cursors on."""
        sub.reads = self._state.options.reads_of(session.reads, sub.terms.filter)
        if sub.cursors:
            if self._wanted.add(sub):
                for feed in self.feeds:
                    feed.want(sub.terms.filter)
            for cursor in sub.cursors:
                self._wait(session, cursor)
            self._idle.watch(sub, sub.reads.idle_poll_ms, self._state.now_ms)
        self._state.stir(session)

    def end(self, session: Session, sub: Subscription) -> None:
        self._stop(sub)
        for cursor in sub.cursors:
            session.places.pop(cursor, None)
            if cursor.doing is Doing.WAITING:
                session.asking.starving.remove(cursor)
            cursor.doing = Doing.NOTHING

    def _stop(self, sub: Subscription) -> None:
        """Nothing comes for it any more, and the places of its cursors are their own again."""
        if sub.cursors:
            self._idle.forget(sub)
            for cursor in sub.cursors:
                if cursor.doing is HEAD:
                    self.feeds[cursor.shard].leave(cursor)
            if self._wanted.remove(sub):
                for feed in self.feeds:
                    feed.unwant(sub.terms.filter)

    def detach(self, session: Session) -> None:
        """The connection is gone: stop reading, and note how far the subscriptions have come."""
        self._state.forget_queries(session.asking)
        session.asking = NOT_ASKING
        for sub in session.subs.values():
            self._stop(sub)
            for cursor in sub.cursors:
                cursor.doing = Doing.NOTHING
                cursor.looking = None
                if cursor.unsaved:
                    session.places[cursor] = None
            sub.retained_topics = None
        if session.window.unsent:
            # The row says that all of it was sent; now we know better.
            session.progress_dirty = True
        session.held = False
        session.window.reconnect(0)
        session.one.reconnect()
        session.two.reconnect()

    def attach(self, session: Session, receive_max: int) -> None:
        """A connection: first what is unfinished, then what is new."""
        bounded = session.link != GROUPS and not is_bridge(session.client)
        session.window.reconnect(min(receive_max, self._state.options.max_inflight) if bounded else receive_max)
        if session.ranges.open:
            session.asks().rereads = [Reread(range) for range in session.ranges.open.values()]
        for sub in session.subs.values():
            self.begin(session, sub)
        self._state.stir(session)

    def move(self, cursor: Cursor, place: Place) -> None:
        """Go on from this place, wherever it stood, online or offline (docs/session-tools.md).  What was given to the session before stays
        its own; the place is in the next commit."""
        session = cursor.sub.session
        if cursor.doing is HEAD:
            self.feeds[cursor.shard].leave(cursor)
            self._wait(session, cursor)
        cursor.place = place
        cursor.looking = None
        session.places[cursor] = None
        session.ranges.sever()
        self.committing.soon(session)
        if session.attached:
            self._state.stir(session)

    # ---------------------------------------------------------------- shards come and go
    def linked(self, shard: int) -> None:
        """Who had to wait for it goes on."""
        self.feeds[shard].linked()
        for session in self._state.by_conn.values():
            if session.asking.starving or session.asking.retained:
                self._state.stir(session)

    def lost(self, shard: int) -> None:
        """What it was asked for keeps no room any longer: what others have comes meanwhile."""
        self.feeds[shard].lost()
        self._state.take_back(shard, (Poll, RetainedPage))

    # ---------------------------------------------------------------- asking
    def pump(self, session: Session) -> None:
        """Ask for what this session has room for."""
        asking = session.asking
        if session.held:
            return
        if asking.rereads:
            self._reread(session, asking)
            if asking.rereads:
                return
        if not asking.starving:
            return
        options, window = self._state.options, session.window
        linked = self._state.linked
        while asking.starving:
            cursor = next((each for each in asking.starving if linked[each.shard]), None)
            if cursor is None:
                return
            batch = _batch(cursor, window.size)
            bound = window.size + batch
            if (window.unsent + asking.reserved) * 2 > bound:
                return
            bytes_left = options.unsent_bytes_max - window.unsent_bytes - asking.reserved_bytes
            if bytes_left * 2 < options.unsent_bytes_max:
                return
            count = min(batch, session.room(bound))
            if count <= 0:
                return
            asking.starving.remove(cursor)
            self._poll(session, asking, cursor, count, min(options.poll_bytes_max, bytes_left))

    def _poll(self, session: Session, asking: Asking, cursor: Cursor, count: int, bytes_max: int) -> None:
        cursor.doing = Doing.ASKED
        asking.reserved += count
        asking.reserved_bytes += bytes_max
        self._state.counters.polls += 1

        place = cursor.place

        def told(told: Told | None) -> None:
            asking.reserved -= count
            asking.reserved_bytes -= bytes_max
            # Also when the subscription has ended meanwhile: others may wait for the room that was kept for this one.
            self._state.stir(session)
            if cursor.sub.ended:
                return
            if told is None and not self._state.linked[cursor.shard]:
                self._wait(session, cursor)
            elif cursor.place == place:
                cursor.full = isinstance(told, Polled) and sum([len(segment.values) for segment in told.segments]) >= count
                self._polled(session, cursor, place, told)
            else:
                # It was moved meanwhile: what this has brought was asked from another place.
                self._wait(session, cursor)

        poll = Poll(cursor.sub.terms.filter, place, count, bytes_max, cursor.sub.reads.renew_streams_ms)
        self._state.query(cursor.shard, poll, asking, told)

    def _polled(self, session: Session, cursor: Cursor, begin: Place, told: Told | None) -> None:
        if not isinstance(told, Polled):
            cursor.doing = Doing.LATER
            self._retry.add(self._state.now_ms, (session, cursor))
            return
        if cursor.looking is not None:
            look, cursor.looking = cursor.looking, None
            self._stalls.looked(cursor, look, told)
        # A sweep is at its end when its horizon has become the cut.
        sweep = Place(begin.cut, told.place.horizon or told.place.cut)
        for segment in told.segments:
            self._segment(session, cursor, segment, sweep)
        if told.place != cursor.place:
            cursor.place = told.place
            if told.segments or told.gone:
                session.places[cursor] = None
            else:
                # That it brought nothing does not mean that something was heard.
                cursor.moved = False
                if cursor.saved is not None and cursor.cut - cursor.saved > PLACE_UNSAVED_US_MAX:
                    session.places[cursor] = None
                    self.committing.lazily(session)
        if told.gone:
            self._losses.passed(session, cursor, told.gone)
            self.committing.soon(session)
        if told.at_head and not told.place.horizon:
            cursor.repeats = False
            self.feeds[cursor.shard].join(cursor)
        else:
            self._wait(session, cursor)
        if cursor.sub.ends and all(is_through(each, self.place_of(each)) for each in cursor.sub.cursors):
            self.through(session, cursor.sub)

    def _segment(self, session: Session, cursor: Cursor, segment: Segment, sweep: Place) -> None:
        if segment.values:
            for terms, streams, after, upto, bodies, positions in parts(cursor, segment, self._places(cursor), sweep):
                indexes = range(len(bodies.messages))
                self._new(
                    session, cursor.sub, terms, cursor.shard, segment.merged, streams, after, upto, bodies, indexes, positions,
                    cursor.repeats,
                )  # fmt: skip

    def _places(self, cursor: Cursor) -> Sequence[Place]:
        """Of its subscription in all shards, where its messages carry them."""
        return [self.place_of(each) for each in cursor.sub.cursors] if cursor.sub.terms.options & POSITIONS else ()

    def _wait(self, session: Session, cursor: Cursor) -> None:
        cursor.doing = Doing.WAITING
        session.asks().starving.append(cursor)

    def turn(self) -> None:
        self._idle.turn(self._state.now_ms)
        for session, item in self._retry.due(self._state.now_ms):
            if isinstance(item, Reread):
                item.asked = False
            elif item.doing is Doing.LATER:
                self._wait(session, item)
            if session.attached:
                self._state.stir(session)

    @property
    def next_ms(self) -> int | None:
        return earlier(self._retry.next_ms, self._idle.next_ms)

    def check(self) -> None:
        self._idle.check()
        self._wanted.check()
        for feed in self.feeds:
            feed.check()

    # ---------------------------------------------------------------- FeedReader
    def take(
        self, cursor: Cursor, bodies: Bodies, indexes: list[int], positions: Sequence[int], streams: list[tuple[int, bytes]],
        after: int, upto: int,
    ) -> bool:  # fmt: skip
        session, options = cursor.sub.session, self._state.options
        if cursor.sub.ends:
            return True
        if session.held or session.room(session.window.size + cursor.sub.reads.batch_size) < len(indexes):
            return False
        if session.window.unsent_bytes + session.asking.reserved_bytes > options.unsent_bytes_max:
            return False
        bodies = at_head(cursor, bodies, indexes, positions, self._places(cursor))
        self._new(session, cursor.sub, cursor.sub.terms, cursor.shard, True, streams, after, upto, bodies, indexes, positions)
        session.places[cursor] = None
        self._state.stir(session)
        return True

    def fell_behind(self, cursor: Cursor) -> None:
        session = cursor.sub.session
        self._wait(session, cursor)
        self._state.stir(session)

    # ---------------------------------------------------------------- numbers
    def _new(
        self, session: Session, sub: Subscription, terms: Terms, shard: int, merged: bool, streams: list[tuple[int, bytes]],
        after: int, upto: int, bodies: Bodies, indexes: Sequence[int], positions: Sequence[int], repeats: bool = False,
    ) -> None:  # fmt: skip
        """positions: of all messages of `bodies`."""
        if sub.retained_topics is not None:
            for index in indexes:
                if bodies.messages[index][3] & RETAIN:
                    sub.retained_topics[bodies.messages[index][0]] = None
        indexes, firsts = bodies.select(indexes, session.reader, terms)
        if not firsts:
            return
        count1, count2 = counts(firsts)
        first1 = first2 = 0
        if count1 or count2:
            first1, first2 = session.ranges.add(terms, shard, merged, streams, after, upto, count1, count2, [], session.next_commit)
            if count2:
                self.committing.soon(session)
            else:
                self.committing.assigned(session)
        gate = session.next_commit if count2 else NO_GATE
        if count1 + count2 < len(firsts):
            # What leaves at QoS 0 must not come again: the place behind it is committed first.
            self.committing.soon(session)
            gate = session.next_commit
        packet_ids, numbers, qos = columns(session, firsts, first1, first2)
        if terms.options & ORIGINS:
            bodies = bodies.at_origins(indexes, session.session_id, shard, [positions[at] for at in indexes], numbers)
        self._queue(session, terms, bodies, indexes, firsts, packet_ids, numbers, qos, gate, repeats)

    def copy(self, session: Session, sub: Subscription, values: list[bytes]) -> None:
        """Retained messages: those with a number become rows of the session.  All leave when it is committed how far they are copied,
        which the caller puts."""
        bodies = Bodies(values)
        indexes, firsts = bodies.select(range(len(values)), session.reader, sub.terms, retained=True)
        if not firsts:
            return
        count1, count2 = counts(firsts)
        first1 = first2 = 0
        if count1 or count2:
            copies = [values[index] for index, first in zip(indexes, firsts, strict=True) if first & _QOS_BITS]
            first1, first2 = session.ranges.add(sub.terms, COPIES, False, [], 0, 0, count1, count2, copies, session.next_commit)
        # What leaves at QoS 0 must not come again: that it was copied is committed first.
        self.committing.soon(session)
        self._queue(session, sub.terms, bodies, indexes, firsts, *columns(session, firsts, first1, first2), session.next_commit)

    def _queue(
        self, session: Session, terms: Terms, bodies: Bodies, indexes: Sequence[int], firsts: bytes, packet_ids: list[int],
        numbers: Sequence[int], qos: int, gate: int, repeats: bool = False,
    ) -> None:  # fmt: skip
        if repeats:
            session.one.may_be_sent()
            firsts = repeated(firsts)
        passes = not terms.options & POSITIONS
        session.window.add(Batch(bodies, indexes, firsts, packet_ids, numbers, qos, terms.identifier, gate, passes))
        self._state.counters.assigned += len(firsts)

    # ---------------------------------------------------------------- ranges again
    def _reread(self, session: Session, asking: Asking) -> None:
        """In their order; asked for ahead, as far as there is room, and queued when all before them are."""
        options, window = self._state.options, session.window
        bound = window.size + session.reads.batch_size
        for reread in asking.rereads:
            if window.unsent + asking.reserved > bound // 2 or window.unsent_bytes > options.unsent_bytes_max // 2:
                break
            if not reread.asked:
                self._ask_again(session, asking, reread)
        while asking.rereads and asking.rereads[0].values is not None:
            reread = asking.rereads.pop(0)
            self._queue_again(session, reread)

    def _ask_again(self, session: Session, asking: Asking, reread: Reread) -> None:
        reread.asked = True
        again = reread.range
        if again.shard == COPIES:
            reread.values = again.copies
            return
        if again.shard == GIVEN:
            reread.values = []
            return
        count = again.count1 + again.count2
        asking.reserved += count

        def told(told: Told | None) -> None:
            asking.reserved -= count
            if isinstance(told, RangeRead):
                reread.lost, reread.values, reread.positions = told.lost, told.values, told.positions
                if told.lost:
                    reread.before, reread.gone = told.before, told.gone
            else:
                self._retry.add(self._state.now_ms, (session, reread))
            self._state.stir(session)

        self._state.query(again.shard, ReadRange(again.terms.filter, again.streams, again.after, again.upto, again.merged), asking, told)

    def _queue_again(self, session: Session, reread: Reread) -> None:
        again, values = reread.range, reread.values
        assert values is not None
        if again.number not in session.ranges.open:
            return
        if again.shard == GIVEN:
            self.givens.again(session, again)
            return
        bodies = Bodies(values, options=again.terms.options)
        numbers: Sequence[int]
        indexes, firsts = bodies.select(range(len(values)), session.reader, again.terms, retained=again.shard == COPIES)
        if reread.lost or counts(firsts) != (again.count1, again.count2):
            split = bisect_left(indexes, reread.before)
            before, behind = counts(firsts[:split]), counts(firsts[split:])
            if not reread.lost or before[0] + behind[0] > again.count1 or before[1] + behind[1] > again.count2:
                self._state.counters.ranges_differ += 1
                firsts, before, behind = b"", (0, 0), (0, 0)
            self._losses.close(session, again, before, behind, reread.gone)
            self.committing.soon(session)
            ids1, numbers1, _ = columns(session, firsts[:split], again.first1, again.first2)
            ids2, numbers2, _ = columns(session, firsts[split:], again.last1 + 1 - behind[0], again.last2 + 1 - behind[1])
            packet_ids, numbers = ids1 + ids2, [*numbers1, *numbers2]
        else:
            packet_ids, numbers, _ = columns(session, firsts, again.first1, again.first2)
        one, two, received = session.one, session.two, session.received
        kept: list[int] = []
        unsent1 = unsent2 = False
        again_firsts = bytearray()
        for at, first in enumerate(firsts):
            qos = first & _QOS_BITS
            number = numbers[at]
            if not qos or (number in received and qos == QOS2):
                continue
            track = one if qos == QOS1 else two
            if track.is_finished(number) or number <= track.out:
                # Finished, or it is at the client already (sessions.outstanding).
                continue
            if session.again:
                message = bodies.messages[indexes[at]]
                count = self.redelivery.sent(session, track.qos, number, message[0])
                if count:
                    self.redelivery.put_away(session, again, track.qos, number, message, count)
                    continue
            kept.append(at)
            if number <= track.sent:
                first |= DUP
            elif qos == QOS2:
                unsent2 = True
            else:
                unsent1 = True
            again_firsts.append(first)
        if not kept:
            return
        # QoS 2 leaves when its range and the mark that it was sent are committed, copies when they are.
        gate = again.gate if again.count2 or again.shard == COPIES else NO_GATE
        if unsent2:
            gate = session.next_commit
            session.progress_dirty = True
            self.committing.soon(session)
        elif unsent1:
            session.progress_dirty = True
            self.committing.lazily(session)
        self._state.counters.sent_again += len(kept)
        if again.terms.options & ORIGINS and reread.positions:
            of_kept = [indexes[at] for at in kept]
            bodies = bodies.at_origins(
                of_kept, session.session_id, again.shard, [reread.positions[at] for at in of_kept], [numbers[at] for at in kept]
            )
        session.window.add(
            Batch(
                bodies,
                [indexes[at] for at in kept],
                bytes(again_firsts),
                [packet_ids[at] for at in kept],
                [numbers[at] for at in kept],
                0,
                again.terms.identifier,
                gate,
            )
        )


def _batch(cursor: Cursor, window_size: int) -> int:
    """How many messages its next poll may bring.  Many at once are cheaper, but what was asked for keeps room, which other subscriptions
    and shards do without meanwhile: so only one that is known to be behind asks for more than BATCH_FIRST, and never for more than half
    of a window that is larger."""
    most = max(BATCH_FIRST, window_size // 2) if cursor.full else BATCH_FIRST
    return min(cursor.sub.reads.batch_size, most)
