"""Homes of clients: connection numbers, sessions, incoming QoS 2 ids, wills and their ends.

Everything a connection causes is checked here before it has an effect: its number must be the newest of its client
(PROTOCOLS 5).  Rows are written through the draft; RAM holds only clients that are connected.  What a session actor keeps
in its rows is opaque here; when a session ends, shards.ending erases it.

    connected -> (connection ended) away -> resumed: connected | due, clean start, or expiry 0: ended
    the row of a connection without a session goes 10 min after the connection

Holds after every call (see check):
1. a client in `live` has a connection row with the same number and no end;
2. every live connection is listed under exactly the gateway incarnation that holds it;
3. a session row has a due age only while its client is not connected, and then it has a timer;
4. the timers of a client that is not connected are those its rows imply: expiry, will, end of the connection row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from access.identity import Identity
from mqtt.topics import is_shared
from shards.contention import Contention
from shards.draft import Draft
from shards.ending import Ending, Work
from shards.engine import HOME_FAMILY, Engine
from shards.events import Adopted, Contended, Notice, Peace
from shards.frames import DESTROYED, LOST, NORMAL, Connect, Connected, Will
from shards.ids import EXPIRY_NEVER, conn_no
from shards.ownership import NOT_YOURS, adopted, may_have
from shards.row_count import RowCount
from shards.rows import (
    CONNECTION,
    META,
    SESSION,
    ConnectionRow,
    SessionRow,
    client_key,
    pack_connection,
    pack_row,
    pack_session,
    split_client_key,
    successor,
    unpack_as,
    unpack_row,
)  # fmt: skip
from shards.timers import CONNECTION_END, EXPIRY, WILL, Timer, Timers

EPHEMERAL_ROW_KEPT_MS = 600_000
NO_OWNER = -1
"""In place of a token while no session actor has one: the session is lost, like those of former owners."""
ROWS_AT_ONCE = 500
"""A session ends whole, in the record that ends it, when it has no more rows than this."""
BUSY = Connected(0, False, 0)
_WITH_REASONS = 5
_CONN_COUNTER = META + b"conn"
_ROWS_OF_GROUP = 100_000
"""More than a group can have: what is under way in it is bounded."""


@dataclass(slots=True)
class Client:
    """A connected client."""

    conn: int
    gateway: str
    session_id: int
    will: Will | None
    incoming: dict[int, int] | None = None
    """Kept by shards.incoming."""
    committed_conn: int = 0
    """The newest connection for which the session's owner has committed."""
    protocol: int = 4
    """After a restart that of an ephemeral one is not known: then it is taken for one of 3.1.1."""
    identity: bytes = b""
    user: bytes = b""
    peer: str = ""
    """From where it came; after a restart it is not known."""


class FiredWill(NamedTuple):
    """A message that enters now: a will, one that was delayed (shards.delayed), or a dead letter.  identity: whose it is, as
    access.identity packs it; None: nobody's who could be asked whether he may.  kept: it is stored whether somebody wants it or not."""

    client: bytes
    will: Will
    identity: bytes | None
    delayed: bool = False
    kept: bool = False


@dataclass(slots=True)
class Outcome:
    """What a change of homes causes outside of its rows, once its record is committed."""

    wills: list[FiredWill] = field(default_factory=list)
    superseded: dict[str, list[tuple[bytes, int]]] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)


class Homes:
    def __init__(self, engine: Engine, shard: int, timers: Timers, takeovers_max: int = 0) -> None:
        self._shard = shard
        self._timers = timers
        self.contention = Contention(takeovers_max)
        self._notices: list[Notice] = []
        self.live: dict[bytes, Client] = {}
        self.by_gateway: dict[str, dict[bytes, None]] = {}
        self.lost: dict[str, int] = {}
        """Gateway incarnations that are gone, with the age at which they were last heard; until none of their clients is left."""
        self.moved: dict[bytes, None] = {}
        """Clients that came or went; whoever wants to know clears it (shards.deliveries)."""
        self.session_ended: Callable[[Draft, bytes], None] = _nothing
        """Called in the record that ends a session, behind everything that it changes of the session itself."""
        self.suspended = False
        """Nothing expires (TickEnded.age_suspended)."""
        self.ending = Ending(engine)
        self._sessions = RowCount(engine, SESSION, b"sessions")
        self._attended = 0
        """Sessions whose client is connected."""
        self.sessions_expired = 0
        self.sessions_ended = 0
        counter = engine.get(HOME_FAMILY, _CONN_COUNTER)
        self._counter = unpack_row(counter)[0] if counter else 0
        self._load(engine)

    def _load(self, engine: Engine) -> None:
        start, end = CONNECTION, successor(CONNECTION)
        while rows := engine.scan(HOME_FAMILY, start, end, 2000):
            for key, value in rows:
                row = unpack_as(ConnectionRow, value)
                if row.ended_ms == 0:
                    client, _ = split_client_key(key)
                    session = engine.get(HOME_FAMILY, client_key(SESSION, client))
                    found = unpack_as(SessionRow, session) if session else None
                    session_id, protocol = (found.session_id, found.protocol) if found else (0, 4)
                    will = Will(*row.will) if row.will else None
                    user = Identity.unpack(row.identity).user.encode()
                    self._hold(client, Client(row.conn, row.gateway, session_id, will, protocol=protocol, identity=row.identity, user=user))
            start = rows[-1][0] + b"\x00"

    # ------------------------------------------------------------------ questions

    def newest_conn(self, draft: Draft, client: bytes) -> int:
        """The newest connection number of a client; 0 when there is no row."""
        live = self.live.get(client)
        if live is not None:
            return live.conn
        row = self.connection(draft, client)
        return row.conn if row else 0

    def may_commit(self, client: bytes, conn: int) -> bool:
        """Whether the owner's commit for this connection does not come after one for a newer connection."""
        live = self.live.get(client)
        if live is None:
            return True
        if conn < live.committed_conn or conn > live.conn:
            return False
        live.committed_conn = conn
        return True

    def connection(self, draft: Draft, client: bytes) -> ConnectionRow | None:
        value = draft.get(client_key(CONNECTION, client))
        return unpack_as(ConnectionRow, value) if value else None

    def session(self, draft: Draft, client: bytes) -> SessionRow | None:
        value = draft.get(client_key(SESSION, client))
        return unpack_as(SessionRow, value) if value else None

    @property
    def away(self) -> int:
        """Sessions whose client is not connected."""
        return self._sessions.count - self._attended

    # ------------------------------------------------------------------ changes

    def connect(self, draft: Draft, entry: Connect, gateway: str, age_ms: int, out: Outcome, token: int = 0) -> Connected:
        """Take the next number, fence the older connection, make or resume or end the session [MQTT-3.1.4-3].

        BUSY: rows of an ended session are still being erased; the client has no connection until the gateway asks again.  Refused, or told
        to come again later: nothing has changed but what was over anyway.
        """
        client = entry.client
        older = self.live.get(client)
        if older is not None and older.gateway in self.lost:
            # It ended when its gateway was last heard, only nobody has come to write that down.
            self._lose(draft, client, older, age_ms, out)
            older = None
        session = self.session(draft, client)
        if session is not None and self._is_due(session, age_ms):
            self.sessions_expired += 1
            self._end_session(draft, client, session, age_ms, ROWS_AT_ONCE, out)
            session = None
        answer = self._keeps_off(session, older, entry, age_ms)
        if answer is not None:
            return answer
        # What an owner had in its memory is gone with it.  A session with an expiry of 0 was resumed to end with its connection, and
        # that is over now [MQTT-3.1.4-3].
        fresh = entry.clean_start or (session is not None and (session.memory not in (0, token) or not session.expiry_s))
        resumes = session is not None and not fresh
        if session is not None and fresh:
            # Before the older connection is fenced: while it lives its will is the fence's to publish, and only once.
            self._end_session(draft, client, session, age_ms, ROWS_AT_ONCE, out)
            session = None
        if older is None and client in self.ending.clients:
            self.ending.go_on(draft, client, ROWS_AT_ONCE, out.work)
        self._fence_older(draft, client, resumes, out)
        if client in self.ending.clients:
            if older is not None:
                self._write_ended(draft, client, self._next_number(draft), age_ms, None, None)
            return BUSY
        number = self._next_number(draft)
        self._cancel_timers(draft, client, session)
        if session is not None:
            if adopted(session.user, entry):
                self._notices.append(Adopted(client, entry.user))
            session = session._replace(expiry_s=entry.expiry_s, protocol=entry.protocol, due_ms=0, user=entry.user)
        elif entry.expiry_s:
            memory = (token or NO_OWNER) if entry.memory else 0
            session = SessionRow(number, entry.expiry_s, entry.protocol, age_ms, 0, memory, entry.user)
            self._sessions.add(draft, 1)
        if session is not None:
            draft.put(client_key(SESSION, client), pack_session(session))
        will = Will(*entry.will) if entry.will else None
        session_id = session.session_id if session else 0
        self._write(draft, client, ConnectionRow(number, gateway, 0, session_id == 0, list(will) if will else None, entry.identity))
        state = Client(number, gateway, session_id, will, None, 0, entry.protocol, entry.identity, entry.user, entry.peer)
        self._hold(client, state)
        return Connected(number, resumes, session_id, session.memory if session else 0)

    def disconnect(self, draft: Draft, client: bytes, conn: int, how: int, expiry_s: int | None, age_ms: int, out: Outcome) -> bool:
        """The connection is over; False when it is not the newest (then nothing happens)."""
        if how == DESTROYED:
            return self._destroy(draft, client, conn, age_ms, out)
        state = self.live.get(client)
        if state is None or state.conn != conn:
            return False
        self._end_connection(draft, client, state, conn, how, expiry_s, age_ms, age_ms, out)
        return True

    def refused(self, draft: Draft, client: bytes, conn: int, age_ms: int, out: Outcome) -> None:
        """A message of this connection was refused.  3.1.1 has no word for that: its gateway closes the connection, and the
        client sends everything again.  So the connection is over for us at once: nothing that it has sent behind the refused
        message is taken before it, which would turn their order round."""
        state = self.live.get(client)
        if state is not None and state.protocol < _WITH_REASONS:
            self.disconnect(draft, client, conn, LOST, None, age_ms, out)

    def lose_gateways(self, draft: Draft, age_ms: int, limit: int, out: Outcome) -> None:
        """Gateway incarnations are lost: end their connections under a new number each, so that a late wake-up is refused,
        as of the age at which they were last heard.  At most `limit` per record."""
        for gateway in list(self.lost):
            held = self.by_gateway.get(gateway, {})
            clients = list(islice(held, limit))
            for client in clients:
                self._lose(draft, client, self.live[client], age_ms, out)
            limit -= len(clients)
            if gateway not in self.by_gateway:
                del self.lost[gateway]

    def fire(self, draft: Draft, timer: Timer, age_ms: int, rows_max: int, out: Outcome) -> None:
        """A timer is due.  Stale ones (their client came back) do nothing."""
        client = timer.client
        session = self.session(draft, client)
        if timer.kind == EXPIRY:
            if session is not None and session.due_ms == timer.due_ms:
                self.sessions_expired += 1
                self._end_session(draft, client, session, age_ms, rows_max, out)
        elif client not in self.live:
            row = self.connection(draft, client)
            if row is None:
                return
            if timer.kind == WILL and row.will:
                out.wills.append(FiredWill(client, Will(*row.will), row.identity))
                self._write(draft, client, row._replace(will=None, identity=b""))
            elif timer.kind == CONNECTION_END and row.ended_ms + EPHEMERAL_ROW_KEPT_MS <= age_ms and session is None:
                draft.delete(client_key(CONNECTION, client))

    def timers_of(self, row: ConnectionRow | None, session: SessionRow | None) -> list[tuple[int, bytes]]:
        """(due age, kind) of the timers that the rows of a client imply that is not connected."""
        found: list[tuple[int, bytes]] = []
        if session is not None and session.due_ms:
            found.append((session.due_ms, EXPIRY))
        if row is not None and session is None:
            found.append((row.ended_ms + EPHEMERAL_ROW_KEPT_MS, CONNECTION_END))
        elif row is not None and row.will and session is not None:
            found.append((row.ended_ms + min(Will(*row.will).delay_s, session.expiry_s) * 1000, WILL))
        return found

    def begin_group(self, draft: Draft, filter: bytes, age_ms: int, out: Outcome) -> int:
        """A session that has no client, for a shared group; its id.  What is left of a former one goes first."""
        if filter in self.ending.clients:
            self.ending.go_on(draft, filter, _ROWS_OF_GROUP, out.work)
        number = self._next_number(draft)
        draft.put(client_key(SESSION, filter), pack_session(SessionRow(number, EXPIRY_NEVER, _WITH_REASONS, age_ms, 0)))
        self._sessions.add(draft, 1)
        return number

    def end_group(self, draft: Draft, filter: bytes, age_ms: int, out: Outcome) -> None:
        session = self.session(draft, filter)
        if session is not None:
            self._end_session(draft, filter, session, age_ms, ROWS_AT_ONCE, out)

    def note(self, notice: Notice) -> None:
        self._notices.append(notice)

    def take_notices(self, age_ms: int) -> list[Notice]:
        """What people should know, since it was last asked."""
        notices, self._notices = self._notices, []
        return [*notices, Peace()] if self.contention.forget(age_ms) else notices

    # ------------------------------------------------------------------ parts

    def _is_due(self, session: SessionRow, age_ms: int) -> bool:
        return bool(session.due_ms) and session.due_ms <= age_ms and not self.suspended

    def _keeps_off(self, session: SessionRow | None, older: Client | None, entry: Connect, age_ms: int) -> Connected | None:
        """The answer to somebody who does not get the client now: it is another's, or others take it from one another."""
        if (session is not None and not may_have(session.user, entry)) or (older is not None and not may_have(older.user, entry)):
            return Connected(0, False, 0, refused=NOT_YOURS)
        if older is None:
            return None
        wait_ms, begins = self.contention.takes(entry.client, age_ms)
        if begins:
            self._notices.append(Contended(entry.client, (older.user, older.peer), (entry.user, entry.peer), wait_ms))
        return Connected(0, False, 0, retry_ms=wait_ms) if wait_ms else None

    def _lose(self, draft: Draft, client: bytes, state: Client, age_ms: int, out: Outcome) -> None:
        heard_ms = min(self.lost[state.gateway], age_ms)
        # It may only have stood still, with its link in order: then nothing else would tell it.
        out.superseded.setdefault(state.gateway, []).append((client, state.conn))
        self._end_connection(draft, client, state, self._next_number(draft), LOST, None, heard_ms, age_ms, out)

    def _end_connection(
        self, draft: Draft, client: bytes, state: Client, number: int, how: int, expiry_s: int | None, ended_ms: int, age_ms: int,
        out: Outcome,
    ) -> None:  # fmt: skip
        """ended_ms: when it ended, which may be before now."""
        ended_ms = max(ended_ms, 1)
        session = self.session(draft, client)
        if session is not None:
            expiry = session.expiry_s if expiry_s is None else expiry_s
            if expiry == 0:
                # The client is in `live` still, so its will is published below, and only once.
                self._end_session(draft, client, session, age_ms, ROWS_AT_ONCE, out)
                session = None
            else:
                due_ms = 0 if expiry == EXPIRY_NEVER else ended_ms + expiry * 1000
                session = session._replace(expiry_s=expiry, due_ms=due_ms)
                draft.put(client_key(SESSION, client), pack_session(session))
        will = None if how == NORMAL else state.will
        if will is not None and (not will.delay_s or session is None):
            out.wills.append(FiredWill(client, will, state.identity))
            will = None
        self._write_ended(draft, client, number, ended_ms, session, will, state.identity)
        self._drop(client)

    def _write_ended(
        self, draft: Draft, client: bytes, number: int, ended_ms: int, session: SessionRow | None, will: Will | None,
        identity: bytes = b"",
    ) -> None:  # fmt: skip
        """The connection row of a client that is not connected, and the timers it is to have."""
        row = ConnectionRow(number, "", max(ended_ms, 1), session is None, list(will) if will else None, identity if will else b"")
        self._write(draft, client, row)
        for due_ms, kind in self.timers_of(row, session):
            self._timers.set(draft, due_ms, kind, client)

    def _cancel_timers(self, draft: Draft, client: bytes, session: SessionRow | None) -> None:
        """The client comes back: whatever was to happen while it was away does not."""
        row = self.connection(draft, client)
        if row is not None and row.ended_ms:
            for due_ms, kind in self.timers_of(row, session):
                self._timers.cancel(draft, due_ms, kind, client)

    def _fence_older(self, draft: Draft, client: bytes, resumes: bool, out: Outcome) -> None:
        """The will of an older connection: published when it is closed by this one, or when its session ends with it;
        a delayed one is cancelled by a client that resumes its session [MQTT-3.1.3-9]."""
        older = self.live.get(client)
        if older is not None:
            out.superseded.setdefault(older.gateway, []).append((client, older.conn))
            if older.will is not None and (not older.will.delay_s or not resumes):
                out.wills.append(FiredWill(client, older.will, older.identity))
            self._drop(client)

    def _end_session(self, draft: Draft, client: bytes, session: SessionRow, age_ms: int, rows_max: int, out: Outcome) -> None:
        """From this record on there is no session.  A will that still waits is published now, and the row of the connection
        goes with the session, or later, when it is not old enough."""
        self.sessions_ended += 1
        draft.delete(client_key(SESSION, client))
        self._sessions.add(draft, -1)
        self.ending.begin(draft, client, rows_max, out.work)
        self.session_ended(draft, client)
        if client in self.live:
            return
        row = self.connection(draft, client)
        for due_ms, kind in self.timers_of(row, session):
            self._timers.cancel(draft, due_ms, kind, client)
        if row is None:
            return
        if row.will:
            out.wills.append(FiredWill(client, Will(*row.will), row.identity))
        if row.ended_ms + EPHEMERAL_ROW_KEPT_MS <= age_ms:
            draft.delete(client_key(CONNECTION, client))
        else:
            self._write_ended(draft, client, row.conn, row.ended_ms, None, None)

    def _destroy(self, draft: Draft, client: bytes, session_id: int, age_ms: int, out: Outcome) -> bool:
        """End this session, and the connection that has it, by hand; False when it is not there any more, or that of a group, which ends
        with its last member."""
        session = self.session(draft, client)
        if session is None or session.session_id != session_id or is_shared(client):
            return False
        state = self.live.get(client)
        if state is None:
            self._end_session(draft, client, session, age_ms, ROWS_AT_ONCE, out)
        else:
            out.superseded.setdefault(state.gateway, []).append((client, state.conn))
            self._end_connection(draft, client, state, self._next_number(draft), LOST, 0, age_ms, age_ms, out)
        return True

    def _next_number(self, draft: Draft) -> int:
        self._counter += 1
        draft.put(_CONN_COUNTER, pack_row((self._counter,)))
        return conn_no(self._counter, self._shard)

    def _write(self, draft: Draft, client: bytes, row: ConnectionRow) -> None:
        draft.put(client_key(CONNECTION, client), pack_connection(row))

    def _hold(self, client: bytes, state: Client) -> None:
        self.live[client] = state
        self.moved[client] = None
        self._attended += bool(state.session_id)
        self.by_gateway.setdefault(state.gateway, {})[client] = None

    def _drop(self, client: bytes) -> None:
        state = self.live.pop(client)
        self.moved[client] = None
        self._attended -= bool(state.session_id)
        held = self.by_gateway[state.gateway]
        del held[client]
        if not held:
            del self.by_gateway[state.gateway]

    def check(self) -> None:
        self.contention.check()
        listed = [client for held in self.by_gateway.values() for client in held]
        assert sorted(listed) == sorted(self.live)
        assert all(client in self.by_gateway[state.gateway] for client, state in self.live.items())


def _nothing(draft: Draft, client: bytes) -> None:
    pass
