"""Retained messages for a new subscription, after its SUBACK (PROTOCOLS 10).

Their homes are asked in turn, page by page, one page at a time and only while the session has room.  What has a number is
copied into the session's rows before it leaves, for it comes from no stream.

A value may come twice, as retained and through the store, but the newest comes last: a topic whose newer retained message
the subscription has met in the store is skipped.
"""

from __future__ import annotations

from mqtt.topics import has_wildcard
from sessions.reading import Reading
from sessions.session import Session, Subscription
from sessions.state import Later, State
from shards.frames import RetainedMessages, RetainedPage, Told
from shards.messages import topic_of


class RetainedJob:
    """The retained messages of one filter: the shards still to be asked, and after which topic in the first of them."""

    __slots__ = ("after", "asked", "shards", "sub")

    def __init__(self, sub: Subscription, shards: list[int]) -> None:
        self.sub = sub
        self.shards = shards
        self.after = b""
        self.asked = False


class Retained:
    def __init__(self, state: State, reading: Reading) -> None:
        self._state = state
        self._reading = reading
        self._retry: Later[tuple[Session, RetainedJob]] = Later(state.options.retry_ms)

    def begin(self, session: Session, sub: Subscription) -> None:
        filter = sub.terms.filter
        shards = list(range(self._state.n_shards)) if has_wildcard(filter) else [self._state.slots.shard_of(filter)]
        if sub.retained_topics is None:
            sub.retained_topics = {}
        session.asks().retained.append(RetainedJob(sub, shards))
        self._state.stir(session)

    def pump(self, session: Session) -> None:
        asking = session.asking
        while asking.retained and (asking.retained[0].sub.ended or not asking.retained[0].shards):
            done = asking.retained.pop(0).sub
            if not any(job.sub is done for job in asking.retained):
                done.retained_topics = None
        if not asking.retained or asking.rereads or asking.retained[0].asked:
            return
        options = self._state.options
        batch = asking.retained[0].sub.reads.batch_size
        count = min(batch, session.room(session.window.size + batch))
        if count <= 0 or session.window.unsent * 2 > session.window.size + batch:
            return
        if session.window.unsent_bytes * 2 > options.unsent_bytes_max:
            return
        job = asking.retained[0]
        job.asked = True
        asking.reserved += count

        def told(told: Told | None) -> None:
            asking.reserved -= count
            self._state.stir(session)
            if isinstance(told, RetainedMessages):
                job.asked = False
                self._page(session, job, told)
            else:
                self._retry.add(self._state.now_ms, (session, job))

        self._state.query(job.shards[0], RetainedPage(job.sub.terms.filter, job.after, count), asking, told)

    def _page(self, session: Session, job: RetainedJob, page: RetainedMessages) -> None:
        newer = job.sub.retained_topics
        if page.values and not job.sub.ended:
            values = [value for value in page.values if topic_of(value) not in newer] if newer else page.values
            self._state.counters.retained += len(values)
            if values:
                self._reading.copy(session, job.sub, values)
        job.after = page.next_after
        if not page.next_after:
            del job.shards[0]

    def turn(self) -> None:
        for session, job in self._retry.due(self._state.now_ms):
            job.asked = False
            if session.attached:
                self._state.stir(session)

    @property
    def next_ms(self) -> int | None:
        return self._retry.next_ms
