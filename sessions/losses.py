"""What a session has lost: messages that were gone before they could be delivered, each loss as a row that survives restarts.

Two ways lead here.  A place moves over what nobody has read and cannot be read any more: which messages of it the session would
have got nobody knows, so positions and times are said.  A range that was assigned cannot be read again: its unfinished numbers are
closed, and they are counted.

The row is in the commit that moves the place, or that closes the numbers, and the numbers of rows are counted in the row of progress
that is in it too.  So a loss that was met and not committed is met again, and becomes the same row.  Of a range the span of closed
numbers is in its own row: some of them may be behind others that are under way, and after a crash would be met once more.

What was lost is counted and told to the shell when it is committed, also when the session is forgotten by then.

Holds: a session has at most LOSSES_PER_SESSION_MAX rows, numbered from 1 without gaps; the last one grows instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.events import TellLoss
from sessions.ranges import Range
from sessions.session import Cursor, Session
from sessions.state import State
from shards.frames import Gone
from shards.rows import LOSS, LOSSES_PER_SESSION_MAX, NOT_COUNTED, RANGE, LossRow, pack_row, u64

UNLIKE = "unlike"
"""The reason of a range that did not read the same again: a fault of ours, or of the disk."""


class Losses:
    def __init__(self, state: State) -> None:
        self._state = state

    def passed(self, session: Session, cursor: Cursor, gone: Sequence[Gone]) -> None:
        """The place of this cursor has moved over this, and is to be in the next commit."""
        terms = cursor.sub.terms
        for one in gone:
            self._put(session, self._row(terms.sub_id, terms.filter, cursor.shard, one, NOT_COUNTED))

    def close(self, session: Session, again: Range, before: tuple[int, int], behind: tuple[int, int], gone: Sequence[Gone]) -> None:
        """Of a range only so many messages of QoS 1 and QoS 2 at its beginning, and so many at its end, could be read.

        The other numbers are closed: never sent again.  After PUBREC, PUBREL goes on.  What was closed before is not counted again.
        """
        lost1 = range(again.first1 + before[0], again.first1 + again.count1 - behind[0])
        lost2 = range(again.first2 + before[1], again.first2 + again.count2 - behind[1])
        lost = close_numbers(session, again, lost1, lost2)
        if not lost:
            return
        terms = again.terms
        first = gone[0] if gone else Gone(again.streams[0][0], "", again.after, again.upto, 0, 0, UNLIKE)
        row = self._row(terms.sub_id, terms.filter, again.shard, first, lost)
        for one_more in gone[1:]:
            row = _with_times(row, self._row(terms.sub_id, terms.filter, again.shard, one_more, 0))
        self._put(session, row._replace(after=max(row.after, again.after), upto=min(row.upto, again.upto)))

    def _row(self, sub_id: int, filter: bytes, shard: int, gone: Gone, lost: int) -> LossRow:
        return LossRow(
            sub_id, filter, shard, gone.generation, gone.klass, gone.after, gone.upto, lost, gone.from_wall_ms, gone.to_wall_ms,
            self._state.wall_ms, gone.reason,
        )  # fmt: skip

    def _put(self, session: Session, row: LossRow) -> None:
        newest = session.newest_loss
        if newest is not None and _goes_on(newest, row):
            kept = _with_times(newest, row)
        elif session.losses < LOSSES_PER_SESSION_MAX:
            session.losses += 1
            kept = row
        else:
            kept = _added(newest, row) if newest is not None else row
        session.newest_loss, session.untold = kept, True
        session.rows[LOSS, u64(session.losses)] = pack_row(kept)
        session.tell_when_committed(lambda: self._committed(session, row))

    def _committed(self, session: Session, row: LossRow) -> None:
        counters = self._state.counters
        counters.losses += 1
        counters.lost += max(0, row.lost)
        self._state.effects.append(TellLoss(session.client, row))


def close_numbers(session: Session, known: Range, ones: range, twos: range) -> int:
    """These numbers of an open range are over without having been delivered, in the next commit; how many of them were not finished.

    After PUBREC an exchange goes on, and so does one that waits for it on a connection that another session actor has had.
    """
    one, two, ranges = session.one, session.two, session.ranges
    open1 = [number for number in ones if not one.is_finished(number)]
    open2 = [number for number in twos if number > two.out and not two.is_finished(number) and number not in session.received]
    if not open1 and not open2:
        return 0
    known.lost = (*known.lost, ones.start, len(ones), twos.start, len(twos))
    for number in open1:
        one.finish(number)
    for number in open2:
        session.finish_two(number)
    session.progress_dirty = True
    ranges.progressed1()
    ranges.progressed2()
    if known.number in ranges.open and ranges.is_taken(known):
        session.rows[RANGE, u64(known.number)] = known.row()
    return len(open1) + len(open2)


def close_again(session: Session) -> None:
    """A session was read from its rows: what was closed as lost is closed, also behind a number that is still under way."""
    one, two, ranges = session.one, session.two, session.ranges
    for known in [known for known in ranges.open.values() if known.lost]:
        for at in range(0, len(known.lost), 4):
            first1, count1, first2, count2 = known.lost[at : at + 4]
            for number in range(first1, first1 + count1):
                if not one.is_finished(number):
                    one.finish(number)
            for number in range(first2, first2 + count2):
                if not two.is_finished(number) and number not in session.received:
                    session.finish_two(number)
    ranges.progressed1()
    ranges.progressed2()


def _goes_on(newest: LossRow, row: LossRow) -> bool:
    """The same gap, met a piece later."""
    same = newest[:4] == row[:4] and newest.lost == row.lost == NOT_COUNTED and newest.reason == row.reason
    return same and row.after <= newest.upto and not newest.more


def _with_times(row: LossRow, more: LossRow) -> LossRow:
    """What is between them, of the newer generation."""
    known = [at for at in (row.from_wall_ms, more.from_wall_ms) if at]
    return row._replace(
        generation=max(row.generation, more.generation),
        after=min(row.after, more.after),
        upto=max(row.upto, more.upto),
        from_wall_ms=min(known, default=0),
        to_wall_ms=max(row.to_wall_ms, more.to_wall_ms),
        at_wall_ms=max(row.at_wall_ms, more.at_wall_ms),
    )


def _added(newest: LossRow, row: LossRow) -> LossRow:
    """There is no room for another row.  Positions of different shards have nothing to do with each other."""
    if row.shard != newest.shard:
        row = row._replace(generation=newest.generation, after=newest.after, upto=newest.upto)
    counted = NOT_COUNTED not in (newest.lost, row.lost)
    grown = _with_times(newest, row)
    return grown._replace(lost=newest.lost + row.lost if counted else NOT_COUNTED, more=newest.more + 1)
