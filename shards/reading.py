"""Reads for sessions: the next messages from a place on, a range again, a session's rows.

A place near the head is read from the tail, in position order over all streams.  One further behind is swept: up to a
horizon, stream by stream, in the order of (generation, static key), which costs a place of constant size whatever the number
of streams.  The horizon is the watermark, or what the layout's cut-off makes of it: then only the tail has what is newer, and
who is not reached by the tail either waits until the cut-off moves on.  Every segment says how to read it again; FIFO per topic
holds in both orders, since a topic is in one stream.

What was dropped, or cannot be read, is told by the poll whose place moves over it, and by no other (Gone).  A generation that goes while
a sweep is in it, or on its way to it, is met when its next stream is read; one that was gone when the streams were matched is known
then.  Below a generation that the sweep has left behind nothing is lost, whatever becomes of it.

Holds: nothing above the watermark is ever told; every call is bounded in messages, bytes and keys looked at; no place moves over
something that cannot be read without a word.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from mqtt.topics import has_wildcard, matches, matches_all
from shards.dropped import FORGOTTEN
from shards.frames import Gone, Place, Poll, Polled, RangeRead, ReadRange, Segment
from shards.lts import StructureMismatch
from shards.restored import RESTORED
from shards.retention import READ
from shards.store import Dropped, GenerationDropped, GenerationId, GenerationInfo, Store, Stream
from shards.tail import StreamRef, Tail

TAIL_EXAMINED_PER_MESSAGE = 20
STREAMS_PER_POLL = 500
KEYS_PER_POLL = 5000
SWEEPS_REMEMBERED = 64
STREAMS_REMEMBERED = 200_000
"""Of all remembered sweeps together, but for the one that is under way: what is forgotten is matched again, in its next poll."""
_BEHIND_ALL = 1 << 62

_SweepKey = tuple[bytes, int, int]
"""Filter, cut and horizon."""


class _Sweep(NamedTuple):
    """Where a sweep goes, in order; when that was matched; which generations between its ends were gone by then."""

    matched_ms: int
    streams: list[tuple[int, Stream]]
    gone: list[Dropped]


class Reader:
    def __init__(self, store: Store, tail: Tail, waits: bool = True) -> None:
        """waits: the cut-off is kept, as somebody commits a record when it has to move on.  Else everything committed is read at once."""
        self._store = store
        self._waits = waits
        self._tail = tail
        self._sweeps: OrderedDict[_SweepKey, _Sweep] = OrderedDict()
        self._remembered = 0
        """Streams in `_sweeps`."""
        self._gone_beside: list[GenerationId] = []
        self._gone_until = 0
        """Everything that is gone was below this position when these generations were there; none goes without a change of them."""
        self._restored: list[tuple[int, int]] = []
        """From where to where there is nothing, as it came after a backup that was restored (shards.restored)."""
        self.matched = 0
        """How often a filter was matched with the learned topic structure."""

    def poll(self, ask: Poll, watermark: int, now_ms: int = 0) -> Polled | None:
        """None: what comes next is behind the cut-off; ask again later.  now_ms: of any clock that does not go back."""
        place = ask.place
        if place.horizon == 0:
            if place.cut >= watermark:
                return Polled(place, [], True)
            in_tail = place.cut >= self._tail.floor
            polled = self._from_tail(ask, watermark) if in_tail else None
            if polled is not None:
                return polled
            horizon = self._store.cutoff(ask.filter, watermark) if self._waits else watermark
            if horizon <= place.cut:
                return self._from_tail(ask, watermark, patient=True) if in_tail else None
            place = Place(place.cut, horizon)
        return self._sweep(ask, place, watermark, now_ms)

    def range(self, ask: ReadRange, watermark: int) -> RangeRead:
        """The messages of a range, as they were told the first time."""
        streams = ask.streams
        try:
            if ask.merged:
                found = self._store.read_range(ask.filter, streams, ask.after, min(ask.upto, watermark))
            else:
                found = [
                    message
                    for stream in streams
                    for message in self._store.read_range(ask.filter, [stream], ask.after, min(ask.upto, watermark))
                ]
        except GenerationDropped:
            return self._rest_of(ask, streams, min(ask.upto, watermark))
        positions, values = [position for position, _ in found], [value for _, value in found]
        # Of several streams, one after the other, nobody knows how many each has lost at its end; most often none has.
        cut_off = self._cut_off(ask) if ask.merged or len(streams) == 1 else ()
        return RangeRead(bool(cut_off), positions, values, len(values) if cut_off else 0, cut_off)

    def _from_tail(self, ask: Poll, watermark: int, patient: bool = False) -> Polled | None:
        """None when the tail holds too little for this filter among too much else: then a sweep is cheaper. Not when patient."""
        tail = self._tail
        start, end = tail.index_after(ask.place.cut), tail.index_after(watermark)
        stop = min(end, start + ask.count_max)
        together = self._all_between(ask, start, stop, watermark if stop == end else tail.positions[stop - 1])
        if together is not None:
            return Polled(Place(together.upto), [together], stop == end)
        limit = min(end, start + TAIL_EXAMINED_PER_MESSAGE * ask.count_max)
        found, looked = self._asked_for(ask, start, limit)
        if not patient and looked == limit < end and len(found) < ask.count_max // 4:
            return None
        upto = watermark if looked == end else tail.positions[looked - 1]
        if not found:
            return Polled(Place(upto), [], upto == watermark)
        streams = list(dict.fromkeys([tail.streams[index] for index in found]))
        positions, values = [tail.positions[index] for index in found], [tail.values[index] for index in found]
        return Polled(Place(upto), [Segment(streams, ask.place.cut, upto, True, positions, values)], upto == watermark)

    def _asked_for(self, ask: Poll, start: int, limit: int) -> tuple[list[int], int]:
        """Between these indexes of the tail, those of what is asked for and has room in the answer; and what comes next."""
        tail, count_max, next_up = self._tail, ask.count_max, start
        found: list[int] = []
        while next_up < limit and len(found) < count_max:
            begin, next_up = next_up, min(limit, next_up + 2 * count_max)
            found += tail.of_topics(_of_filter(ask.filter, tail.topics[begin:next_up]), begin, next_up)
        if len(found) > count_max:
            next_up = found[count_max]
            del found[count_max:]
        sizes = accumulate([len(tail.values[index]) for index in found])
        room = max(1, bisect_right(list(sizes), ask.bytes_max))
        if room < len(found):
            next_up = found[room]
            del found[room:]
        return found, next_up

    def _all_between(self, ask: Poll, start: int, end: int, upto: int) -> Segment | None:
        """What the tail has between these indexes, as it lies there, where all of it is asked for and is not too large; never empty.
        upto: where its range ends."""
        tail = self._tail
        values = tail.values[start:end]
        if not values or sum(map(len, values)) > ask.bytes_max:
            return None
        if not matches_all(ask.filter, set(tail.topics[start:end])):
            return None
        return Segment(list(dict.fromkeys(tail.streams[start:end])), ask.place.cut, upto, True, tail.positions[start:end], values)

    def _sweep(self, ask: Poll, place: Place, watermark: int, now_ms: int) -> Polled:
        cut, horizon = place.cut, place.horizon
        sweep = self._streams(ask, cut, horizon, now_ms)
        streams = sweep.streams
        at = bisect_left(streams, (place.generation, place.static), key=lambda item: (item[0], item[1].static))
        segments: list[Segment] = []
        whole, counts = Segment([], cut, horizon, False, [], []), list[int]()
        count, size, keys = ask.count_max, ask.bytes_max, KEYS_PER_POLL
        stop: Place | None = None
        # Gone as a whole, and those of which only one read met damage.
        met: dict[int, None] = {}
        damaged: dict[int, None] = {}
        for looked, (generation, stream) in enumerate(streams[at : at + STREAMS_PER_POLL]):
            reference = (generation, stream.static)
            goes_on = looked == 0 and reference == (place.generation, place.static)
            after = place.position if goes_on else cut
            if after >= horizon:
                continue
            try:
                read = self._store.read(generation, stream, after, horizon, count, size, keys)
            except GenerationDropped:
                (met if generation not in self._there() else damaged)[generation] = None
                continue
            positions, values = read.positions, read.values
            if values and read.done and not goes_on:
                whole.streams.append(reference)
                counts.append(len(values))
                whole.positions.extend(positions)
                whole.values.extend(values)
            elif values:
                segments.append(Segment([reference], after, read.place, False, positions, values, [len(values)]))
            if read.done:
                used = sum(map(len, values))
                count, size, keys = count - len(values), size - used, keys - max(len(values), 1)
            if not read.done or count <= 0 or size <= 0 or keys <= 0:
                stop = Place(cut, horizon, generation, stream.static, read.place)
                break
        else:
            if at + STREAMS_PER_POLL < len(streams):
                generation, stream = streams[at + STREAMS_PER_POLL - 1]
                stop = Place(cut, horizon, generation, stream.static, horizon)
                if generation in met:
                    # It is told now, as a whole, and not again by the next poll.
                    stop = Place(cut, horizon, generation + 1, b"", cut)
        if whole.values:
            # In the order in which they were read: a stream gone on with first, whole ones, one that was broken off last.
            first = 1 if segments and segments[0].after != cut else 0
            segments.insert(first, whole._replace(counts=counts))
        gone = self._moved_over(sweep, place, stop, [*met, *damaged]) if met or damaged or sweep.gone else ()
        if stop is not None:
            return Polled(stop, segments, False, gone)
        self._forget((ask.filter, cut, horizon))
        return Polled(Place(horizon), segments, horizon == watermark, gone)

    def _streams(self, ask: Poll, cut: int, horizon: int, now_ms: int) -> _Sweep:
        """A sweep ends at its horizon and all streams below that are known when it begins, so a list that is old misses nothing;
        it still names the streams of generations that were dropped since."""
        key = (ask.filter, cut, horizon)
        known = self._sweeps.get(key)
        if known is None or now_ms - known.matched_ms >= ask.renew_ms:
            self.matched += 1
            streams = [(int(generation), stream) for generation, stream in self._store.streams(ask.filter, cut)]
            known = _Sweep(now_ms, streams, self._dropped(ask.filter, cut, horizon))
            self._remember(key, known)
        return known

    def _remember(self, key: _SweepKey, sweep: _Sweep) -> None:
        self._forget(key)
        self._sweeps[key] = sweep
        self._remembered += len(sweep.streams)
        while len(self._sweeps) > 1 and (len(self._sweeps) > SWEEPS_REMEMBERED or self._remembered > STREAMS_REMEMBERED):
            self._forget(next(iter(self._sweeps)))

    def _forget(self, key: _SweepKey) -> None:
        sweep = self._sweeps.pop(key, None)
        if sweep is not None:
            self._remembered -= len(sweep.streams)

    # ---------------------------------------------------------------- what is gone
    def _dropped(self, topic_filter: bytes, cut: int, horizon: int) -> list[Dropped]:
        """What was dropped between these.  Most sweeps begin above everything that was, which is known without looking."""
        self._look_for_gone()
        if cut >= self._gone_until - 1:
            return []
        return [one for one in self._store.dropped_between(cut, horizon, topic_filter) if _lost(one)]

    def _look_for_gone(self) -> None:
        there = [info.id for info in self._store.generations()]
        if there != self._gone_beside:
            self._gone_beside = there
            gone = self._store.dropped_between(-1, _BEHIND_ALL)
            self._gone_until = max((one.until for one in gone), default=0)
            self._restored = [(one.since, one.until) for one in gone if one.reason == RESTORED]

    def _cut_off(self, ask: ReadRange) -> Sequence[Gone]:
        """What of the end of a range came after the backup that was restored: its session was at home in another shard."""
        self._look_for_gone()
        if not any(since <= ask.upto and ask.after < until - 1 for since, until in self._restored):
            return ()
        gone = self._store.dropped_between(ask.after, ask.upto, ask.filter)
        return [_of(one, ask.after, ask.upto) for one in gone if one.reason == RESTORED]

    def _moved_over(self, sweep: _Sweep, place: Place, stop: Place | None, met: Iterable[int]) -> list[Gone]:
        """What this poll of a sweep, from one place to another, has to tell of."""
        cut, horizon = place.cut, place.horizon
        begins, ends = place.generation, stop.generation if stop is not None else _BEHIND_ALL
        known = {one.generation: one for one in sweep.gone}
        told = {generation: _of(one, cut, horizon) for generation, one in known.items() if begins <= generation < ends}
        if FORGOTTEN in known and begins not in known and begins not in self._there():
            # So long ago that even this generation, in which the sweep stood, is not remembered singly any more.
            told[FORGOTTEN] = _of(known[FORGOTTEN], cut, horizon)
        told.update({one.generation: one for one in self._gone(cut, horizon, met) if one.reason != READ})
        return [told[generation] for generation in sorted(told)]

    def _there(self) -> dict[int, GenerationInfo]:
        return {info.id: info for info in self._store.generations()}

    def _gone(self, after: int, upto: int, generations: Iterable[int]) -> list[Gone]:
        """Of generations that could not be read, what is between two positions."""
        dropped = {one.generation: one for one in self._store.dropped_between(after, upto)}
        there = self._there()
        found: list[Gone] = []
        for generation in generations:
            if generation in dropped:
                found.append(_of(dropped[generation], after, upto))
            elif generation in there:
                # Only this read met damage: what is read of it next may be there.
                info = there[generation]
                found.append(Gone(generation, info.klass, max(after, info.since - 1), upto, info.created_wall_ms, 0, "damaged"))
            else:
                found.append(Gone(generation, "", after, upto, 0, 0, ""))
        return found

    def _rest_of(self, ask: ReadRange, streams: list[StreamRef], upto: int) -> RangeRead:
        """Of a range of which some is gone: what was before that, and what was behind it."""
        met: dict[int, None] = {}
        parts: list[list[tuple[int, bytes]] | None] = []
        for stream in streams:
            try:
                parts.append(self._store.read_range(ask.filter, [stream], ask.after, upto))
            except GenerationDropped as error:
                met[error.generation] = None
                parts.append(None)
        gone = self._gone(ask.after, upto, met)
        if ask.merged:
            found = sorted(message for part in parts if part is not None for message in part)
            first, last = min(one.after for one in gone), max(one.upto for one in gone)
            before = [message for message in found if message[0] <= first]
            behind = [message for message in found if message[0] > last]
        else:
            lost = [index for index, part in enumerate(parts) if part is None]
            before = [message for part in parts[: lost[0]] for message in part or ()]
            behind = [message for part in parts[lost[-1] + 1 :] for message in part or ()]
        rest = before + behind
        return RangeRead(True, [position for position, _ in rest], [value for _, value in rest], len(before), gone)


def _of_filter(topic_filter: bytes, topics: list[bytes]) -> set[bytes]:
    """Which of these topics it matches; of one without wildcards it is not asked whether it is among them."""
    if has_wildcard(topic_filter):
        return {topic for topic in set(topics) if matches(topic_filter, topic)}
    return {topic_filter}


def _lost(dropped: Dropped) -> bool:
    """Whether somebody may have missed something of it.  When it went because everybody had read it, an old place says only that
    nothing came for its subscription."""
    return dropped.reason != READ


def _of(dropped: Dropped, after: int, upto: int) -> Gone:
    """What is between two positions of one that is gone."""
    return Gone(
        dropped.generation, dropped.klass, max(after, dropped.since - 1), min(upto, dropped.until - 1),
        dropped.created_wall_ms, dropped.sealed_wall_ms, dropped.reason,
    )  # fmt: skip


__all__ = ["Reader", "StructureMismatch"]
