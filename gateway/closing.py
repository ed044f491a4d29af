"""How a connection ends, from whichever side, and what its home shard and its session actor are told.

The home is told how it ended (shards.frames.Disconnect): NORMAL deletes the will, LOST and WITH_WILL let it come.  It is
not told when it said so itself (Superseded, a stale answer): there the connection counts no more.  A connection that never
got its CONNACK ends NORMAL, because its client was never told that its will is in force [MQTT-3.1.2-7].

Entries of a closed connection that are still on their way to a shard are answered later and take effect; only nobody is
there to be acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.connection import ASKED, OWN_BOUND, RATE_BOUND, SHARD_BOUND, STOPPING, Connection, Phase
from gateway.events import ForgetAuth
from gateway.live import LiveTable
from gateway.reasons import cause, explained
from gateway.state import KEEP_ALIVE_LOOK_MS, Deadline, State
from mqtt.control import CONNACK_REASONS
from mqtt.encode import encode
from mqtt.packets import MQTT_5, NO_PROPERTIES, Connack, Disconnect, Properties
from mqtt.reason import ReasonCode, connack_return_code
from sessions.frames import Detach
from shards.frames import LOST, NORMAL, WITH_WILL
from shards.frames import Disconnect as DisconnectEntry

if TYPE_CHECKING:
    from gateway.second import Second

CONTENDED = "its client id is contended"
_TAKEN_OVER = "session taken over"


class Closing:
    def __init__(self, state: State, table: LiveTable) -> None:
        self._state = state
        self._table = table

    # ---------------------------------------------------------------- by the client
    def disconnect(self, connection: Connection, packet: Disconnect) -> None:
        """A DISCONNECT: everything but 0x00 keeps the will [MQTT-3.14.4-3]."""
        expiry_s = packet.properties.session_expiry_interval
        if expiry_s is not None:
            if expiry_s and not connection.expiry_s:
                self.violation(connection, "DISCONNECT gives an expiry to a session that has none")  # [MQTT-3.1.2-23]
                return
            expiry_s = min(expiry_s, self._state.options.session_expiry_max_s)
        how = NORMAL if packet.reason == ReasonCode.NORMAL_DISCONNECTION else WITH_WILL
        self._end(connection, "client disconnected", how, expiry_s)
        self._state.outbox.close(connection, "client disconnected")

    def socket_lost(self, connection: Connection, why: str) -> None:
        connection.gone = True
        self._end(connection, why, LOST)

    # ---------------------------------------------------------------- by us
    def violation(self, connection: Connection, detail: str, code: ReasonCode = ReasonCode.PROTOCOL_ERROR) -> None:
        """The client broke the protocol."""
        self._state.counters.protocol_errors += 1
        self.close(connection, code, detail)

    def malformed(self, connection: Connection, code: ReasonCode, detail: str, version: int | None) -> None:
        """What it sent is no packet; version: of its CONNECT, as far as that could be read."""
        if connection.phase is Phase.ONLINE:
            self.violation(connection, detail, code)
            return
        # The CONNECT itself was wrong, or what came with it: it is answered where its version has an answer.
        connection.version = version or 0
        if version == MQTT_5 or (version and connack_return_code(code) is not None):
            self.refuse(connection, code if code in CONNACK_REASONS else ReasonCode.PROTOCOL_ERROR, detail)
        else:
            self.violation(connection, detail, code)

    def close(self, connection: Connection, code: ReasonCode, why: str, how: int = LOST) -> None:
        """DISCONNECT with this code for MQTT 5, and close; the home is told."""
        if connection.phase is Phase.CLOSED:
            return
        self._farewell(connection, code, why)
        self._end(connection, why, how)
        self._state.outbox.close(connection, why)

    def superseded(self, connection: Connection) -> None:
        """The home has a newer connection of this client; it knows everything."""
        if connection.phase is Phase.CLOSED:
            return
        self._state.counters.connections_superseded += 1
        if connection.phase is Phase.ONLINE:
            self._farewell(connection, ReasonCode.SESSION_TAKEN_OVER, _TAKEN_OVER)
        else:
            # Before its CONNACK it cannot be sent a DISCONNECT [MQTT-3.2.0-1], and a close without a word tells nobody anything.
            self._connack(connection, ReasonCode.SERVER_BUSY, _TAKEN_OVER)
        self._end(connection, _TAKEN_OVER, None)
        self._state.outbox.close(connection, _TAKEN_OVER)

    def session_closed(self, connection: Connection, code: ReasonCode) -> None:
        """The session actor wants the connection closed; it knows that it is over."""
        if connection.phase is Phase.ONLINE:
            self.close(connection, code, "closed by the session actor")
        else:
            self.refuse(connection, ReasonCode.SERVER_UNAVAILABLE, "closed by the session actor")

    def refuse(self, connection: Connection, code: ReasonCode, why: str, expiry_s: int | None = None) -> None:
        """CONNACK with this code, where the version has a word for it, and close.  expiry_s 0: its session ends with it."""
        if connection.phase is Phase.CLOSED:
            return
        self._state.counters.connections_refused += 1
        self._connack(connection, code, why)
        self._end(connection, why, NORMAL, expiry_s)
        self._state.outbox.close(connection, why)

    def late(self, connection: Connection, deadline: str) -> None:
        """A deadline of the wheel has come; most of them mean nothing any more."""
        state = self._state
        phase = connection.phase
        if deadline == Deadline.CONNECT:
            if phase is Phase.OPENED:
                state.counters.connections_timed_out += 1
                self._end(connection, "no CONNECT in time", NORMAL)
                state.outbox.close(connection, "no CONNECT in time")
        elif deadline == Deadline.CONNACK:
            if phase is Phase.AT_HOME and connection.contended:
                self.refuse(connection, ReasonCode.SERVER_BUSY, CONTENDED)
            elif phase is Phase.AT_HOME or phase is Phase.ATTACHING:
                self.refuse(connection, ReasonCode.SERVER_UNAVAILABLE, f"{phase.value} for too long")
        elif deadline == Deadline.KEEP_ALIVE:
            if phase is Phase.ONLINE:
                self._keep_alive(connection)
        elif deadline == Deadline.RATE:
            state.resume(connection, RATE_BOUND)
        elif deadline == Deadline.SECOND:
            if connection.second is not None and not connection.second.attached:
                self.close(connection, ReasonCode.SERVER_BUSY, "the home of its replays does not answer")
        elif deadline == Deadline.STOP and phase is not Phase.CLOSED:
            self._shut(connection)

    def _keep_alive(self, connection: Connection) -> None:
        state = self._state
        if connection.paused:
            connection.heard_ms = state.now_ms  # what we do not read cannot be held against the client
        due_ms = connection.heard_ms + connection.keep_alive_ms
        if due_ms > state.now_ms:
            state.wheel.at(min(due_ms, state.now_ms + KEEP_ALIVE_LOOK_MS), (Deadline.KEEP_ALIVE, connection.socket))
            return
        state.counters.connections_timed_out += 1
        self.close(connection, ReasonCode.KEEP_ALIVE_TIMEOUT, f"nothing heard for {connection.keep_alive_ms} ms")

    # ---------------------------------------------------------------- shutdown
    def stop(self) -> None:
        """No client is read any more; each is closed when its acknowledgements are out, or when time is up."""
        state = self._state
        state.stopping = True
        for connection in list(state.by_socket.values()):
            state.outbox.pause(connection, STOPPING)
            if not self.stopped(connection):
                state.wheel.after(state.options.stop_wait_ms, (Deadline.STOP, connection.socket))

    def stopped(self, connection: Connection) -> bool:
        """Close a connection of a gateway that stops, if nothing of it is unanswered."""
        if connection.phase is Phase.CLOSED or (connection.phase is Phase.ONLINE and connection.unanswered):
            return connection.phase is Phase.CLOSED
        self._shut(connection)
        return True

    def _shut(self, connection: Connection) -> None:
        """The client did not say that its will is not wanted, so it comes, when its delay is over [MQTT-3.1.2-8]."""
        elsewhere = self._state.options.server_reference and connection.version == MQTT_5
        if connection.phase is Phase.ONLINE:
            self.close(connection, ReasonCode.USE_ANOTHER_SERVER if elsewhere else ReasonCode.SERVER_SHUTTING_DOWN, "shutdown")
        else:
            self.refuse(connection, ReasonCode.USE_ANOTHER_SERVER if elsewhere else ReasonCode.SERVER_UNAVAILABLE, "shutdown")

    # ---------------------------------------------------------------- within
    def _connack(self, connection: Connection, code: ReasonCode, why: str) -> None:
        """A refusal, where the version has a word for it."""
        if connection.version == MQTT_5 or (connection.version and connack_return_code(code) is not None):
            self._say(connection, Connack(False, code, self._where(connection, code)), cause(connection, code, why))

    def _farewell(self, connection: Connection, code: ReasonCode, why: str) -> None:
        if connection.version == MQTT_5 and connection.phase is Phase.ONLINE and not connection.gone:
            self._say(connection, Disconnect(code, self._where(connection, code)), cause(connection, code, why))

    def _where(self, connection: Connection, code: ReasonCode) -> Properties:
        """Where the client is sent, with the code that sends it, if a packet with that is not too large."""
        reference = self._state.options.server_reference
        if code is not ReasonCode.USE_ANOTHER_SERVER or not reference:
            return NO_PROPERTIES
        properties = Properties(server_reference=reference)
        return properties if connection.fits(encode(MQTT_5, Connack(False, code, properties))) else NO_PROPERTIES

    def _say(self, connection: Connection, packet: Connack | Disconnect, why: str) -> None:
        data = explained(connection, packet, why)
        if connection.fits(data):
            self._state.outbox.write(connection, data)

    def _end(self, connection: Connection, why: str, how: int | None, expiry_s: int | None = None) -> None:
        """Take the connection out of every table.  how None: the home is not told."""
        state = self._state
        was, connection.phase = connection.phase, Phase.CLOSED
        state.by_socket.pop(connection.socket, None)
        if connection.conn:
            state.by_conn.pop(connection.conn, None)
            state.by_client.pop(connection.client, None)
            if how is not None:
                self.tell_home(connection, how if was is Phase.ONLINE else NORMAL, expiry_s)
        if connection.attached:
            connection.attached = False
            state.outbox.to_session(connection.session, Detach(connection.conn, expiry_s))
        if connection.second is not None:
            self._end_second(connection.second)
            connection.second = None
        self._table.leave(connection)
        if connection.ephemeral is not None:
            state.orphans += connection.ephemeral.orphans()
            connection.ephemeral = None
        if connection.exchange is not None:
            connection.exchange = None
            state.outbox.effects.append(ForgetAuth(connection.socket))
        if connection.asker is not None:
            state.askers.pop(connection.asker.number, None)
            state.orphans += [parcel.of_group for parcel in connection.asker.outgoing if parcel.of_group is not None]
            connection.asker.outgoing.clear()
        connection.held.clear()
        connection.paused &= ~(ASKED | OWN_BOUND | RATE_BOUND | STOPPING)
        if connection.paused & SHARD_BOUND:
            state.outbox.shard(connection.shard).paused.pop(connection, None)

    def _end_second(self, second: Second) -> None:
        state = self._state
        if second.conn:
            del state.seconds[second.conn]
            state.outbox.to_session(second.session, Detach(second.conn, 0))
            state.outbox.entry(second.shard, second.connection, DisconnectEntry(second.client, second.conn, NORMAL, 0))

    def tell_home(self, connection: Connection, how: int, expiry_s: int | None = None) -> None:
        entry = DisconnectEntry(connection.client, connection.conn, how, expiry_s)
        self._state.outbox.entry(connection.shard, connection, entry)
