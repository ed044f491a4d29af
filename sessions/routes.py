"""Durable routes: adding one to every shard for a SUBSCRIBE, removing one from every shard.

What is to be added or removed in a tick goes to each shard in one request, additions first.  Requests are never lost and
answered in order, so a removal comes behind the addition it undoes, also at a shard that is away for now.

A removal is a work row at the home: it was committed together with whatever made the route useless, it is told again to the
next owner, and erased when every shard has answered (PROTOCOLS 7).  Repeats change nothing.  What the next owner removes
carries its token, so that an addition of the one before it, which may not know that it was replaced, comes too late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

from sessions.committing import Home
from sessions.frames import Replay
from sessions.state import State
from shards.frames import Replayed, Reply, Route, Routed, WorkDone, WorkTaken
from shards.ids import home_of_sub, token_of_sub

RoutedAt: TypeAlias = Callable[[int, int, Replayed | None], None]
"""Called with each shard, the position from which the route holds there, and where a replay begins and ends."""


class _Add(NamedTuple):
    sub_id: int
    filter: bytes
    client: bytes
    then: RoutedAt
    replay: Replay | None
    owner: int


class _Removal:
    __slots__ = ("client", "home", "left", "sub_id")

    def __init__(self, home: Home, client: bytes, sub_id: int, left: int) -> None:
        self.home = home
        self.client = client
        self.sub_id = sub_id
        self.left = left


class Routes:
    def __init__(self, state: State, replaced: Callable[[Home], None]) -> None:
        self._state = state
        self._replaced = replaced
        self._adds: list[_Add] = []
        self._removals: list[tuple[int, bytes, _Removal]] = []
        self._removing: dict[int, None] = {}
        """Of these the home has said that they are gone, and not every shard has answered yet."""
        self._finished: dict[Home, None] = {}

    def add(
        self, client: bytes, sub_id: int, filter: bytes, then: RoutedAt, replay: Replay | None = None, owner: int = 0
    ) -> None:  # fmt: skip
        """owner: the owner token of who adds it, where the id does not say that.

        Nothing happens, and nobody waits for it, when the session has ended meanwhile: the home pushes its work, which may come before
        the answer to the commit with which this was begun.  That answer comes before the one to the removal.
        """
        if sub_id not in self._removing:
            self._adds.append(_Add(sub_id, filter, client, then, replay, owner))

    def removing(self, sub_id: int) -> bool:
        """Whether it was to be removed before its addition was answered: then what comes behind that would come behind the removal."""
        return sub_id in self._removing

    def remove(self, home: Home, client: bytes, sub_id: int, filter: bytes) -> None:
        """The work row of this removal is committed."""
        self._removing[sub_id] = None
        self._removals.append((sub_id, filter, _Removal(home, client, sub_id, self._state.n_shards)))

    def turn(self) -> None:
        state = self._state
        size = state.options.routes_per_request_max
        while self._adds or self._removals:
            adds, self._adds = self._adds[:size], self._adds[size:]
            removals, self._removals = self._removals[: size - len(adds)], self._removals[size - len(adds) :]
            for shard in range(state.n_shards):
                entry = Route(
                    [(add.sub_id, add.filter) for add in adds],
                    [(sub_id, filter) for sub_id, filter, _ in removals],
                    tuple([add.client for add in adds]),
                    tuple(_fences(removals)),
                    tuple([add.replay.at(shard, index) for index, add in enumerate(adds) if add.replay is not None]),
                    tuple([(index, add.owner) for index, add in enumerate(adds) if add.owner]),
                )
                state.ask(shard, [entry], partial(self._answered, shard, adds, removals))
        for home in self._finished:
            done, home.done = home.done, []
            if done and home.token:
                state.ask(home.shard, [WorkDone(home.token, done)], partial(self._taken, home, home.token))
        self._finished.clear()

    def _answered(self, shard: int, adds: list[_Add], removals: list[tuple[int, bytes, _Removal]], replies: list[Reply]) -> None:
        (routed,) = replies
        assert isinstance(routed, Routed)
        position, replayed = routed.position, iter(routed.replays)
        for add in adds:
            add.then(shard, position, Replayed(*next(replayed)) if add.replay is not None else None)
        for _, _, removal in removals:
            removal.left -= 1
            if not removal.left:
                self._state.counters.routes_removed += 1
                self._removing.pop(removal.sub_id, None)
                removal.home.done.append((removal.client, removal.sub_id))
                self._finished[removal.home] = None

    def _taken(self, home: Home, token: int, replies: list[Reply]) -> None:
        (taken,) = replies
        assert isinstance(taken, WorkTaken)
        if taken.code and home.token == token:
            # Somebody else is the owner: the work is told to it, and done again there.
            self._replaced(home)


def _fences(removals: list[tuple[int, bytes, _Removal]]) -> dict[tuple[int, int], None]:
    """Of what an older owner of the same home had begun: it may be alive, and its addition still on the way."""
    return {
        (home_of_sub(sub_id), removal.home.token): None
        for sub_id, _, removal in removals
        if removal.home.token and token_of_sub(sub_id) != removal.home.token & 0xFFFFFFFF
    }
