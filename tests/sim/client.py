"""An MQTT client over the simulated network: connections, keep alive, coming back; what it publishes and subscribes is apart.

Bytes go through the shipped codec in the client's role, cut at random points.  A client knows its session across
connections.  An older connection that it has left without closing it (a take-over, as by a second device with the same id)
is an orphan: what was written to it still arrives at its gateway, what comes over it is not heard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from access.scram import SCRAM_METHOD
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import (
    MQTT_5,
    Ack,
    AckKind,
    AckRun,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Item,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    PublishRun,
    Suback,
    Unsuback,
    Will,
)
from mqtt.reason import ReasonCode
from tests.sim.desk import shown
from tests.sim.ledger import Ledger, Message
from tests.sim.network import End, Network, Wire
from tests.sim.process import Process
from tests.sim.publishing import Publishing
from tests.sim.rules import Rules, Violation
from tests.sim.subscribing import Subscribing
from tests.sim.world import MS, SECOND, World

CONNACK_WITHIN_US = 12 * SECOND
PINGRESP_WITHIN_US = 6 * SECOND
GATEWAY_LOST_US = 60 * SECOND
"""Long after this a gateway that stood still is as good as any other."""
AGAIN_US = (30 * MS, 1500 * MS)
PACKET_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Temper:
    """How a client is.  expiry_s 0: an ephemeral session.  will_qos -1: no will.  cut: how often a write arrives in pieces.

    will_delay_s: of MQTT 5.  memory: its session is not durable, and is gone with its session actor.  user: who it says it is."""

    version: int
    expiry_s: int
    keep_alive_s: int
    receive_max: int
    will_qos: int = -1
    will_delay_s: int = 0
    cut: float = 0.1
    slow_to_hear_us: int = 100 * MS
    memory: bool = False
    user: str = ""
    by_method: bool = False


class Attempt:
    """One connection, from dialling on."""

    def __init__(self, client: Client, serial: int, gateway: int, clean: bool, will: Message | None) -> None:
        self.serial = serial
        self.gateway = gateway
        self.clean = clean
        self.will = will
        self.online = False
        self.over = False
        self.polite = False
        """DISCONNECT was sent."""
        self.online_us = -1
        self.said_expiry = False
        """With another expiry."""
        self.present_us = -1
        """When it heard that its session is present."""
        self.delayed = False
        """Its gateway stood still while it was made: the home may have ended it before the client was told of it."""
        self.began_us = client.world.now_us
        self.wire: Wire | None = None
        self.heard_us = 0
        self.pinged_us = -1
        self._client = client
        self._decoder = Decoder(client.temper.version, PACKET_BYTES_MAX, "client")

    @property
    def whole(self) -> bool:
        return self.wire is not None and self.wire.whole

    def link_up(self, end: End) -> None:
        raise AssertionError("a client's end is up from the beginning")

    def link_frame(self, end: End, data: bytes) -> None:
        if self._client.attempt is self:
            self.heard_us = self._client.world.now_us
            self.pinged_us = -1
            self._client.received(self, self._decoder.feed(data), end.left_us)

    def link_down(self, end: End) -> None:
        self.over = True
        if self._client.attempt is self:
            self._client.lost("closed")


class Client:
    """`session`: the client has reason to believe that the broker keeps one for it."""

    def __init__(
        self, world: World, network: Network, n_gateways: int, client_id: str, temper: Temper, ledger: Ledger, rules: Rules
    ) -> None:
        self.world = world
        self.id = client_id
        self.key = client_id.encode()
        self.temper = temper
        self.ledger = ledger
        self.rules = rules
        self.process = Process(world, "client", 0, 0)
        self.process.name = client_id
        self.attempt: Attempt | None = None
        self.attempts: list[Attempt] = []
        self.session = False
        self.durable = temper.expiry_s > 0
        """Whether the session of this connection outlives it: one of 3.1.1 that begins clean does not."""
        self.must_be_clean = temper.expiry_s == 0 and temper.version != MQTT_5
        self.away_since_us = 0
        self.wanted = True
        """It wants to be connected."""
        self.heard_message: Callable[[Client], None] = _nothing
        """Told of every delivery: a moment to go away in."""
        self.heard_auth: Callable[[Auth], None] = _nothing
        self.sent_away: Callable[[ReasonCode], None] = _nothing
        self.session_on_disk: Callable[[bytes], int] = _unknown
        """Which session the broker keeps for a client: the one thing that the client could not know."""
        self.memory_on_disk: Callable[[bytes], tuple[int, int]] = _no_memory
        """The owner token under which a session in memory was made, and the newest one that its home has given."""
        self._session_id = 0
        self._token = 0
        self._expiry_s = temper.expiry_s
        """Of the session, as the broker was told last."""
        self._end_known_us = -1
        self._loose = 0
        """Attempts with clean start that were given up unanswered: each may yet come late, and end the session that is there."""
        self.publishing = Publishing(self)
        self.subscribing = Subscribing(self)
        self.server_receive_max = 65_535
        self._network = network
        self._n_gateways = n_gateways
        self._out: list[bytes] = []
        self._dialling = False

    # ------------------------------------------------------------------ coming and going

    @property
    def online(self) -> bool:
        return self.attempt is not None and self.attempt.online

    @property
    def stored(self) -> bool:
        """Whether what it has subscribed to is stored for it."""
        return self.durable and not self.temper.memory

    @property
    def idle(self) -> bool:
        """Everything is done, and the connection is there; that it is broken a client may hear late."""
        if self.attempt is None or not self.attempt.whole:
            return False
        return self.online and self.publishing.idle and self.subscribing.idle

    def story(self) -> str:
        """What it has not finished."""
        return f"{self.id} online {self.online}, publishing {self.publishing.unfinished}, subscribing {self.subscribing.story()}"

    def connect_soon(self, delay_us: int) -> None:
        if not self._dialling:
            self._dialling = True
            self.world.later(delay_us, self._connect)

    def _connect(self) -> None:
        self._dialling = False
        if self.wanted and self.attempt is None:
            self.connect()

    def connect(self, clean: bool = False, elsewhere: bool = False) -> None:
        """A new connection; an older one that is not over becomes an orphan.  elsewhere: to another gateway, if there is one."""
        world = self.world
        self._leave()
        gateway = world.between(0, self._n_gateways - 1)
        if elsewhere and self.attempts and gateway == self.attempts[-1].gateway:
            gateway = (gateway + 1) % self._n_gateways
        serial = len(self.attempts) + 1
        clean = clean or self.must_be_clean
        attempt = Attempt(self, serial, gateway, clean, self._will(serial))
        wire = self._network.dial(self.process, attempt, ("mqtt", gateway), self.temper.slow_to_hear_us)
        if wire is None:
            self.connect_soon(world.between(*AGAIN_US))
            return
        world.note(self.id, "connects", f"attempt {serial} to gateway {gateway}{' clean' if clean else ''}")
        attempt.wire = wire
        wire.connect()
        self.durable = self.temper.expiry_s > 0 and (self.temper.version == MQTT_5 or not clean)
        self.attempts.append(attempt)
        self.attempt = attempt
        if clean:
            self._session_over()
            self.must_be_clean = True
        attempt.heard_us = world.now_us
        will = attempt.will
        if will is not None:
            self.ledger.add(will)
        self.send(self._packet(attempt))
        world.later(CONNACK_WITHIN_US, self._late, attempt)

    def _packet(self, attempt: Attempt) -> Connect:
        temper, will = self.temper, attempt.will
        properties = Properties()
        if temper.version == MQTT_5:
            properties = Properties(session_expiry_interval=temper.expiry_s or None, receive_maximum=temper.receive_max)
        sent = None
        if will is not None:
            delay = Properties(will_delay_interval=temper.will_delay_s or None) if temper.version == MQTT_5 else Properties()
            sent = Will(will.topic, will.payload, will.qos, will.retain, delay)
        user, password = (temper.user, temper.user.encode()) if temper.user else (None, None)
        if temper.by_method:
            user = password = None
            word = shown(temper.user, temper.user)
            properties = replace(properties, authentication_method=SCRAM_METHOD, authentication_data=word)
        return Connect(temper.version, self.id, attempt.clean, temper.keep_alive_s, user, password, sent, properties)

    def _will(self, serial: int) -> Message | None:
        if self.temper.will_qos < 0:
            return None
        payload = b"will-%b-%d " % (self.key, serial)
        return Message(payload, self.key, b"w/" + self.key, self.temper.will_qos, False, will=serial)

    def _late(self, attempt: Attempt) -> None:
        if self.attempt is attempt and not attempt.online:
            self.drop()

    def _leave(self) -> None:
        """Let go of the present connection without closing it."""
        if self.attempt is not None:
            self._flush()
            self._give_up(self.attempt)
            self.attempt = None
            self._offline()

    def _give_up(self, attempt: Attempt) -> None:
        self._loose += attempt.clean and not attempt.online
        if attempt.online:
            assert attempt.wire is not None
            gateway, broken_us = attempt.wire.accepted.process, attempt.wire.broken_us
            steady = gateway.alive and not gateway.stopped and self.world.now_us - gateway.still_us > GATEWAY_LOST_US
            ended_us = self.world.now_us if broken_us < 0 else broken_us
            self._end_known_us = ended_us if steady or self._expiry_s > GATEWAY_LOST_US // SECOND else -1

    def _offline(self) -> None:
        self._out.clear()
        self.away_since_us = self.world.now_us
        self.publishing.offline()
        self.subscribing.offline()

    def lost(self, why: str, again: bool = True) -> None:
        """The connection is over, from whichever side."""
        attempt, self.attempt = self.attempt, None
        assert attempt is not None
        attempt.over = True
        self._give_up(attempt)
        self.world.note(self.id, "offline", why)
        self._offline()
        if self.wanted and again:
            self.connect_soon(self.world.between(*AGAIN_US))

    def drop(self, again: bool = True) -> None:
        """Close the socket without a word, and connect again soon."""
        if self.attempt is not None:
            assert self.attempt.wire is not None
            self.attempt.wire.dialler.close("client drops")
            self.lost("dropped", again)

    def disconnect(self, with_will: bool = False, expiry_s: int | None = None) -> None:
        """DISCONNECT, and close.  expiry_s: another one for the session from now on, if it has one and the version can say so."""
        attempt = self.attempt
        if attempt is None or not attempt.online:
            return
        attempt.polite = not (with_will and self.temper.version == MQTT_5)
        properties = Properties()
        if expiry_s is not None and self.temper.version == MQTT_5 and self.temper.expiry_s:
            properties = Properties(session_expiry_interval=expiry_s)
            # It may not arrive.
            self._expiry_s = min(self._expiry_s, expiry_s)
            attempt.said_expiry = True
        self.send(Disconnect(ReasonCode.NORMAL_DISCONNECTION if attempt.polite else ReasonCode.DISCONNECT_WITH_WILL_MESSAGE, properties))
        self._flush()
        assert attempt.wire is not None
        attempt.wire.dialler.close("client disconnects")
        self.lost("disconnected")

    # ------------------------------------------------------------------ sending

    def send(self, packet: Item) -> None:
        """Everything of one moment goes out together."""
        if not self._out:
            self.world.later(self.world.between(0, 200), self._flush)
        self._out.append(encode(self.temper.version, packet))

    def _flush(self) -> None:
        if not self._out or self.attempt is None:
            return
        data, self._out = b"".join(self._out), []
        assert self.attempt.wire is not None
        end = self.attempt.wire.dialler
        while len(data) > 1 and self.world.happens(self.temper.cut):
            at = self.world.between(1, len(data) - 1)
            end.send(data[:at])
            data = data[at:]
        end.send(data)

    # ------------------------------------------------------------------ receiving

    def received(self, attempt: Attempt, items: list[Item], left_us: int) -> None:
        for item in items:
            if self.attempt is not attempt:
                return
            self.world.note(self.id, "<", item)
            match item:
                case PublishRun():
                    for flags, packet_id, topic, body in zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True):
                        self.subscribing.got(flags, packet_id, topic, body[1:], 0)
                case Publish():
                    identifiers = item.properties.subscription_identifiers
                    self.subscribing.got(item.flags, item.packet_id, item.topic, item.payload, identifiers[0] if identifiers else 0)
                case AckRun(kind, packet_ids):
                    for packet_id in packet_ids:
                        self._acked(kind, packet_id, ReasonCode.SUCCESS, left_us)
                case Ack():
                    self._acked(item.kind, item.packet_id, item.reason, left_us)
                case Connack():
                    self._connack(attempt, item)
                case Suback():
                    self.subscribing.subacked(item, left_us)
                case Unsuback():
                    self.subscribing.unsubacked(item)
                case Pingresp():
                    pass
                case Auth():
                    self.heard_auth(item)
                case Disconnect(reason):
                    self.sent_away(reason)
                    if reason in (ReasonCode.PROTOCOL_ERROR, ReasonCode.MALFORMED_PACKET, ReasonCode.RECEIVE_MAXIMUM_EXCEEDED):
                        raise Violation(f"{self.id} was told {reason.name}: a client that does nothing wrong")
                    self.drop()
                case _:
                    raise Violation(f"{self.id} got {item}")

    def _acked(self, kind: AckKind, packet_id: int, reason: ReasonCode, left_us: int) -> None:
        if kind is AckKind.PUBREL:
            self.subscribing.released(packet_id)
        else:
            self.publishing.acked(kind, packet_id, reason, left_us)

    def _connack(self, attempt: Attempt, packet: Connack) -> None:
        if packet.reason:
            self.drop()
            return
        present = packet.session_present
        if present and (attempt.clean or not self.durable):
            raise Violation(f"{self.id}: session present on attempt {attempt.serial}, which asked for a new session")
        session_id, before = self.session_on_disk(self.key), self._session_id
        self._session_id = session_id
        token, newest_token = self.memory_on_disk(self.key)
        memory_gone = self.temper.memory and newest_token > self._token
        self._token = token
        if self.session and not attempt.clean and (not present or session_id != before):
            expired = self._may_have_expired()
            if not self._loose and not memory_gone and not expired:
                raise Violation(f"{self.id}: the session is gone on attempt {attempt.serial}, {session_id} is there and was {before}")
            # If it has not expired, a CONNECT of a connection that we had left long ago, with clean start, was the last to arrive.
            self._loose -= not memory_gone and not expired
            self._session_over()
        if not present:
            self._session_over()
        self.must_be_clean = self.temper.expiry_s == 0 and self.temper.version != MQTT_5
        self._expiry_s = self.temper.expiry_s
        self.session = self.durable
        attempt.online = True
        attempt.online_us = self.world.now_us
        assert attempt.wire is not None
        attempt.delayed = attempt.wire.accepted.process.still_us >= attempt.began_us
        if present:
            attempt.present_us = self.world.now_us
        self.server_receive_max = packet.properties.receive_maximum or 65_535
        self._keep_alive(attempt)
        self.publishing.online(present)
        self.subscribing.online(present)

    def _may_have_expired(self) -> bool:
        """Exact to a second from the end of the last connection that the client knows of; when its gateway stood still, the
        home may have counted from before."""
        return self.world.step_counted or self._end_known_us < 0 or self.world.now_us - self._end_known_us > (self._expiry_s - 1) * SECOND

    def _session_over(self) -> None:
        """No session, or another one, from now on."""
        self.session = False
        self.publishing.session_over()
        self.subscribing.session_over()

    # ------------------------------------------------------------------ keep alive

    def _keep_alive(self, attempt: Attempt) -> None:
        if self.attempt is not attempt or not self.temper.keep_alive_s:
            return
        now_us = self.world.now_us
        if 0 <= attempt.pinged_us < now_us - PINGRESP_WITHIN_US:
            self.drop()
            return
        if attempt.pinged_us < 0:
            attempt.pinged_us = now_us
            self.send(Pingreq())
        self.world.later(self.temper.keep_alive_s * SECOND // 2, self._keep_alive, attempt)


def _nothing(what: object) -> None:
    pass


def _unknown(client: bytes) -> int:
    return 0


def _no_memory(client: bytes) -> tuple[int, int]:
    return 0, 0
