"""The gateway actor: listens for MQTT clients and carries out what the gateway core decides.

Owns connections and ephemeral sessions, nothing that has to survive it: durable sessions live in their home shards.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import structlog

from access.bundle import Bundle
from access.rules import Access
from actors.access.watch import AccessWatch
from actors.auth.serving import ServedDesk
from actors.clocks import Steady
from actors.connection import ClientConnection
from actors.fatal import die_of, log_faults_of_loop
from actors.gateway_links import GatewayLinks
from actors.heartbeat import Heartbeat
from actors.listening.doors import Doors, former_port
from actors.metrics.of_gateway import GatewayFigures
from actors.pump import Pump, settle_gc
from actors.settings import bridge_door, door_options, gateway_options
from actors.sites.following import Following, store_id, whereabouts_of
from actors.snapshot import settings_in_force
from actors.sparing import Sparing
from actors.topology import Announcement, Health, ListenerInfo, Topology, announce, incarnation_of, member_name
from config.schema import Config
from gateway import frames as peer_frames
from gateway.bridges import LISTENER, token
from gateway.core import GatewayCore
from gateway.events import (
    AccessChanged,
    AskRight,
    Authenticate,
    CloseSocket,
    Congested,
    ContinueAuth,
    Effect,
    Event,
    ForgetAuth,
    FromSession,
    FromShard,
    HoldingsQuery,
    HoldingsTold,
    IdentitiesRevoked,
    LookForEnd,
    Malformed,
    Opened,
    PauseReading,
    Received,
    Replied,
    RetainedQuery,
    RetainedTold,
    SettingsChanged,
    ShardLinked,
    ShardLost,
    SocketLost,
    Stopping,
    TickEnded,
    ToInquirer,
    ToPeer,
    ToSession,
    ToShard,
    Wake,
    Write,
)  # fmt: skip
from gateway.options import Options
from gateway.persisting import joins
from gateway.retained import NO_PAGE
from mqtt.blocks import PropertyBlocks
from mqtt.packets import Item
from sessions import frames as session_frames
from sessions import inquiry_frames
from shards.frames import Frame, Holdings, HoldingsFound, Live, Reply, Result, RetainedMessages, RetainedPage, Superseded
from shards.slots import SlotTable

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS = 0.5
LOOK_BEATS = 20
"""At each of so many heartbeats, connections that are not read are looked at: their peers may be gone."""
LISTEN_WITHIN_SECONDS = 3.0
STOP_WITHIN_SECONDS = 8.0


class GatewayServer:
    """Terminates MQTT.  If it dies its clients reconnect; nothing acknowledged is lost with it."""

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._index = index
        self._started: Announcement | None = None
        self._connections: dict[int, ClientConnection] = {}
        self.bytes_received = 0
        self._beats = 0
        self.figures = GatewayFigures(index)

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        log_faults_of_loop()
        config = settings_in_force(topology)
        self.connect_bytes_max = int(config.gateway.connect_limit)
        self.filters_max = config.mqtt.filters_per_packet_max
        self.user_properties_max = config.mqtt.user_properties_max
        self.topic_levels_max = config.gateway.topic_levels_max
        self.property_blocks = PropertyBlocks(joins)
        self.write_buffer_max = int(config.gateway.write_buffer_max)
        self._whereabouts = whereabouts_of(topology)
        async with AsyncExitStack() as opened:
            listeners = await self._open(config, opened)
            started = Announcement("gateway", member_name("gateway", self._index), os.getpid(), listeners)
            announce(topology, started)
            self._closing = opened.pop_all()
        self._started = started
        log.info("gateway.started", name=self._core.name, listeners=[f"{info.kind} {info.place}" for info in listeners])
        return self._started

    async def _open(self, config: Config, opened: AsyncExitStack) -> tuple[ListenerInfo, ...]:
        """Its listeners, but for that of bridges, which is nobody's business.  opened: closes what was opened, the last first."""
        topology, member = self._topology, member_name("gateway", self._index)
        name = incarnation_of(topology, "gateway", self._index)
        slots = SlotTable.initial(topology.n_shards)
        rng = random.Random(secrets.randbits(64))
        self._core = GatewayCore(name, slots, topology.n_sessions, self._options(config), rng, roams=topology.sites is not None)
        self._pump = Pump(self._tick)
        self._complaints = Sparing("client.malformed")
        self._steady = Steady(topology.run_dir, topology.n_shards)
        self._links = links = GatewayLinks(topology, self._index, self._whereabouts, self, name)
        self._shards, self._sessions, self._peers = links.shards, links.sessions, links.peers
        opened.push_async_callback(links.stop)
        opened.callback(self._pump.stop)
        await links.start()
        following = Following(self._whereabouts, self._moved)
        opened.callback(following.stop)
        following.start()
        self._desk = ServedDesk(topology, member, config, self._feed)
        opened.push_async_callback(self._desk.stop)
        access = AccessWatch(topology.run_dir, self._take_access, name=member)
        opened.callback(access.stop)
        await access.start()
        await self._desk.ready()
        self._heart = Heartbeat(topology.heartbeat_path(self._index))
        opened.callback(self._stop_beating)
        self._beat()
        await self._wait_for_tables()
        self._doors = Doors(self, self._index, topology.run_dir, member)
        opened.callback(self._doors.close)
        own_port = former_port(topology.run_dir, member) if topology.n_gateways > 1 else None
        infos = await self._doors.open([*door_options(config), bridge_door(topology.run_dir, config)], own_port)
        settle_gc()
        return tuple([info for info in infos if info.name != LISTENER])

    async def stop(self) -> None:
        """DISCONNECT to every client once its acknowledgements are out, then everything is closed."""
        if self._started is None:
            return
        self._started = None
        self._doors.close()
        self._feed(Stopping())
        deadline = time.monotonic() + STOP_WITHIN_SECONDS
        # A look every now and then: what settles a core is spread over all of its links.
        while time.monotonic() < deadline and (self._core.connections or not self._core.settled()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        for connection in list(self._connections.values()):
            connection.close()
        await self._closing.aclose()

    async def health(self) -> Health:
        away = [client.shard for client in self._shards if not client.linked] if self._started else []
        return Health(self._started is not None, f"shards away: {away}" if away else "")

    def reconfigure(self, config: Config) -> None:
        self.connect_bytes_max = int(config.gateway.connect_limit)
        self.filters_max = config.mqtt.filters_per_packet_max
        self.user_properties_max = config.mqtt.user_properties_max
        self._doors.change(door_options(config))
        infos = tuple([info for info in self._doors.infos if info.name != LISTENER])
        if self._started is not None and infos != self._started.listeners:
            self._started = replace(self._started, listeners=infos)
            announce(self._topology, self._started)
        self._desk.reconfigure(config)
        self._feed(SettingsChanged(self._options(config)))

    def _options(self, config: Config) -> Options:
        topology = self._topology
        return replace(gateway_options(config), bridge_token=token(topology.secret), store=store_id(topology, self._whereabouts))

    def _moved(self) -> None:
        """Shards are led elsewhere, or there are other gateways."""
        self._steady.look_again()
        self._links.look_again()

    def _take_access(self, bundle: Bundle, access: Access) -> None:
        self._feed(AccessChanged(access))
        self._desk.took(bundle)

    def counters(self) -> dict[str, int]:
        shards = self._shards
        return {
            **asdict(self._core.counters), **self._core.sent, "connections": len(self._connections),
            "accepts_exhausted": self._doors.exhaustions, "shards_away": sum([not client.linked for client in shards]),
            "frames_unanswered": sum([client.backlog for client in shards]),
        }  # fmt: skip

    def measure(self, sheet: Sheet) -> None:
        self.figures.tell(sheet, self.counters())

    # ------------------------------------------------------------------ listening

    async def _wait_for_tables(self) -> None:
        """Clients are accepted when every shard, session actor and other gateway that is there has been heard."""
        deadline = time.monotonic() + LISTEN_WITHIN_SECONDS
        while time.monotonic() < deadline:
            if self._links.linked and self._core.ready():
                return
            await asyncio.sleep(0.02)

    def _beat(self) -> None:
        self._heart.beat()
        self._beats += 1
        if self._beats % LOOK_BEATS == 0:
            for connection in list(self._connections.values()):
                connection.look()
        self._next_beat = asyncio.get_running_loop().call_later(HEARTBEAT_SECONDS, self._beat)

    def _stop_beating(self) -> None:
        self._next_beat.cancel()
        self._heart.close()

    # ------------------------------------------------------------------ ConnectionOwner

    def opened(self, connection: ClientConnection) -> None:
        self._connections[connection.socket] = connection
        arrival, door = connection.arrival, connection.arrival.door
        self._feed(
            Opened(
                connection.socket, arrival.listener, arrival.peer, arrival.address, arrival.loopback, connection.names, connection.serial,
                door.takes_certificate, self._pump.now_ms() - arrival.began_ms, door.packet_bytes_max,
            )
        )  # fmt: skip

    def received(self, connection: ClientConnection, items: list[Item]) -> None:
        self._feed(Received(connection.socket, items))

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None:
        self._complaints.info(self._pump.now_ms(), peer=connection.peer, code=code, cause=detail)
        self._feed(Malformed(connection.socket, code, detail, connection.version or 0))

    def lost(self, connection: ClientConnection, why: str) -> None:
        self._connections.pop(connection.socket, None)
        self._feed(SocketLost(connection.socket, why))

    def congested(self, connection: ClientConnection, full: bool) -> None:
        if connection.socket in self._connections:
            self._feed(Congested(connection.socket, full))

    def revoked(self, serials: frozenset[str]) -> None:
        self._feed(IdentitiesRevoked(frozenset(), serials))

    # ------------------------------------------------------------------ the core

    def _feed(self, event: Event) -> None:
        try:
            effects = self._core.handle(event)
            if effects:
                self._carry_out(effects)
        except Exception as error:
            die_of(error, type(event).__name__)
        if self._core.patient:
            self._pump.patiently()
        else:
            self._pump.soon()

    def _tick(self) -> None:
        self._core.counters.bytes_received = self.bytes_received
        self._carry_out(self._core.handle(TickEnded(self._pump.now_ms(), self._steady.now_ms())))
        for denial in self._core.denied():
            log.info("client.denied", **denial.fields())

    def _carry_out(self, effects: list[Effect]) -> None:
        connections = self._connections
        for effect in effects:
            match effect:
                case Write(socket, data):
                    connection = connections.get(socket)
                    if connection is not None:
                        connection.write(data)
                case ToShard(shard, id, entries):
                    self.figures.asked(shard, id, entries)
                    self._shards[shard].ask(id, entries)
                case ToSession(session, frame):
                    self._sessions[session].hand_on(frame)
                case ToPeer(link, peer_frame):
                    self._peers.send(link, peer_frames.encode(peer_frame))
                case ToInquirer(link, told):
                    self._peers.send(link, inquiry_frames.encode(told))
                case Wake(after_ms):
                    self._pump.within(after_ms)
                case CloseSocket(socket, why):
                    closing = connections.pop(socket, None)
                    if closing is not None:
                        log.debug("client.closed", peer=closing.peer, cause=why)
                        closing.close()
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
                case Authenticate(socket, attempt, login):
                    self._desk.ask(socket, attempt, login)
                case ContinueAuth(socket, attempt, data):
                    self._desk.go_on(socket, attempt, data)
                case ForgetAuth(socket):
                    self._desk.forget(socket)
                case AskRight(asker, key, asked):
                    self._desk.ask_right(asker, key, asked)

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None:
        self._feed(ShardLinked(shard))

    def shard_lost(self, shard: int) -> None:
        self._feed(ShardLost(shard))

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        self.figures.answered(shard, id)
        self._feed(Replied(shard, id, replies))

    def shard_told(self, shard: int, frame: Frame) -> None:
        match frame:
            case Superseded() | Live():
                self._feed(FromShard(shard, frame))
            case Result(id, RetainedMessages(values, next_after)):
                self._feed(RetainedTold(shard, id, values, next_after))
            case Result(_, HoldingsFound() as found):
                self._feed(HoldingsTold(shard, found))
            case Result(id, None):
                self._feed(RetainedTold(shard, id, None, b""))
            case _:
                log.error("gateway.unexpected_frame", shard=shard, frame=type(frame).__name__)

    def feed(self, event: Event) -> None:
        """For the links below."""
        self._feed(event)

    def from_session(self, session: int, frame: session_frames.Frame) -> None:
        if isinstance(frame, session_frames.Deliver):
            self.figures.delivered(frame, self._steady.now_ms())
        self._feed(FromSession(session, frame))
