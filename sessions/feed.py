"""Live delivery from one shard: each frame of the feed is matched once and handed to the subscriptions that stand at the head.

A subscription is at the head when it has read everything up to the end of the feed; from then on its place moves with the
feed, without being touched while nothing matches.  It falls behind when its session has no room or the feed has a hole, and
joins again when a poll says that it has caught up.  The filter of a subscription is wanted before its first poll leaves on
the same link, so every frame that comes after a poll's answer covers it.

Holds after every call (see check):
1. heads are exactly the cursors with `head`, and each has read everything up to `upto`;
2. the shard has been told, or is told before anything else in this tick, exactly the filters with a count above 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mqtt.trie import FilterTrie
from sessions.bodies import Bodies
from sessions.events import ToFeed
from sessions.session import Cursor
from sessions.state import State
from shards.frames import Feed as FeedFrame
from shards.frames import FeedTaken, FeedWant, Place


class FeedReader(Protocol):
    def take(
        self, cursor: Cursor, bodies: Bodies, indexes: list[int], positions: Sequence[int], streams: list[tuple[int, bytes]],
        after: int, upto: int,
    ) -> bool:  # fmt: skip
        """Assign these messages to the cursor's session; False when it has no room for them.  positions: of all of the frame."""

    def fell_behind(self, cursor: Cursor) -> None:
        """The cursor is not at the head any more and has to poll from its place."""


class ShardFeed:
    def __init__(self, state: State, shard: int, reader: FeedReader) -> None:
        self._state = state
        self._shard = shard
        self._reader = reader
        self._version = 0
        self._counts: dict[bytes, int] = {}
        self._add: dict[bytes, None] = {}
        self._remove: dict[bytes, None] = {}
        self._trie: FilterTrie[Cursor] = FilterTrie()
        self._heads: dict[Cursor, None] = {}
        self.upto = 0
        """Everything wanted up to here has come since the link is up."""

    # ---------------------------------------------------------------- who wants what
    def want(self, cursor: Cursor) -> None:
        filter = cursor.sub.terms.filter
        self._trie.add(filter, cursor)
        count = self._counts.get(filter, 0)
        self._counts[filter] = count + 1
        if not count:
            if filter in self._remove:
                del self._remove[filter]
            else:
                self._add[filter] = None

    def unwant(self, cursor: Cursor) -> None:
        filter = cursor.sub.terms.filter
        self._trie.remove(filter, cursor)
        if cursor.head:
            self.leave(cursor)
        count = self._counts[filter] - 1
        if count:
            self._counts[filter] = count
            return
        del self._counts[filter]
        if filter in self._add:
            del self._add[filter]
        else:
            self._remove[filter] = None

    def turn(self) -> None:
        """Tell the shard what has changed; before any poll of this tick leaves."""
        if not self._state.linked[self._shard]:
            self._add.clear()
            self._remove.clear()
        elif self._add or self._remove:
            self._version += 1
            self._state.effects.append(ToFeed(self._shard, FeedWant(self._version, list(self._add), list(self._remove))))
            self._add.clear()
            self._remove.clear()

    def linked(self) -> None:
        """A new link begins with an empty feed."""
        self._version = 0
        self.upto = 0
        self._add = dict.fromkeys(self._counts)
        self._remove.clear()
        self.turn()

    def lost(self) -> None:
        for cursor in list(self._heads):
            self.leave(cursor)
            self._reader.fell_behind(cursor)

    # ---------------------------------------------------------------- the head
    def join(self, cursor: Cursor) -> None:
        """The cursor has read everything that the shard had committed when it answered, so not less than the feed brought."""
        cursor.head = True
        self._heads[cursor] = None

    def leave(self, cursor: Cursor) -> None:
        """The place of the cursor becomes its own again."""
        cursor.place = self.place_of(cursor)
        cursor.head = False
        del self._heads[cursor]

    def look_again(self, cursor: Cursor) -> None:
        """The cursor polls from the last place at which something came for it, not from the end of the feed: nothing between
        the two has been given to it."""
        cursor.head = False
        del self._heads[cursor]
        self._reader.fell_behind(cursor)

    def place_of(self, cursor: Cursor) -> Place:
        place = cursor.place
        return Place(self.upto) if cursor.head and self.upto > place.cut else place

    def receive(self, frame: FeedFrame) -> None:
        upto = self.upto
        if frame.after > upto:
            for cursor in list(self._heads):
                if cursor.place.cut < frame.after:
                    self._miss(cursor)
        if frame.values and self._heads:
            self._distribute(frame, upto)
        self.upto = max(upto, frame.upto)
        self._state.effects.append(ToFeed(self._shard, FeedTaken(frame.upto)))

    def _distribute(self, frame: FeedFrame, upto: int) -> None:
        bodies = Bodies(frame.values, shared=True)
        match = self._trie.match
        hits: dict[Cursor, list[int]] = {}
        for index, message in enumerate(bodies.messages):
            for cursor in match(message[0]):
                if cursor.head:
                    found = hits.get(cursor)
                    if found is None:
                        hits[cursor] = [index]
                    else:
                        found.append(index)
        if len(hits) == 1:
            bodies.shared = False
        streams, stream_of, positions = frame.streams, frame.stream_of, frame.positions
        all_streams = [(generation, static) for generation, static in streams]
        for cursor, indexes in hits.items():
            after = max(cursor.place.cut, upto)
            if positions[indexes[0]] <= after:
                indexes = [index for index in indexes if positions[index] > after]
                if not indexes:
                    continue
            its_streams = all_streams
            if len(indexes) < len(stream_of) and len(streams) > 1:
                its_streams = [all_streams[at] for at in dict.fromkeys([stream_of[index] for index in indexes])]
            if self._reader.take(cursor, bodies, indexes, positions, its_streams, after, frame.upto):
                cursor.place = Place(frame.upto)
            else:
                self._miss(cursor)

    def _miss(self, cursor: Cursor) -> None:
        self._state.counters.feed_missed += 1
        self.leave(cursor)
        self._reader.fell_behind(cursor)

    def wanted(self) -> Sequence[bytes]:
        return list(self._counts)

    def check(self) -> None:
        assert all(cursor.head for cursor in self._heads)
        assert sum(self._counts.values()) == len(self._trie)
        for filter, cursor in self._trie.pairs():
            assert filter in self._counts
            assert cursor.head == (cursor in self._heads)
