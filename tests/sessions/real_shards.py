"""A session actor's core and real shard cores in one thread: what a home, the other shards and the owner do together.

The owner can be killed and started again, and each shard can be away from it; what was not answered is sent again over the
numbered links, as the shells do it.  One gateway, link G of every shard.
"""

from __future__ import annotations

from collections import deque

from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Event,
    FeedReceived,
    FromGateway,
    GatewayLinked,
    OfGroup,
    QueryShard,
    Replied,
    ShardLinked,
    ShardLost,
    TickEnded,
    ToFeed,
    ToGateway,
    ToldBy,
    WorkReceived,
)
from sessions.frames import Attach, Detach, Frame, Subacked, Subscribe
from sessions.options import SessionOptions
from shards.frames import Answer, Beat, Connect, Connected, Disconnect, Feed, Given, GroupMade, GroupNews, Query, Result, Work
from shards.numbered import NumberedSender
from shards.options import ShardOptions
from shards.slots import SlotTable
from tests.shards.harness import G, Harness, S

GATEWAY = 7
NEVER_MS = 1 << 40


class Broker:
    def __init__(self, n_shards: int = 2, gc_interval_ms: int = NEVER_MS, options: SessionOptions | None = None) -> None:
        self.n_shards = n_shards
        self.slots = SlotTable.initial(n_shards)
        of_shards = ShardOptions(gc_interval_ms=gc_interval_ms)
        self.shards = [Harness(shard=shard, n_shards=n_shards, options=of_shards) for shard in range(n_shards)]
        for h in self.shards:
            h.link(G, "gateway", "g0:a")
        self.options = options or SessionOptions(gc_interval_ms=gc_interval_ms)
        self.linked = [False] * n_shards
        self.alive = False
        self.lives = 0
        self.to_gateway: list[Frame] = []
        self.now_ms = 0

    # ---------------------------------------------------------------- the owner
    def start_owner(self) -> None:
        self.alive = True
        self.lives += 1
        self.core = SessionCore(self.n_shards, frozenset(range(self.n_shards)), self.slots, self.options)
        self._senders = [NumberedSender() for _ in self.shards]
        self._ids: list[deque[int]] = [deque() for _ in self.shards]
        self._feed(GatewayLinked(GATEWAY, "g0:a"))
        for shard in range(self.n_shards):
            self.back(shard)

    def kill_owner(self) -> None:
        self.alive = False
        for shard in range(self.n_shards):
            self.away(shard)

    def away(self, shard: int) -> None:
        """This shard and the owner do not reach each other."""
        if self.linked[shard]:
            self.linked[shard] = False
            self.shards[shard].unlink(S)
            del self.shards[shard].names[S]
            self.shards[shard].sent[S].clear()
            if self.alive:
                self._senders[shard].unlinked()
                self._feed(ShardLost(shard))

    def back(self, shard: int) -> None:
        self.linked[shard] = True
        self.shards[shard].link(S, "session", f"s0:{self.lives}")
        self._senders[shard].linked()
        self._feed(ShardLinked(shard))

    def _feed(self, event: Event) -> None:
        for effect in self.core.handle(event):
            match effect:
                case AskShard(shard, id, entries):
                    self._ids[shard].append(id)
                    self._senders[shard].send(entries)
                case QueryShard(shard, id, ask):
                    if self.linked[shard]:
                        self.shards[shard].receive(S, Query(id, ask))
                case ToFeed(shard, frame):
                    if self.linked[shard]:
                        self.shards[shard].receive(S, frame)
                case ToGateway(_, frame):
                    self.to_gateway.append(frame)
                case _:
                    pass
        self.core.check()

    # ---------------------------------------------------------------- turns
    def turn(self, ms: int = 1) -> bool:
        """A turn of everybody; whether something went to and fro."""
        self.now_ms += ms
        busy = False
        for shard, h in enumerate(self.shards):
            h.receive(G, Beat())
            if self.alive and self.linked[shard]:
                h.receive(S, Beat())
                for request in self._senders[shard].ready(self.now_ms):
                    h.receive(S, request)
                    busy = True
            h.tick(ms)
            h.settle()
            told, h.sent[S] = h.sent[S], []
            for frame in told if self.alive and self.linked[shard] else []:
                busy = True
                match frame:
                    case Answer(number, replies):
                        if self._senders[shard].answered(number) is not None:
                            self._feed(Replied(shard, self._ids[shard].popleft(), replies))
                    case Result(id, result):
                        self._feed(ToldBy(shard, id, result))
                    case Feed():
                        self._feed(FeedReceived(shard, frame))
                    case Work():
                        self._feed(WorkReceived(shard, frame))
                    case Given() | GroupNews() | GroupMade():
                        self._feed(OfGroup(shard, frame))
                    case _:
                        raise AssertionError(frame)
        if self.alive:
            self._feed(TickEnded(self.now_ms))
        return busy

    def rest(self, ms: int = 0) -> None:
        """Time passes, and what follows from it is done."""
        if ms:
            self.turn(ms)
        quiet = 0
        for _ in range(2_000):
            quiet = 0 if self.turn() else quiet + 1
            if quiet == 3:
                return
        raise AssertionError("the broker never comes to rest")

    # ---------------------------------------------------------------- a client
    def connect(self, client: bytes, expiry_s: int, clean: bool = False) -> Connected:
        home = self.shards[self.slots.shard_of(client)]
        (connected,) = home.ask(G, Connect(client, clean, expiry_s, 5, None))
        assert isinstance(connected, Connected)
        if self.alive:
            attach = Attach(client, connected.conn, connected.session_id, connected.present, 5, 100, owner=connected.owner)
            self._feed(FromGateway(GATEWAY, attach))
            self.rest()
        return connected

    def subscribe(self, connected: Connected, *filters: bytes) -> None:
        self._feed(FromGateway(GATEWAY, Subscribe(connected.conn, 1, [(each, 1, 0, 2) for each in filters], 0)))
        self.rest()
        assert Subacked(connected.conn, 1, [1] * len(filters)) in self.to_gateway

    def disconnect(self, client: bytes, connected: Connected, how: int, expiry_s: int | None = None) -> None:
        home = self.shards[self.slots.shard_of(client)]
        home.ask(G, Disconnect(client, connected.conn, how, expiry_s))
        if self.alive:
            self._feed(FromGateway(GATEWAY, Detach(connected.conn)))
            self.rest()
