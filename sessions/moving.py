"""Places of a session are moved by hand: skip, rewind, purge (docs/session-tools.md).

    asked -> the token of its home -> the session in memory, or loaded -> moved -> committed
          -> shards in which a place went back are told -> answered

One path for sessions with a connection and without: a session that is loaded for it is forgotten when it is committed, as one whose
client has gone.  What was given to the session and is not on its way to the client is closed where the move leaves it out, or brings
it again: its numbers are finished without having been sent, in the same commit.

Holds: a request is answered once; nothing is loaded while somebody else loads the same session, or has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sessions.committing import Committing, Home
from sessions.events import TellMoved, ToInquirer
from sessions.inquiry_frames import (
    MOVE_BUSY,
    MOVE_DONE,
    MOVE_ELSEWHERE,
    MOVE_LATE,
    MOVE_NO_SESSION,
    MOVE_NO_SUBSCRIPTION,
    PURGE,
    REWIND,
    UNMOVED,
    Move,
    Moved,
)  # fmt: skip
from sessions.loading import restore
from sessions.losses import close_numbers
from sessions.ranges import Range
from sessions.reading import Reading
from sessions.session import Cursor, Session, Subscription
from sessions.state import State, earlier
from shards.frames import Load, Loaded, Place, Rewound, Told

MOVES_MAX = 100
"""Under way at once; then whoever asks is told to come again."""
WITHIN_MS = 4_000
LOOK_AGAIN_MS = 50


class Attached(Protocol):
    """What is known of connections (sessions.attaching)."""

    def own(self, home: Home) -> None: ...

    def waits(self, client: bytes) -> bool:
        """A connection is to be attached to this session, which may be being loaded for it."""

    def settled(self, session: Session) -> None: ...


class _Job:
    __slots__ = ("ask", "begun", "closed", "due_ms", "home", "left", "link", "lowered", "moved", "over", "queries")

    def __init__(self, link: int, ask: Move, home: Home, due_ms: int) -> None:
        self.link = link
        self.ask = ask
        self.home = home
        self.due_ms = due_ms
        self.queries: dict[int, int] = {}
        self.begun = self.over = False
        self.moved = self.closed = self.left = 0
        self.lowered: dict[int, int] = {}


class Moving:
    def __init__(
        self, state: State, homes: dict[int, Home], committing: Committing, reading: Reading, attached: Attached,
        in_memory: Callable[[bytes], object | None], remove_unfinished: Callable[[Session, Subscription], None],
    ) -> None:  # fmt: skip
        self._state = state
        self._homes = homes
        self._committing = committing
        self._reading = reading
        self._attached = attached
        self._in_memory = in_memory
        self._remove_unfinished = remove_unfinished
        self._jobs: dict[_Job, None] = {}

    def ask(self, link: int, ask: Move) -> None:
        home = self._homes.get(self._state.slots.shard_of(ask.client))
        code = MOVE_ELSEWHERE if home is None else MOVE_BUSY if len(self._jobs) >= MOVES_MAX else MOVE_DONE
        if self._in_memory(ask.client) is not None:
            code = MOVE_NO_SESSION
        if home is None or code:
            self._state.effects.append(ToInquirer(link, Moved(ask.id, code)))
            return
        job = _Job(link, ask, home, self._state.now_ms + WITHIN_MS)
        self._jobs[job] = None
        self._go_on(job)

    def owner_changed(self, home: Home) -> None:
        """What is being loaded may have been changed by another owner."""
        for job in self._jobs:
            if job.home is home and not job.begun:
                self._state.forget_queries(job)

    def turn(self) -> None:
        for job in list(self._jobs):
            if not job.begun:
                self._go_on(job)
            if not job.over and job.due_ms <= self._state.now_ms:
                self._answer(job, MOVE_LATE)

    @property
    def next_ms(self) -> int | None:
        due_ms: int | None = None
        for job in self._jobs:
            due_ms = earlier(due_ms, job.due_ms if job.begun or job.queries else self._state.now_ms + LOOK_AGAIN_MS)
        return due_ms

    # ---------------------------------------------------------------- to the session
    def _go_on(self, job: _Job) -> None:
        client = job.ask.client
        if job.queries:
            return
        if not job.home.token:
            self._attached.own(job.home)
            return
        session = self._state.sessions.get(client)
        if session is None:
            if not self._attached.waits(client):
                self._state.query(job.home.shard, Load(client), job, lambda told: self._loaded(job, told))
        elif session.attached or not session.uncertain:
            self._move(job, session)

    def _loaded(self, job: _Job, told: Told | None) -> None:
        client = job.ask.client
        if not isinstance(told, Loaded) or not job.home.token or client in self._state.sessions or self._attached.waits(client):
            return
        if told.session_id != job.ask.session_id:
            self._answer(job, MOVE_NO_SESSION)
            return
        session, unfinished = restore(self._state, client, told.session_id, job.home.shard, told.rows)
        self._state.sessions[client] = session
        for sub in unfinished:
            self._remove_unfinished(session, sub)
        if session.has_changes:
            self._committing.soon(session)
        self._move(job, session)
        self._attached.settled(session)

    # ---------------------------------------------------------------- the move
    def _move(self, job: _Job, session: Session) -> None:
        ask = job.ask
        if session.session_id != ask.session_id:
            self._answer(job, MOVE_NO_SESSION)
            return
        subs = [sub for sub in session.subs.values() if sub.cursors and ask.filter in (b"", sub.terms.filter)]
        if not subs and ask.filter:
            self._answer(job, MOVE_NO_SUBSCRIPTION)
            return
        job.begun = True
        for sub in subs:
            for cursor in sub.cursors:
                if ask.to[cursor.shard] != UNMOVED:
                    self._place(job, cursor, ask.to[cursor.shard])
        job.closed = self._close(session, ask, {sub.terms.sub_id for sub in subs})
        if ask.verb == PURGE:
            self._reading.givens.purged(session)
        if job.closed or ask.verb == PURGE:
            session.window.discard(session.one, session.two, ask.verb == PURGE)
        if session.has_changes:
            self._committing.soon(session)
            session.tell_when_committed(lambda: self._committed(job))
        else:
            self._committed(job)
        if session.attached:
            self._state.stir(session)

    def _place(self, job: _Job, cursor: Cursor, to: int) -> None:
        old = self._reading.place_of(cursor)
        if job.ask.verb == REWIND:
            new = rewound(old, to)
            if new is not old:
                job.lowered[cursor.shard] = min(new.cut, job.lowered.get(cursor.shard, new.cut))
        else:
            new = skipped(old, to)
        if new is not old:
            job.moved += 1
            self._reading.move(cursor, new)

    def _close(self, session: Session, ask: Move, sub_ids: set[int]) -> int:
        """Of what was given to it and is not on its way.  Of QoS 2 what was ever sent is: whether its client waits for PUBREL, only that
        one knows."""
        one, two = session.one, session.two
        closed = 0
        for known in list(session.ranges.open.values()):
            if (known.terms.sub_id in sub_ids or not ask.filter) and _left_out(ask, known):
                ones = range(max(known.first1, one.out + 1), max(known.first1, known.last1 + 1, one.out + 1))
                twos = range(max(known.first2, two.sent + 1), max(known.first2, known.last2 + 1, two.sent + 1))
                closed += close_numbers(session, known, ones, twos)
        return closed

    # ---------------------------------------------------------------- done
    def _committed(self, job: _Job) -> None:
        job.left = len(job.lowered)
        for shard, position in job.lowered.items():
            self._state.query(shard, Rewound(position), job, lambda told: self._noted(job))
        if not job.left:
            self._done(job)

    def _noted(self, job: _Job) -> None:
        job.left -= 1
        if not job.left:
            self._done(job)

    def _done(self, job: _Job) -> None:
        ask, counters = job.ask, self._state.counters
        counters.moved += job.moved
        counters.closed += job.closed
        self._state.effects.append(TellMoved(ask.client, ask.verb, ask.by, ask.filter, ask.to, job.moved, job.closed))
        self._answer(job, MOVE_DONE)

    def _answer(self, job: _Job, code: int) -> None:
        if job.over:
            return
        job.over = True
        del self._jobs[job]
        if not job.begun:
            self._state.forget_queries(job)
        self._state.effects.append(ToInquirer(job.link, Moved(job.ask.id, code, job.moved, job.closed)))

    def check(self) -> None:
        assert len(self._jobs) <= MOVES_MAX and not any(job.over for job in self._jobs)


def skipped(place: Place, to: int) -> Place:
    """Where a place that is not to give anything up to `to` any more goes on.  The same one: it does not."""
    if to <= place.cut:
        return place
    if to >= place.horizon:
        return Place(to)
    return Place(to, place.horizon, place.generation, place.static, max(place.position, to))


def rewound(place: Place, to: int) -> Place:
    """Where a place that is to give everything behind `to` again goes on.  Of a sweep nobody knows which of it was given: all of it is."""
    to = min(to, place.cut)
    return place if to == place.cut and not place.horizon else Place(to)


def _left_out(ask: Move, known: Range) -> bool:
    if ask.verb == PURGE:
        return True
    if known.shard < 0 or ask.to[known.shard] == UNMOVED:
        return False
    to = ask.to[known.shard]
    return known.after >= to if ask.verb == REWIND else known.upto <= to
