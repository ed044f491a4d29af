"""Connections whose session actor is another one now, at another site: they stay open, and are attached again there.

Of a broker that stands alone the connections of a session actor that was lost are closed, since it is soon back.  Of several sites it may
take a while until somebody leads its shard again, and clients would come back in vain.

    ONLINE -> its link is lost, or it was replaced: waits -> it is linked again, and the client is quiet -> Attach -> Attached: as before
                                                                └ does not become quiet in time, or is refused: closed

Quiet: the client has answered every message of QoS 1 that it was sent.  What the lost actor had assigned at QoS 1 it may not have
committed, and the next one may give the same packet identifiers to other messages; so none may be open when that begins, or a late PUBACK
would free one that was never sent (PROTOCOLS 12).  What was acknowledged and not committed comes once more, with DUP.

At QoS 2 an assignment is committed before it leaves, so identifiers mean to the next actor what they meant to the last one.  It is told
which of them this connection has seen, and how far (gateway.handshakes), and sends nothing of that again [MQTT-4.4.0-1]; what the client
answers meanwhile it hears when it has the connection.  A SUBSCRIBE or UNSUBSCRIBE without an answer is asked again of it: whatever the
last one had made of it, the end is the same.

Closed, as by one site: a session in memory; who has both a SUBSCRIBE and an UNSUBSCRIBE unanswered, whose order is not known here.

Holds (see check): who waits is ONLINE or closed meanwhile, `moving`, and not attached.
"""

from __future__ import annotations

from typing import Final

from gateway.connection import Connection, Phase
from gateway.state import State

QUIET_WITHIN_MS: Final = 10_000
"""So long a client may take with its answers once its session actor is linked again."""
LOOK_EVERY_MS: Final = 20
REPLACED_MS: Final = 1_000
"""So long nobody is attached again over the link to a session actor that has said that another one serves its home: mostly that link
ends within this time.  If it does not, this actor is to serve them after all, and asks its home for the next token; so two of them, of
which each has heard that it is the one, take turns no faster than that."""
HELD_MAX: Final = 16
"""SUBSCRIBE and UNSUBSCRIBE packets that wait for the session actor; with one more the connection is closed."""


class Moving:
    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[int, dict[Connection, None]] = {}
        """By session actor."""
        self._until_ms: dict[int, int] = {}
        """Of session actors that were linked again."""
        self._not_before_ms: dict[int, int] = {}
        """Of those that were replaced, and are linked still."""
        self._look_ms = 0

    def keeps(self, connection: Connection) -> bool:
        """The session actor of a connection that is ONLINE is lost: whether that stays open."""
        if not self._state.roams or connection.memory or (connection.subscribing and connection.unsubscribing):
            return False
        connection.moving = True
        self._waiting.setdefault(connection.session, {})[connection] = None
        return True

    def replaced(self, session: int) -> None:
        self._not_before_ms[session] = self._state.now_ms + REPLACED_MS
        self._until_ms[session] = self._state.now_ms + REPLACED_MS + QUIET_WITHIN_MS

    def linked(self, session: int) -> None:
        self._not_before_ms.pop(session, None)
        self._until_ms[session] = self._state.now_ms + QUIET_WITHIN_MS

    def due(self) -> tuple[list[Connection], list[Connection]]:
        """Of those whose session actor is linked: who is to be attached now, and who cannot be."""
        state = self._state
        quiet: list[Connection] = []
        late: list[Connection] = []
        if not self._waiting or state.now_ms < self._look_ms:
            return quiet, late
        self._look_ms = state.now_ms + LOOK_EVERY_MS
        for session in [session for session in self._waiting if session in state.sessions_linked]:
            if self._not_before_ms.get(session, 0) > state.now_ms:
                continue
            still: dict[Connection, None] = {}
            for connection in self._waiting.pop(session):
                if connection.phase is Phase.CLOSED:
                    continue
                if connection.answers >= connection.given:
                    quiet.append(connection)
                elif state.now_ms >= self._until_ms[session]:
                    late.append(connection)
                else:
                    still[connection] = None
            if still:
                self._waiting[session] = still
        return quiet, late

    def next_ms(self) -> int | None:
        return self._look_ms if any(session in self._state.sessions_linked for session in self._waiting) else None

    def check(self) -> None:
        for session, waiting in self._waiting.items():
            for connection in waiting:
                assert connection.session == session and connection.moving and not connection.attached
