"""Where in this shard a replay begins and ends: a time, or a place that a client has kept, in positions.

The marks of time that the shard notes (shards.store) say where to begin to read, with FIND_SLACK_MS to spare, for messages are stored in
another order than they were published in.  What was published outside the time that was asked for is left out by whoever reads.

Holds: nothing that a replay wants is outside the positions that are found for it; a search reads some forty marks of one generation, and
the first one of those behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shards.clock import PositionClock
from shards.draft import Draft
from shards.engine import StoreDamaged
from shards.frames import EARLIEST, PLACE, STEADY, WALL, Replay, Replayed, Route, Routed
from shards.generations import GenerationInfo
from shards.steady import WALL_ROW, WallRow
from shards.store import TIME_MARK, TIME_MARKS_END, Store

FIND_SLACK_MS = 60_000
_FIRST_STEP = 1 << 24


class Past:
    def __init__(self, store: Store, clock: PositionClock, begins_at: Callable[[int], None]) -> None:
        """begins_at: told behind which position something will be read, before anybody reads."""
        self._store = store
        self._clock = clock
        self._begins_at = begins_at

    def routed(self, draft: Draft, entry: Route) -> Routed:
        """The route holds from here on, and for its subscriptions that begin before, this is where."""
        position = self._clock.take()
        return Routed(position, tuple([self.found(draft, entry.add[row[0]][1], Replay(*row), position) for row in entry.replays]))

    def found(self, draft: Draft, topic_filter: bytes, replay: Replay, position: int) -> Replayed:
        """position: of the route; everything up to it is the past."""
        row = draft.get(WALL_ROW)
        wall = WallRow.decode(row) if row else WallRow(0)
        since_ms = _steady_ms(replay.since, replay.since_value, wall.earliest_steady_ms)
        until_ms = _steady_ms(replay.until, replay.until_value, wall.latest_steady_ms)
        infos = self._store.generations()
        oldest = min(info.since for info in infos) - 1
        after = position
        if replay.since == EARLIEST:
            after = oldest
        elif replay.since == PLACE:
            after = min(replay.since_value, position)
        elif since_ms:
            after = min(position, max(oldest, self._before(infos, since_ms - FIND_SLACK_MS)))
        upto = max(after, self._behind(infos, until_ms + FIND_SLACK_MS, position)) if until_ms else position
        if after < position:
            self._begins_at(after)
        kept_since_ms = 0
        if replay.since == PLACE or since_ms:
            first = after if replay.since == PLACE else -1
            gone = self._store.dropped_between(first, upto, topic_filter)
            kept_since_ms = max((one.sealed_wall_ms for one in gone if one.sealed_wall_ms > since_ms), default=0)
        return Replayed(after, upto, since_ms, until_ms, wall.wall_ms(after, kept_since_ms) if kept_since_ms else 0)

    def _before(self, infos: list[GenerationInfo], steady_ms: int) -> int:
        """Everything that was published at this time, or later, is behind this position."""
        found: list[int] = []
        for of_class in _by_class(infos):
            # A class may be kept long after the marks of another have gone, so each is asked for itself.
            marks = (self._last_mark(info, steady_ms) for info in reversed(of_class))
            found.append(next((mark for mark in marks if mark is not None), of_class[0].since) - 1)
        return min(found)

    def _behind(self, infos: list[GenerationInfo], steady_ms: int, position: int) -> int:
        """Nothing that was published before this time is behind this position."""
        found: list[int] = []
        for of_class in _by_class(infos):
            behind = position
            for info in reversed(of_class):
                last = self._last_mark(info, steady_ms)
                following = self._mark_from(info, 0 if last is None else last + 1)
                if following is not None:
                    behind = min(behind, following[0] - 1)
                if last is not None:
                    break
            found.append(behind)
        return max(found)

    def _last_mark(self, info: GenerationInfo, steady_ms: int) -> int | None:
        """Where the last mark of a generation with a time before this is; marks and their times grow together."""
        first = self._mark_from(info, 0)
        if first is None or first[1] >= steady_ms:
            return None
        found = first[0]
        low, step = found + 1, _FIRST_STEP
        while (mark := self._mark_from(info, low + step)) is not None and mark[1] < steady_ms:
            found = mark[0]
            low, step = found + 1, step * 2
        high = low + step
        while low < high:
            middle = (low + high) // 2
            mark = self._mark_from(info, middle)
            if mark is None or mark[1] >= steady_ms:
                high = middle
            else:
                found = mark[0]
                low = found + 1
        return found

    def _mark_from(self, info: GenerationInfo, position: int) -> tuple[int, int] | None:
        """(position, time) of the first mark at this position or behind it."""
        try:
            rows = self._store.engine.scan(info.id, TIME_MARK + position.to_bytes(8, "big"), TIME_MARKS_END, 1)
        except StoreDamaged:
            return None
        return (int.from_bytes(rows[0][0][8:], "big"), int.from_bytes(rows[0][1], "big")) if rows else None


def _by_class(infos: list[GenerationInfo]) -> Iterator[list[GenerationInfo]]:
    for klass in dict.fromkeys([info.klass for info in infos]):
        yield [info for info in infos if info.klass == klass]


def _steady_ms(kind: int, value: int, of_wall: Callable[[int], int]) -> int:
    """0: no time was asked for."""
    return max(1, value if kind == STEADY else of_wall(value)) if kind in (STEADY, WALL) else 0
