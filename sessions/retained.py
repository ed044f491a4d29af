"""Retained messages for a new subscription, after its SUBACK (PROTOCOLS 10).

Their homes are asked in turn, page by page, one page at a time and only while the session has room.  What has a number is
copied into the session's rows before it leaves, for it comes from no stream.

What is still to be copied is a row of the session: it is there before SUBACK, is moved on in the commit that has a page, and goes with the
last.  So whoever attaches the session next goes on from there, whatever has ended in between.

A value may come twice, as retained and through the store, but the newest comes last: a topic whose newer retained message
the subscription has met in the store is skipped.  Which these were is in memory only.  Who goes on therefore first waits until all retained
messages stored so far are at home (an empty Route is answered then): what is read after that is no older than what anybody was given
before.

Holds: the row says no more than was copied, and no less than the newest SUBSCRIBE of this filter still wants.
"""

from __future__ import annotations

from functools import partial

from mqtt.topics import has_wildcard
from sessions.committing import Committing
from sessions.reading import Reading
from sessions.session import Session, Subscription, sub_key
from sessions.state import Later, State
from shards.frames import Reply, RetainedMessages, RetainedPage, Route, Told
from shards.messages import topic_of
from shards.rows import TO_COPY, pack_row, unpack_row


class RetainedJob:
    """The retained messages of one filter: the shards still to be asked, and after which topic in the first of them.  waits_for: shards
    that have not said yet that theirs are at home.  resumed: of a SUBSCRIBE of before.  over: a newer SUBSCRIBE wants all of them."""

    __slots__ = ("after", "asked", "over", "resumed", "shards", "sub", "waits_for")

    def __init__(self, sub: Subscription, shards: list[int], after: bytes = b"") -> None:
        self.sub = sub
        self.shards = shards
        self.after = after
        self.asked = self.resumed = self.over = False
        self.waits_for: set[int] = set()

    @classmethod
    def of_row(cls, sub: Subscription, value: bytes) -> RetainedJob:
        shards, after = unpack_row(value)
        return cls(sub, shards, after)

    @property
    def row(self) -> bytes:
        return pack_row((self.shards, self.after))


class Retained:
    def __init__(self, state: State, committing: Committing, reading: Reading) -> None:
        self._state = state
        self._committing = committing
        self._reading = reading
        self._retry: Later[tuple[Session, RetainedJob]] = Later(state.options.retry_ms)

    def want(self, session: Session, sub: Subscription, filter: bytes) -> RetainedJob:
        """The row goes with what makes the subscription active, or changes it; `begin` follows its SUBACK."""
        shards = list(range(self._state.n_shards)) if has_wildcard(filter) else [self._state.slots.shard_of(filter)]
        job, older = RetainedJob(sub, shards), sub.to_copy
        if older is not None and older.resumed:
            # Most likely the same SUBSCRIBE, whose answer was lost and which is asked again: not all of them twice.
            older.over = True
            job.waits_for = older.waits_for
        self.keep(session, job)
        return job

    def keep(self, session: Session, job: RetainedJob) -> None:
        job.sub.to_copy = job
        self._committing.put(session, TO_COPY, sub_key(job.sub.sub_id), job.row)

    def begin(self, session: Session, job: RetainedJob) -> None:
        if job.sub.retained_topics is None:
            job.sub.retained_topics = {}
        session.asks().retained.append(job)
        self._state.stir(session)

    def resume(self, session: Session) -> None:
        """A connection, behind one that had not got all, or whose SUBACK was lost."""
        for sub in session.subs.values():
            if sub.to_copy is not None:
                job = sub.to_copy = RetainedJob(sub, sub.to_copy.shards, sub.to_copy.after)
                job.resumed = True
                self.begin(session, job)
                for shard in range(self._state.n_shards):
                    job.waits_for.add(shard)
                    self._state.ask(shard, [Route([], [])], partial(self._at_home, session, job, shard))

    def _at_home(self, session: Session, job: RetainedJob, shard: int, _: list[Reply]) -> None:
        job.waits_for.discard(shard)
        if not job.waits_for and session.attached:
            self._state.stir(session)

    def forget(self, session: Session, sub: Subscription) -> None:
        """The rows of this subscription are to go."""
        if sub.to_copy is not None:
            sub.to_copy = None
            self._committing.put(session, TO_COPY, sub_key(sub.sub_id), None)

    def pump(self, session: Session) -> None:
        asking = session.asking
        while asking.retained and ((first := asking.retained[0]).sub.ended or first.over or not first.shards):
            done = asking.retained.pop(0).sub
            if not any(job.sub is done for job in asking.retained):
                done.retained_topics = None
        if not asking.retained or asking.rereads or asking.retained[0].asked or asking.retained[0].waits_for:
            return
        shard = asking.retained[0].shards[0]
        if not self._state.linked[shard]:
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
                if not job.over:
                    self._page(session, job, told)
            elif not self._state.linked[shard]:
                job.asked = False
            else:
                self._retry.add(self._state.now_ms, (session, job))

        self._state.query(shard, RetainedPage(job.sub.terms.filter, job.after, count), asking, told)

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
        self._moved(session, job)

    def _moved(self, session: Session, job: RetainedJob) -> None:
        """With the page, if there was something in it; else it only costs a look if that is lost."""
        sub = job.sub
        if sub.to_copy is not job:
            # The row is of a newer SUBSCRIBE, which wants all of them once more, or is gone with its subscription.
            return
        session.rows[TO_COPY, sub_key(sub.sub_id)] = job.row if job.shards else None
        if not job.shards:
            sub.to_copy = None
        self._committing.lazily(session)

    def turn(self) -> None:
        for session, job in self._retry.due(self._state.now_ms):
            job.asked = False
            if session.attached:
                self._state.stir(session)

    @property
    def next_ms(self) -> int | None:
        return self._retry.next_ms
