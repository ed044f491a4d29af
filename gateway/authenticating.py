"""Who a client is: found out at CONNECT before anything of its session is asked, and again when it authenticates again.

Decided here: who says nothing of itself, by the listener.  Everybody else is asked about, by effects that somebody answers
(docs/access.md).  An answer belongs to an attempt; the attempts of a connection are counted, and an answer to another than the
one under way means nothing.

    CONNECT ──> asked <──────────────> challenged        of a client that named a method, by AUTH packets
                 └──Authenticated──> its home is asked, or, again: AUTH 0x00

Each side has its own time for each of its steps: connect_wait_ms for the client, auth_wait_ms for whoever answers.
"""

from __future__ import annotations

from typing import Final

from access.login import Login
from access.scram import SCRAM_METHOD
from gateway.bridges import comes_as_bridge
from gateway.closing import Closing
from gateway.connection import Connection, Exchange, Phase
from gateway.events import AuthChallenged, Authenticate, Authenticated, AuthRefused, ContinueAuth, IdentitiesRevoked
from gateway.permitting import Permitting
from gateway.state import State
from gateway.wheel import Wheel
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Auth, Connect, Disconnect, Item, Properties
from mqtt.reason import ReasonCode

BY_PASSWORD: Final = frozenset({"password", "scram"})
LOOK_EVERY_MS: Final = 60_000
"""How often the end of an identity is looked at: so long a connection that is over may be remembered because of it."""

Deadline = tuple[Connection, Exchange | None, int]
"""A step of an exchange that may be late; without one, an identity that may have ended."""

# What a DISCONNECT has no word for, and the nearest that it has.
_IN_DISCONNECT: Final = {
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.BAD_AUTHENTICATION_METHOD: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.BANNED: ReasonCode.NOT_AUTHORIZED,
    ReasonCode.SERVER_UNAVAILABLE: ReasonCode.SERVER_BUSY,
}


class Authenticating:
    def __init__(self, state: State, closing: Closing, permitting: Permitting) -> None:
        self._state = state
        self._closing = closing
        self._permitting = permitting
        self._deadlines: Wheel[Deadline] = Wheel()

    # ---------------------------------------------------------------- CONNECT
    def known(self, connection: Connection, packet: Connect) -> bool:
        """Whether it is known now who has sent this CONNECT.  If not it is refused, or asked about."""
        if comes_as_bridge(connection):
            return True  # It has shown what only a bridge can (gateway.bridges).
        method = packet.properties.authentication_method
        silent = packet.username is None and packet.password is None and method is None
        if silent and not self._state.options.plugin and not connection.origin.takes_certificate:
            return self._nobody(connection)
        if method not in (None, SCRAM_METHOD):
            self._closing.refuse(connection, ReasonCode.BAD_AUTHENTICATION_METHOD, "an authentication method that is not known")
            return False
        connection.auth_method = method
        connection.phase = Phase.AUTHENTICATING
        self._ask(connection, packet, packet.properties.authentication_data or b"")
        return False

    def _nobody(self, connection: Connection) -> bool:
        """Whether the listener lets somebody in who says nothing of itself."""
        allowed = self._state.options.anonymous.get(connection.listener, "loopback")
        if allowed == "yes" or (allowed == "loopback" and connection.origin.loopback):
            return True
        self._closing.refuse(connection, ReasonCode.NOT_AUTHORIZED, "anonymous, which its listener does not take from there")
        return False

    def _ask(self, connection: Connection, packet: Connect | None, data: bytes) -> None:
        """packet: None where the client authenticates again."""
        origin = connection.origin
        connection.attempts += 1
        connection.exchange = Exchange(connection.attempts, again=packet is None)
        login = Login(
            connection.client.decode(), connection.version, packet.username if packet else None, packet.password if packet else None,
            connection.auth_method, data, origin.listener, origin.address, origin.loopback, origin.names, origin.serial,
            origin.takes_certificate,
        )  # fmt: skip
        self._state.outbox.effects.append(Authenticate(connection.socket, connection.attempts, login))
        self._wait(connection, connection.exchange, self._state.options.auth_wait_ms)

    # ---------------------------------------------------------------- from the client
    def received(self, connection: Connection, item: Item) -> None:
        """What a client that named a method sends before CONNACK: AUTH or DISCONNECT [MQTT-3.1.2-30]."""
        if isinstance(item, Auth):
            self.auth(connection, item)
        elif isinstance(item, Disconnect):
            self._closing.disconnect(connection, item)
        else:
            self._violation(connection, f"{type(item).__name__} before CONNACK by a client that named an authentication method")

    def auth(self, connection: Connection, packet: Auth) -> None:
        properties, exchange = packet.properties, connection.exchange
        if connection.auth_method is None:
            self._violation(connection, "AUTH without an authentication method")
        elif properties.authentication_method != connection.auth_method:
            self._violation(connection, "AUTH with another authentication method than CONNECT")  # [MQTT-4.12.0-5]
        elif packet.reason == ReasonCode.RE_AUTHENTICATE and exchange is None:
            self._ask(connection, None, properties.authentication_data or b"")
        elif packet.reason == ReasonCode.CONTINUE_AUTHENTICATION and exchange is not None and exchange.challenged:
            exchange.challenged = False
            effect = ContinueAuth(connection.socket, exchange.attempt, properties.authentication_data or b"")
            self._state.outbox.effects.append(effect)
            self._wait(connection, exchange, self._state.options.auth_wait_ms)
        else:
            self._violation(connection, f"AUTH 0x{packet.reason:02x}, which nobody waits for")

    def _violation(self, connection: Connection, detail: str) -> None:
        if connection.phase is Phase.AUTHENTICATING:
            self._state.counters.protocol_errors += 1
            self._closing.refuse(connection, ReasonCode.PROTOCOL_ERROR, detail)
        else:
            self._closing.violation(connection, detail)

    # ---------------------------------------------------------------- the answers
    def challenged(self, event: AuthChallenged) -> None:
        connection = self._asker(event)
        if connection is None or connection.exchange is None:
            return
        connection.exchange.challenged = True
        self._say(connection, ReasonCode.CONTINUE_AUTHENTICATION, event.data)
        self._wait(connection, connection.exchange, self._state.options.connect_wait_ms)

    def refused(self, event: AuthRefused) -> None:
        connection = self._asker(event)
        if connection is not None:
            self._refuse(connection, ReasonCode(event.code), event.cause)

    def authenticated(self, event: Authenticated) -> Connection | None:
        """The connection whose CONNECT may go on now, if it is one."""
        connection = self._asker(event)
        if connection is None or connection.exchange is None:
            return None
        if connection.exchange.again:
            self._same_again(connection, event)
            return None
        connection.exchange = None
        connection.identity = event.identity
        connection.last_word = event.data
        self._ends(connection, event.ends_in_ms)
        return connection

    def _same_again(self, connection: Connection, event: Authenticated) -> None:
        if event.identity.user != connection.identity.user:
            self._refuse(connection, ReasonCode.NOT_AUTHORIZED, "authenticated again as somebody else")
            return
        connection.exchange = None
        connection.identity = event.identity
        self._permitting.renewed(connection)
        self._ends(connection, event.ends_in_ms)
        self._say(connection, ReasonCode.SUCCESS, event.data)

    def _asker(self, event: Authenticated | AuthChallenged | AuthRefused) -> Connection | None:
        """The connection that waits for this answer."""
        connection = self._state.by_socket.get(event.socket)
        if connection is None or connection.exchange is None or connection.exchange.challenged:
            return None
        return connection if connection.exchange.attempt == event.attempt else None

    def _say(self, connection: Connection, reason: ReasonCode, data: bytes | None) -> None:
        properties = Properties(authentication_method=connection.auth_method, authentication_data=data)
        self._state.outbox.write(connection, encode(MQTT_5, Auth(reason, properties)))

    def _refuse(self, connection: Connection, code: ReasonCode, why: str) -> None:
        if connection.phase is Phase.ONLINE:
            self._closing.close(connection, _IN_DISCONNECT.get(code, code), why)
        else:
            self._closing.refuse(connection, code, why)

    # ---------------------------------------------------------------- what ends by itself, or by others
    def revoked(self, event: IdentitiesRevoked) -> None:
        for connection in list(self._state.by_socket.values()):
            who = connection.identity
            if connection.origin.serial in event.serials or (who.how in BY_PASSWORD and who.user in event.users):
                self._refuse(connection, ReasonCode.NOT_AUTHORIZED, "who it is does not count any more")

    def turn(self, now_ms: int) -> None:
        for connection, exchange, step in self._deadlines.turn(now_ms):
            if exchange is None:
                self._look_at_its_end(connection)
            elif exchange is connection.exchange and exchange.step == step:
                self._late(connection, exchange)

    def next_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def _late(self, connection: Connection, exchange: Exchange) -> None:
        self._state.counters.connections_timed_out += 1
        if exchange.challenged:
            self._refuse(connection, ReasonCode.NOT_AUTHORIZED, "no AUTH in time")
        else:
            self._refuse(connection, ReasonCode.SERVER_UNAVAILABLE, "nobody could say in time who it is")

    def _wait(self, connection: Connection, exchange: Exchange, within_ms: int) -> None:
        exchange.step += 1
        self._deadlines.after(within_ms, (connection, exchange, exchange.step))

    def _ends(self, connection: Connection, ends_in_ms: int | None) -> None:
        watched = bool(connection.ends_ms)
        connection.ends_ms = self._state.now_ms + max(ends_in_ms, 1) if ends_in_ms is not None else 0
        if connection.ends_ms and not watched:
            self._look_at_its_end(connection)

    def _look_at_its_end(self, connection: Connection) -> None:
        """An identity that counts for a time only: is it over?"""
        now_ms = self._state.now_ms
        if connection.phase is Phase.CLOSED or not connection.ends_ms:
            return
        if connection.ends_ms <= now_ms:
            self._refuse(connection, ReasonCode.NOT_AUTHORIZED, "what it came in with has ended")
        else:
            self._deadlines.at(min(connection.ends_ms, now_ms + LOOK_EVERY_MS), (connection, None, 0))
