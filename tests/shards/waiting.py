"""Shards whose generations wait for sessions: their questions to each other are carried by hand, their sessions kept as a plain model.

A session here is what the rows of one say: subscriptions with places, and ranges that are not acknowledged. What it has read and
acknowledged is counted message by message beside that, so that a drop can be judged without looking at a place.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mqtt.topics import matches
from shards.engine import Op
from shards.events import AskShard, Effect, ShardTold
from shards.frames import (
    Beat,
    Commit,
    Connect,
    Connected,
    Own,
    Owned,
    Place,
    Poll,
    Polled,
    Query,
    Result,
    Route,
    Routed,
)  # fmt: skip
from shards.ids import EXPIRY_NEVER, sub_id
from shards.messages import topic_of
from shards.options import ShardOptions
from shards.retention import Dropped, News
from shards.rows import (
    ACTIVE,
    ADDING,
    PLACE,
    RANGE,
    SUBSCRIPTION,
    RangeRow,
    SubscriptionRow,
    pack_place,
    pack_row,
    pack_subscription,
    u64,
)  # fmt: skip
from shards.store import GenerationInfo, TopicKey
from tests.shards.harness import G, Harness, S, publish

PEER = 100
"""The link of shard n to another one is PEER + n."""


@dataclass(frozen=True)
class Sub:
    """read: (shard, position) of every message that was assigned."""

    number: int
    filter: bytes
    starts: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, Place], ...]
    read: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class State:
    """A session as its rows say. ranges: number -> (shard, positions), not acknowledged."""

    subs: tuple[Sub, ...] = ()
    ranges: tuple[tuple[int, int, frozenset[int]], ...] = ()

    def wants(self, shard: int, since: int, until: int, log: list[tuple[int, bytes]]) -> list[int]:
        """Positions in a span of a shard that are not acknowledged."""
        found = [position for _, at, positions in self.ranges if at == shard for position in positions if since <= position < until]
        for sub in self.subs:
            start = dict(sub.starts)[shard]
            found += [
                position
                for position, topic in log
                if since <= position < until and position > start and matches(sub.filter, topic) and (shard, position) not in sub.read
            ]
        return found


@dataclass
class Adding:
    client: bytes
    number: int
    filter: bytes
    starts: dict[int, int] = field(default_factory=dict)


class Shard(Harness):
    """Keeps what it asks of others, and every message that it stores."""

    def __init__(self, shard: int, n_shards: int, options: ShardOptions) -> None:
        self.asked: list[AskShard] = []
        self.log: list[tuple[int, bytes]] = []
        self.incarnation = 0
        super().__init__(shard=shard, n_shards=n_shards, options=options)

    def _open(self) -> None:
        super()._open()
        self.incarnation += 1
        self.log = [message for message in self.log if message[0] <= self.core.recovered]
        append = self.core._store.append

        def watched(ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
            self.log.append((position, topic_of(value)))
            append(ops, key, position, value)

        self.core._store.append = watched  # type: ignore[method-assign]
        self.core._publishing._store.append = watched  # type: ignore[method-assign]

    def _carry_out(self, effects: list[Effect]) -> None:
        self.asked += [effect for effect in effects if isinstance(effect, AskShard)]
        super()._carry_out(effects)

    def name(self, of: str) -> str:
        return f"{of}:{self.incarnation}"

    @property
    def sealed(self) -> list[GenerationInfo]:
        return [info for info in self.core._store.generations() if info.until is not None]


class Stores:
    def __init__(self, n_shards: int, **options: int | bool) -> None:
        chosen = ShardOptions(**{"hold_unread": True, "generation_ms": 3_000, "retention_ms": 2_000, **options})  # type: ignore[arg-type]
        self.shards = [Shard(shard, n_shards, chosen) for shard in range(n_shards)]
        self.tokens = [0] * n_shards
        self.conns = [0] * n_shards
        self.sessions: dict[bytes, int] = {}
        self.versions: dict[bytes, list[tuple[int, State]]] = {}
        self.adding: list[Adding] = []
        self.subs_made = 0
        self.ranges_made = 0
        self.spans: dict[tuple[int, int], tuple[int, int]] = {}
        """(since, until) of every sealed generation ever seen."""
        self.dropped: list[tuple[int, Dropped]] = []
        self.news: list[News] = []
        for shard in self.shards:
            self.begin(shard)

    # ---- processes

    def begin(self, shard: Shard) -> None:
        """Everybody links with a shard that has just started, as somebody new."""
        shard.link(G, "gateway", shard.name("g0"))
        shard.link(S, "session", shard.name("s0"))
        for other in self.shards:
            if other is not shard:
                shard.link(PEER + other.shard, "shard", f"shard-{other.shard}:{other.incarnation}.{shard.incarnation}")
                other.core.handle(ShardTold(shard.shard, None))
        (owned,) = shard.ask(S, Own())
        assert isinstance(owned, Owned)
        self.tokens[shard.shard] = owned.token
        (connected,) = shard.ask(G, Connect(b"publisher", True, 0, 5, None))
        assert isinstance(connected, Connected)
        self.conns[shard.shard] = connected.conn

    def crash(self, shard: Shard) -> None:
        """It and everything that was on its way to it is gone; what was synced stays."""
        watermark = shard.core.watermark
        shard.asked.clear()
        shard.reopen(power=True)
        shard.closed.clear()
        for client, versions in self.versions.items():
            if self.home(client) is shard:
                self.versions[client] = [version for version in versions if version[0] <= watermark]
        self.adding = [each for each in self.adding if self.home(each.client) is not shard]
        self.begin(shard)

    def home(self, client: bytes) -> Shard:
        return self.shards[self.shards[0].core._slots.shard_of(client)]

    # ---- time and questions

    def turn(self, shard: Shard, ms: int, sync: bool = True) -> None:
        for link in list(shard.names):
            shard.receive(link, Beat())
        for generation in shard.sealed:
            assert generation.until is not None
            self.spans[shard.shard, generation.id] = (generation.since, generation.until)
        shard.tick(ms, sync=sync)
        news = shard.core.retention.news
        while news:
            item = news.popleft()
            self.news.append(item)
            if isinstance(item, Dropped):
                self.dropped.append((shard.shard, item))
                self.judge(shard, item.generation)

    def carry(self, shard: Shard) -> None:
        """What it has asked arrives."""
        asked, shard.asked = shard.asked, []
        for each in asked:
            self.shards[each.shard].receive(PEER + shard.shard, each.query)

    def tell(self, home: Shard) -> None:
        """What it has answered arrives."""
        for shard in self.shards:
            if shard is not home:
                for result in home.take(PEER + shard.shard, Result):
                    shard.core.handle(ShardTold(home.shard, result))

    def lose(self, shard: Shard, home: Shard) -> None:
        """The link from one to the other breaks and is made again: what was on its way is gone."""
        shard.asked = [each for each in shard.asked if each.shard != home.shard]
        home.take(PEER + shard.shard, Result)
        shard.core.handle(ShardTold(home.shard, None))

    def pass_time(self, ms: int, step_ms: int = 100) -> None:
        """With everything carried and told."""
        for _ in range(ms // step_ms):
            for shard in self.shards:
                self.turn(shard, step_ms)
                self.carry(shard)
            for shard in self.shards:
                self.turn(shard, 0)
                self.tell(shard)

    # ---- the judge

    def judge(self, shard: Shard, generation: int) -> None:
        """No session, as it would be found after a crash of its home, has anything unacknowledged in what goes."""
        since, until = self.spans[shard.shard, generation]
        for client, versions in self.versions.items():
            watermark = self.home(client).core.watermark
            for position, state in versions:
                if position == max(p for p, _ in versions if p <= watermark) or position > watermark:
                    wanted = state.wants(shard.shard, since, until, shard.log)
                    assert not wanted, f"generation {generation} of shard {shard.shard} goes, {client!r} has not acknowledged {wanted}"

    def gone(self, shard: int) -> list[tuple[int, str]]:
        return [(item.generation, item.reason) for at, item in self.dropped if at == shard]

    # ---- sessions

    def state(self, client: bytes) -> State:
        return self.versions[client][-1][1]

    def connect(self, client: bytes, clean: bool = False) -> None:
        home = self.home(client)
        (connected,) = home.ask(G, Connect(client, clean, EXPIRY_NEVER, 5, None))
        assert isinstance(connected, Connected) and connected.conn
        self.sessions[client] = connected.session_id
        if not connected.present:
            self.versions[client] = [(home.core.watermark, State())]
            self.adding = [each for each in self.adding if each.client != client]

    def commit(
        self, client: bytes, state: State, puts: list[tuple[bytes, bytes, bytes]], deletes: list[tuple[bytes, bytes]], sync: bool = True
    ) -> None:
        home = self.home(client)
        home.request(S, Commit(self.tokens[home.shard], client, self.sessions[client], 0, puts, deletes))
        self.turn(home, 0, sync=sync)
        position = home.uncommitted[-1] if home.uncommitted else home.core.watermark
        self.versions[client].append((position, state))

    def begin_subscription(self, client: bytes, topic_filter: bytes, sync: bool = True) -> Adding:
        home = self.home(client)
        self.subs_made += 1
        number = sub_id(home.shard, self.tokens[home.shard], self.subs_made)
        row = pack_subscription(SubscriptionRow(topic_filter, 1, 0, 0, ADDING, []))
        self.commit(client, self.state(client), [(SUBSCRIPTION, u64(number), row)], [], sync=sync)
        home.commit()
        adding = Adding(client, number, topic_filter)
        self.adding.append(adding)
        return adding

    def route(self, adding: Adding, shard: Shard) -> None:
        (routed,) = shard.ask(S, Route([(adding.number, adding.filter)], [], [adding.client]))
        assert isinstance(routed, Routed)
        adding.starts[shard.shard] = routed.position

    def activate(self, adding: Adding, sync: bool = True) -> None:
        self.adding.remove(adding)
        starts = tuple(sorted(adding.starts.items()))
        places = tuple((shard, Place(position)) for shard, position in starts)
        state = self.state(adding.client)
        puts = [(SUBSCRIPTION, u64(adding.number), pack_subscription(SubscriptionRow(adding.filter, 1, 0, 0, ACTIVE, list(starts))))]
        puts += [(PLACE, u64(adding.number) + bytes((shard,)), pack_place(place)) for shard, place in places]
        made = replace(state, subs=(*state.subs, Sub(adding.number, adding.filter, starts, places)))
        for (shard, generation), (since, until) in self.spans.items():
            if any((shard, item.generation) == (at, generation) for at, item in self.dropped):
                assert not made.wants(shard, since, until, self.shards[shard].log), "what goes belongs to who is just subscribing"
        self.commit(adding.client, made, puts, [], sync=sync)

    def subscribe(self, client: bytes, topic_filter: bytes) -> None:
        adding = self.begin_subscription(client, topic_filter)
        for shard in self.shards:
            self.route(adding, shard)
        self.activate(adding)

    def unsubscribe(self, client: bytes, index: int, sync: bool = True) -> None:
        state = self.state(client)
        sub = state.subs[index]
        left = replace(state, subs=state.subs[:index] + state.subs[index + 1 :])
        deletes = [(SUBSCRIPTION, u64(sub.number))] + [(PLACE, u64(sub.number) + bytes((shard,))) for shard, _ in sub.places]
        self.commit(client, left, [], deletes, sync=sync)

    def read(self, client: bytes, index: int, shard: Shard, count: int, sync: bool = True) -> int:
        """One poll, and the commit of what it brought; returns how many messages that were."""
        state = self.state(client)
        sub = state.subs[index]
        places = dict(sub.places)
        shard.receive(S, Query(9, Poll(sub.filter, places[shard.shard], count, 1 << 20)))
        shard.tick(0)
        (result,) = shard.take(S, Result)
        assert isinstance(result.told, Polled)
        place, segments = result.told.place, result.told.segments
        if place == places[shard.shard]:
            return 0
        places[shard.shard] = place
        puts = [(PLACE, u64(sub.number) + bytes((shard.shard,)), pack_place(place))]
        read, ranges = set(sub.read), list(state.ranges)
        for segment in segments:
            self.ranges_made += 1
            row = RangeRow(
                sub.number, sub.filter, 1, 0, 0, shard.shard, segment.merged, segment.streams, segment.after, segment.upto, 1, 1, 0, 0, []
            )  # fmt: skip
            puts.append((RANGE, u64(self.ranges_made), pack_row(row)))
            ranges.append((self.ranges_made, shard.shard, frozenset(segment.positions)))
            read |= {(shard.shard, position) for position in segment.positions}
        now = replace(sub, places=tuple(sorted(places.items())), read=frozenset(read))
        subs = (*state.subs[:index], now, *state.subs[index + 1 :])
        self.commit(client, State(subs, tuple(ranges)), puts, [], sync=sync)
        return sum(len(segment.positions) for segment in segments)

    def acknowledge(self, client: bytes, index: int = 0, sync: bool = True) -> None:
        state = self.state(client)
        number = state.ranges[index][0]
        left = replace(state, ranges=state.ranges[:index] + state.ranges[index + 1 :])
        self.commit(client, left, [], [(RANGE, u64(number))], sync=sync)

    def read_all(self, client: bytes) -> None:
        """Everything that is there, acknowledged."""
        for index in range(len(self.state(client).subs)):
            for shard in self.shards:
                while self.read(client, index, shard, 100):
                    pass
        while self.state(client).ranges:
            self.acknowledge(client)

    def publish(self, shard: Shard, topic: bytes) -> None:
        shard.request(G, publish(b"publisher", self.conns[shard.shard], topic))
        shard.tick(0)
