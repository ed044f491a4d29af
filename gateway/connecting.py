"""From CONNECT to CONNACK: the checks, the home shard, the session actor.

Who it is, is found out before anything else (authenticating).  The home shard gives every connection its number and is the
lock of the client (PROTOCOLS 5); a durable session then needs the session actor of its shard.  Both together may take
`home_wait_ms`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from access.profile import Profile
from gateway import bridges
from gateway.aliases import AliasesOut
from gateway.asking import Asking
from gateway.authenticating import Authenticating
from gateway.closing import CONTENDED, Closing
from gateway.connection import HELD, Connection, Phase
from gateway.delaying import DELAYED
from gateway.ephemeral import EphemeralSession
from gateway.events import LookForEnd, Opened
from gateway.handshakes import Handshakes
from gateway.moving import Moving
from gateway.permitting import entitle
from gateway.persisting import PERSISTED
from gateway.reasons import LOST_MESSAGES, WORDS
from gateway.rights import may_publish, publishing
from gateway.state import KEEP_ALIVE_LOOK_MS, Deadline, State
from gateway.zones import zone_of
from mqtt.body import make_body
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Connack, Connect, Item, Properties
from mqtt.packets import Will as WillOfPacket
from mqtt.reason import ReasonCode
from mqtt.topics import is_shared
from sessions.frames import Acked, Attach, Attached, Hold
from shards.frames import NORMAL, Check, Connected, Will
from shards.frames import Connect as ConnectEntry

RECEIVE_MAXIMUM_DEFAULT = 65_535
KEEP_ALIVE_GRACE = 1_500
"""Milliseconds for a second of keep alive: one and a half times [MQTT-3.1.2-22]."""
SUPERSEDED_EARLY_MAX = 10_000
CONNACKS_KEPT = 256
LOOKED_MS = 20
"""So long after it was told to, the shell has looked whether a client is there."""


class Connecting:
    def __init__(
        self, state: State, closing: Closing, authenticating: Authenticating, asking: Asking, note_newest: Callable[[bytes, int], None]
    ) -> None:
        """note_newest: tells whoever drops late forwards that a client's newest connection is here."""
        self._state = state
        self._asking = asking
        self._closing = closing
        self._authenticating = authenticating
        self._note_newest = note_newest
        self._moving = Moving(state)
        self._superseded_early: dict[int, None] = {}
        self._looked: deque[tuple[int, int]] = deque()
        """Sockets that were looked for, and when their homes are asked."""

    def opened(self, origin: Opened) -> None:
        state = self._state
        if origin.socket in state.by_socket:
            raise ValueError(f"socket {origin.socket} was opened before")
        connection = Connection(origin)
        state.by_socket[origin.socket] = connection
        if state.stopping or len(state.by_socket) > state.options.connections_max:
            self._closing.refuse(connection, ReasonCode.SERVER_BUSY, "shutdown" if state.stopping else "too many connections")
            return
        state.counters.connections_accepted += 1
        state.wheel.after(max(0, state.options.connect_wait_ms - origin.waited_ms), (Deadline.CONNECT, connection.socket))

    def connect(self, connection: Connection, packet: Connect) -> None:
        """The CONNECT of a connection that has just been opened."""
        state = self._state
        state.counters.connects_received += 1
        connection.version = packet.version
        connection.request = packet
        connection.packet_max = packet.properties.maximum_packet_size or 0
        connection.problem = packet.version == MQTT_5 and packet.properties.request_problem_information != 0
        code = self._check(connection, packet)
        if code is not None:
            self._closing.refuse(connection, code, WORDS.get(code, "CONNECT refused"))
            return
        client_id = packet.client_id
        if not client_id:
            client_id = f"holdfast-{state.rng.getrandbits(96):024x}"
            connection.assigned = True
        connection.client = client_id.encode()
        if self._authenticating.known(connection, packet):
            self.go_home(connection)

    def go_home(self, connection: Connection) -> None:
        """It is known who it is: the home of the client is asked for a connection number, and for the session."""
        state = self._state
        packet = connection.request
        assert packet is not None
        entitle(connection, state.access, self._asking)
        connection.shard = state.slots.shard_of(connection.client)
        connection.expiry_s = self._expiry_s(connection, packet)
        self._take_limits(connection, packet)
        connection.phase = Phase.AT_HOME
        connection.home_until_ms = state.now_ms + state.options.home_wait_ms
        state.wheel.after(state.options.home_wait_ms, (Deadline.CONNACK, connection.socket))
        connection.zone = zone_of(state.options.zones, connection.listener, connection.identity.user, connection.client)
        self.look_at_will(connection)

    def look_at_will(self, connection: Connection) -> None:
        """Its home is asked when it is known that it may have its will; again, when a plugin has said so."""
        packet, profile = connection.request, connection.profile
        if connection.phase is not Phase.AT_HOME or packet is None:
            return
        will = packet.will
        if will is not None and profile is not None:
            if self._asking.about_will(connection, publishing(int(will.retain)), will.topic):
                return
            if not self._may_leave(connection, profile, will):
                self._closing.refuse(connection, ReasonCode.NOT_AUTHORIZED, "its will is not permitted")
                return
        self.ask_home(connection)

    def ask_home(self, connection: Connection) -> None:
        """For the first time, or again: for a client that others take from one another, or whose former session is still being erased."""
        state, packet, who = self._state, connection.request, connection.identity
        if connection.phase is not Phase.AT_HOME:
            return
        assert packet is not None
        entry = ConnectEntry(
            connection.client, packet.clean_start, connection.expiry_s, packet.version, _will(packet), self._wants_memory(connection),
            who.user.encode(), who.pack(), connection.address, state.options.adopt_anonymous,
        )  # fmt: skip
        state.outbox.entry(connection.shard, connection, entry)

    def _may_leave(self, connection: Connection, profile: Profile, will: WillOfPacket) -> bool:
        """Whether it may have this will; its home asks again when it is due (shards.judging)."""
        flags = int(will.retain)
        if may_publish(profile, flags, will.topic):
            return True
        self._state.counters.wills_denied += 1
        self._state.denials.note(connection.client, publishing(flags), will.topic)
        return False

    def _wants_memory(self, connection: Connection) -> bool:
        """Whether a session that this CONNECT makes is to live in memory instead of the store.  One that is there stays what it
        is; which it is, its home says."""
        enable = connection.zone.enable
        durable = self._state.options.durable if enable is None else enable
        return connection.expiry_s > 0 and not durable and not bridges.comes_as_bridge(connection)

    def _check(self, connection: Connection, packet: Connect) -> ReasonCode | None:
        if not packet.client_id and packet.version != MQTT_5 and not packet.clean_start:
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        if is_shared(packet.client_id.encode()):
            # Under such a name the store keeps shared groups (docs/groups.md).
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        if bridges.refuses(connection, packet, self._state.options.bridge_token):
            return ReasonCode.CLIENT_IDENTIFIER_NOT_VALID
        will, options = packet.will, self._state.options
        if will is None:
            return None
        if is_reserved(will.topic):
            return ReasonCode.TOPIC_NAME_INVALID
        if will.retain and not options.retain:
            return ReasonCode.RETAIN_NOT_SUPPORTED  # [MQTT-3.2.2-13]
        if options.payload_format_check and not is_as_said(will.properties, will.payload):
            return ReasonCode.PAYLOAD_FORMAT_INVALID
        return None

    def _expiry_s(self, connection: Connection, packet: Connect) -> int:
        options = self._state.options
        if bridges.comes_as_bridge(connection):
            return packet.properties.session_expiry_interval or 0
        if packet.version != MQTT_5:
            return 0 if packet.clean_start else min(options.session_expiry_s, options.session_expiry_max_s)
        return min(packet.properties.session_expiry_interval or 0, options.session_expiry_max_s)

    def _take_limits(self, connection: Connection, packet: Connect) -> None:
        options = self._state.options
        bridge = bridges.comes_as_bridge(connection)
        connection.receive_max_in = RECEIVE_MAXIMUM_DEFAULT if bridge else options.receive_maximum_in
        receive_max = packet.properties.receive_maximum or RECEIVE_MAXIMUM_DEFAULT
        connection.receive_max = receive_max if bridge else min(receive_max, options.max_inflight)
        aliases = min(packet.properties.topic_alias_maximum or 0, options.topic_alias_max_out)
        if aliases:
            connection.aliases_out = AliasesOut(aliases)
        keep_alive_s = self._keep_alive_s(packet)
        connection.keep_alive_ms = keep_alive_s * KEEP_ALIVE_GRACE

    def _keep_alive_s(self, packet: Connect) -> int:
        """Only MQTT 5 can be told that its keep alive is another one."""
        longest = self._state.options.keep_alive_max_s
        if packet.version != MQTT_5 or not longest:
            return packet.keep_alive
        return min(packet.keep_alive or longest, longest)

    def ask_home_again(self, connection: Connection) -> None:
        """Its time has come.  What is not read is not seen to go, and who is gone must take nothing over: the shell looks first."""
        state = self._state
        if connection.phase is Phase.AT_HOME and connection.paused:
            state.outbox.effects.append(LookForEnd(connection.socket))
            self._looked.append((state.now_ms + LOOKED_MS, connection.socket))
        else:
            self.ask_home(connection)

    def turn(self, now_ms: int) -> None:
        """Those who were looked for and are still there go on, and those whose session actor is linked again."""
        while self._looked and self._looked[0][0] <= now_ms:
            connection = self._state.by_socket.get(self._looked.popleft()[1])
            if connection is not None:
                self.ask_home(connection)
        quiet, late = self._moving.due()
        for connection in quiet:
            self._attach(connection)
        for connection in late:
            self._closing.close(connection, ReasonCode.SERVER_SHUTTING_DOWN, "session actor lost, and what it had sent is not acknowledged")

    def next_ms(self) -> int | None:
        looked_ms, moving_ms = self._looked[0][0] if self._looked else None, self._moving.next_ms()
        return moving_ms if looked_ms is None else looked_ms if moving_ms is None else min(looked_ms, moving_ms)

    # ---------------------------------------------------------------- the home has answered
    def not_yet(self, connection: Connection, reply: Connected) -> None:
        """The home is still erasing a large session of this client that has ended, or lets the one that is there be served for a while:
        CONNACK waits for that, but not for ever."""
        state = self._state
        if not reply.retry_ms:
            self.ask_home(connection)
        elif state.now_ms + reply.retry_ms < connection.home_until_ms:
            connection.contended = True
            state.wheel.after(reply.retry_ms, (Deadline.HOME, connection.socket))
        else:
            self._closing.refuse(connection, ReasonCode.SERVER_BUSY, f"{CONTENDED}, to be tried in {reply.retry_ms} ms")

    def connected(self, connection: Connection, reply: Connected) -> bool:
        """Whether the connection is online now."""
        state = self._state
        connection.conn = reply.conn
        older = state.by_client.get(connection.client)
        gone = reply.conn in self._superseded_early
        if gone or connection.phase is Phase.CLOSED or (older is not None and older.conn > reply.conn):
            # It was given up, or a still newer one of the same client came to this gateway or another meanwhile.
            self._superseded_early.pop(reply.conn, None)
            self._closing.tell_home(connection, NORMAL)
            if connection.phase is not Phase.CLOSED:
                connection.conn = 0
                self._closing.refuse(connection, ReasonCode.SERVER_BUSY, "a newer connection of the client is here")
            return False
        if older is not None:
            self._closing.superseded(older)
        state.by_client[connection.client] = connection
        state.by_conn[reply.conn] = connection
        self._note_newest(connection.client, reply.conn)
        connection.session_id, connection.owner = reply.session_id, reply.owner
        connection.present = reply.present
        connection.memory = reply.memory
        connection.phase = Phase.ATTACHING
        if connection.relinked:
            state.outbox.entry(connection.shard, None, Check([(connection.client, connection.conn)]))
        if connection.durable:
            connection.session = connection.shard % state.n_sessions
            if connection.session in state.sessions_linked:
                self._attach(connection)
            return False
        options = state.options
        connection.ephemeral = EphemeralSession(
            connection.version, connection.receive_max, options.queue_count_max, options.queue_bytes_max, state.counters
        )
        return self._accept(connection)

    def superseded(self, conn: int) -> None:
        """The home says that this connection is not the newest of its client any more."""
        connection = self._state.by_conn.get(conn)
        if connection is not None:
            self._closing.superseded(connection)
            return
        # The word may come before the answer that brings the number.  Bounded: most such numbers belong to
        # connections that ended by themselves.
        self._superseded_early[conn] = None
        if len(self._superseded_early) > SUPERSEDED_EARLY_MAX:
            del self._superseded_early[next(iter(self._superseded_early))]

    def heard_of(self, client: bytes, conn: int) -> None:
        """Another gateway forwards what this connection of the client has published: an older one that is here counts no more.  Of QoS 0 no
        home would say so, and what the older one sent would come behind what is newer."""
        connection = self._state.by_client.get(client)
        if connection is not None and connection.conn < conn:
            self._closing.superseded(connection)

    def session_linked(self, session: int) -> None:
        self._state.sessions_linked[session] = None
        self._moving.linked(session)
        for connection in self._state.by_conn.values():
            if connection.phase is Phase.ATTACHING and connection.session == session:
                self._attach(connection)

    def session_lost(self, session: int) -> None:
        """Who is online there is closed, unless it may stay; who waits to be attached waits for the next link."""
        self._state.sessions_linked.pop(session, None)
        for connection in list(self._state.by_conn.values()):
            if connection.session != session:
                continue
            connection.attached = False
            if connection.phase is Phase.ONLINE and not self._moving.keeps(connection):
                self._closing.close(connection, ReasonCode.SERVER_SHUTTING_DOWN, "session actor lost")

    def session_closed(self, connection: Connection, code: ReasonCode) -> None:
        """Its session actor has let go of it: for a reason of the client's, or because another actor serves its home."""
        connection.attached = False
        if code is ReasonCode.SERVER_SHUTTING_DOWN and connection.phase is Phase.ONLINE and self._moving.keeps(connection):
            self._moving.replaced(connection.session)
        else:
            self._closing.session_closed(connection, code)

    def attached(self, connection: Connection, frame: Attached) -> bool:
        """Whether the connection is online now."""
        if connection.moving and connection.attached and connection.phase is Phase.ONLINE:
            return self._moved(connection, frame)
        if connection.phase is not Phase.ATTACHING:
            return False
        if frame.code:
            connection.attached = False
            # Of a session that is not there any more the home must not keep anything either: the next CONNECT begins anew.
            expiry_s = None if frame.known else 0
            self._closing.refuse(connection, ReasonCode(frame.code), "the session actor refused the connection", expiry_s)
            return False
        self._hold(connection)
        if bridges.comes_as_bridge(connection):
            connection.subscribed = tuple([filter.decode() for filter, *_ in frame.subscriptions])
        return self._accept(connection, LOST_MESSAGES if frame.lost else "")

    def _moved(self, connection: Connection, frame: Attached) -> bool:
        """Another session actor has its session, or refuses it."""
        state = self._state
        connection.moving = False
        if frame.code:
            connection.attached = False
            self._closing.close(connection, ReasonCode.SERVER_SHUTTING_DOWN, "the session actor refused the connection")
            return False
        state.counters.connections_moved += 1
        if connection.handshakes is not None:
            for kind, packet_ids, failed in connection.handshakes.untold():
                state.outbox.to_session(connection.session, Acked(connection.conn, int(kind), packet_ids, failed))
        self._hold(connection)
        return True

    def _hold(self, connection: Connection) -> None:
        """What was said before its session actor had it, nobody has heard."""
        if connection.congested:
            self._state.outbox.to_session(connection.session, Hold(connection.conn, True))

    def check(self) -> None:
        self._moving.check()

    def _attach(self, connection: Connection) -> None:
        connection.attached = True
        connection.given = connection.answers = 0
        if self._state.roams and not connection.moving and not connection.memory:
            connection.handshakes = Handshakes()
        seen = connection.handshakes.seen() if connection.moving and connection.handshakes is not None else ()
        attach = Attach(
            connection.client, connection.conn, connection.session_id, connection.present, connection.version, connection.receive_max,
            connection.memory, connection.expiry_s if connection.memory else 0, *connection.zone.reads,
            connection.owner, connection.moving, *seen,
        )  # fmt: skip
        self._state.outbox.to_session(connection.session, attach)

    # ---------------------------------------------------------------- CONNACK
    def _accept(self, connection: Connection, why: str = "") -> bool:
        """Whether the connection is online now: a client that does not take our CONNACK is refused [MQTT-3.1.2-24].  why: what people
        are to be told with it."""
        state = self._state
        packet = connection.request
        assert packet is not None
        connack = self._connack(connection, packet, why if connection.problem else "")
        if why and not connection.fits(connack):
            connack = self._connack(connection, packet, "")
        if not connection.fits(connack):
            self._closing.refuse(
                connection, ReasonCode.PACKET_TOO_LARGE, f"CONNACK of {len(connack)} bytes, at most {connection.packet_max}"
            )
            return False
        connection.request = connection.last_word = None
        connection.phase = Phase.ONLINE
        connection.since_ms = state.now_ms
        state.outbox.write(connection, connack)
        if connection.keep_alive_ms:
            # What came since CONNECT counts as heard: the client could do no more.
            state.touch(connection)
            state.wheel.after(min(connection.keep_alive_ms, KEEP_ALIVE_LOOK_MS), (Deadline.KEEP_ALIVE, connection.socket))
        return True

    def _connack(self, connection: Connection, packet: Connect, why: str) -> bytes:
        version, present = connection.version, connection.present
        if version != MQTT_5:
            return _usual_connack(version, present, _NOTHING_MORE)
        options = self._state.options
        asked_s = packet.properties.session_expiry_interval or 0
        # As CONNECT found them: the settings may have changed since.
        keep_alive_s = connection.keep_alive_ms // KEEP_ALIVE_GRACE
        receive_max_in = connection.receive_max_in
        own = connection.assigned or connection.last_word is not None or bool(connection.subscribed)
        told = _Told(
            session_expiry=connection.expiry_s if connection.expiry_s != asked_s else None,
            assigned=connection.client.decode() if connection.assigned else None,
            keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
            receive_max=receive_max_in if receive_max_in != RECEIVE_MAXIMUM_DEFAULT else None,
            alias_max=options.topic_alias_maximum or None,
            retain=None if options.retain else 0,
            packet_max=connection.origin.packet_bytes_max or options.packet_bytes_max,
            shared=None if options.shared else 0,
            method=connection.auth_method,  # [MQTT-4.12.0-5]
            data=connection.last_word,
            why=why or None,
            user_properties=bridges.told(packet, connection.subscribed, options.store),
        )
        return (_new_connack if own else _usual_connack)(version, present, told)

    def release_held(self, connection: Connection) -> list[Item]:
        """What came along with CONNECT, once the connection is online; it is read again."""
        held, connection.held = connection.held, []
        self._state.resume(connection, HELD)
        return held

    def hold(self, connection: Connection, items: list[Item]) -> None:
        """Packets behind CONNECT wait for CONNACK; until then no more is read, so they are one read at most."""
        connection.held += items
        self._state.outbox.pause(connection, HELD)


def is_reserved(topic: bytes) -> bool:
    """Topics that no client may publish to: they are the broker's own, or have a meaning only in filters."""
    return topic.startswith((b"$SYS/", b"$share/", DELAYED, PERSISTED))


def is_as_said(properties: Properties, payload: bytes) -> bool:
    """Whether a payload that is said to be UTF-8 text (Payload Format Indicator) is."""
    if properties.payload_format_indicator != 1 or payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def _will(packet: Connect) -> Will | None:
    will = packet.will
    if will is None:
        return None
    delay_s = will.properties.will_delay_interval or 0
    return Will(will.topic, will.qos, will.retain, delay_s, make_body(will.properties, will.payload))


class _Told(NamedTuple):
    """What a CONNACK that says yes says besides, to a client of MQTT 5; None: nothing about that."""

    session_expiry: int | None = None
    assigned: str | None = None
    keep_alive: int | None = None
    receive_max: int | None = None
    alias_max: int | None = None
    retain: int | None = None
    packet_max: int | None = None
    shared: int | None = None
    method: str | None = None
    data: bytes | None = None
    why: str | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


_NOTHING_MORE = _Told()


def _new_connack(version: int, present: bool, told: _Told) -> bytes:
    properties = Properties(
        session_expiry_interval=told.session_expiry,
        assigned_client_identifier=told.assigned,
        server_keep_alive=told.keep_alive,
        receive_maximum=told.receive_max,
        topic_alias_maximum=told.alias_max,
        retain_available=told.retain,
        maximum_packet_size=told.packet_max,
        shared_subscription_available=told.shared,
        authentication_method=told.method,
        authentication_data=told.data,
        reason_string=told.why,
        user_properties=told.user_properties,
    )
    return encode(version, Connack(present, ReasonCode.SUCCESS, properties))


# Most clients are told what others were told before; what is one client's own is never kept.
_usual_connack = lru_cache(CONNACKS_KEPT)(_new_connack)
