"""What lies unread behind the places of one shard: who waits for the same is told the same, and it is counted once.

Everything is as of one cut: for a place that has come further since there is nothing unread.  Where no message that matches lies between
two places, the same lies behind both, so what one filter costs grows with the number of gaps between messages in which somebody waits,
not with how many wait in each.  A place within a sweep is counted for itself.

Always holds: an answer is what counting from that place alone would give.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from actors.inquiry.stretches import CHUNK_ROWS, NONE, Counted, Some, Stretches
from actors.reader.views import Seen
from shards.generations import GenerationDropped, GenerationId, GenerationInfo
from shards.messages import published_at_of
from shards.queries import Place
from shards.retention import READ
from shards.store import Stream

COUNT_MAX: Final = 1_000_000
"""Messages that are counted for one subscription in one shard; what is more is said to be more."""
KEPT_MAX: Final = 100_000
"""Answers and matched streams together; beyond that they are forgotten, and found again when they are asked for."""
_CHUNK_BYTES = 16 << 20

FilterPlace = tuple[bytes, Place]
Rest = Callable[[], None]
"""Called in the thread after each piece of reading; who has no hurry waits there."""


@dataclass(frozen=True, slots=True)
class Unread:
    """As lag.SubscriptionLag has it.  generation: of the first of these messages.  bytes: of them, as they are stored."""

    count: int
    counted: bool
    gone: int
    oldest_at_ms: int | None = None
    generation: int = 0
    bytes: int = 0


_NOTHING: Final = Unread(0, True, 0)


class Answers:
    """Of one filter.  Each holds for the places in since <= cut < until; they ascend and do not meet."""

    __slots__ = ("_found", "_since", "_swept", "_until")

    def __init__(self) -> None:
        self._since: list[int] = []
        self._until: list[int] = []
        self._found: list[Unread] = []
        self._swept: dict[Place, Unread] = {}

    def of(self, place: Place) -> Unread | None:
        if place.horizon:
            return self._swept.get(place)
        index = bisect_right(self._since, place.cut) - 1
        return self._found[index] if index >= 0 and place.cut < self._until[index] else None

    def add(self, place: Place, until: int, found: Unread) -> None:
        """For a place that has none."""
        if place.horizon:
            self._swept[place] = found
            return
        index = bisect_right(self._since, place.cut)
        if index < len(self._since) and self._since[index] < until:
            # Nothing lies between this place and the one from which that was counted.
            self._since[index] = place.cut
        else:
            self._since.insert(index, place.cut)
            self._until.insert(index, until)
            self._found.insert(index, found)


class Unreads:
    """Of one shard.  For one thread at a time."""

    def __init__(self, shard: int, counted: Counted, period_ms: int, rest: Rest, seen: Seen, kept_max: int = KEPT_MAX) -> None:
        """In a thread.  seen: what everything is told of."""
        self._shard = shard
        self._counted = counted
        self._period_ms = period_ms
        self._rest = rest
        self._seen = seen
        self._kept_max = kept_max
        self.periods: dict[int, int] = {}
        """Of all generations: how long each is kept once it is sealed."""
        self.look(seen)
        counted.keep(shard, set(self.periods))
        self._answers: dict[bytes, Answers] = {}
        self._streams: dict[tuple[int, bytes], list[tuple[Stream, Stretches]]] = {}
        """By generation and filter."""
        self._kept = 0

    def of(self, filter: bytes, place: Place) -> Unread | None:
        """None: it was not counted."""
        if not place.horizon and place.cut >= self._seen.cut - 1:
            return _NOTHING
        answers = self._answers.get(filter)
        return answers.of(place) if answers is not None else None

    def unknown(self, places: Iterable[FilterPlace]) -> list[FilterPlace]:
        """Those that are still to be counted; then there is an answer for each until the next call of this."""
        if self._kept > self._kept_max:
            self._kept = 0
            self._answers.clear()
            self._streams.clear()
        return [place for place in places if self.of(*place) is None]

    # ------------------------------------------------------------------ in a thread

    def look(self, seen: Seen) -> None:
        """At the generations that there are now; what is unread is told as before."""
        self.periods = {int(info.id): seen.view.period_ms(info, self._period_ms) for info in seen.view.generations()}

    def count(self, places: Iterable[FilterPlace]) -> None:
        # From the furthest behind on: what is found for one holds for those that come next.
        for filter, place in sorted(places):
            if self.of(filter, place) is None:
                found, until = self._unread(filter, place)
                self._answers.setdefault(filter, Answers()).add(place, until, found)
                self._kept += 1

    def _unread(self, filter: bytes, place: Place) -> tuple[Unread, int]:
        """(what matches behind the place and below the cut, where the places begin for which it may be something else)."""
        view, upto = self._seen.view, self._seen.cut - 1
        count, size, whole = 0, 0, True
        first: tuple[int, GenerationInfo, Stream] | None = None
        for info in view.generations():
            if (info.until is not None and info.until <= place.cut) or not whole:
                continue
            end = upto if info.until is None else min(upto, info.until)
            try:
                for stream, stretches in self._streams_in(info.id, filter):
                    after = max(reached(place, info.id, stream.static), info.since - 1)
                    if after >= end or not whole:
                        continue
                    behind = stretches.behind(after, end, COUNT_MAX - count, partial(self._some, info.id, stream))
                    count, size, whole = count + behind.rows, size + behind.bytes, behind.whole
                    if behind.first != NONE and (first is None or behind.first < first[0]):
                        first = behind.first, info, stream
            except GenerationDropped:
                continue
        dropped = view.dropped_between(place.cut, upto, filter)
        gone = sum(one.reason != READ for one in dropped)
        until = min([upto, *(one.until - 1 for one in dropped)])
        if first is None:
            return Unread(count, whole, gone), until
        position, info, stream = first
        read = view.read(info.id, stream, position - 1, position, 1, 1)
        oldest = [view.wall.wall_ms(at, published_at_of(value)) for at, value in read.messages]
        return Unread(count, whole, gone, min(oldest, default=None), info.id, size), min(until, position)

    def _streams_in(self, generation: GenerationId, filter: bytes) -> list[tuple[Stream, Stretches]]:
        found = self._streams.get((generation, filter))
        if found is None:
            streams = self._seen.view.streams_in(generation, filter)
            found = self._streams[generation, filter] = [(one, self._counted.of(self._shard, generation, one)) for one in streams]
            self._kept += len(found) + 1
        return found

    def _some(self, generation: GenerationId, stream: Stream, after: int, upto: int) -> Some:
        columns = self._seen.view.bulk(generation, stream, after, upto, CHUNK_ROWS, _CHUNK_BYTES)
        self._rest()
        first = int.from_bytes(columns.positions[:8], "little") if columns.rows else NONE
        return Some(columns.rows, upto if columns.done else columns.place, first, columns.value_bytes)


def reached(place: Place, generation: GenerationId, static: bytes) -> int:
    """How far it has come in this stream (shards.queries.Place)."""
    if not place.horizon:
        return place.cut
    here, there = (generation, static), (place.generation, place.static)
    return place.horizon if here < there else place.position if here == there else place.cut
