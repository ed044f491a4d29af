"""Retained messages for new subscriptions of sessions in memory, after their SUBACK: asked of their homes page by page.

A session has one page on its way at most, and the next is asked for when its client has taken enough of the last one.  While
the client is away nothing is asked.  A live message with RETAIN that came meanwhile is newer than what a page says of its
topic, so that value is left out: the last one comes last.
"""

from __future__ import annotations

from collections import deque

from mqtt.topics import has_wildcard
from sessions.memory.message import Message
from sessions.memory.session import MemorySession
from sessions.memory.table import MemorySub
from sessions.state import Later, State
from shards.frames import RetainedMessages, RetainedPage, Told
from shards.messages import QOS_MASK, header

RETAIN = 0x01


class Fetch:
    """The retained messages of one subscription: the shards still to be asked, and after which topic in the first of them."""

    __slots__ = ("after", "asked", "shards", "sub", "values")

    def __init__(self, sub: MemorySub, shards: list[int]) -> None:
        self.sub = sub
        self.shards = deque(shards)
        self.after = b""
        self.asked = False
        self.values: deque[bytes] = deque()


class MemoryRetained:
    def __init__(self, state: State) -> None:
        self._state = state
        self._retry: Later[tuple[MemorySession, Fetch]] = Later(state.options.retry_ms)
        self.stirred: dict[MemorySession, None] = {}
        """Who may have something to ask or to get in this turn."""

    def begin(self, sub: MemorySub) -> None:
        shards = list(range(self._state.n_shards)) if has_wildcard(sub.filter) else [self._state.slots.shard_of(sub.filter)]
        sub.retain_topics = set()
        sub.session.fetching.append(Fetch(sub, shards))
        self.stir(sub.session)

    def stir(self, session: MemorySession) -> None:
        """It may have room now."""
        if session.fetching:
            self.stirred[session] = None

    def detached(self, session: MemorySession) -> None:
        """What was asked is asked again when somebody is there to get it."""
        self._state.forget_queries(session)
        for fetch in session.fetching:
            fetch.asked = False

    def turn(self) -> None:
        for session, fetch in self._retry.due(self._state.now_ms):
            fetch.asked = False
            self.stir(session)
        stirred, self.stirred = self.stirred, {}
        for session in stirred:
            while session.fetching and self._go_on(session, session.fetching[0]):
                done = session.fetching.pop(0).sub
                done.retain_topics = None

    @property
    def next_ms(self) -> int | None:
        return self._retry.next_ms

    def _go_on(self, session: MemorySession, fetch: Fetch) -> bool:
        """Send and ask as far as possible; whether this subscription has got all."""
        if session.subs.get(fetch.sub.filter) is not fetch.sub:
            if fetch.asked:
                self._state.forget_queries(session)
            return True
        while fetch.values and session.has_room():
            self._send(fetch.sub, fetch.values.popleft())
        if fetch.values or fetch.asked or not session.has_room():
            return not (fetch.values or fetch.asked or fetch.shards)
        if not fetch.shards:
            return True
        fetch.asked = True

        def told(told: Told | None) -> None:
            if isinstance(told, RetainedMessages):
                fetch.asked = False
                fetch.values.extend(told.values)
                fetch.after = told.next_after
                if not told.next_after:
                    fetch.shards.popleft()
                self.stir(session)
            else:
                self._retry.add(self._state.now_ms, (session, fetch))

        self._state.query(fetch.shards[0], RetainedPage(fetch.sub.filter, fetch.after, self._state.options.batch_size), session, told)
        return False

    def _send(self, sub: MemorySub, value: bytes) -> None:
        flags, published_at_ms, publisher, topic, body = header(value)
        if (sub.retain_topics is not None and topic in sub.retain_topics) or sub.skips(publisher):
            return
        message = Message(publisher, (flags & QOS_MASK) << 1 | RETAIN, topic, body, published_at_ms)
        if message.is_over(self._state.wall_ms):
            self._state.counters.memory_dropped_expired += 1
            return
        sub.session.offer(message, sub.first(message) | RETAIN, sub.identifier)
        self._state.counters.retained += 1
