"""Reads for sessions: the next messages from a place on, a range again, a session's rows.

A place near the head is read from the tail, in position order over all streams.  One further behind is swept: up to a
horizon, stream by stream, in the order of (generation, static key), which costs a place of constant size whatever the number
of streams.  The horizon is the watermark, or what the layout's cut-off makes of it: then only the tail has what is newer, and
who is not reached by the tail either waits until the cut-off moves on.  Every segment says how to read it again; FIFO per topic
holds in both orders, since a topic is in one stream.

Holds: nothing above the watermark is ever told; every call is bounded in messages, bytes and keys looked at.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict

from mqtt.topics import matches
from shards.frames import Place, Poll, Polled, RangeRead, ReadRange, Segment
from shards.lts import StructureMismatch
from shards.store import GenerationDropped, Store, Stream
from shards.tail import Tail

TAIL_EXAMINED_PER_MESSAGE = 20
STREAMS_PER_POLL = 500
KEYS_PER_POLL = 5000
SWEEPS_REMEMBERED = 64

StreamRef = tuple[int, bytes]


class Reader:
    def __init__(self, store: Store, tail: Tail, waits: bool = True) -> None:
        """waits: the cut-off is kept, as somebody commits a record when it has to move on.  Else everything committed is read at once."""
        self._store = store
        self._waits = waits
        self._tail = tail
        self._sweeps: OrderedDict[tuple[bytes, int, int], tuple[int, list[tuple[int, Stream]]]] = OrderedDict()
        """The streams of a sweep, and when they were matched."""
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
        streams = [(generation, static) for generation, static in ask.streams]
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
            return RangeRead(True, [], [])
        return RangeRead(False, [position for position, _ in found], [value for _, value in found])

    def _from_tail(self, ask: Poll, watermark: int, patient: bool = False) -> Polled | None:
        """None when the tail holds too little for this filter among too much else: then a sweep is cheaper. Not when patient."""
        tail = self._tail
        start, end = tail.index_after(ask.place.cut), tail.index_after(watermark)
        limit = min(end, start + TAIL_EXAMINED_PER_MESSAGE * ask.count_max)
        topics, values, keys, all_positions = tail.topics, tail.values, tail.keys, tail.positions
        known: dict[bytes, bool] = {}
        topic_filter = ask.filter
        streams: dict[StreamRef, None] = {}
        positions: list[int] = []
        chosen: list[bytes] = []
        size = 0
        index = start
        while index < limit:
            topic = topics[index]
            hit = known.get(topic)
            if hit is None:
                hit = known[topic] = matches(topic_filter, topic)
            if hit:
                value = values[index]
                if chosen and (size + len(value) > ask.bytes_max or len(chosen) >= ask.count_max):
                    break
                key = keys[index]
                streams[(key[0], key[1])] = None
                positions.append(all_positions[index])
                chosen.append(value)
                size += len(value)
            index += 1
        if not patient and index < end and index == limit and len(chosen) < ask.count_max // 4:
            return None
        upto = watermark if index == end else all_positions[index - 1]
        segments = [Segment(list(streams), ask.place.cut, upto, True, positions, chosen)] if chosen else []
        return Polled(Place(upto), segments, upto == watermark)

    def _sweep(self, ask: Poll, place: Place, watermark: int, now_ms: int) -> Polled:
        cut, horizon = place.cut, place.horizon
        streams = self._streams(ask, cut, horizon, now_ms)
        at = bisect_left(streams, (place.generation, place.static), key=lambda item: (item[0], item[1].static))
        segments: list[Segment] = []
        whole = Segment([], cut, horizon, False, [], [])
        count, size, keys = ask.count_max, ask.bytes_max, KEYS_PER_POLL
        stop: Place | None = None
        for looked, (generation, stream) in enumerate(streams[at : at + STREAMS_PER_POLL]):
            reference = (generation, stream.static)
            goes_on = looked == 0 and reference == (place.generation, place.static)
            after = place.position if goes_on else cut
            if after >= horizon:
                continue
            try:
                read = self._store.read(generation, stream, after, horizon, count, size, keys)
            except GenerationDropped:
                continue
            positions = [position for position, _ in read.messages]
            values = [value for _, value in read.messages]
            if values and read.done and not goes_on:
                whole.streams.append(reference)
                whole.positions.extend(positions)
                whole.values.extend(values)
            elif values:
                segments.append(Segment([reference], after, read.place, False, positions, values))
            used = sum(len(value) for value in values)
            count, size, keys = count - len(values), size - used, keys - max(len(values), 1)
            if not read.done or count <= 0 or size <= 0 or keys <= 0:
                stop = Place(cut, horizon, generation, stream.static, read.place)
                break
        else:
            if at + STREAMS_PER_POLL < len(streams):
                generation, stream = streams[at + STREAMS_PER_POLL - 1]
                stop = Place(cut, horizon, generation, stream.static, horizon)
        if whole.values:
            # In the order in which they were read: a stream gone on with first, whole ones, one that was broken off last.
            first = 1 if segments and segments[0].after != cut else 0
            segments.insert(first, whole)
        if stop is not None:
            return Polled(stop, segments, False)
        self._sweeps.pop((ask.filter, cut, horizon), None)
        return Polled(Place(horizon), segments, horizon == watermark)

    def _streams(self, ask: Poll, cut: int, horizon: int, now_ms: int) -> list[tuple[int, Stream]]:
        """Where the sweep goes, in order.  A sweep ends at its horizon and all streams below that are known when it begins, so a
        list that is old misses nothing; it still names the streams of generations that were dropped since."""
        key = (ask.filter, cut, horizon)
        known = self._sweeps.get(key)
        if known is None or now_ms - known[0] >= ask.renew_ms:
            self.matched += 1
            known = self._sweeps[key] = (now_ms, [(int(generation), stream) for generation, stream in self._store.streams(ask.filter, cut)])
            if len(self._sweeps) > SWEEPS_REMEMBERED:
                self._sweeps.popitem(last=False)
        return known[1]


__all__ = ["Reader", "StructureMismatch"]
