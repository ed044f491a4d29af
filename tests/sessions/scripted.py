"""A shell for the session core that a test drives by hand, with model shards behind it.

Nothing is answered by itself: `answer` lets the shards answer what they were asked, `tick` ends a tick, `rest` does both
until nothing follows.  Only wants of a feed are heard at once.  What the core sends to gateways is collected in `sent`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Effect,
    Event,
    FeedReceived,
    FromGateway,
    GatewayLinked,
    QueryShard,
    Replied,
    ShardLinked,
    ShardLost,
    TellLoss,
    TickEnded,
    ToFeed,
    ToGateway,
    ToldBy,
)
from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Attach, Deliver, Detach, Frame, Subacked, Subscribe, Unsubscribe
from sessions.idle import NEVER_MS
from sessions.live_frames import Interest
from sessions.options import SessionOptions
from shards.frames import Commit, Entry, FeedTaken, FeedWant, Own, Poll
from shards.rows import LOSS, PROGRESS, RANGE, LossRow, ProgressRow, RangeRow, read_u64, unpack_as
from shards.slots import SlotTable
from tests.sessions.model_shard import ModelShard

GATEWAY = 7
CLIENT = b"client-1"
"""Its home is shard 2 of 3 (slot 239), and shard 0 of 1."""


class Script:
    def __init__(self, shards: int = 1, options: SessionOptions | None = None, served: Sequence[int] | None = None) -> None:
        self.slots = SlotTable.initial(shards)
        self.shards = [ModelShard(index) for index in range(shards)]
        self.home = self.shards[self.slots.shard_of(CLIENT)]
        self.options = options if options is not None else SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS)
        self.served = frozenset(range(shards) if served is None else served)
        self.asked: list[AskShard] = []
        self.queries: list[QueryShard] = []
        self.sent: list[Frame] = []
        self.told: list[LossRow] = []
        """Losses that the core had said."""
        self.now_ms = 0
        self.wall_ms = 0
        self.start()

    def start(self) -> None:
        """A new process: everything that was in memory or on its way is gone."""
        self.core = SessionCore(len(self.shards), self.served, self.slots, self.options)
        self.asked.clear()
        self.queries.clear()
        for shard in self.shards:
            shard.unlink()

    # ---------------------------------------------------------------- events
    def feed(self, event: Event) -> list[Effect]:
        effects = self.core.handle(event)
        self.core.check()
        for effect in effects:
            match effect:
                case AskShard():
                    self.asked.append(effect)
                case QueryShard():
                    self.queries.append(effect)
                case ToGateway(_, frame) if not isinstance(frame, Interest):
                    self.sent.append(frame)
                case TellLoss(_, loss):
                    self.told.append(loss)
                case ToFeed(shard, FeedWant() as want):
                    for feed in self.shards[shard].want(want):
                        self.feed(FeedReceived(shard, feed))
                case _:
                    pass
        # That nobody in memory wants anything is told to every gateway; it is the business of tests of that memory.
        return [effect for effect in effects if not (isinstance(effect, ToGateway) and isinstance(effect.frame, Interest))]

    def gateway(self, frame: Frame, link: int = GATEWAY) -> list[Effect]:
        return self.feed(FromGateway(link, frame))

    def tick(self, after_ms: int = 1) -> list[Effect]:
        self.now_ms += after_ms
        return self.feed(TickEnded(self.now_ms, self.wall_ms))

    def link(self) -> None:
        for shard in range(len(self.shards)):
            self.feed(ShardLinked(shard))
        self.feed(GatewayLinked(GATEWAY, "gateway-a"))

    # ---------------------------------------------------------------- shards
    def commit(self, ask: AskShard | None = None) -> list[Effect]:
        """The oldest request is carried out and answered."""
        ask = self.asked[0] if ask is None else ask
        self.asked.remove(ask)
        return self.feed(Replied(ask.shard, ask.id, self.shards[ask.shard].request(ask.entries)))

    def tell(self, query: QueryShard | None = None) -> list[Effect]:
        """The oldest query is answered."""
        query = self.queries[0] if query is None else query
        if query not in self.queries:
            return []  # lost with its link in the meantime
        self.queries.remove(query)
        return self.feed(ToldBy(query.shard, query.id, self.shards[query.shard].query(query.ask)))

    def answer(self) -> None:
        """Everything that shards were asked so far."""
        for ask in list(self.asked):
            self.commit(ask)
        for query in list(self.queries):
            self.tell(query)

    def answer_one(self) -> None:
        """The oldest thing that a shard was asked, if there is one."""
        if self.asked:
            self.commit()
        elif self.queries:
            self.tell()

    def live(self, shard: int = 0) -> None:
        """What was published since is fed."""
        for frame in self.shards[shard].feed(1000):
            self.feed(FeedReceived(shard, frame))

    def rest(self) -> None:
        for _ in range(100):
            effects = self.tick()
            if not self.asked and not self.queries and not effects:
                return
            self.answer()
        raise AssertionError("it does not come to rest")

    def relink(self, shard: int) -> None:
        """The link breaks and is up again; requests under way are answered, queries and the feed are lost."""
        self.feed(ShardLost(shard))
        self.shards[shard].unlink()
        self.queries = [query for query in self.queries if query.shard != shard]
        self.feed(ShardLinked(shard))

    def stop_at(self, kind: type[Entry]) -> list[AskShard]:
        """Answer everything but requests with entries of this kind; those are left."""
        for _ in range(20):
            self.tick()
            for ask in [ask for ask in self.asked if not isinstance(ask.entries[0], kind)]:
                self.commit(ask)
            for query in list(self.queries):
                self.tell(query)
        return [ask for ask in self.asked if isinstance(ask.entries[0], kind)]

    # ---------------------------------------------------------------- clients
    def owned(self) -> None:
        self.link()
        while any(isinstance(ask.entries[0], Own) for ask in self.asked):
            self.commit()
        self.sent.clear()

    def attach(self, client: bytes = CLIENT, receive_max: int = 100, clean: bool = False, link: int = GATEWAY) -> int:
        """Connect at the home, and ask to be attached; the connection number."""
        conn, present, session_id, _ = self.shards[self.slots.shard_of(client)].connect(client, clean)
        self.gateway(Attach(client, conn, session_id, present, 5, receive_max), link)
        return conn

    def attached(self, client: bytes = CLIENT, receive_max: int = 100) -> int:
        """A client that is online and at rest."""
        conn = self.attach(client, receive_max)
        self.rest()
        self.sent.clear()
        return conn

    def subscribed(self, conn: int, filter: bytes, qos: int = 1, options: int = 0, identifier: int = 0) -> None:
        self.gateway(Subscribe(conn, 1, [(filter, qos, options, 2)], identifier))
        self.rest()
        assert self.sent[-1] == Subacked(conn, 1, [qos])
        self.sent.clear()

    def unsubscribe(self, conn: int, *filters: bytes) -> None:
        self.gateway(Unsubscribe(conn, 2, list(filters)))

    def puback(self, conn: int, *packet_ids: int) -> list[Effect]:
        return self.gateway(Acked(conn, PUBACK, list(packet_ids), False))

    def pubrec(self, conn: int, *packet_ids: int, failed: bool = False) -> list[Effect]:
        return self.gateway(Acked(conn, PUBREC, list(packet_ids), failed))

    def pubcomp(self, conn: int, *packet_ids: int) -> list[Effect]:
        return self.gateway(Acked(conn, PUBCOMP, list(packet_ids), False))

    def detach(self, conn: int) -> list[Effect]:
        return self.gateway(Detach(conn))

    # ---------------------------------------------------------------- publishers
    def publish(self, count: int, qos: int = 1, topic: bytes = b"a/1", publisher: bytes = b"p", shard: int = 0, flags: int = 0) -> None:
        log = self.shards[shard]
        for _ in range(count):
            log.publish(publisher, topic, qos | flags, b"\0m%d" % len(log.log))

    # ---------------------------------------------------------------- what came out
    def take_sent(self) -> list[Frame]:
        sent, self.sent = self.sent, []
        return sent

    def delivered(self, conn: int | None = None) -> list[tuple[bytes, int, int]]:
        """(payload, packet id, first byte) of what was delivered since the last call."""
        found: list[tuple[bytes, int, int]] = []
        for frame in self.sent:
            if isinstance(frame, Deliver):
                for to, indexes, packet_ids, firsts, _ in frame.to:
                    if conn is None or to == conn:
                        found += [(frame.messages[i][1][1:], p, f) for i, p, f in zip(indexes, packet_ids, firsts, strict=True)]
        self.sent = [frame for frame in self.sent if not isinstance(frame, Deliver)]
        return found

    def commits(self) -> list[Commit]:
        """Commits that are not answered."""
        return [entry for ask in self.asked for entry in ask.entries if isinstance(entry, Commit)]

    def polls(self) -> list[Poll]:
        return [query.ask for query in self.queries if isinstance(query.ask, Poll)]

    def progress(self, client: bytes = CLIENT) -> ProgressRow:
        return ProgressRow(*self.shards[self.slots.shard_of(client)].row(client, PROGRESS))

    def loss_rows(self, client: bytes = CLIENT) -> list[tuple[int, LossRow]]:
        """With their numbers."""
        rows = self.shards[self.slots.shard_of(client)].rows[client]
        return [(read_u64(suffix), unpack_as(LossRow, value)) for (family, suffix), value in sorted(rows.items()) if family == LOSS]

    def range_rows(self, client: bytes = CLIENT) -> list[RangeRow]:
        rows = self.shards[self.slots.shard_of(client)].rows[client]
        return [unpack_as(RangeRow, value) for (family, _), value in sorted(rows.items()) if family == RANGE]


def families(commit: Commit) -> str:
    """What a commit writes, as letters; what it deletes, after a minus."""
    puts = "".join(sorted(family.decode() for family, _, _ in commit.puts))
    deletes = "".join(sorted(family.decode() for family, _ in commit.deletes))
    return f"{puts}-{deletes}" if deletes else puts


__all__ = ["CLIENT", "GATEWAY", "FeedTaken", "Script", "families"]


def online(qos: int = 1, receive_max: int = 100, options: SessionOptions | None = None, **terms: int) -> tuple[Script, int]:
    """A session with the filter #, at the head of the feed, nothing to commit."""
    s = Script(options=options)
    s.owned()
    conn = s.attached(receive_max=receive_max)
    s.subscribed(conn, b"#", qos, **terms)
    s.rest()
    return s, conn
