"""One stretch of serving sessions: a core made anew, under a name of its own, with links to every shard and from every gateway.

A session actor of a broker that stands alone has one, for as long as it lives.  Of several sites it has one for each time that its site
leads its shard (actors.session), so that nothing is carried over from before: whoever served in between may have changed every row.

Two actors may believe that they serve the same home, since who leads is heard of late.  What keeps them apart:
- a served home is linked with on this site and nowhere else, and only while this site is said to lead it.  Records of one copy alone
  commit, so of two actors one gets no token at all, and can commit nothing;
- the home gives tokens that only grow (PROTOCOLS 6).  Who is told of a greater one drops what it has, and asks for the next one only for a
  client that comes to it.

Always holds: when it is over, nothing that it had decided is sent any more, and nothing that still arrives is heard.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import structlog

from actors.clocks import Steady
from actors.endpoints import Endpoint
from actors.fatal import die_of
from actors.link import Carried, Link, taken
from actors.links import LinkServer
from actors.pump import Pump
from actors.settings import session_options
from actors.shard_client import ShardClient, look_again
from actors.sites.whereabouts import OneSite, SeveralSites, session_listens
from actors.topology import Topology, incarnation_of
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
from sessions.options import SessionOptions
from shards.frames import Feed, Frame, Given, GroupMade, GroupNews, Live, Reply, Result, Work
from shards.slots import SlotTable

log = structlog.get_logger(__name__)

LAST_COMMITS_S = 2.5
"""So long a process that stops waits for what its core has still to commit."""


class Serving:
    """Life cycle: made -> begun -> over."""

    def __init__(
        self, topology: Topology, index: int, served: frozenset[int], whereabouts: OneSite | SeveralSites, steady: Steady, config: Config
    ) -> None:
        """served: the shards whose sessions these are."""
        self.name = name = incarnation_of(topology, "session", index)
        self._several = topology.sites is not None
        self.core = SessionCore(topology.n_shards, served, SlotTable.initial(topology.n_shards), self._options(config))
        self._served = served
        self._whereabouts = whereabouts
        self._steady = steady
        self._sweep_ms = config.durable_sessions.session_gc_interval.ms
        self._routes_collected = 0
        self._links: dict[int, Link] = {}
        self._over = False
        self._pump = Pump(self._tick)
        wire = Wire.of(topology)
        self.shards = [
            ShardClient(shard, partial(self._where, shard), self, wire, "session", name) for shard in range(topology.n_shards)
        ]  # fmt: skip
        self._server = LinkServer(session_listens(topology, index), self, wire, "session", name)

    def _options(self, config: Config) -> SessionOptions:
        return replace(session_options(config), several_sites=self._several)

    def _where(self, shard: int) -> Endpoint | None:
        whereabouts = self._whereabouts
        if isinstance(whereabouts, SeveralSites) and shard in self._served and not whereabouts.known.leads_here(shard):
            return None
        return whereabouts.shard(shard)

    async def begin(self) -> None:
        await self._server.start()
        for client in self.shards:
            client.start()

    def look_again(self) -> None:
        """Somebody leads elsewhere."""
        look_again(self.shards)

    async def finish(self) -> None:
        """The process stops: gateways are cut off, so the core detaches its sessions; what it still commits gets a moment."""
        await self._server.stop()
        for _ in range(int(LAST_COMMITS_S / 0.05)):
            if not any(client.backlog for client in self.shards):
                break
            await asyncio.sleep(0.05)
        await self._stop()

    async def end(self, why: str) -> None:
        """Another one serves: nothing more is committed here.  why: a sentence for those who are linked."""
        self._over = True
        for link in list(self._links.values()):
            link.close(why)
        await self._server.stop()
        await self._stop()

    async def _stop(self) -> None:
        self._over = True
        self._pump.stop()
        for client in self.shards:
            await client.stop()

    def reconfigure(self, config: Config) -> None:
        self._sweep_ms = config.durable_sessions.session_gc_interval.ms
        self._feed(SettingsChanged(self._options(config)))

    @property
    def away(self) -> list[int]:
        """Shards to which there is no link."""
        return [client.shard for client in self.shards if not client.linked]

    # ------------------------------------------------------------------ the core

    def _feed(self, event: Event) -> None:
        if self._over:
            return
        try:
            self._carry_out(self.core.handle(event))
        except Exception as error:
            die_of(error, type(event).__name__)
        if self.core.patient:
            self._pump.patiently()
        else:
            self._pump.soon()

    def _tick(self) -> None:
        if self._over:
            return
        self._carry_out(self.core.handle(TickEnded(self._pump.now_ms(), self._steady.now_ms())))
        self._pump.within(self._sweep_ms)
        found = self.core.counters.routes_collected
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
                        peer.hand_on(frame, encode)
                case AskShard(shard, id, entries):
                    self.shards[shard].ask(id, entries)
                case QueryShard(shard, id, ask):
                    self.shards[shard].query(id, ask)
                case ToFeed(shard, frame):
                    self.shards[shard].feed(frame)
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

    def link_frame(self, link: Link, data: Carried) -> None:
        try:
            event = (
                FromGateway(link.number, taken(data, decode))
                if link.peer_role == "gateway"
                else FromInquirer(link.number, taken(data, inquiry_frames.decode_ask))
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
