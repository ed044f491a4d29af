"""What a gateway tells people of its connections, and does for them: it disconnects a client that somebody wants gone."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from gateway.closing import Closing
from gateway.connecting import KEEP_ALIVE_GRACE
from gateway.connection import Connection, Phase
from gateway.events import ToInquirer
from gateway.live import LiveSub
from gateway.state import State
from mqtt.reason import ReasonCode
from sessions.bodies import NO_LOCAL, RETAIN_AS_PUBLISHED
from sessions.inquiry_frames import (
    MOVE_ELSEWHERE,
    ROWS_MAX,
    Ask,
    ConnectionsOf,
    ConnectionsTold,
    Kick,
    Kicked,
    Move,
    Moved,
    OpenConnection,
    PlacesOf,
    PlacesTold,
    SessionsOf,
    SessionsTold,
    SubscriptionsOf,
    SubscriptionsTold,
    Told,
)  # fmt: skip

KICKED: Final = "disconnected by an operator"


class Inquiry:
    def __init__(self, state: State, closing: Closing) -> None:
        self._state = state
        self._closing = closing

    def asked(self, link: int, ask: Ask) -> None:
        self._state.outbox.effects.append(ToInquirer(link, self._told(ask)))

    def _told(self, ask: Ask) -> Told:
        match ask:
            case ConnectionsOf(id, clients):
                return ConnectionsTold(id, [self._of(connection) for connection in self._online(clients)])
            case Kick(id, clients):
                connections = list(self._online(clients))
                for connection in connections:
                    self._closing.close(connection, ReasonCode.ADMINISTRATIVE_ACTION, KICKED)
                return Kicked(id, [connection.client for connection in connections])
            case SessionsOf(id, _):
                return SessionsTold(id, [])
            case PlacesOf(id):
                return PlacesTold(id, False, [], True)
            case Move(id):
                return Moved(id, MOVE_ELSEWHERE)
            case SubscriptionsOf():
                count = min(ask.count_max, ROWS_MAX)
                rows = list(islice(self._subscriptions(ask.clients), ask.skip, ask.skip + count + 1))
                return SubscriptionsTold(ask.id, rows[:count], len(rows) <= count)

    def _online(self, clients: list[bytes]) -> Iterator[Connection]:
        for client in clients:
            connection = self._state.by_client.get(client)
            if connection is not None and connection.phase is Phase.ONLINE:
                yield connection

    def _subscriptions(self, clients: list[bytes]) -> Iterator[tuple[bytes, bytes, int, int, int]]:
        for connection in self._online(clients):
            if connection.ephemeral is not None:
                for sub in connection.subs.values():
                    yield connection.client, sub.filter, sub.qos, _options(sub), sub.identifier

    def _of(self, connection: Connection) -> OpenConnection:
        session = connection.ephemeral
        return OpenConnection(
            connection.client, connection.conn, connection.session_id, connection.identity.user, connection.identity.how,
            connection.origin.peer, connection.listener, connection.version, connection.keep_alive_ms // KEEP_ALIVE_GRACE,
            self._state.now_ms - connection.since_ms, connection.expiry_s, connection.receive_max,
            len(connection.subs) if session is not None else 0, len(session.inflight) if session is not None else 0,
            len(session.queue) if session is not None else 0, connection.unanswered, connection.congested,
        )  # fmt: skip


def _options(sub: LiveSub) -> int:
    return (NO_LOCAL if sub.no_local else 0) | (RETAIN_AS_PUBLISHED if sub.retain_as_published else 0)
