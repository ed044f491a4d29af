"""What the parts of the session core share: bounds, time, the sessions in memory, and the plumbing of questions and answers.

Requests to shards are never lost: each has a continuation that gets the replies.  Queries are lost with the link: they are
asked again when it is back, unless whoever asked has lost interest (`forget_queries`) or does something else meanwhile (`take_back`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from sessions.events import AskShard, Effect, QueryShard, ToGateway
from sessions.frames import Frame as GatewayFrame
from sessions.options import Counters, SessionOptions
from sessions.output import Output
from sessions.session import Session
from shards.frames import Ask, Entry, Reply, Told
from shards.slots import SlotTable

T = TypeVar("T")
GROUPS = -1
"""In the place of a gateway's link: the session of a shared group (sessions.groups)."""


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    """Of two moments; None is never."""
    return other_ms if one_ms is None or (other_ms is not None and other_ms < one_ms) else one_ms


class Asker(Protocol):
    """Who asks queries: the ids of those that are not answered, with their shard."""

    queries: dict[int, int]


class Later(Generic[T]):
    """Things to look at after a fixed time, oldest first.

    next_ms: when the first of them is due; None: there are none.  Asked in every turn, so it is not computed then.
    """

    __slots__ = ("_delay_ms", "_waiting", "next_ms")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._waiting: deque[tuple[int, T]] = deque()
        self.next_ms: int | None = None

    def add(self, now_ms: int, item: T) -> None:
        due_ms = now_ms + self._delay_ms
        self._waiting.append((due_ms, item))
        if self.next_ms is None:
            self.next_ms = due_ms

    def change(self, now_ms: int, delay_ms: int) -> None:
        """Another time from now on; what waits already does so no longer than that."""
        self._delay_ms = delay_ms
        self._waiting = deque([(min(due_ms, now_ms + delay_ms), item) for due_ms, item in self._waiting])
        self._look()

    def due(self, now_ms: int) -> list[T]:
        found: list[T] = []
        if self.next_ms is None or now_ms < self.next_ms:
            return found
        waiting = self._waiting
        while waiting and waiting[0][0] <= now_ms:
            found.append(waiting.popleft()[1])
        self._look()
        return found

    def _look(self) -> None:
        self.next_ms = self._waiting[0][0] if self._waiting else None


class _Query:
    """One that is not answered.  asked_ms: when last."""

    __slots__ = ("ask", "asked_ms", "asker", "then")

    def __init__(self, ask: Ask, asker: Asker, then: Callable[[Told | None], None], asked_ms: int) -> None:
        self.ask = ask
        self.asker = asker
        self.then = then
        self.asked_ms = asked_ms


class State:
    def __init__(self, n_shards: int, served: frozenset[int], slots: SlotTable, options: SessionOptions) -> None:
        self.n_shards = n_shards
        self.served = served
        self.slots = slots
        self.options = options
        self.reads = options.reads
        self.counters = Counters()
        self.now_ms = 0
        self.wall_ms = 0
        self.effects: list[Effect] = []
        self.sessions: dict[bytes, Session] = {}
        self.by_conn: dict[int, Session] = {}
        self.outputs: dict[int, Output] = {}
        self.to_groups: Callable[[GatewayFrame], None]
        self.stirred: dict[Session, None] = {}
        """Sessions that may have something to send or to read in this tick."""
        self.linked = [False] * n_shards
        self._last_id = 0
        self._asked: dict[int, Callable[[list[Reply]], None]] = {}
        self._queries: list[dict[int, _Query]] = [{} for _ in range(n_shards)]

    # ---------------------------------------------------------------- gateways
    def to_gateway(self, link: int, frame: GatewayFrame) -> None:
        if link == GROUPS:
            self.to_groups(frame)
        elif link in self.outputs:
            self.effects.append(ToGateway(link, frame))

    # ---------------------------------------------------------------- shards
    def ask(self, shard: int, entries: list[Entry], then: Callable[[list[Reply]], None]) -> None:
        self._last_id += 1
        self._asked[self._last_id] = then
        self.effects.append(AskShard(shard, self._last_id, entries))

    def replied(self, id: int, replies: list[Reply]) -> None:
        self._asked.pop(id)(replies)

    def query(self, shard: int, ask: Ask, asker: Asker, then: Callable[[Told | None], None]) -> None:
        """While the link is down this waits for it."""
        self._last_id += 1
        self._queries[shard][self._last_id] = _Query(ask, asker, then, self.now_ms)
        asker.queries[self._last_id] = shard
        if self.linked[shard]:
            self.effects.append(QueryShard(shard, self._last_id, ask))

    def told(self, shard: int, id: int, told: Told | None) -> None:
        found = self._queries[shard].pop(id, None)
        if found is not None:
            queries = found.asker.queries
            del queries[id]
            if not queries:
                queries.clear()  # which lets go of its memory
            found.then(told)

    def take_back(self, shard: int, kinds: tuple[type[Ask], ...]) -> None:
        """The link is lost: questions of these kinds are not asked any more, and whoever asked them is told so."""
        queries = self._queries[shard]
        for id in [id for id, query in queries.items() if isinstance(query.ask, kinds)]:
            self.told(shard, id, None)

    def ask_again(self, shard: int) -> None:
        """The link is back: everything that was not answered, in the old order."""
        for id, query in self._queries[shard].items():
            query.asked_ms = self.now_ms
            self.effects.append(QueryShard(shard, id, query.ask))

    def ask_once_more(self, asker: Asker, before_ms: int) -> list[tuple[int, Ask]]:
        """What was asked last at that time or before, and is not answered though the link is whole; what that is, with its shard.
        The second of two answers is not heard."""
        again: list[tuple[int, Ask]] = []
        for id, shard in asker.queries.items():
            query = self._queries[shard][id]
            if query.asked_ms <= before_ms and self.linked[shard]:
                query.asked_ms = self.now_ms
                self.effects.append(QueryShard(shard, id, query.ask))
                again.append((shard, query.ask))
        return again

    def forget_queries(self, asker: Asker) -> None:
        for id, shard in asker.queries.items():
            del self._queries[shard][id]
        asker.queries.clear()

    # ---------------------------------------------------------------- sessions
    def stir(self, session: Session) -> None:
        self.stirred[session] = None

    def check(self) -> None:
        for client, session in self.sessions.items():
            assert session.client == client and not session.dropped
            session.check()
            if session.attached:
                assert self.by_conn[session.conn] is session
                assert self.outputs[session.link].conns[session.conn] is session
        for conn, session in self.by_conn.items():
            assert session.conn == conn and session.attached and self.sessions[session.client] is session
        for shard, queries in enumerate(self._queries):
            for id, query in queries.items():
                assert query.asker.queries[id] == shard
