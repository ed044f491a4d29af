"""Group commit: the changed rows of all sessions of a home, in one request at a time.

The next request leaves when the previous one is answered, so the longer a sync takes the more sessions share the next one;
nothing that somebody waits for waits for a timer.  What may be committed lazily (PROTOCOLS 12) waits for company, for all sessions of
a home by one clock: QoS 1 assignments for some milliseconds, in which most of them are acknowledged and leave no row, and the longer the
more sessions have such, up to the heartbeat; acknowledgements alone up to the heartbeat.

What must not leave before its commit (PROTOCOLS 12) waits for a number: `Session.next_commit` when it was changed.

Holds: at most one commit request per home is under way; a session is in it at most once; nothing is committed without the
token of this owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sessions.session import Cursor, Session, place_key
from sessions.state import State, earlier
from shards.frames import OLD_TOKEN, TAKEN, Commit, CommitDone, Entry, Place, Reply
from shards.rows import PLACE, PROGRESS, RANGE, ProgressRow, pack_place, pack_progress, u64

LAZY_SESSIONS_PER_S = 200
"""So many sessions of a home are committed a second for what may be committed lazily: a thousand that get a message now and then would
otherwise cost their shard more than the messages."""
LAZY_SESSIONS_AT_ONCE = 4
"""So few do not count."""


class Company:
    """Sessions that wait for a commit: all of them are due when the first one is."""

    __slots__ = ("due_ms", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Session] = []
        self.due_ms: int | None = None

    def add(self, session: Session, due_ms: int) -> None:
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms
        self.waiting.append(session)

    def due(self, now_ms: int) -> list[Session]:
        if self.due_ms is None or now_ms < self.due_ms:
            return []
        waiting, self.waiting, self.due_ms = self.waiting, [], None
        return waiting


class Home:
    """A served shard as the home of sessions.

    token 0: not the owner (yet).  deposed: somebody else became the owner; ask again only for a client that wants it, so
    that of two processes the one that serves clients wins.

    newest: of all tokens that we have heard of.  heir: who has that one is not linked any more, and we are to ask for the next.

    lazy, progressed: who waits for company, with an assignment and with acknowledgements alone.  lazy_ms: how long the next one that is
    first will.
    """

    __slots__ = (
        "asked", "deposed", "dirty", "done", "groups", "heir", "last_sub", "lazy", "lazy_ms", "newest", "progressed", "shard", "token",
        "under_way",
    )  # fmt: skip

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.token = 0
        self.asked = False
        self.deposed = False
        self.newest = 0
        self.heir = False
        self.last_sub = 0
        self.dirty: dict[Session, None] = {}
        self.lazy = Company()
        self.lazy_ms = 0
        self.progressed = Company()
        self.under_way = False
        self.done: list[tuple[bytes, int]] = []
        self.groups: Sequence[Sequence[Any]] = ()
        """Shared groups, each a GroupFound, as of the record that gave the token."""


class CommitListener(Protocol):
    """What follows from the answer to a commit."""

    def refused(self, session: Session, code: int) -> None:
        """The home knows a newer connection, or no such session."""

    def replaced(self, home: Home) -> None:
        """Another process owns the sessions of this home."""

    def settled(self, session: Session) -> None:
        """The commit is taken; nothing of this session is under way now."""


class Committing:
    listener: CommitListener

    def __init__(self, state: State, homes: dict[int, Home], place_of: Callable[[Cursor], Place]) -> None:
        self._state = state
        self._homes = homes
        self._place_of = place_of

    def settings_changed(self) -> None:
        """What waits already does so no longer than the new heartbeat."""
        latest_ms = self._state.now_ms + self._state.options.heartbeat_ms
        for home in self._homes.values():
            home.lazy_ms = min(home.lazy_ms, self._state.options.heartbeat_ms)
            for company in (home.lazy, home.progressed):
                if company.due_ms is not None:
                    company.due_ms = min(company.due_ms, latest_ms)

    # ---------------------------------------------------------------- marking
    def soon(self, session: Session) -> None:
        """Something must be in the next commit."""
        self._homes[session.home].dirty[session] = None

    def put(self, session: Session, family: bytes, suffix: bytes, value: bytes | None) -> None:
        """Write this row with the next commit, or delete it (None)."""
        session.rows[family, suffix] = value
        self.soon(session)

    def lazily(self, session: Session) -> None:
        """Something has changed that costs at most a repeat if it is lost."""
        if not session.in_lazy:
            session.in_lazy = True
            home = self._homes[session.home]
            home.lazy.add(session, self._state.now_ms + max(home.lazy_ms, self._state.options.lazy_commit_ms))

    def assigned(self, session: Session) -> None:
        """Messages leave at QoS 1.  That there may be repeats of this connection, if they are lost, is said at once: these are to come
        with DUP."""
        if session.said_online:
            self.lazily(session)
        else:
            session.sends = True
            self.soon(session)

    def progressed(self, session: Session) -> None:
        """Only acknowledgements have changed."""
        session.progress_dirty = True
        if not session.in_heartbeat:
            session.in_heartbeat = True
            self._homes[session.home].progressed.add(session, self._state.now_ms + self._state.options.heartbeat_ms)

    # ---------------------------------------------------------------- a turn
    def turn(self) -> None:
        for home in self._homes.values():
            self._gather(home)
            if home.dirty and home.token and not home.under_way:
                self._send(home)

    def _gather(self, home: Home) -> None:
        """Who has waited long enough."""
        for session in home.progressed.due(self._state.now_ms):
            session.in_heartbeat = False
            if session.progress_dirty and not session.dropped:
                self.soon(session)
        lazy = home.lazy.due(self._state.now_ms)
        if lazy:
            over = max(len(lazy) - LAZY_SESSIONS_AT_ONCE, 0)
            home.lazy_ms = min(over * 1_000 // LAZY_SESSIONS_PER_S, self._state.options.heartbeat_ms)
        for session in lazy:
            session.in_lazy = False
            if not session.dropped:
                self.soon(session)

    @property
    def next_ms(self) -> int | None:
        due_ms: int | None = None
        for home in self._homes.values():
            due_ms = earlier(earlier(due_ms, home.lazy.due_ms), home.progressed.due_ms)
        return due_ms

    def _send(self, home: Home) -> None:
        sessions: list[Session] = []
        entries: list[Entry] = []
        waiting = list(home.dirty)
        for session in waiting:
            if len(entries) == self._state.options.commit_sessions_max:
                break
            del home.dirty[session]
            if session.dropped or not session.has_changes:
                continue
            sessions.append(session)
            entries.append(self._entry(session, home.token))
            session.committing = True
        if entries:
            home.under_way = True
            self._state.counters.commits += len(entries)
            self._state.ask(home.shard, entries, lambda replies: self._answered(home, sessions, replies))

    def _entry(self, session: Session, token: int) -> Commit:
        puts: list[tuple[bytes, bytes, bytes]] = []
        deletes: list[tuple[bytes, bytes]] = []
        for (family, suffix), value in session.rows.items():
            if value is None:
                deletes.append((family, suffix))
            else:
                puts.append((family, suffix, value))
        session.rows.clear()
        for cursor in session.places:
            place = self._place_of(cursor)
            cursor.saved = place.cut
            puts.append((PLACE, place_key(cursor.sub.sub_id, cursor.shard), pack_place(place)))
        session.places.clear()
        for range in session.ranges.take_fresh():
            puts.append((RANGE, u64(range.number), range.row()))
        for number in session.ranges.take_dead():
            deletes.append((RANGE, u64(number)))
        puts.append((PROGRESS, b"", self._progress(session)))
        session.progress_dirty = False
        letters, session.letters = session.letters, ()
        return Commit(token, session.client, session.session_id, session.conn, puts, deletes, letters)

    def _progress(self, session: Session) -> bytes:
        one, two = session.one, session.two
        session.said_online = session.attached and session.sends
        # What is assigned may be sent before the next commit.  After a crash all of it is sent with DUP, which means that it
        # may have come before; without DUP would mean that it has not [MQTT-3.3.1-1].
        sent1, sent2 = (one.next - 1, two.next - 1) if session.attached else (one.sent, two.sent)
        return pack_progress(
            ProgressRow(
                session.ranges.next_number,
                one.committed,
                one.next,
                sent1,
                two.committed,
                two.next,
                sent2,
                [-number if two.is_finished(number) else number for number in session.received],
                session.losses,
                session.untold,
                _again(session) if session.again else (),
                session.said_online,
            )
        )

    # ---------------------------------------------------------------- answers
    def _answered(self, home: Home, sessions: list[Session], replies: list[Reply]) -> None:
        home.under_way = False
        for session, reply in zip(sessions, replies, strict=True):
            assert isinstance(reply, CommitDone)
            session.committing = False
            if reply.code == TAKEN:
                released = session.committed()
                if not session.dropped:
                    self._taken(session, released)
            elif session.dropped:
                continue
            elif reply.code == OLD_TOKEN:
                self.listener.replaced(home)
            else:
                self._state.counters.commits_refused += 1
                self.listener.refused(session, reply.code)

    def _taken(self, session: Session, released: list[int]) -> None:
        if session.attached:
            if released:
                self._state.outputs[session.link].pubrel(session.conn, released)
            self._state.stir(session)
        self.listener.settled(session)


def _again(session: Session) -> list[int]:
    """Of deliveries that are still open."""
    open_ones = {1: session.one, 2: session.two}
    session.again = {qos: counted for qos, counted in session.again.items() if not open_ones[qos].is_finished(counted[0])}
    return [value for qos, counted in session.again.items() for value in (qos, *counted)]
