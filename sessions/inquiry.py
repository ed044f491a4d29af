"""What a session actor tells people of the sessions that are in its memory.  Only reads, and only so much at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from sessions.inquiry_frames import (
    CLIENTS_MAX,
    ROWS_MAX,
    Ask,
    ConnectionsOf,
    ConnectionsTold,
    Kick,
    Kicked,
    LoadedSession,
    Move,
    PlacesOf,
    PlacesTold,
    SessionsOf,
    SessionsTold,
    SubscriptionsTold,
    Told,
)  # fmt: skip
from sessions.memory.session import MemorySession
from sessions.session import HEAD, Cursor, Session
from sessions.state import State
from shards.queries import Place

CURSORS_LOOKED_AT_MAX = 5_000
"""Of all sessions of one question together: one that has more is told as not counted."""
_NOT_COUNTED = -1


class Inquiry:
    def __init__(self, state: State, place_of: Callable[[Cursor], Place], in_memory: Callable[[bytes], MemorySession | None]) -> None:
        self._state = state
        self._place_of = place_of
        self._in_memory = in_memory

    def told(self, ask: Ask) -> Told:
        """A Move is for sessions.moving."""
        assert not isinstance(ask, Move)
        match ask:
            case SessionsOf(id, clients):
                return SessionsTold(id, self._sessions(clients[:CLIENTS_MAX]))
            case PlacesOf():
                return self._places(ask)
            case ConnectionsOf(id, _):
                return ConnectionsTold(id, [])
            case Kick(id, _):
                return Kicked(id, [])
            case _:
                count = min(ask.count_max, ROWS_MAX)
                rows = list(islice(self._subscriptions(ask.clients), ask.skip, ask.skip + count + 1))
                return SubscriptionsTold(ask.id, rows[:count], len(rows) <= count)

    def _sessions(self, clients: list[bytes]) -> list[LoadedSession]:
        found: list[LoadedSession] = []
        left = CURSORS_LOOKED_AT_MAX
        for client in clients:
            durable, in_memory = self._state.sessions.get(client), self._in_memory(client)
            if in_memory is not None:
                found.append(_of_memory(in_memory))
            elif durable is not None:
                cursors = sum(len(sub.cursors) for sub in durable.subs.values())
                found.append(_of_durable(durable, sum(1 for _ in _behind(durable)) if cursors <= left else _NOT_COUNTED))
                left -= min(cursors, left)
        return found

    def _places(self, ask: PlacesOf) -> PlacesTold:
        session = self._state.sessions.get(ask.client)
        if session is None or not session.attached:
            return PlacesTold(ask.id, False, [], True)
        count = min(ask.count_max, ROWS_MAX)
        cursors = list(islice(_behind(session), ask.skip, ask.skip + count + 1))
        rows = [(cursor.sub.sub_id, cursor.shard, self._place_of(cursor)) for cursor in cursors[:count]]
        return PlacesTold(ask.id, True, rows, len(cursors) <= count)

    def _subscriptions(self, clients: list[bytes]) -> Iterator[tuple[bytes, bytes, int, int, int]]:
        for client in clients:
            session = self._in_memory(client)
            if session is not None:
                for sub in session.subs.values():
                    yield client, sub.filter, sub.qos, sub.options, sub.identifier


def _behind(session: Session) -> Iterator[Cursor]:
    for sub in session.subs.values():
        for cursor in sub.cursors:
            if cursor.doing is not HEAD:
                yield cursor


def _of_durable(session: Session, behind: int) -> LoadedSession:
    assigned = sum(track.open - len(track.done) for track in (session.one, session.two))
    # What leaves at QoS 0 has no number.
    waiting = session.window.unsent
    return LoadedSession(
        session.client, session.session_id, False, session.conn if session.attached else 0, len(session.subs), behind, waiting,
        max(0, assigned - waiting), 0,
    )  # fmt: skip


def _of_memory(session: MemorySession) -> LoadedSession:
    return LoadedSession(
        session.client, session.session_id, True, session.conn if session.attached else 0, len(session.subs), 0, len(session.queue),
        len(session.inflight), session.held_bytes,
    )  # fmt: skip
