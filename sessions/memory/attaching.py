"""Connections of sessions in memory come and go; sessions begin and end.

    Attach -> wait for the owner token -> begin, or resume (closing an older connection) -> Attached
    Detach -> away -> resumed, or forgotten when its expiry is over

The home decides: it counts the expiry, and its session id says which session a connection belongs to.  A session with another
id that is here has ended there.  What the home does not know is whether this memory has what it names: the session bears the
token under which it was made, and is refused under an older one than ours, or when it should be here and is not.  Then the home
is to end it (Attached.known), so that the client's next try begins anew, and nothing that it sends is taken for a repeat.  A
newer token than ours says that another process has it, and that we are not the owner.

The home's clock is the one that counts.  Ours starts when we hear of the end of the connection, which is not before the home's
does, and a little is added, so that a session is not forgotten here while it is known there.

Holds: a client has at most one session here, and at most one connection that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from mqtt.reason import ReasonCode
from sessions.committing import Home
from sessions.frames import Attach, Attached, SessionClosed
from sessions.memory.links import GatewayLinks
from sessions.memory.message import Message
from sessions.memory.retained import MemoryRetained
from sessions.memory.session import Held, MemorySession
from sessions.memory.table import MemoryTable
from sessions.state import State
from shards.ids import EXPIRY_NEVER

_STALE_MAX = 64


class Owner(NamedTuple):
    """What sessions.attaching does for the homes that this actor serves."""

    own: Callable[[Home], None]
    replaced: Callable[[Home], None]


class MemoryAttaching:
    def __init__(
        self, state: State, homes: dict[int, Home], owner: Owner, table: MemoryTable, links: GatewayLinks, retained: MemoryRetained
    ) -> None:
        self._state = state
        self._homes = homes
        self._owner = owner
        self._table = table
        self._links = links
        self._retained = retained
        self.held = Held(state.options.memory_bytes_max)
        self.sessions: dict[bytes, MemorySession] = {}
        self.by_conn: dict[int, MemorySession] = {}
        self.orphans: list[tuple[bytes, Message]] = []
        """What ended sessions had for their groups."""
        self.waiting: dict[bytes, tuple[int, Attach, Home]] = {}
        self._left: list[MemorySession] = []
        """Detached since the last turn, which alone tells the time."""
        self._deadlines: list[tuple[int, int, MemorySession]] = []
        self._deadlines_made = 0

    # ---------------------------------------------------------------- attaching
    def attach(self, link: int, frame: Attach) -> None:
        home = self._homes.get(self._state.slots.shard_of(frame.client))
        if home is None:
            self._refuse(link, frame)
            return
        older = self.waiting.pop(frame.client, None)
        if older is not None and older[1].conn > frame.conn:
            self.waiting[frame.client] = older
            self._refuse(link, frame)
            return
        if older is not None and older[1].conn < frame.conn:
            self._refuse(older[0], older[1])
        if not home.token:
            self.waiting[frame.client] = (link, frame, home)
            self._owner.own(home)
            return
        if frame.memory > home.token:
            # Another process owns the home, and has the session perhaps.  This one has the client, so it takes over; then
            # the token says that the session is gone, if the client comes here again.
            self._owner.replaced(home)
            self._owner.own(home)
            self._refuse(link, frame)
            return
        if frame.memory < home.token:
            self._refuse(link, frame, known=False)
            return
        self._attach(link, frame, home)

    def _attach(self, link: int, frame: Attach, home: Home) -> None:
        state = self._state
        session = self.sessions.get(frame.client)
        if session is not None and frame.conn < session.conn:
            self._refuse(link, frame)
            return
        if session is not None and session.session_id != frame.session_id:
            self._close(session, ReasonCode.SESSION_TAKEN_OVER)
            self.end(session)
            session = None
        if session is None:
            if frame.present:
                self._refuse(link, frame, known=False)
                return
            options = state.options
            session = MemorySession(
                frame.client, frame.session_id, home.shard, options.queue_count_max, options.queue_bytes_max, self.held, state.counters
            )  # fmt: skip
            self.sessions[frame.client] = session
        elif session.attached:
            state.counters.taken_over += 1
            if session.conn == frame.conn:
                self._detach(session)  # the same connection over a new link; the old link has not been heard to break yet
            else:
                self._close(session, ReasonCode.SESSION_TAKEN_OVER)
        session.expiry_s = frame.expiry_s
        self.by_conn[frame.conn] = session
        state.counters.memory_attached += 1
        state.to_gateway(link, Attached(frame.conn, 0, []))
        session.attach(frame.conn, link, self._links.links[link], frame.receive_max, state.wall_ms)
        self._table.moved(session)
        self._retained.stir(session)

    def _refuse(self, link: int, frame: Attach, known: bool = True) -> None:
        self._state.counters.attach_refused += 1
        self._state.to_gateway(link, Attached(frame.conn, ReasonCode.SERVER_UNAVAILABLE, [], known))

    # ---------------------------------------------------------------- owner tokens
    def owner_changed(self, home: Home) -> None:
        """A token has come, or is worth nothing any more: then the sessions under it are not ours, and nobody has them."""
        if not home.token:
            for session in [session for session in self.sessions.values() if session.home == home.shard]:
                self._close(session, ReasonCode.SERVER_SHUTTING_DOWN)
                self.end(session)
            return
        for client, (link, frame, waits_for) in list(self.waiting.items()):
            if waits_for is home:
                del self.waiting[client]
                self.attach(link, frame)

    # ---------------------------------------------------------------- detaching
    def detach_conn(self, link: int, conn: int, expiry_s: int | None) -> None:
        session = self.by_conn.get(conn)
        if session is not None and session.link == link:
            if expiry_s is not None:
                session.expiry_s = expiry_s
            self._detach(session)
            return
        for client, (waits_on, frame, _) in self.waiting.items():
            if waits_on == link and frame.conn == conn:
                del self.waiting[client]
                return

    def gateway_lost(self, link: int) -> None:
        for session in [session for session in self.by_conn.values() if session.link == link]:
            self._detach(session)
        for client in [client for client, waiting in self.waiting.items() if waiting[0] == link]:
            del self.waiting[client]

    def close(self, session: MemorySession, code: ReasonCode) -> None:
        """End the connection of a session for a reason of ours."""
        self._close(session, code)

    def _close(self, session: MemorySession, code: ReasonCode) -> None:
        if session.attached:
            link, conn = session.link, session.conn
            self._detach(session)
            self._state.to_gateway(link, SessionClosed(conn, code))

    def _detach(self, session: MemorySession) -> None:
        del self.by_conn[session.conn]
        session.detach()
        self._table.moved(session)
        self._retained.detached(session)
        self._left.append(session)

    # ---------------------------------------------------------------- the end
    def end(self, session: MemorySession) -> None:
        """Forget a session whose connection is closed."""
        assert not session.attached
        del self.sessions[session.client]
        self._retained.detached(session)
        self._table.leave(session)
        self.orphans += session.close()
        self._state.counters.memory_ended += 1

    def superseded(self, client: bytes, conn: int) -> None:
        """The client has a durable session since that connection, so what it had here has ended."""
        session = self.sessions.get(client)
        if session is not None and session.conn < conn:
            self._close(session, ReasonCode.SESSION_TAKEN_OVER)
            self.end(session)

    def turn(self) -> None:
        now_ms = self._state.now_ms
        for session in self._left:
            if not session.attached and session.expiry_s != EXPIRY_NEVER:
                session.deadline_ms = now_ms + session.expiry_s * 1000 + self._state.options.forget_after_ms
                self._deadlines_made += 1
                heappush(self._deadlines, (session.deadline_ms, self._deadlines_made, session))
        self._left.clear()
        if len(self._deadlines) > 2 * len(self.sessions) + _STALE_MAX:
            # Most are of sessions that have been resumed; one that never expires has none.
            self._deadlines = [entry for entry in self._deadlines if self._stands(entry)]
            heapify(self._deadlines)
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            entry = heappop(self._deadlines)
            if self._stands(entry):
                self.end(entry[2])

    def _stands(self, entry: tuple[int, int, MemorySession]) -> bool:
        """Whether this deadline is not that of an earlier absence."""
        due_ms, _, session = entry
        return session.deadline_ms == due_ms and self.sessions.get(session.client) is session

    @property
    def next_ms(self) -> int | None:
        return self._deadlines[0][0] if self._deadlines else None

    def check(self) -> None:
        for client, session in self.sessions.items():
            assert session.client == client
            session.check()
            if session.attached:
                assert self.by_conn[session.conn] is session and session.link in self._links.links
        for conn, session in self.by_conn.items():
            assert session.conn == conn and session.attached and self.sessions[session.client] is session
        assert self.held.bytes == sum(session.held_bytes for session in self.sessions.values())
