"""Brings retained messages to a new ephemeral subscription: asked of their home shards page by page (PROTOCOLS 10).

A connection has one page on its way at most, and the next is asked for when the client has taken enough of the last one.
A filter without wildcards lives in one shard; others are asked of all, one after the other.  A live message with RETAIN
that goes out meanwhile is newer than what a page says of its topic, so that value is left out: the last one comes last.
Retained messages of durable sessions are the session actor's business.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from gateway.asking import AHEAD_MAX
from gateway.connection import Connection, Phase
from gateway.events import RetainedQuery
from gateway.live import LiveSub
from gateway.sending import Sending
from gateway.state import State
from mqtt.encode import PublishTemplate
from mqtt.topics import has_wildcard
from shards.messages import QOS_MASK, header

NO_PAGE = 0
"""In place of the number of a query: it is about something else."""


@dataclass(slots=True)
class _Fetch:
    """The retained messages of one subscription.  asked: the query that is on its way, 0: none."""

    sub: LiveSub
    shards: deque[int]
    after: bytes = b""
    asked: int = 0
    tries: int = 0
    values: deque[bytes] = field(default_factory=deque)


class Retained:
    def __init__(self, state: State, sending: Sending) -> None:
        self._state = state
        self._sending = sending
        self._fetching: dict[Connection, deque[_Fetch]] = {}
        self._queries: dict[int, tuple[Connection, _Fetch]] = {}
        self._next_id = 1

    def begin(self, sub: LiveSub) -> None:
        shards = [self._state.slots.shard_of(sub.filter)]
        if has_wildcard(sub.filter):
            shards = sorted(set(self._state.slots.shards))
        sub.retain_topics = set()
        self._fetching.setdefault(sub.connection, deque()).append(_Fetch(sub, deque(shards)))

    def told(self, shard: int, query: int, values: list[bytes] | None, next_after: bytes) -> None:
        asked = self._queries.pop(query, None)
        if asked is None:
            return
        _, fetch = asked
        fetch.asked = 0
        if values is None:
            fetch.tries += 1
            if fetch.tries < self._state.options.retained_tries:
                return
            self._state.counters.retained_pages_failed += 1
            next_after = b""
        else:
            fetch.values.extend(values)
        fetch.tries = 0
        fetch.after = next_after
        if not next_after:
            fetch.shards.popleft()

    def shard_linked(self, shard: int) -> None:
        """Queries to this shard were lost with its old link: they are asked again."""
        for query, (_, fetch) in list(self._queries.items()):
            if fetch.shards[0] == shard:
                fetch.asked = 0
                del self._queries[query]

    def turn(self) -> None:
        """Go on with every connection that takes more."""
        for connection in list(self._fetching):
            fetches = self._fetching[connection]
            while fetches and self._go_on(connection, fetches[0]):
                fetches.popleft().sub.retain_topics = None
            if not fetches:
                del self._fetching[connection]

    def _go_on(self, connection: Connection, fetch: _Fetch) -> bool:
        """Send and ask as far as possible; whether this subscription has got all."""
        session = connection.ephemeral
        if connection.phase is not Phase.ONLINE or session is None or connection.subs.get(fetch.sub.filter) is not fetch.sub:
            self._queries.pop(fetch.asked, None)
            return True
        asker = connection.asker
        while fetch.values and session.has_room() and not connection.congested and (asker is None or len(asker.outgoing) < AHEAD_MAX):
            self._send(fetch.sub, fetch.values.popleft())
        if fetch.values or fetch.asked:
            return False
        if not fetch.shards:
            return True
        shard = fetch.shards[0]
        if shard in self._state.shards_linked and not connection.congested:
            fetch.asked, self._next_id = self._next_id, self._next_id + 1
            self._queries[fetch.asked] = (connection, fetch)
            page = self._state.options.retained_page
            self._state.outbox.effects.append(RetainedQuery(shard, fetch.asked, fetch.sub.filter, fetch.after, page))
        return False

    def _send(self, sub: LiveSub, value: bytes) -> None:
        flags, published_at_ms, publisher, topic, body = header(value)
        if sub.retain_topics is not None and topic in sub.retain_topics:
            return
        if sub.no_local and publisher == sub.connection.client:
            return
        if self._sending.send(sub, sub.sent_qos[flags & QOS_MASK], 1, PublishTemplate(topic, body), published_at_ms):
            self._state.counters.retained_delivered += 1
