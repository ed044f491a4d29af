"""Adds the routes of a home again, in every shard, when one was begun anew by force and may lack some (shards.begun_anew).

    the home has given its token -> each shard: is there a route that stands for all of this home?
    -> if so: its subscriptions, page by page -> their routes are added everywhere -> what stood for them is removed

A shard that has such a route stores every message, so nothing is missed meanwhile.  It is asked for once for each token, and whatever ends
this before the last step leaves it there: the next owner begins again.  With one site no shard is ever begun anew while others go on, and
nothing is asked.

Holds: what stands for routes is removed only when every shard has answered for each of them, under the token that was held all the time.
"""

from __future__ import annotations

from functools import partial

from sessions.committing import Home
from sessions.routes import Routes
from sessions.state import State
from shards.frames import Route, RoutesFound, RoutesOf, Rows, RowsFound, Told
from shards.ids import stands_for
from shards.rows import SUBSCRIPTION, SubscriptionRow, split_client_key, successor, unpack_as

PAGE = 100
ROW_BYTES_MAX = 1 << 20


class _Task:
    """One home under one token.  marked: shards with a route that stands for its routes.  left: answers that are waited for."""

    __slots__ = ("after", "home", "left", "marked", "queries", "token")

    def __init__(self, home: Home) -> None:
        self.home = home
        self.token = home.token
        self.marked: list[int] = []
        self.left = 0
        self.after = SUBSCRIPTION
        self.queries: dict[int, int] = {}

    @property
    def over(self) -> bool:
        return self.home.token != self.token


class Rerouting:
    def __init__(self, state: State, routes: Routes) -> None:
        self._state = state
        self._routes = routes

    def owner_changed(self, home: Home) -> None:
        if not home.token or not self._state.options.several_sites:
            return
        task = _Task(home)
        task.left = self._state.n_shards
        for shard in range(self._state.n_shards):
            self._state.query(shard, RoutesOf(home.shard, 0, 1), task, partial(self._looked, task, shard))

    def _looked(self, task: _Task, shard: int, told: Told | None) -> None:
        if isinstance(told, RoutesFound) and [sub_id for sub_id, _ in told.routes] == [stands_for(task.home.shard)]:
            task.marked.append(shard)
        task.left -= 1
        if not task.left and task.marked:
            self._read(task)

    def _read(self, task: _Task) -> None:
        if not task.over:
            rows = Rows([(task.after, successor(SUBSCRIPTION), PAGE)], ROW_BYTES_MAX)
            self._state.query(task.home.shard, rows, task, partial(self._add, task))

    def _add(self, task: _Task, told: Told | None) -> None:
        if task.over or not isinstance(told, RowsFound):
            return
        rows, whole = told.found[0], told.whole[0]
        found = []
        for key, value, _ in rows:
            client, suffix = split_client_key(key)
            row, sub_id = unpack_as(SubscriptionRow, value), int.from_bytes(suffix, "big")
            # One that is just being added is added everywhere by whoever adds it; one that is being removed goes everywhere.
            if row.starts and not self._routes.removing(sub_id):
                found.append((client, sub_id, row.filter))
        if rows:
            task.after = rows[-1][0] + b"\x00"
        task.left = len(found) * self._state.n_shards
        for client, sub_id, topic_filter in found:
            self._routes.add(client, sub_id, topic_filter, lambda shard, position, replayed: self._added(task, whole), owner=task.token)
        if not found:
            self._go_on(task, whole)

    def _added(self, task: _Task, whole: bool) -> None:
        task.left -= 1
        if not task.left:
            self._go_on(task, whole)

    def _go_on(self, task: _Task, whole: bool) -> None:
        if not whole:
            self._read(task)
            return
        if task.over:
            return
        for shard in task.marked:
            self._state.counters.rerouted += 1
            self._state.ask(shard, [Route([], [(stands_for(task.home.shard), b"")])], lambda replies: None)
