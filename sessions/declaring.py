"""Routes of declared groups: the owner of a group's home lays them in every shard, and says there from where they hold (docs/groups.md).

    told of a group that lays routes -> its route is added in every shard -> Begin at its home -> told of a group that has begun

A declaration is a row of the home until that is done, so whoever owns the home next begins again, and nothing has to be remembered here.
The id of such a route does not say who adds it; so the request does, and behind its removal by a newer owner it comes too late.

Holds: what is laid for a group that has ended, or under a token that is worth nothing any more, is told to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mqtt.topics import matched_filter
from sessions.committing import Home
from sessions.frames import Replay
from sessions.routes import Routes
from sessions.state import State
from shards.frames import LATEST, NO_END, Begin, GroupFound, GroupTaken, Replayed, Reply


class _Laying:
    """Under this token.  past: as in shards.rows.SubscriptionRow."""

    __slots__ = ("filter", "group", "home", "kept_ms", "past", "positions", "token")

    def __init__(self, home: Home, found: GroupFound) -> None:
        self.home = home
        self.token = home.token
        self.filter = found.filter
        self.group = found.group
        self.positions: dict[int, int] = {}
        self.past: list[tuple[int, int, int, int]] = []
        self.kept_ms = 0


class Declaring:
    def __init__(self, state: State, routes: Routes, replaced: Callable[[Home], None]) -> None:
        self._state = state
        self._routes = routes
        self._replaced = replaced
        self._laying: dict[int, _Laying] = {}
        """By the id of the group, until its home has taken it."""

    def lay(self, home: Home, found: GroupFound) -> None:
        under_way = self._laying.get(found.group)
        if under_way is not None and under_way.token == home.token:
            return
        laying = self._laying[found.group] = _Laying(home, found)
        since, value = found.lays
        replay = Replay(since, value, NO_END, 0) if since != LATEST else None
        routed = partial(self._routed, laying)
        self._routes.add(found.filter, found.group, matched_filter(found.filter), routed, replay, home.token)

    def ended(self, group: int) -> None:
        self._laying.pop(group, None)

    def owner_gone(self, home: Home) -> None:
        for group in [group for group, laying in self._laying.items() if laying.home is home]:
            del self._laying[group]

    def _routed(self, laying: _Laying, shard: int, position: int, replayed: Replayed | None) -> None:
        if self._laying.get(laying.group) is not laying:
            return
        laying.positions[shard] = position
        if replayed is not None:
            laying.positions[shard] = replayed.after
            laying.past.append((shard, replayed.upto, replayed.since_ms, replayed.until_ms))
            laying.kept_ms = max(laying.kept_ms, replayed.kept_since_ms)
        if len(laying.positions) == self._state.n_shards:
            past = (False, sorted(laying.past)) if laying.past else ()
            begin = Begin(laying.filter, laying.group, laying.token, sorted(laying.positions.items()), past, laying.kept_ms)
            self._state.ask(laying.home.shard, [begin], partial(self._begun, laying))

    def _begun(self, laying: _Laying, replies: list[Reply]) -> None:
        (taken,) = replies
        assert isinstance(taken, GroupTaken)
        if self._laying.get(laying.group) is not laying:
            return
        del self._laying[laying.group]
        if taken.code and laying.home.token == laying.token:
            # Somebody else owns this home now, and does it again.
            self._replaced(laying.home)
