"""How many messages and bytes of a stream lie behind a place, for many places: a message is read about once, whoever asks, however often.

A stretch is a part of a stream that has been counted: marks, and how many messages lie before each. A place within costs reading to
the next mark, a chunk at most, and nothing when no message lies between it and a mark; counting goes on where it had ended, also an hour
later, since a stored message stays where it is. Knows neither filters nor generations; reading is its caller's.

Always holds: the stretches of a stream ascend and do not meet; between two marks of one there are as many messages as was read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, NamedTuple

from shards.layouts.port import Stream

CHUNK_ROWS: Final = 10_000
MARKS_MAX: Final = 1_000_000
"""Of all streams together; beyond that everything is forgotten, and counted again when it is asked for."""
NONE: Final = -1


class Some(NamedTuple):
    """What one read has found: so many messages up to a place, the position of the first, NONE: there was none; and their bytes."""

    rows: int
    place: int
    first: int
    bytes: int = 0


class Behind(NamedTuple):
    """whole: these are all, else there are more.  first: the position of the first; NONE: there is none.  bytes: of them."""

    rows: int
    whole: bool
    first: int
    bytes: int = 0


Reading = Callable[[int, int], Some]
"""At most CHUNK_ROWS messages with after < position <= upto; its place is `upto` when there are no more."""


class _Stretch:
    __slots__ = ("before", "bytes", "firsts", "places")

    def __init__(self, place: int) -> None:
        self.places = [place]
        self.before = [0]
        """Messages of this stretch up to each place; only differences mean something."""
        self.bytes = [0]
        """Their bytes, likewise."""
        self.firsts = [NONE]
        """The position of the first message between each place and the next one, if there is one."""


class Stretches:
    """Of one stream."""

    __slots__ = ("_all",)

    def __init__(self) -> None:
        self._all: list[_Stretch] = []

    @property
    def marks(self) -> int:
        return sum([len(stretch.places) for stretch in self._all])

    def behind(self, place: int, upto: int, enough: int, reading: Reading) -> Behind:
        """Messages with place < position <= upto; counting ends when there are enough."""
        index, mark = self._mark(place, reading)
        stretch = self._all[index]
        before, bytes = stretch.before[mark], stretch.bytes[mark]
        while stretch.places[-1] < upto and stretch.before[-1] - before < enough:
            self._extend(index, mark, upto, reading)
        first, after = NONE, mark
        while first == NONE and after < len(stretch.firsts):
            first, after = stretch.firsts[after], after + 1
        return Behind(stretch.before[-1] - before, stretch.places[-1] >= upto, first, stretch.bytes[-1] - bytes)

    def _mark(self, place: int, reading: Reading) -> tuple[int, int]:
        """Which stretch, and a mark of it behind which lies what lies behind this place; made when there was none."""
        index = bisect_right(self._all, place, key=lambda stretch: stretch.places[0]) - 1
        if index < 0 or place > self._all[index].places[-1]:
            self._all.insert(index + 1, _Stretch(place))
            return index + 1, 0
        stretch = self._all[index]
        mark = bisect_right(stretch.places, place) - 1
        if stretch.places[mark] == place or stretch.firsts[mark] == NONE or place < stretch.firsts[mark]:
            return index, mark
        rows, bytes, first, after, following = 0, 0, NONE, place, stretch.places[mark + 1]
        while after < following:
            some = reading(after, following)
            rows, bytes, after = rows + some.rows, bytes + some.bytes, some.place
            first = some.first if first == NONE else first
        mark += 1
        if rows:
            stretch.places.insert(mark, place)
            stretch.before.insert(mark, stretch.before[mark] - rows)
            stretch.bytes.insert(mark, stretch.bytes[mark] - bytes)
            stretch.firsts.insert(mark, first)
        else:
            stretch.places[mark] = place
        return index, mark

    def _extend(self, index: int, mark: int, upto: int, reading: Reading) -> None:
        """Count some more at the end of a stretch, of which this mark stays."""
        stretch = self._all[index]
        following = self._all[index + 1] if index + 1 < len(self._all) else None
        end = upto if following is None else min(upto, following.places[0])
        some = reading(stretch.places[-1], end)
        rows, bytes = stretch.before[-1] + some.rows, stretch.bytes[-1] + some.bytes
        if following is not None and some.place == following.places[0]:
            # A mark from which on there is what there is from the one before it is left out, but for the last.
            same = int(rows == stretch.before[-1] and len(following.places) > 1)
            stretch.firsts[-1] = following.firsts[0] if same else some.first
            stretch.before += [rows + before - following.before[0] for before in following.before[same:]]
            stretch.bytes += [bytes + before - following.bytes[0] for before in following.bytes[same:]]
            stretch.places += following.places[same:]
            stretch.firsts += following.firsts[same:]
            del self._all[index + 1]
        elif len(stretch.places) - 1 > mark and rows - stretch.before[-2] <= CHUNK_ROWS:
            # A mark that nobody stands at is moved, or one would be added each time that somebody looks.
            stretch.places[-1], stretch.before[-1], stretch.bytes[-1] = some.place, rows, bytes
            if stretch.firsts[-2] == NONE:
                stretch.firsts[-2] = some.first
        else:
            stretch.firsts[-1] = some.first
            stretch.places.append(some.place)
            stretch.before.append(rows)
            stretch.bytes.append(bytes)
            stretch.firsts.append(NONE)


class Counted:
    """Of all streams, by shard and generation."""

    def __init__(self, marks_max: int = MARKS_MAX) -> None:
        self._marks_max = marks_max
        self._streams: dict[tuple[int, int], dict[Stream, Stretches]] = {}

    def of(self, shard: int, generation: int, stream: Stream) -> Stretches:
        streams = self._streams.setdefault((shard, generation), {})
        found = streams.get(stream)
        if found is None:
            found = streams[stream] = Stretches()
        return found

    def keep(self, shard: int, generations: set[int]) -> None:
        """Forget what is gone; generations: that this shard still has."""
        for gone in [key for key in self._streams if key[0] == shard and key[1] not in generations]:
            del self._streams[gone]

    def bound(self) -> None:
        """To be called now and then, as it goes over everything."""
        if sum([stretches.marks for streams in self._streams.values() for stretches in streams.values()]) > self._marks_max:
            self._streams.clear()
