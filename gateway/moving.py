"""Connections whose session actor is another one now, at another site: they stay open, and are attached again there.

Of a broker that stands alone the connections of a session actor that was lost are closed, since it is soon back.  Of several sites it may
take a while until somebody leads its shard again, and clients would come back in vain.

    ONLINE -> its link is lost: waits -> it is linked again, and the client is quiet -> Attach -> Attached: as before
                                             └ cannot become quiet, or does not in time, or is refused: closed

Quiet: the client has answered every message of QoS 1 and 2 that it was sent.  What the lost actor had assigned at QoS 1 it may not have
committed, and the next one may give the same packet identifiers to other messages; so none may be open when that begins, or a late PUBACK
would free one that was never sent (PROTOCOLS 12).  What was acknowledged and not committed comes once more, with DUP.

Closed, as by one site: who has a QoS 2 exchange open, since nobody is there to end it and it must not be begun again on the same connection
[MQTT-4.4.0-1]; who has a SUBSCRIBE or UNSUBSCRIBE unanswered, a session in memory, or a plugin that is asked message by message.

Holds (see check): who waits is ONLINE or closed meanwhile, `moving`, and not attached.
"""

from __future__ import annotations

from typing import Final

from gateway.connection import Connection, Phase
from gateway.state import State

QUIET_WITHIN_MS: Final = 10_000
"""So long a client may take with its answers once its session actor is linked again."""
LOOK_EVERY_MS: Final = 20
HELD_MAX: Final = 16
"""SUBSCRIBE and UNSUBSCRIBE packets that wait for the session actor; with one more the connection is closed."""


class Moving:
    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[int, dict[Connection, None]] = {}
        """By session actor."""
        self._until_ms: dict[int, int] = {}
        """Of session actors that were linked again."""
        self._look_ms = 0

    def keeps(self, connection: Connection) -> bool:
        """The session actor of a connection that is ONLINE is lost: whether that stays open."""
        if not self._state.roams or connection.memory or connection.asker is not None:
            return False
        if connection.releasing or connection.subscribing or connection.unsubscribing:
            return False
        connection.moving = True
        self._waiting.setdefault(connection.session, {})[connection] = None
        return True

    def linked(self, session: int) -> None:
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
            still: dict[Connection, None] = {}
            for connection in self._waiting.pop(session):
                if connection.phase is Phase.CLOSED:
                    continue
                if connection.releasing or state.now_ms >= self._until_ms[session]:
                    late.append(connection)
                elif connection.answers >= connection.given:
                    quiet.append(connection)
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
