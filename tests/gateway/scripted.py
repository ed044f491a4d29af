"""A shell for the gateway core that a test drives by hand, with small honest models of what is at the other ends.

Clients speak real bytes through the codec.  `Homes` answers numbered requests as shards do (connection numbers that only
grow, newest connection per client, QoS 2 ids, "stored" when a durable filter matches).  Nothing is answered by itself: a
test says `answer()` when the shards are to answer, so it can look at what happens before.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from random import Random

from gateway.core import GatewayCore
from gateway.events import (
    AskRight,
    Authenticate,
    CloseSocket,
    ContinueAuth,
    Effect,
    Event,
    ForgetAuth,
    FromSession,
    FromShard,
    Opened,
    PauseReading,
    Received,
    Replied,
    RetainedQuery,
    RetainedTold,
    SessionLinked,
    ShardLinked,
    TickEnded,
    ToPeer,
    ToSession,
    ToShard,
    Wake,
    Write,
)
from gateway.frames import Frame as PeerFrame
from gateway.options import Options
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import (
    Ack,
    AckRun,
    Connack,
    Connect,
    Disconnect,
    Item,
    Properties,
    PublishRun,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
)
from mqtt.topics import matches
from sessions.frames import Attach, Attached
from sessions.frames import Frame as SessionFrame
from sessions.live_frames import Interest
from shards.frames import (
    NOBODY,
    NOT_PERMITTED,
    REFUSED_RULES,
    REPEATED,
    STORED,
    Check,
    Checked,
    Connected,
    Disconnected,
    Entry,
    Publish,
    Published,
    Release,
    Released,
    Reply,
    Superseded,
)
from shards.frames import Connect as ConnectEntry
from shards.frames import Disconnect as DisconnectEntry
from shards.ids import conn_no
from shards.slots import SlotTable

PACKET_BYTES_MAX = 1 << 20


class Homes:
    """What the shards know of clients; one counter per shard."""

    def __init__(self) -> None:
        self.counters: dict[int, int] = {}
        self.newest: dict[bytes, int] = {}
        self.sessions: dict[bytes, int] = {}
        self.qos2_ids: dict[bytes, set[int]] = {}
        self.durable_filters: list[bytes] = []
        self.ended: list[tuple[bytes, int, int, int | None]] = []
        self.stored: list[tuple[bytes, bytes, bytes]] = []
        self.told: list[tuple[int, Superseded]] = []
        self.erasing = 0
        """How many CONNECTs are still answered with "rows of a former session are being erased"."""

    def reply(self, shard: int, entry: Entry) -> Reply:
        match entry:
            case ConnectEntry():
                return self._connect(shard, entry)
            case Publish():
                return self._publish(entry)
            case Release(client, conn, packet_ids):
                if self.newest.get(client) != conn:
                    return Released(True, b"")
                ids = self.qos2_ids.setdefault(client, set())
                found = bytes([packet_id in ids for packet_id in packet_ids])
                ids.difference_update(packet_ids)
                return Released(False, found)
            case DisconnectEntry(client, conn, how, expiry_s):
                if self.newest.get(client) != conn:
                    return Disconnected(True)
                self.ended.append((client, conn, how, expiry_s))
                return Disconnected(False)
            case Check(connections):
                return Checked([conn for client, conn in connections if self.newest.get(client) != conn])
            case _:
                raise AssertionError(f"a gateway does not send {entry}")

    def _connect(self, shard: int, entry: ConnectEntry) -> Connected:
        if self.erasing:
            self.erasing -= 1
            return Connected(0, False, 0)
        counter = self.counters[shard] = self.counters.get(shard, 0) + 1
        conn = int(conn_no(counter, shard))
        older = self.newest.get(entry.client)
        if older is not None:
            self.told.append((shard, Superseded([(entry.client, older)])))
        self.newest[entry.client] = conn
        present = entry.client in self.sessions and not entry.clean_start
        if entry.clean_start:
            self.sessions.pop(entry.client, None)
            self.qos2_ids.pop(entry.client, None)
        if entry.expiry_s and not present:
            self.sessions[entry.client] = 1000 + counter
        return Connected(conn, present, self.sessions.get(entry.client, 0))

    def _publish(self, entry: Publish) -> Published:
        if self.newest.get(entry.client) != entry.conn:
            return Published(True, b"")
        codes = bytearray()
        for flags, packet_id, topic, body in zip(entry.flags, entry.packet_ids, entry.topics, entry.bodies, strict=True):
            code = STORED if any(matches(filter, topic) for filter in self.durable_filters) else NOBODY
            if flags & 4 and entry.keep_ids:
                ids = self.qos2_ids.setdefault(entry.client, set())
                if packet_id in ids:
                    code = REPEATED
                elif flags & NOT_PERMITTED:
                    code = REFUSED_RULES
                else:
                    ids.add(packet_id)
            if packet_id and code not in (REPEATED, REFUSED_RULES):
                self.stored.append((entry.client, topic, body))
            codes.append(code)
        return Published(False, b"" if codes.count(STORED) == len(codes) else bytes(codes))


class Shell:
    def __init__(
        self, options: Options | None = None, n_shards: int = 1, n_sessions: int = 1, name: str = "g1", seed: int = 1, roams: bool = False
    ) -> None:
        self.core = GatewayCore(name, SlotTable.initial(n_shards), n_sessions, options or Options(), Random(seed), roams)
        self.homes = Homes()
        self.now_ms = 5_000_000
        self.wall_ms = 1_700_000_000_000
        self.clients: dict[int, Client] = {}
        self.requests: deque[ToShard] = deque()
        self.to_session: list[tuple[int, SessionFrame]] = []
        self.to_peer: list[tuple[int, PeerFrame]] = []
        self.queries: list[RetainedQuery] = []
        self.asked: list[Authenticate | ContinueAuth | ForgetAuth] = []
        """What whoever answers for identities was told; a test answers."""
        self.rights: list[AskRight] = []
        """What a plugin is asked; a test answers."""
        self.checking = True
        """Whether every turn ends with the core's own check."""
        self.turn(*[ShardLinked(shard) for shard in range(n_shards)], *[SessionLinked(session) for session in range(n_sessions)])
        self.turn(*[FromSession(session, Interest(1, True, [], [], [], [], [])) for session in range(n_sessions)])
        self.to_session.clear()

    def turn(self, *events: Event, after_ms: int = 1) -> list[Effect]:
        """Feed events and end the turn; the effects, Wake left out."""
        for event in events:
            assert self.core.handle(event) == []
        self.now_ms += after_ms
        self.wall_ms += after_ms
        effects = self.core.handle(TickEnded(self.now_ms, self.wall_ms))
        if self.checking:
            self.core.check()
        for effect in effects:
            self._carry_out(effect)
        return [effect for effect in effects if not isinstance(effect, Wake)]

    def pass_time(self, ms: int) -> list[Effect]:
        """Let time go by in turns of a second at most, as the shell does."""
        effects: list[Effect] = []
        while ms > 0:
            effects += self.turn(after_ms=min(ms, 1_000))
            ms -= 1_000
        return effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Write(socket, data):
                self.clients[socket].read(data)
            case CloseSocket(socket, why):
                self.clients[socket].closed = why
            case PauseReading(socket, paused):
                self.clients[socket].paused = paused
            case ToShard():
                self.requests.append(effect)
            case ToSession(session, session_frame):
                self.to_session.append((session, session_frame))
            case ToPeer(link, peer_frame):
                self.to_peer.append((link, peer_frame))
            case RetainedQuery():
                self.queries.append(effect)
            case Authenticate() | ContinueAuth() | ForgetAuth():
                self.asked.append(effect)
            case AskRight():
                self.rights.append(effect)

    def answer(self, count: int = 1_000_000) -> list[Effect]:
        """The shards answer the oldest requests; then a turn ends."""
        events: list[Event] = []
        while self.requests and count:
            request = self.requests.popleft()
            events.append(Replied(request.shard, request.id, [self.homes.reply(request.shard, entry) for entry in request.entries]))
            count -= 1
        events += [FromShard(shard, frame) for shard, frame in self.homes.told]
        self.homes.told.clear()
        return self.turn(*events)

    def client(self, version: int = 5) -> Client:
        client = Client(self, len(self.clients) + 1, version)
        self.clients[client.socket] = client
        self.turn(Opened(client.socket, "tcp", "peer"))
        return client

    def online(
        self, client_id: str, version: int = 5, clean: bool = True, expiry_s: int = 0,
        subscriptions: list[tuple[bytes, int, int, int]] | None = None, **properties: int,
    ) -> Client:  # fmt: skip
        """A client that has its CONNACK; a durable one when expiry_s (MQTT 5) or clean False (3.1.1)."""
        client = self.client(version)
        given = Properties(session_expiry_interval=expiry_s or None, **properties) if version == 5 else Properties()  # type: ignore[arg-type]
        client.send(Connect(version, client_id, clean, properties=given))
        self.answer()
        if not client.packets:
            _, attach = self.to_session.pop()
            assert isinstance(attach, Attach)
            self.turn(FromSession(0, Attached(attach.conn, 0, subscriptions or [])))
        connack = client.packets.pop(0)
        assert isinstance(connack, Connack) and not connack.reason, connack
        client.conn = self.homes.newest[client_id.encode()]
        return client


class Client:
    """One socket; what it sends goes through the real decoder, what it gets is decoded again."""

    def __init__(self, shell: Shell, socket: int, version: int) -> None:
        self.shell = shell
        self.socket = socket
        self.version = version
        self.conn = 0
        self.closed: str | None = None
        self.paused = False
        self.packets: list[Item] = []
        self.reasons: list[str] = []
        """Reason strings that came; the packets are kept without, since most tests are about what is said and not how."""
        self._to_core = Decoder(None, PACKET_BYTES_MAX)
        self._from_core = Decoder(version, PACKET_BYTES_MAX, role="client")

    def event(self, *packets: Item) -> Received:
        data = b"".join([encode(self.version, packet) for packet in packets])
        return Received(self.socket, self._to_core.feed(data))

    def send(self, *packets: Item) -> list[Effect]:
        return self.shell.turn(self.event(*packets))

    def read(self, data: bytes) -> None:
        assert self.closed is None, f"{data!r} written to a closed socket"
        self.packets += [self._without_reason(packet) for packet in self._from_core.feed(data)]

    def _without_reason(self, packet: Item) -> Item:
        if not isinstance(packet, Ack | Connack | Disconnect | Suback | Unsuback) or packet.properties.reason_string is None:
            return packet
        self.reasons.append(packet.properties.reason_string)
        return replace(packet, properties=replace(packet.properties, reason_string=None))

    def take(self) -> list[Item]:
        """What came since the last call, runs taken apart."""
        packets, self.packets = self.packets, []
        return [single for packet in packets for single in apart(packet)]


def apart(packet: Item) -> list[Item]:
    """A run as runs of one, so that tests need not know how packets were joined."""
    if isinstance(packet, AckRun):
        return [AckRun(packet.kind, [packet_id]) for packet_id in packet.packet_ids]
    if isinstance(packet, PublishRun):
        rows = zip(packet.flags, packet.packet_ids, packet.topics, packet.bodies, strict=True)
        return [PublishRun([flags], [packet_id], [topic], [body]) for flags, packet_id, topic, body in rows]
    return [packet]


def message(topic: bytes, payload: bytes, qos: int = 0, packet_id: int = 0, retain: bool = False, dup: bool = False) -> PublishRun:
    """A PUBLISH without properties, as it is sent and as it is decoded."""
    return PublishRun([qos << 1 | retain | dup << 3], [packet_id], [topic], [b"\0" + payload])


def subscribe(client: Client, filter: bytes, qos: int = 0, **options: int | bool) -> None:
    """An ephemeral subscription, its SUBACK and the queries for retained messages taken away."""
    client.send(Subscribe(1, (Subscription(filter, qos, **options),)))  # type: ignore[arg-type]
    client.take()
    while client.shell.queries:
        query = client.shell.queries.pop(0)
        client.shell.turn(RetainedTold(query.shard, query.id, [], b""))
