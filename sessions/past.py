"""What a replay makes of the messages of a segment: which of them are history, and where each one stands.

A cursor that began in the past reads as any that is behind.  Up to the position of its route it is history: delivered under terms of its
own, which leave out what was published at another time and mark what leaves as history.  A segment that reaches over that position
becomes two ranges, each of which can be read again by itself; two for each stream where messages carry positions, which say that everything
before them was delivered, and it is read stream by stream.  Of a subscription that ends there, the second is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sessions.bodies import HISTORY, POSITIONS, Bodies
from sessions.positions import encode_position
from sessions.ranges import Terms
from sessions.session import Cursor
from shards.frames import Place, Segment


class Part(NamedTuple):
    """Messages of a segment that become one range."""

    terms: Terms
    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    bodies: Bodies
    positions: Sequence[int]


def is_through(cursor: Cursor, place: Place) -> bool:
    """Whether its history is read."""
    return not place.horizon and place.cut >= cursor.past.upto


def terms_of_history(cursor: Cursor) -> Terms:
    sub, past = cursor.sub, cursor.past
    of, known = sub.terms, sub.history.get(cursor.shard)
    options = of.options | HISTORY
    if known is None or (known.qos, known.options, known.identifier) != (of.qos, options, of.identifier):
        known = Terms(of.sub_id, of.filter, of.qos, options, of.identifier, past.since_ms, past.until_ms)
        sub.history = {**sub.history, cursor.shard: known}
    return known


def parts(cursor: Cursor, segment: Segment, others: Sequence[Place], sweep: Place) -> Iterator[Part]:
    """others: the places of the subscription in all shards, of which that of this cursor does not count.  sweep: as `places_in`."""
    terms, upto = cursor.sub.terms, cursor.past.upto
    positions = segment.positions
    carried = _carried(cursor, segment, others, sweep) if terms.options & POSITIONS else None
    for streams, span in _spans(segment, apart=carried is not None and segment.after < upto < segment.upto):
        history = [at for at in span if positions[at] <= upto] if segment.after < upto else []
        if history:
            yield _part(terms_of_history(cursor), streams, segment.after, min(segment.upto, upto), segment, history, carried)
        if len(history) < len(span) and not cursor.sub.ends:
            live = [at for at in span if positions[at] > upto] if history else span
            yield _part(terms, streams, max(segment.after, upto), segment.upto, segment, live, carried)


def _spans(segment: Segment, apart: bool) -> Iterator[tuple[list[tuple[int, bytes]], range]]:
    """Streams, and which of the messages are theirs; each stream by itself where they are read one by one and have to stay apart."""
    streams = list(segment.streams)
    if segment.merged or not apart:
        yield streams, range(len(segment.values))
        return
    begin = 0
    for stream, count in zip(streams, segment.counts, strict=True):
        yield [stream], range(begin, begin + count)
        begin += count


def _part(
    terms: Terms, streams: list[tuple[int, bytes]], after: int, upto: int, segment: Segment, indexes: Sequence[int],
    carried: Sequence[bytes] | None,
) -> Part:  # fmt: skip
    values, positions = segment.values, segment.positions
    if len(indexes) < len(values):
        values, positions = [values[at] for at in indexes], [positions[at] for at in indexes]
    bodies = Bodies(values, options=terms.options)
    if carried is not None:
        bodies = bodies.at_places(range(len(indexes)), [carried[at] for at in indexes])
    return Part(terms, streams, after, upto, bodies, positions)


def at_head(cursor: Cursor, bodies: Bodies, indexes: Sequence[int], positions: Sequence[int], others: Sequence[Place]) -> Bodies:
    """The same for what the feed has brought: nothing of it is history."""
    if not cursor.sub.terms.options & POSITIONS:
        return bodies
    places = [_text(cursor, others, Place(positions[index])) for index in indexes]
    return bodies.at_places(indexes, places)


def _carried(cursor: Cursor, segment: Segment, others: Sequence[Place], sweep: Place) -> list[bytes]:
    return [_text(cursor, others, place) for place in places_in(segment, sweep)]


def _text(cursor: Cursor, others: Sequence[Place], place: Place) -> bytes:
    places = [place if shard == cursor.shard else other for shard, other in enumerate(others)]
    return encode_position(cursor.past.since_ms, places)


def places_in(segment: Segment, sweep: Place) -> list[Place]:
    """Where each message of a segment stands.  sweep: from which place to which horizon it was read, if that was stream by stream."""
    if segment.merged:
        return [Place(position) for position in segment.positions]
    found: list[Place] = []
    for (generation, static), count in zip(segment.streams, segment.counts, strict=True):
        of_stream = segment.positions[len(found) : len(found) + count]
        found += [Place(sweep.cut, sweep.horizon, generation, static, position) for position in of_stream]
    return found
