"""Homes of clients: connection numbers, sessions, incoming QoS 2 ids, wills and their ends.

Everything a connection causes is checked here before it has an effect: its number must be the newest of its client
(PROTOCOLS 5).  Rows are written through the draft; RAM holds only clients that are connected.  What a session actor keeps
in its rows is opaque here, except the subscriptions: when a session ends, their routes become work rows.

Holds after every call (see check):
1. a client in `live` has a connection row with the same number and no end;
2. every live connection is listed under exactly the gateway incarnation that holds it;
3. a session row has a due age only while its client is not connected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from shards.draft import Draft
from shards.engine import HOME_FAMILY, Engine
from shards.frames import LOST, NORMAL, Connect, Connected, Will
from shards.ids import EXPIRY_NEVER, conn_no
from shards.rows import (
    CONNECTION,
    INCOMING,
    META,
    PLACE,
    PROGRESS,
    RANGE,
    SESSION,
    SUBSCRIPTION,
    WORK,
    ConnectionRow,
    SessionRow,
    client_key,
    pack_row,
    read_u64,
    split_client_key,
    successor,
    unpack_row,
)  # fmt: skip
from shards.timers import CONNECTION_END, EXPIRY, WILL, Timer, Timers

EPHEMERAL_ROW_KEPT_MS = 600_000
_WITH_REASONS = 5
_CONN_COUNTER = META + b"conn"
_ROWS_OF_SESSION = (SUBSCRIPTION, PLACE, RANGE, PROGRESS, INCOMING)


@dataclass(slots=True)
class Client:
    """A connected client."""

    conn: int
    gateway: str
    session_id: int
    will: Will | None
    incoming: dict[int, None] | None = None
    committed_conn: int = 0
    """The newest connection for which the session's owner has committed."""
    protocol: int = 4
    """After a restart that of an ephemeral one is not known: then it is taken for one of 3.1.1."""


class FiredWill(NamedTuple):
    client: bytes
    will: Will


@dataclass(slots=True)
class Outcome:
    """What a change of homes causes outside of its rows, once its record is committed."""

    wills: list[FiredWill] = field(default_factory=list)
    superseded: list[tuple[str, bytes, int]] = field(default_factory=list)
    work: list[tuple[bytes, int, bytes]] = field(default_factory=list)


class Homes:
    def __init__(self, engine: Engine, shard: int, timers: Timers) -> None:
        self._shard = shard
        self._timers = timers
        self.live: dict[bytes, Client] = {}
        self.by_gateway: dict[str, dict[bytes, None]] = {}
        counter = engine.get(HOME_FAMILY, _CONN_COUNTER)
        self._counter = unpack_row(counter)[0] if counter else 0
        self._load(engine)

    def _load(self, engine: Engine) -> None:
        start, end = CONNECTION, successor(CONNECTION)
        while rows := engine.scan(HOME_FAMILY, start, end, 2000):
            for key, value in rows:
                row = ConnectionRow(*unpack_row(value))
                if row.ended_ms == 0:
                    client, _ = split_client_key(key)
                    session = engine.get(HOME_FAMILY, client_key(SESSION, client))
                    found = SessionRow(*unpack_row(session)) if session else None
                    session_id, protocol = (found.session_id, found.protocol) if found else (0, 4)
                    will = Will(*row.will) if row.will else None
                    self._hold(client, Client(row.conn, row.gateway, session_id, will, protocol=protocol))
            start = rows[-1][0] + b"\x00"

    # ------------------------------------------------------------------ questions

    def newest_conn(self, draft: Draft, client: bytes) -> int:
        """The newest connection number of a client; 0 when there is no row."""
        live = self.live.get(client)
        if live is not None:
            return live.conn
        value = draft.get(client_key(CONNECTION, client))
        return ConnectionRow(*unpack_row(value)).conn if value else 0

    def may_commit(self, client: bytes, conn: int) -> bool:
        """Whether the owner's commit for this connection does not come after one for a newer connection."""
        live = self.live.get(client)
        if live is None:
            return True
        if conn < live.committed_conn or conn > live.conn:
            return False
        live.committed_conn = conn
        return True

    def session(self, draft: Draft, client: bytes) -> SessionRow | None:
        value = draft.get(client_key(SESSION, client))
        return SessionRow(*unpack_row(value)) if value else None

    def incoming(self, draft: Draft, client: bytes, state: Client) -> dict[int, None]:
        """QoS 2 ids received and not released; loaded once per connection."""
        if state.incoming is None:
            rows = draft.scan(client_key(INCOMING, client), 65_536)
            state.incoming = {int.from_bytes(key[-2:], "big"): None for key, _ in rows}
        return state.incoming

    # ------------------------------------------------------------------ changes

    def connect(self, draft: Draft, entry: Connect, gateway: str, age_ms: int, out: Outcome) -> Connected:
        """Take the next number, fence the older connection, make or resume or end the session [MQTT-3.1.4-3]."""
        client = entry.client
        session = self.session(draft, client)
        if session is not None and session.due_ms and session.due_ms <= age_ms:
            self._end_session(draft, client, session, out)
            session = None
        # A session with an expiry of 0 was resumed to end with its connection, and that is over now [MQTT-3.1.4-3].
        fresh = entry.clean_start or (session is not None and not session.expiry_s)
        resumes = session is not None and not fresh
        if session is not None and fresh:
            # Before the older connection is fenced: while it lives its will is the fence's to publish, and only once.
            self._end_session(draft, client, session, out)
            session = None
        self._fence_older(draft, client, resumes, out)
        number = self._next_number(draft)
        if session is not None:
            if session.due_ms:
                self._timers.cancel(draft, session.due_ms, EXPIRY, client)
            session = session._replace(expiry_s=entry.expiry_s, protocol=entry.protocol, due_ms=0)
        elif entry.expiry_s:
            session = SessionRow(number, entry.expiry_s, entry.protocol, age_ms, 0)
        if session is not None:
            draft.put(client_key(SESSION, client), pack_row(session))
        will = Will(*entry.will) if entry.will else None
        session_id = session.session_id if session else 0
        self._write(draft, client, ConnectionRow(number, gateway, 0, session_id == 0, list(will) if will else None))
        self._hold(client, Client(number, gateway, session_id, will, protocol=entry.protocol))
        return Connected(number, resumes, session_id)

    def disconnect(self, draft: Draft, client: bytes, conn: int, how: int, expiry_s: int | None, age_ms: int, out: Outcome) -> bool:
        """The connection is over; False when it is not the newest (then nothing happens)."""
        state = self.live.get(client)
        if state is None or state.conn != conn:
            return False
        self._end_connection(draft, client, state, conn, how, expiry_s, age_ms, out)
        return True

    def refused(self, draft: Draft, client: bytes, conn: int, age_ms: int, out: Outcome) -> None:
        """A message of this connection was refused.  3.1.1 has no word for that: its gateway closes the connection, and the
        client sends everything again.  So the connection is over for us at once: nothing that it has sent behind the refused
        message is taken before it, which would turn their order round."""
        state = self.live.get(client)
        if state is not None and state.protocol < _WITH_REASONS:
            self.disconnect(draft, client, conn, LOST, None, age_ms, out)

    def lose_gateway(self, draft: Draft, gateway: str, age_ms: int, limit: int, out: Outcome) -> int:
        """A gateway incarnation is lost: end its connections under a new number each, so that a late wake-up is refused.

        At most `limit` per record; returns how many are left.
        """
        held = self.by_gateway.get(gateway, {})
        for client in list(held)[:limit]:
            self._end_connection(draft, client, self.live[client], self._next_number(draft), LOST, None, age_ms, out)
        return len(held)

    def fire(self, draft: Draft, timer: Timer, age_ms: int, out: Outcome) -> None:
        """A timer is due.  Stale ones (their client came back) do nothing."""
        client = timer.client
        if timer.kind == EXPIRY:
            session = self.session(draft, client)
            if session is not None and session.due_ms == timer.due_ms:
                self._end_session(draft, client, session, out)
        elif client not in self.live:
            value = draft.get(client_key(CONNECTION, client))
            row = ConnectionRow(*unpack_row(value)) if value else None
            if row is None:
                return
            if timer.kind == WILL and row.will:
                out.wills.append(FiredWill(client, Will(*row.will)))
                self._write(draft, client, row._replace(will=None))
            elif timer.kind == CONNECTION_END and row.ended_ms + EPHEMERAL_ROW_KEPT_MS <= age_ms and self.session(draft, client) is None:
                draft.delete(client_key(CONNECTION, client))

    # ------------------------------------------------------------------ parts

    def _end_connection(
        self, draft: Draft, client: bytes, state: Client, number: int, how: int, expiry_s: int | None, age_ms: int, out: Outcome
    ) -> None:
        session = self.session(draft, client)
        expiry = 0
        if session is not None:
            expiry = session.expiry_s if expiry_s is None else expiry_s
            if expiry == 0:
                self._end_session(draft, client, session, out)
                session = None
            else:
                due_ms = 0 if expiry == EXPIRY_NEVER else age_ms + expiry * 1000
                draft.put(client_key(SESSION, client), pack_row(session._replace(expiry_s=expiry, due_ms=due_ms)))
                if due_ms:
                    self._timers.set(draft, due_ms, EXPIRY, client)
        will = None if how == NORMAL else state.will
        if will is not None and (not will.delay_s or session is None):
            out.wills.append(FiredWill(client, will))
            will = None
        if will is not None:
            self._timers.set(draft, age_ms + min(will.delay_s, expiry) * 1000, WILL, client)
        self._write(draft, client, ConnectionRow(number, "", max(age_ms, 1), session is None, list(will) if will else None))
        if session is None:
            self._timers.set(draft, age_ms + EPHEMERAL_ROW_KEPT_MS, CONNECTION_END, client)
        self._drop(client)

    def _fence_older(self, draft: Draft, client: bytes, resumes: bool, out: Outcome) -> None:
        """The will of an older connection: published when it is closed by this one, or when its session ends with it;
        a delayed one is cancelled by a client that resumes its session [MQTT-3.1.3-9]."""
        older = self.live.get(client)
        if older is not None:
            out.superseded.append((older.gateway, client, older.conn))
            if older.will is not None and (not older.will.delay_s or not resumes):
                out.wills.append(FiredWill(client, older.will))
            self._drop(client)
            return
        value = draft.get(client_key(CONNECTION, client))
        row = ConnectionRow(*unpack_row(value)) if value else None
        if row is not None and row.will and not resumes:
            out.wills.append(FiredWill(client, Will(*row.will)))
            self._write(draft, client, row._replace(will=None))

    def _end_session(self, draft: Draft, client: bytes, session: SessionRow, out: Outcome) -> None:
        """Erase a session; routes of its subscriptions become work.  A will that still waits is published now."""
        if session.due_ms:
            self._timers.cancel(draft, session.due_ms, EXPIRY, client)
        for key, value in draft.scan(client_key(SUBSCRIPTION, client), 1_000_000):
            _, suffix = split_client_key(key)
            topic_filter, qos = unpack_row(value)[:2]
            if qos:
                draft.put(client_key(WORK, client, suffix), pack_row((topic_filter,)))
                out.work.append((client, read_u64(suffix), topic_filter))
        for family in _ROWS_OF_SESSION:
            for key, _ in draft.scan(client_key(family, client), 1_000_000):
                draft.delete(key)
        draft.delete(client_key(SESSION, client))
        if client not in self.live:
            last = draft.get(client_key(CONNECTION, client))
            row = ConnectionRow(*unpack_row(last)) if last else None
            if row is not None and row.will:
                out.wills.append(FiredWill(client, Will(*row.will)))
                self._write(draft, client, row._replace(will=None))

    def _next_number(self, draft: Draft) -> int:
        self._counter += 1
        draft.put(_CONN_COUNTER, pack_row((self._counter,)))
        return conn_no(self._counter, self._shard)

    def _write(self, draft: Draft, client: bytes, row: ConnectionRow) -> None:
        draft.put(client_key(CONNECTION, client), pack_row(row))

    def _hold(self, client: bytes, state: Client) -> None:
        self.live[client] = state
        self.by_gateway.setdefault(state.gateway, {})[client] = None

    def _drop(self, client: bytes) -> None:
        state = self.live.pop(client)
        held = self.by_gateway[state.gateway]
        del held[client]
        if not held:
            del self.by_gateway[state.gateway]

    def check(self) -> None:
        listed = [client for held in self.by_gateway.values() for client in held]
        assert sorted(listed) == sorted(self.live)
        assert all(client in self.by_gateway[state.gateway] for client, state in self.live.items())
