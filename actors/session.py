"""The session actor: carries out what the session core decides, over links to every shard and from every gateway.

Durable sessions live in the rows of their home shards; this process is a cache of them and can be killed at any moment.
Sessions that are not durable live here alone and end with it.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import structlog

from actors.clocks import Steady
from actors.endpoints import Endpoint
from actors.fatal import die_of
from actors.links import Link, LinkServer
from actors.metrics.of_session import tell
from actors.pump import Pump, settle_gc
from actors.settings import session_options
from actors.shard_client import ShardClient
from actors.sites.whereabouts import OneSite
from actors.snapshot import settings_in_force
from actors.topology import Announcement, Health, Topology, announce, incarnation_name, member_name
from actors.wire import Wire
from config.schema import Config
from sessions import inquiry_frames
from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Effect,
    Event,
    FeedReceived,
    FromGateway,
    FromInquirer,
    GatewayLinked,
    GatewayLost,
    LiveEntered,
    OfGroup,
    QueryShard,
    Replied,
    SettingsChanged,
    ShardLinked,
    ShardLost,
    TellDeadLetter,
    TellLoss,
    TellMoved,
    TellStall,
    TickEnded,
    ToFeed,
    ToGateway,
    ToInquirer,
    ToldBy,
    Wake,
    WorkReceived,
)  # fmt: skip
from sessions.frames import decode, encode
from shards.frames import Feed, Frame, Given, GroupMade, GroupNews, Live, Reply, Result, Work
from shards.slots import SlotTable

if TYPE_CHECKING:
    from actors.metrics.sheet import Sheet

log = structlog.get_logger(__name__)


class SessionServer:
    """Serves the sessions of some shards that outlive their connections.

    If a call returns, its change survives any crash of other processes; this one alone knows nothing but sessions in memory.
    """

    def __init__(self, topology: Topology, index: int) -> None:
        self._topology = topology
        self._index = index
        self._started: Announcement | None = None
        self._links: dict[int, Link] = {}

    async def start(self) -> Announcement:
        if self._started is not None:
            return self._started
        topology = self._topology
        config = settings_in_force(topology)
        name = incarnation_name("session", self._index)
        served = frozenset(shard for shard in range(topology.n_shards) if topology.session_of_shard(shard) == self._index)
        self._core = SessionCore(topology.n_shards, served, SlotTable.initial(topology.n_shards), session_options(config))
        self._sweep_ms = config.durable_sessions.session_gc_interval.ms
        self._routes_collected = 0
        self._pump = Pump(self._tick)
        self._steady = Steady(topology.run_dir, topology.n_shards)
        wire, where = Wire.of(topology), OneSite(topology)
        self._shards = [ShardClient(shard, partial(where.shard, shard), self, wire, "session", name) for shard in range(topology.n_shards)]
        self._server = LinkServer([Endpoint(topology.session_endpoint(self._index))], self, wire, "session", name)
        await self._server.start()
        for client in self._shards:
            client.start()
        settle_gc()
        self._started = Announcement("session", member_name("session", self._index), os.getpid())
        announce(topology, self._started)
        log.info("session.started", name=name, shards=sorted(served))
        return self._started

    async def stop(self) -> None:
        if self._started is None:
            return
        self._started = None
        await self._server.stop()
        # Gateways are gone: the core has detached its sessions; what it still commits gets a moment.
        for _ in range(50):
            if not any(client.backlog for client in self._shards):
                break
            await asyncio.sleep(0.05)
        self._pump.stop()
        for client in self._shards:
            await client.stop()

    async def health(self) -> Health:
        away = [client.shard for client in self._shards if not client.linked] if self._started else []
        return Health(self._started is not None and not away, f"shards away: {away}" if away else "")

    def reconfigure(self, config: Config) -> None:
        self._sweep_ms = config.durable_sessions.session_gc_interval.ms
        self._feed(SettingsChanged(session_options(config)))

    def counters(self) -> dict[str, int]:
        away = sum([not client.linked for client in self._shards])
        return {**asdict(self._core.counters), "loaded": self._core.loaded, "online": self._core.online, "shards_away": away}

    def measure(self, sheet: Sheet) -> None:
        tell(sheet, self._index, self.counters())

    # ------------------------------------------------------------------ the core

    def _feed(self, event: Event) -> None:
        try:
            self._carry_out(self._core.handle(event))
        except Exception as error:
            die_of(error, type(event).__name__)
        self._pump.soon()

    def _tick(self) -> None:
        self._carry_out(self._core.handle(TickEnded(self._pump.now_ms(), self._steady.now_ms())))
        self._pump.within(self._sweep_ms)
        found = self._core.counters.routes_collected
        if found != self._routes_collected:
            # Nobody stood behind them: our fault, and mended.
            log.warning("session.gc_found", route=found - self._routes_collected)
            self._routes_collected = found

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToGateway(link, frame):
                    peer = self._links.get(link)
                    if peer is not None:
                        peer.send(encode(frame))
                case AskShard(shard, id, entries):
                    self._shards[shard].ask(id, entries)
                case QueryShard(shard, id, ask):
                    self._shards[shard].query(id, ask)
                case ToFeed(shard, frame):
                    self._shards[shard].feed(frame)
                case TellLoss(client, loss):
                    log.warning(
                        "session.messages_lost", client_id=_shown(client), filter=_shown(loss.filter), shard=loss.shard,
                        generation=loss.generation, retention_class=loss.klass, after=loss.after, upto=loss.upto,
                        messages=loss.lost if loss.lost >= 0 else None, reason=loss.reason,
                    )  # fmt: skip
                case TellDeadLetter(client, topic, count):
                    log.warning("session.dead_letter", client_id=_shown(client), topic=_shown(topic), sent=count)
                case TellStall(client, filter, shard, how, after, messages, oldest_ms):
                    log.warning(
                        "session.stall_healed", client_id=_shown(client), filter=_shown(filter), shard=shard, was=how, stood_at=after,
                        messages=messages, oldest_ms=oldest_ms,
                    )  # fmt: skip
                case TellMoved(client, verb, by, filter, to, moved, closed):
                    log.info(
                        "session.moved", client_id=_shown(client), by=by, what=("skip", "rewind", "purge")[verb],
                        filter=_shown(filter) or None, to=to, places=moved, closed=closed,
                    )  # fmt: skip
                case ToInquirer(link, told):
                    peer = self._links.get(link)
                    if peer is not None:
                        peer.send(inquiry_frames.encode(told))
                case Wake(after_ms):
                    self._pump.within(after_ms)

    # ------------------------------------------------------------------ LinkOwner: gateways, and who asks

    def link_up(self, link: Link) -> None:
        self._links[link.number] = link
        if link.peer_role == "gateway":
            self._feed(GatewayLinked(link.number, link.peer_name))

    def link_frame(self, link: Link, data: bytes) -> None:
        try:
            event = (
                FromGateway(link.number, decode(data))
                if link.peer_role == "gateway"
                else FromInquirer(link.number, inquiry_frames.decode_ask(data))
            )
        except ValueError as error:
            link.close(str(error))
            return
        self._feed(event)

    def link_down(self, link: Link) -> None:
        del self._links[link.number]
        if link.peer_role == "gateway":
            self._feed(GatewayLost(link.number))

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None:
        self._feed(ShardLinked(shard))

    def shard_lost(self, shard: int) -> None:
        self._feed(ShardLost(shard))

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        self._feed(Replied(shard, id, replies))

    def shard_told(self, shard: int, frame: Frame) -> None:
        match frame:
            case Result(id, told):
                self._feed(ToldBy(shard, id, told))
            case Feed():
                self._feed(FeedReceived(shard, frame))
            case Work():
                self._feed(WorkReceived(shard, frame))
            case Live():
                self._feed(LiveEntered(shard, frame))
            case Given() | GroupNews() | GroupMade():
                self._feed(OfGroup(shard, frame))
            case _:
                log.error("session.unexpected_frame", shard=shard, frame=type(frame).__name__)


def _shown(text: bytes) -> str:
    return text.decode(errors="replace")
