"""Looks for routes that no subscription stands behind, and removes them: the session actor's part of the safety net.

A route is removed by the steps of sessions.routes, so this finds nothing, unless a program of ours was wrong.  It goes over
the routes of each served home in each shard, page by page, every gc_interval:

    page of routes in a shard -> their home: which of them do you not know? -> the page again: are those still there?
    -> removed from that shard

The home has a row of a subscription, or of work, from before its route is added until after it is removed everywhere, and no
id is used twice.  So a route that its home does not know and that is there after the home has said so is there for nobody.

Holds: one question is under way at a time; nothing is removed that its home has not disowned before.
"""

from __future__ import annotations

from sessions.committing import Home
from sessions.state import State
from shards.frames import Route, RoutesFound, RoutesOf, Told, Unknown, UnknownFound

PAGE = 100


class Sweeping:
    def __init__(self, state: State, homes: dict[int, Home]) -> None:
        self._state = state
        self._tasks = [(home, shard) for home in homes for shard in range(state.n_shards)]
        self._left: list[tuple[int, int]] = []
        self._after = 0
        self._last = 0
        self._at_ms: int | None = None
        self.queries: dict[int, int] = {}

    def interval_changed(self) -> None:
        """The next sweep counts from the next turn; one that is under way goes on."""
        self._at_ms = None

    def turn(self) -> None:
        """Asks for no wake-up: any turn will do, and the shell takes one now and then."""
        now_ms = self._state.now_ms
        if self._at_ms is None:
            if not self.queries and not self._left:
                self._at_ms = now_ms + self._state.options.gc_interval_ms
        elif now_ms >= self._at_ms:
            self._at_ms = None
            self._left = list(self._tasks)
            self._after = 0
            self._look()

    def _look(self) -> None:
        if self._left:
            home, shard = self._left[-1]
            self._state.query(shard, RoutesOf(home, self._after, PAGE), self, self._found)

    def _found(self, told: Told | None) -> None:
        home, _ = self._left[-1]
        routes = told.routes if isinstance(told, RoutesFound) else []
        self._last = routes[-1][0] if len(routes) == PAGE else 0
        # Routes without a client are of a version that did not write it down.
        named = [(sub_id, client) for sub_id, client in routes if client]
        if named:
            self._state.query(home, Unknown(named), self, self._disowned)
        else:
            self._next()

    def _disowned(self, told: Told | None) -> None:
        home, shard = self._left[-1]
        unknown = {sub_id for sub_id, _ in told.routes} if isinstance(told, UnknownFound) else set()
        if unknown:
            self._state.query(shard, RoutesOf(home, self._after, PAGE), self, lambda again: self._remove(shard, unknown, again))
        else:
            self._next()

    def _remove(self, shard: int, unknown: set[int], told: Told | None) -> None:
        routes = told.routes if isinstance(told, RoutesFound) else []
        there = [(sub_id, b"") for sub_id, _ in routes if sub_id in unknown]
        if there:
            self._state.counters.routes_collected += len(there)
            self._state.ask(shard, [Route([], there)], lambda replies: None)
        self._next()

    def _next(self) -> None:
        self._after = self._last
        if not self._last:
            self._left.pop()
        self._look()
