"""Live delivery from one shard: each frame of the feed is matched once and handed to the subscriptions that stand at the head.

A subscription is at the head when it has read everything up to the end of the feed; from then on its place moves with the
feed, without being touched while nothing matches.  It falls behind when its session has no room or the feed has a hole, and
joins again when a poll says that it has caught up.  The filter of a subscription is wanted before its first poll leaves on
the same link, so every frame that comes after a poll's answer covers it.

Holds after every call (see check):
1. a cursor at the head has read everything up to `upto`, and its subscription is wanted;
2. the shard has been told, or is told before anything else in this tick, exactly the filters that are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sessions.bodies import Bodies
from sessions.events import ToFeed
from sessions.session import HEAD, Cursor, Doing
from sessions.state import State
from sessions.wanted import Wanted
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
    def __init__(self, state: State, shard: int, wanted: Wanted, reader: FeedReader) -> None:
        self._state = state
        self._shard = shard
        self._wanted = wanted
        self._reader = reader
        self._version = 0
        self._add: dict[bytes, None] = {}
        self._remove: dict[bytes, None] = {}
        self._heads = 0
        """How many cursors are at the head."""
        self.upto = 0
        """Everything wanted up to here has come since the link is up."""

    # ---------------------------------------------------------------- who wants what
    def want(self, filter: bytes) -> None:
        if filter in self._remove:
            del self._remove[filter]
        else:
            self._add[filter] = None

    def unwant(self, filter: bytes) -> None:
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
        self._add = self._wanted.filters()
        self._remove.clear()
        self.turn()

    def lost(self) -> None:
        for cursor in self._at_head():
            self.leave(cursor)
            self._reader.fell_behind(cursor)

    def _at_head(self) -> list[Cursor]:
        cursors = [sub.cursors[self._shard] for sub in self._wanted.subs()] if self._heads else []
        return [cursor for cursor in cursors if cursor.doing is HEAD]

    # ---------------------------------------------------------------- the head
    def join(self, cursor: Cursor) -> None:
        """The cursor has read everything that the shard had committed when it answered, so not less than the feed brought."""
        cursor.doing = HEAD
        self._heads += 1

    def leave(self, cursor: Cursor) -> None:
        """The place of the cursor becomes its own again."""
        if self.upto > cursor.cut:
            cursor.cut = self.upto
            cursor.moved = True
        cursor.doing = Doing.NOTHING
        self._heads -= 1

    def look_again(self, cursor: Cursor) -> None:
        """The cursor polls from the last place at which something came for it, not from the end of the feed: nothing between
        the two has been given to it."""
        cursor.doing = Doing.NOTHING
        self._heads -= 1
        self._reader.fell_behind(cursor)

    def place_of(self, cursor: Cursor) -> Place:
        return Place(self.upto) if cursor.doing is HEAD and self.upto > cursor.cut else cursor.place

    def receive(self, frame: FeedFrame) -> None:
        upto = self.upto
        if frame.after > upto:
            for cursor in self._at_head():
                if cursor.cut < frame.after:
                    self._miss(cursor)
        if frame.values and self._heads:
            self._distribute(frame, upto)
        self.upto = max(upto, frame.upto)
        self._state.effects.append(ToFeed(self._shard, FeedTaken(frame.upto)))

    def _distribute(self, frame: FeedFrame, upto: int) -> None:
        bodies = Bodies(frame.values, shared=True)
        match, shard = self._wanted.match, self._shard
        hits: dict[Cursor, list[int]] = {}
        for index, message in enumerate(bodies.messages):
            for sub in match(message[0]):
                cursor = sub.cursors[shard]
                if cursor.doing is HEAD:
                    found = hits.get(cursor)
                    if found is None:
                        hits[cursor] = [index]
                    else:
                        found.append(index)
        if len(hits) == 1:
            bodies.shared = False
        streams, stream_of, positions = frame.streams, frame.stream_of, frame.positions
        all_streams = list(streams)
        for cursor, indexes in hits.items():
            after = max(cursor.cut, upto)
            if positions[indexes[0]] <= after:
                indexes = [index for index in indexes if positions[index] > after]
                if not indexes:
                    continue
            its_streams = all_streams
            if len(indexes) < len(stream_of) and len(streams) > 1:
                its_streams = [all_streams[at] for at in dict.fromkeys([stream_of[index] for index in indexes])]
            if self._reader.take(cursor, bodies, indexes, positions, its_streams, after, frame.upto):
                cursor.cut = frame.upto
                cursor.moved = True
            else:
                self._miss(cursor)

    def _miss(self, cursor: Cursor) -> None:
        self._state.counters.feed_missed += 1
        self.leave(cursor)
        self._reader.fell_behind(cursor)

    def check(self) -> None:
        cursors = [sub.cursors[self._shard] for sub in self._wanted.subs()]
        assert self._heads == sum(cursor.doing is HEAD for cursor in cursors)
        assert all(cursor.shard == self._shard and (cursor.sweep is None or cursor.doing is not HEAD) for cursor in cursors)
