"""A gateway: the shipped core and decoder, with actors.gateway's and actors.connection's order of calls on virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random

from gateway import frames as peer_frames
from gateway.core import GatewayCore
from gateway.events import (
    Authenticate,
    CloseSocket,
    Congested,
    ContinueAuth,
    Effect,
    Event,
    ForgetAuth,
    FromPeer,
    FromSession,
    FromShard,
    HoldingsQuery,
    HoldingsTold,
    LookForEnd,
    Malformed,
    Opened,
    PauseReading,
    PeerLinked,
    PeerLost,
    Received,
    Replied,
    RetainedQuery,
    RetainedTold,
    SessionLinked,
    SessionLost,
    ShardLinked,
    ShardLost,
    SocketLost,
    Stopping,
    TickEnded,
    ToPeer,
    ToSession,
    ToShard,
    Wake,
    Write,
)  # fmt: skip
from gateway.options import Options
from gateway.retained import NO_PAGE
from mqtt.decode import DecodeError, Decoder
from sessions import frames as session_frames
from shards.frames import Connected, Frame, Holdings, HoldingsFound, Live, Reply, Result, RetainedMessages, RetainedPage, Superseded
from shards.slots import SlotTable
from tests.sim.asker import Asker
from tests.sim.desk import Desk
from tests.sim.network import Dialler, End, Network, taken
from tests.sim.process import Process, Turns
from tests.sim.world import MS, SECOND

LISTEN_WITHIN_US = 3 * SECOND
STOP_WITHIN_US = 8 * SECOND
SLOW_FACTOR = 8
_LOOK_AGAIN_US = 20 * MS


@dataclass(frozen=True, slots=True)
class GatewaySetting:
    n_shards: int
    n_sessions: int
    n_gateways: int
    options: Options
    made: Callable[[GatewayCore], None]
    check_every: int
    numbered: Callable[[int], None]
    """Told of every connection number that a home has given."""
    write_buffer_max: int = 1 << 16
    roams: bool = False


class GatewayPart:
    """One incarnation of a gateway's process."""

    def __init__(self, process: Process, network: Network, setting: GatewaySetting) -> None:
        self.process = process
        self.index = process.index
        self.setting = setting
        self._world = process.world
        self._network = network
        self._sockets = count(1)
        self._connections: dict[int, ClientSocket] = {}
        self._turns_taken = 0
        rng = Random(self._world.rng.getrandbits(32))
        self.core = GatewayCore(process.name, SlotTable.initial(setting.n_shards), setting.n_sessions, setting.options, rng, setting.roams)
        setting.made(self.core)
        self._pump = Turns(process, self._tick)
        self._desk = Desk(process, self.feed)
        self._shards = [Asker(network, process, shard, self) for shard in range(setting.n_shards)]
        self._sessions = [_SessionLink(self, network, index) for index in range(setting.n_sessions)]
        self._peers = _PeerLinks(self)
        # The later ones dial the earlier ones, as in the shell.
        self._peer_diallers = [Dialler(network, process, self._peers, ("gateway", other)) for other in range(self.index)]
        self._started_us = self._world.now_us

    def start(self) -> None:
        self._network.listen(("gateway", self.index), self.process, lambda: self._peers)
        links: list[Asker | _SessionLink | Dialler] = [*self._shards, *self._sessions, *self._peer_diallers]
        for link in links:
            link.start()
        self._wait_for_tables()

    def _wait_for_tables(self) -> None:
        """Clients are accepted when every shard, session actor and other gateway that is there has been heard."""
        linked = all(asker.linked for asker in self._shards) and all(link.linked for link in self._sessions)
        if (linked and self.core.ready()) or self._world.now_us - self._started_us >= LISTEN_WITHIN_US:
            self._network.listen(("mqtt", self.index), self.process, lambda: ClientSocket(self, next(self._sockets)))
            self._world.note(self.process.name, "listens")
        else:
            self.process.after(_LOOK_AGAIN_US, self._wait_for_tables)

    def shut_down(self) -> None:
        """The graceful end: DISCONNECT to every client once its acknowledgements are out."""
        self.process.shut_down = True
        self._network.ignore(("mqtt", self.index), self.process)
        self.feed(Stopping())
        self._wait_for_end(self._world.now_us + STOP_WITHIN_US)

    def _wait_for_end(self, deadline_us: int) -> None:
        if self._world.now_us < deadline_us and (self.core.connections or not self.core.settled()):
            self.process.after(50 * MS, self._wait_for_end, deadline_us)
        else:
            self.process.die("shut down")

    # ------------------------------------------------------------------ connections of clients

    def opened(self, connection: ClientSocket) -> None:
        self._connections[connection.socket] = connection
        self.feed(Opened(connection.socket, "tcp", connection.peer))

    def lost(self, connection: ClientSocket, why: str) -> None:
        self._connections.pop(connection.socket, None)
        self.feed(SocketLost(connection.socket, why))

    def congested(self, connection: ClientSocket, full: bool) -> None:
        if connection.socket in self._connections:
            self.feed(Congested(connection.socket, full))

    # ------------------------------------------------------------------ the core

    def feed(self, event: Event) -> None:
        effects = self.core.handle(event)
        if effects:
            self._carry_out(effects)
        if self.core.patient:
            self._pump.patiently()
        else:
            self._pump.soon()

    def _tick(self) -> None:
        self._carry_out(self.core.handle(TickEnded(self._world.now_ms, self._world.steady_ms)))
        self._turns_taken += 1
        if self._turns_taken % self.setting.check_every == 0:
            self.core.check()

    def check(self) -> None:
        self.core.check()

    def _carry_out(self, effects: list[Effect]) -> None:
        connections = self._connections
        for effect in effects:
            match effect:
                case Write(socket, data):
                    connection = connections.get(socket)
                    if connection is not None:
                        connection.write(data)
                case ToShard(shard, id, entries):
                    self._shards[shard].ask(id, entries)
                case ToSession(session, frame):
                    self._sessions[session].hand_on(frame)
                case ToPeer(link, peer_frame):
                    self._peers.send(link, peer_frames.encode(peer_frame))
                case Wake(after_ms):
                    self._pump.within(after_ms)
                case CloseSocket(socket, why):
                    closing = connections.pop(socket, None)
                    if closing is not None:
                        closing.close(why)
                case PauseReading(socket, paused):
                    connection = connections.get(socket)
                    if connection is not None:
                        connection.read(not paused)
                case LookForEnd(socket):
                    connection = connections.get(socket)
                    if connection is not None:
                        connection.look_for_end()
                case RetainedQuery(shard, id, topic_filter, after, count_max):
                    self._shards[shard].query(id, RetainedPage(topic_filter, after, count_max))
                case HoldingsQuery(shard):
                    self._shards[shard].query(NO_PAGE, Holdings())
                case Authenticate():
                    self._desk.ask(effect)
                case ContinueAuth():
                    raise AssertionError("no client of the simulation is challenged")
                case ForgetAuth(socket):
                    self._desk.forget(socket)

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None:
        self.feed(ShardLinked(shard))

    def shard_lost(self, shard: int) -> None:
        self.feed(ShardLost(shard))

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Connected) and reply.conn:
                self.setting.numbered(reply.conn)
        self.feed(Replied(shard, id, replies))

    def shard_told(self, shard: int, frame: Frame) -> None:
        match frame:
            case Superseded() | Live():
                self.feed(FromShard(shard, frame))
            case Result(id, RetainedMessages(values, next_after)):
                self.feed(RetainedTold(shard, id, values, next_after))
            case Result(_, HoldingsFound() as found):
                self.feed(HoldingsTold(shard, found))
            case Result(id, None):
                self.feed(RetainedTold(shard, id, None, b""))
            case _:
                raise AssertionError(f"shard {shard} told {self.process.name} {type(frame).__name__}")


class ClientSocket:
    """actors.connection.ClientConnection: bytes in to packets, packets out to bytes, and the bounds on both."""

    def __init__(self, gateway: GatewayPart, socket: int) -> None:
        self.socket = socket
        self.peer = ""
        self._gateway = gateway
        options = gateway.setting.options
        self._decoder = Decoder(None, options.packet_bytes_max)
        self._end: End | None = None
        self._closing = False
        self._paused = False
        self._reading = True
        self._ended = False
        self._unread: list[bytes] = []

    @property
    def closing(self) -> bool:
        """The gateway has ended the connection, or has heard that it is over."""
        return self._closing

    def link_up(self, end: End) -> None:
        self._end = end
        self.peer = end.peer_name
        self._gateway.opened(self)

    def link_frame(self, end: End, data: bytes) -> None:
        if self._unread or not self._reading or self._paused:
            self._unread.append(data)
            return
        self._received(data)

    def _received(self, data: bytes) -> None:
        if self._closing:
            return
        self._gateway.process.world.note(self._gateway.process.name, f"<{self.peer}", data.hex, data)
        try:
            items = self._decoder.feed(data)
        except DecodeError as error:
            if error.items:
                self._gateway.feed(Received(self.socket, error.items))
            self._gateway.feed(Malformed(self.socket, int(error.reason), error.detail, self._decoder.version or 0))
            return
        if items:
            self._gateway.feed(Received(self.socket, items))

    def link_down(self, end: End) -> None:
        """A loop that does not read a socket does not see its end either."""
        self._ended = True
        if self._unread or not self._reading or self._paused:
            return
        self._lost("closed by the peer")

    def _lost(self, why: str) -> None:
        self._end = None
        if not self._closing:
            self._closing = True
            self._gateway.lost(self, why)

    # ------------------------------------------------------------------ for the gateway

    def write(self, data: bytes) -> None:
        end = self._end
        if end is None or self._closing:
            return
        if self._ended:
            self._gateway.process.after(1, self._lost, "broken pipe")
            return
        end.send(data)
        waiting = end.unread_bytes
        high = self._gateway.setting.write_buffer_max
        if waiting > high and not self._paused:
            self._paused = True
            self._gateway.process.after(_LOOK_AGAIN_US, self._look_again)
            self._gateway.congested(self, True)
        if self._paused and waiting > SLOW_FACTOR * high:
            self._closing = True
            self._gateway.lost(self, f"{waiting} bytes wait for a client that does not read")
            end.close("too slow")

    def _look_again(self) -> None:
        end = self._end
        if end is None or self._closing:
            return
        if end.unread_bytes > self._gateway.setting.write_buffer_max // 4:
            self._gateway.process.after(_LOOK_AGAIN_US, self._look_again)
            return
        self._paused = False
        self._gateway.congested(self, False)
        self._go_on()

    def read(self, wanted: bool) -> None:
        self._reading = wanted
        self._go_on()

    def _go_on(self) -> None:
        """The socket is read again; what waits in it comes with the next turn of the loop, not inside this call."""
        if (self._unread or self._ended) and self._reading and not self._paused:
            self._gateway.process.after(1, self._drain)

    def _drain(self) -> None:
        while self._unread and self._reading and not self._paused:
            self._received(self._unread.pop(0))
        if self._ended and not self._unread and self._reading and not self._paused:
            self._lost("closed by the peer")

    def look_for_end(self) -> None:
        if self._ended:
            self._gateway.process.after(1, self._lost, "closed by the peer")

    def close(self, why: str) -> None:
        """Flush and close."""
        self._closing = True
        if self._end is not None:
            self._end.close(why)


class _SessionLink:
    """The link to one session actor."""

    def __init__(self, gateway: GatewayPart, network: Network, session: int) -> None:
        self._gateway = gateway
        self._session = session
        self._dialler = Dialler(network, gateway.process, self, ("session", session))
        self.linked = False

    def start(self) -> None:
        self._dialler.start()

    def hand_on(self, frame: session_frames.Frame) -> None:
        self._dialler.hand_on(frame, session_frames.encode)

    def link_up(self, end: End) -> None:
        self.linked = True
        self._gateway.feed(SessionLinked(self._session))

    def link_frame(self, end: End, data: bytes) -> None:
        frame = taken(data, session_frames.decode)
        process = self._gateway.process
        process.world.note(process.name, f"<session {self._session}", frame, data)
        self._gateway.feed(FromSession(self._session, frame))

    def link_down(self, end: End) -> None:
        self.linked = False
        self._gateway.feed(SessionLost(self._session))


class _PeerLinks:
    """Links from and to the other gateways."""

    def __init__(self, gateway: GatewayPart) -> None:
        self._gateway = gateway
        self._links: dict[int, End] = {}

    def send(self, link: int, data: bytes) -> None:
        found = self._links.get(link)
        if found is not None:
            found.send(data)

    def link_up(self, end: End) -> None:
        self._links[end.number] = end
        self._gateway.feed(PeerLinked(end.number, end.peer_name))

    def link_frame(self, end: End, data: bytes) -> None:
        frame = peer_frames.decode(data)
        process = self._gateway.process
        process.world.note(process.name, f"<{end.peer_name}", frame, data)
        self._gateway.feed(FromPeer(end.number, frame))

    def link_down(self, end: End) -> None:
        del self._links[end.number]
        self._gateway.feed(PeerLost(end.number))
