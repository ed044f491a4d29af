"""The second session of a connection whose own session is ephemeral: a durable one, which ends with the connection and serves its replays.

History and what follows it have to come from one place, or there is a gap or a repeat where they meet; and what is ephemeral has no place
in the store.  So a SUBSCRIBE into the past gets a durable session beside the ephemeral one: a client id of its own, a connection
number, rows, a session actor.  Whatever happens to gateway or home ends it as it ends any session that expires at once.

    asked -> Connect at its home -> Attach at its session actor -> attached; the end of the connection: Disconnect, expiry 0

Its messages have packet identifiers of the session actor.  Here each gets one of the ephemeral session for as long as it is under way
(lent), in the one window that the client has; what does not fit waits, and is never more than that window.  Who has more than half of the
window lent lets the ephemeral session go first.

Holds: an identifier that is lent is in flight in the ephemeral session; what waits is in the order of the session actor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.closing import Closing
from gateway.connection import Connection, Phase
from gateway.ephemeral import AWAIT_PUBACK, AWAIT_PUBCOMP, AWAIT_PUBREC
from gateway.state import Deadline, State
from mqtt.encode import acks
from mqtt.packets import MQTT_5, AckKind
from mqtt.reason import ReasonCode
from sessions.frames import PUBREC, Acked, Attach, Attached, Frame, Hold, SendPubrel, SessionClosed, Subscribe, Unsubscribe
from shards.frames import NORMAL, Check, Connected
from shards.frames import Connect as ConnectEntry
from shards.frames import Disconnect as DisconnectEntry

SEPARATOR: Final = b"\0"
"""Behind the client id; it is in none."""
CLIENT_BYTES_MAX: Final = 60_000
_EXPIRY_S: Final = 1
"""Only when nobody is left to say that it is over."""
_AWAITED: Final = {AckKind.PUBACK: AWAIT_PUBACK, AckKind.PUBREC: AWAIT_PUBREC, AckKind.PUBCOMP: AWAIT_PUBCOMP}


class Row(NamedTuple):
    """A message that is to be delivered; as in sessions.frames.Deliver."""

    topic: bytes
    body: bytes
    published_at_ms: int
    flags: int
    packet_id: int
    first: int
    identifier: int


class Second:
    __slots__ = (
        "attached", "client", "conn", "connection", "filters", "leaving", "lent", "lent_to", "owner", "pending", "relinked", "session",
        "session_id", "shard", "waiting",
    )  # fmt: skip

    def __init__(self, connection: Connection, client: bytes, shard: int, session: int) -> None:
        self.connection = connection
        self.client = client
        self.shard = shard
        self.session = session
        self.conn = self.session_id = self.owner = 0
        self.attached = False
        self.relinked = False
        """The link to its home broke while CONNECT was on its way: the answer may be an old one."""
        self.pending: list[Subscribe | Unsubscribe] = []
        """What waits for its session actor."""
        self.filters: dict[bytes, None] = {}
        """What was ever asked of it: it answers for these as long as it is there."""
        self.leaving: dict[int, list[ReasonCode | None]] = {}
        """UNSUBSCRIBE packets: what is answered here, and None where the session actor answers."""
        self.waiting: deque[Row] = deque()
        self.lent: dict[int, int] = {}
        """Packet identifier towards the client -> that of the session actor; and the other way round."""
        self.lent_to: dict[int, int] = {}


class Seconds:
    def __init__(self, state: State, closing: Closing) -> None:
        self._state = state
        self._closing = closing

    # ---------------------------------------------------------------- its life
    def ask(self, connection: Connection, frame: Subscribe | Unsubscribe) -> None:
        """Have it answered by the second session, which is made if there is none.  frame: without a connection number."""
        second = connection.second
        if second is None:
            second = connection.second = self._make(connection)
        if isinstance(frame, Subscribe):
            second.filters.update(dict.fromkeys([row[0] for row in frame.filters]))
        if second.attached:
            self._state.outbox.to_session(second.session, frame._replace(conn=second.conn))
        else:
            second.pending.append(frame)

    def _make(self, connection: Connection) -> Second:
        state, who = self._state, connection.identity
        client = b"%b%b%d" % (connection.client, SEPARATOR, connection.conn)
        shard = state.slots.shard_of(client)
        entry = ConnectEntry(
            client, True, _EXPIRY_S, connection.version, None, False, who.user.encode(), who.pack(), connection.address, False
        )  # fmt: skip
        state.outbox.entry(shard, connection, entry)
        state.wheel.after(state.options.home_wait_ms, (Deadline.SECOND, connection.socket))
        return Second(connection, client, shard, shard % state.n_sessions)

    def connected(self, connection: Connection, entry: ConnectEntry, reply: Connected) -> bool:
        """Whether the home has answered for a second session."""
        if SEPARATOR not in entry.client:
            return False
        state, second = self._state, connection.second
        if connection.phase is Phase.CLOSED or second is None:
            if reply.conn:
                state.outbox.entry(state.slots.shard_of(entry.client), connection, DisconnectEntry(entry.client, reply.conn, NORMAL, 0))
        elif not reply.session_id:
            self._closing.close(connection, ReasonCode.SERVER_BUSY, "the home of its replays has no room for it")
        else:
            second.conn, second.session_id, second.owner = reply.conn, reply.session_id, reply.owner
            state.seconds[second.conn] = second
            if second.relinked:
                state.outbox.entry(second.shard, None, Check([(second.client, second.conn)]))
            if second.session in state.sessions_linked:
                self._attach(second)
        return True

    def _attach(self, second: Second) -> None:
        connection = second.connection
        attach = Attach(
            second.client, second.conn, second.session_id, False, connection.version, connection.receive_max, 0, 0,
            *connection.zone.reads, owner=second.owner,
        )  # fmt: skip
        self._state.outbox.to_session(second.session, attach)

    def shard_linked(self, shard: int) -> list[tuple[bytes, int]]:
        """(client, connection number) of those that are at home there."""
        for connection in self._state.by_conn.values():
            if connection.second is not None and connection.second.shard == shard and not connection.second.conn:
                connection.second.relinked = True
        return [(second.client, conn) for conn, second in self._state.seconds.items() if second.shard == shard]

    def session_linked(self, session: int) -> None:
        for second in self._state.seconds.values():
            if second.session == session:
                self._attach(second)

    def session_lost(self, session: int) -> None:
        """What it has delivered, the client knows; where to go on too."""
        for second in list(self._state.seconds.values()):
            if second.session == session and second.attached:
                self._closing.close(second.connection, ReasonCode.SERVER_SHUTTING_DOWN, "session actor lost")

    def superseded(self, conns: Sequence[int]) -> list[int]:
        """Their homes count these connections as ended; those that are of no second session."""
        others: list[int] = []
        for conn in conns:
            second = self._state.seconds.get(conn)
            if second is None:
                others.append(conn)
            else:
                self._closing.close(second.connection, ReasonCode.SERVER_SHUTTING_DOWN, "the home of its replays has given it up")
        return others

    # ---------------------------------------------------------------- from its session actor
    def received(self, second: Second, frame: Frame) -> bool:
        """Whether that was all; else it is about a SUBSCRIBE or UNSUBSCRIBE of the connection."""
        match frame:
            case Attached(_, 0):
                second.attached = True
                if second.connection.congested:
                    self.hold(second.connection)
                for asked in second.pending:
                    self._state.outbox.to_session(second.session, asked._replace(conn=second.conn))
                second.pending.clear()
            case SendPubrel(_, packet_ids):
                known = [second.lent_to[each] for each in packet_ids if each in second.lent_to]
                if known:
                    self._state.outbox.write(second.connection, acks(MQTT_5, AckKind.PUBREL, known), len(known))
            case Attached(_, code) | SessionClosed(_, code):
                second.attached = False
                self._closing.close(second.connection, ReasonCode.SERVER_SHUTTING_DOWN, f"its replays were ended with {code:#04x}")
            case _:
                return False
        return True

    def hold(self, connection: Connection) -> None:
        second = connection.second
        if second is not None and second.attached:
            self._state.outbox.to_session(second.session, Hold(second.conn, connection.congested))

    # ---------------------------------------------------------------- the window
    def lend(self, second: Second, row: Row) -> int:
        """A packet identifier for a message that leaves now; 0 at QoS 0."""
        session = second.connection.ephemeral
        assert session is not None
        if not row.packet_id:
            return 0
        packet_id = session.take_id(row.first >> 1 & 3)
        second.lent[packet_id], second.lent_to[row.packet_id] = row.packet_id, packet_id
        return packet_id

    def acknowledge(self, second: Second, kind: AckKind, packet_ids: list[int]) -> list[int] | None:
        """What the client acknowledges: those that are not lent.  None: one waits for another kind of answer."""
        lent = second.lent
        ours = [each for each in packet_ids if each in lent]
        if not ours:
            return packet_ids
        session = second.connection.ephemeral
        assert session is not None
        if session.acknowledge(ours, _AWAITED[kind]) is None:
            return None
        self._state.outbox.to_session(second.session, Acked(second.conn, int(kind), [lent[each] for each in ours], False))
        if kind is not AckKind.PUBREC:
            for each in ours:
                del second.lent_to[lent.pop(each)]
        return [each for each in packet_ids if each not in ours]

    def give_up(self, second: Second, packet_id: int) -> None:
        """A PUBREC with an error; the ephemeral session has let go of the identifier."""
        theirs = second.lent.pop(packet_id)
        del second.lent_to[theirs]
        self._state.outbox.to_session(second.session, Acked(second.conn, PUBREC, [theirs], True))

    def unsent(self, second: Second, packet_id: int, row: Row) -> None:
        """It is not sent: acknowledged in the client's place, as whatever a session actor delivers."""
        if not packet_id:
            return
        session = second.connection.ephemeral
        assert session is not None
        del session.inflight[packet_id]
        if row.first & 4:
            self.give_up(second, packet_id)
            return
        del second.lent_to[second.lent.pop(packet_id)]
        self._state.outbox.to_session(second.session, Acked(second.conn, int(AckKind.PUBACK), [row.packet_id], False))
