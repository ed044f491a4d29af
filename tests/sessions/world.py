"""Session core, model shards and model clients with links between them: everything may be late, links and processes may die.

One random generator decides the order of everything; nothing overtakes on a link.  Requests to shards survive a link, as
NumberedSender makes them; queries, the feed and what goes to gateways do not.  What is checked, is checked in `verify`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from mqtt.topics import matches
from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Effect,
    Event,
    FeedReceived,
    FromGateway,
    GatewayLinked,
    GatewayLost,
    QueryShard,
    Replied,
    ShardLinked,
    ShardLost,
    TickEnded,
    ToFeed,
    ToGateway,
    ToldBy,
    Wake,
    WorkReceived,
)
from sessions.frames import (
    Attach,
    Attached,
    Deliver,
    Detach,
    Frame,
    SendPubrel,
    SessionClosed,
    Subacked,
    Subscribe,
    Unsubacked,
    Unsubscribe,
    decode,
    encode,
)
from sessions.live_frames import Interest, InterestSeen
from sessions.options import SessionOptions
from shards.frames import FeedTaken, FeedWant, Own, Work
from shards.slots import SlotTable
from tests.sessions.committed import check_committed
from tests.sessions.model_client import ModelClient
from tests.sessions.model_shard import ModelShard

ToShardItem = AskShard | QueryShard | ToFeed

FILTERS = (b"a/+", b"#", b"a/0", b"b/#", b"+/1")
TOPICS = (b"a/0", b"a/1", b"b/0", b"b/1", b"c/0")
LEFT = b"(left)"
PUBLISHERS = (b"p0", b"p1", b"p2", b"client-0")


@dataclass
class ShardLink:
    shard: ModelShard
    up: bool = True
    to_shard: deque[ToShardItem] = field(default_factory=deque)
    to_core: deque[Event] = field(default_factory=deque)


@dataclass
class GatewayLink:
    number: int
    to_core: deque[Frame] = field(default_factory=deque)
    to_gateway: deque[Frame] = field(default_factory=deque)


@dataclass
class Published:
    publisher: bytes
    topic: bytes
    qos: int
    body: bytes
    expected: list[tuple[bytes, bytes]]
    """(client, filter) that must get it."""


class World:
    def __init__(
        self, seed: int, n_shards: int, n_clients: int, options: SessionOptions, crashes: bool = True, refusals: bool = True
    ) -> None:
        self.rng = Random(seed)
        self.n_shards = n_shards
        self.options = options
        self.crashes = True
        self.slots = SlotTable.initial(n_shards)
        self.links = [ShardLink(ModelShard(index)) for index in range(n_shards)]
        self.gateways: dict[int, GatewayLink] = {}
        self.clients = [ModelClient(b"client-%d" % n, self.rng.choice((1, 3, 10, 40))) for n in range(n_clients)]
        self.now_ms = 0
        self.link_numbers = 0
        self.identifiers = 0
        self.published: list[Published] = []
        self.ended: dict[bytes, int] = {}
        self.core: SessionCore
        self.start_core()

    # ---------------------------------------------------------------- processes and links
    def start_core(self) -> None:
        self.core = SessionCore(self.n_shards, frozenset(range(self.n_shards)), self.slots, self.options)
        self.unticked = False
        for shard, link in enumerate(self.links):
            link.up = False
            self.link_shard(shard)
        for _ in range(2):
            self.link_gateway()

    def link_gateway(self) -> None:
        self.link_numbers += 1
        self.gateways[self.link_numbers] = GatewayLink(self.link_numbers)
        self.feed(GatewayLinked(self.link_numbers, f"gateway-{self.link_numbers}"))

    def lose_gateway(self, number: int) -> None:
        del self.gateways[number]
        for client in self.clients:
            if client.online and client.link == number:
                client.disconnected()
        self.feed(GatewayLost(number))

    def link_shard(self, shard: int) -> None:
        link = self.links[shard]
        assert not link.up
        link.up = True
        link.shard.unlink()
        self.feed(ShardLinked(shard))
        work = link.shard.work_of_ended_sessions()
        if work:
            link.to_core.append(WorkReceived(shard, Work(work)))

    def lose_shard(self, shard: int) -> None:
        link = self.links[shard]
        link.up = False
        link.shard.unlink()
        link.to_shard = deque(item for item in link.to_shard if isinstance(item, AskShard))
        link.to_core = deque(event for event in link.to_core if isinstance(event, Replied))
        self.feed(ShardLost(shard))

    def crash_core(self) -> None:
        """Some requests on their way arrive, the rest is lost, with everything in memory."""
        for shard, link in enumerate(self.links):
            for _ in range(self.rng.randint(0, len(link.to_shard))):
                self.arrive_at_shard(shard)
            link.to_shard.clear()
            link.to_core.clear()
            link.shard.unlink()
        self.gateways.clear()
        for client in self.clients:
            client.disconnected()
        self.start_core()

    # ---------------------------------------------------------------- the core
    def feed(self, event: Event) -> None:
        self.carry_out(self.core.handle(event))
        self.core.check()
        self.unticked = True

    def tick(self) -> None:
        self.now_ms += 1
        self.feed(TickEnded(self.now_ms))
        self.unticked = False

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case ToGateway(_, Interest()):
                    pass  # nobody is in memory here
                case ToGateway(number, frame):
                    check_committed(frame, self.rows_of)
                    if number in self.gateways:
                        self.gateways[number].to_gateway.append(decode(encode(frame)))
                case AskShard(shard, _, _):
                    self.links[shard].to_shard.append(effect)
                case QueryShard(shard, _, _) | ToFeed(shard, _):
                    if self.links[shard].up:
                        self.links[shard].to_shard.append(effect)
                case Wake():
                    pass

    def rows_of(self, conn: int) -> dict[tuple[bytes, bytes], bytes]:
        (client,) = [client for client in self.clients if client.conn == conn or conn in client.former]
        shard = self.links[self.slots.shard_of(client.name)].shard
        # A session that was ended for a newer connection has no rows any more.
        return shard.rows.get(client.name, {}) if conn >= shard.sessions.get(client.name, 0) else {}

    # ---------------------------------------------------------------- one thing at a time
    def arrive_at_shard(self, shard: int) -> None:
        link = self.links[shard]
        item = link.to_shard.popleft()
        match item:
            case AskShard(_, id, entries):
                link.to_core.append(Replied(shard, id, link.shard.request(entries)))
            case QueryShard(_, id, ask):
                told = None if self.rng.random() < 0.02 and self.crashes else link.shard.query(ask)
                link.to_core.append(ToldBy(shard, id, told))
            case ToFeed(_, FeedTaken()):
                pass
            case ToFeed(_, FeedWant() as want):
                link.to_core.extend(FeedReceived(shard, frame) for frame in link.shard.want(want))

    def arrive_at_gateway(self, number: int) -> None:
        frame = self.gateways[number].to_gateway.popleft()
        if isinstance(frame, Deliver):
            for column in frame.to:
                client = self.client_of(column[0], number)
                if client is not None:
                    client.deliver(frame, column)
            return
        assert not isinstance(frame, Interest | InterestSeen)
        client = self.client_of(frame.conn, number)
        if client is None:
            return
        match frame:
            case Attached(_, code, _):
                if code:
                    client.disconnected()
                else:
                    client.attached = True
            case Subacked(_, packet_id, codes):
                for (filter, qos), code in zip(client.asked.pop(packet_id), codes, strict=True):
                    assert code in (qos, 0x83), f"code {code:#x}"
                    if code == qos and filter != LEFT:
                        client.wishes[filter] = None
            case Unsubacked(_, packet_id, _):
                client.leaving.pop(packet_id)
            case SendPubrel(_, packet_ids):
                client.pubrel(packet_ids)
            case SessionClosed():
                client.disconnected()
            case _:
                raise AssertionError(f"{frame} at a gateway")

    def client_of(self, conn: int, link: int) -> ModelClient | None:
        for client in self.clients:
            if client.online and client.conn == conn and client.link == link:
                return client
        return None

    # ---------------------------------------------------------------- clients
    def connect(self, client: ModelClient, clean: bool = False) -> None:
        if not self.gateways:
            return
        home = self.links[self.slots.shard_of(client.name)]
        if client.online and self.rng.random() < 0.5:
            self.disconnect(client)
        older = (client.conn, client.link) if client.online else None
        conn, present, session_id, work = home.shard.connect(client.name, clean)
        if work and home.up:
            home.to_core.append(WorkReceived(home.shard.index, Work(work)))
        number = self.rng.choice(list(self.gateways))
        client.connected(conn, number, not present)
        if not present:
            self.ended[client.name] = len(self.published)
            client.received.clear()
            client.refused.clear()
        attach = Attach(client.name, conn, session_id, present, 5, client.receive_max)
        self.gateways[number].to_core.append(attach)
        if older is not None and older[1] in self.gateways:
            self.gateways[older[1]].to_core.append(Detach(older[0]))

    def disconnect(self, client: ModelClient) -> None:
        self.gateways[client.link].to_core.append(Detach(client.conn))
        client.disconnected()

    def subscribe(self, client: ModelClient) -> None:
        """One or two filters that no topic matches both of, so that the identifier tells which one a message came for."""
        self.identifiers += 1
        filters = [self.rng.choice(FILTERS)]
        other = self.rng.choice(FILTERS)
        if not any(matches(filters[0], topic) and matches(other, topic) for topic in TOPICS):
            filters.append(other)
        client.last_packet += 1
        client.asked[client.last_packet] = rows = [(filter, self.rng.randint(1, 2)) for filter in filters]
        client.filters_of[self.identifiers] = filters
        frame = Subscribe(client.conn, client.last_packet, [(filter, qos, 0, 2) for filter, qos in rows], self.identifiers)
        self.gateways[client.link].to_core.append(frame)

    def unsubscribe(self, client: ModelClient) -> None:
        if not client.wishes:
            return
        filter = self.rng.choice(list(client.wishes))
        del client.wishes[filter]
        # What was not begun to be sent need not be sent any more [MQTT-3.10.4-3].
        client.waived[filter] = len(self.published)
        client.last_packet += 1
        client.leaving[client.last_packet] = [filter]
        for asked in client.asked:
            # A SUBSCRIBE to it that is on its way ends with this UNSUBSCRIBE; its SUBACK must not count as a wish.
            client.asked[asked] = [(LEFT if name == filter else name, qos) for name, qos in client.asked[asked]]
        self.gateways[client.link].to_core.append(Unsubscribe(client.conn, client.last_packet, [filter]))

    def publish(self) -> None:
        publisher, topic, qos = self.rng.choice(PUBLISHERS), self.rng.choice(TOPICS), self.rng.randint(1, 2)
        body = b"\0" + b"%d" % len(self.published)
        expected = [(client.name, filter) for client in self.clients for filter in client.wishes if matches(filter, topic)]
        stored = self.links[self.slots.shard_of(publisher)].shard.publish(publisher, topic, qos, body)
        assert stored or not expected, "a route is missing"
        self.published.append(Published(publisher, topic, qos, body, expected))

    def acknowledge(self, client: ModelClient, everything: bool = False) -> None:
        self.gateways[client.link].to_core.extend(client.acknowledge(self.rng, everything))

    # ---------------------------------------------------------------- random steps
    def step(self) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.80:
            self.move()
        elif roll < 0.88:
            self.publish()
        elif roll < 0.97:
            client = rng.choice(self.clients)
            if client.attached:
                self.acknowledge(client)
        elif roll < 0.997:
            self.client_acts(rng.choice(self.clients))
        elif self.crashes:
            self.fault()

    def move(self) -> None:
        """One item of one link, or the end of a tick."""
        rng = self.rng
        choices: list[tuple[str, int]] = []
        for shard, link in enumerate(self.links):
            if link.up:
                choices += [("to_shard", shard)] * bool(link.to_shard)
                choices += [("to_core", shard)] * bool(link.to_core)
                choices.append(("feed", shard))
        for number, gateway in self.gateways.items():
            choices += [("gateway_core", number)] * bool(gateway.to_core)
            choices += [("gateway", number)] * bool(gateway.to_gateway)
        if self.unticked or not choices:
            choices += [("tick", 0)] * 2
        self.do(*rng.choice(choices))

    def do(self, what: str, at: int) -> None:
        match what:
            case "to_shard":
                self.arrive_at_shard(at)
            case "to_core":
                self.feed(self.links[at].to_core.popleft())
            case "feed":
                link = self.links[at]
                frames = link.shard.feed(self.rng.choice((1, 3, 1000)))
                link.to_core.extend(FeedReceived(at, frame) for frame in frames)
            case "gateway_core":
                self.feed(FromGateway(at, decode(encode(self.gateways[at].to_core.popleft()))))
            case "gateway":
                self.arrive_at_gateway(at)
            case _:
                self.tick()

    def client_acts(self, client: ModelClient) -> None:
        roll = self.rng.random()
        if not client.online:
            self.connect(client, clean=roll < 0.05)
        elif not client.attached:
            if roll < 0.03:
                self.connect(client)
        elif roll < 0.55:
            if len(client.asked) < 3:
                self.subscribe(client)
        elif roll < 0.65:
            self.unsubscribe(client)
        elif roll < 0.85:
            self.disconnect(client)
        else:
            self.connect(client, clean=roll < 0.865)

    def fault(self) -> None:
        rng = self.rng
        roll = rng.random()
        shard = rng.randrange(self.n_shards)
        if roll < 0.25:
            self.crash_core()
        elif roll < 0.5:
            if self.links[shard].up:
                self.lose_shard(shard)
        elif roll < 0.75:
            if not self.links[shard].up:
                self.link_shard(shard)
        elif roll < 0.85:
            self.links[shard].shard.sweeps = not self.links[shard].shard.sweeps
        elif roll < 0.88:
            self.links[shard].shard.roll()
        elif roll < 0.9:
            # Another process becomes the owner, does nothing, and is gone again.
            self.links[shard].shard.request([Own()])
        elif roll < 0.95:
            if self.links[shard].up:
                self.links[shard].to_core.extend(FeedReceived(shard, frame) for frame in self.links[shard].shard.leave_hole())
        elif self.gateways:
            self.lose_gateway(rng.choice(list(self.gateways)))
            self.link_gateway()

    # ---------------------------------------------------------------- the end
    def settle(self) -> None:
        """Everything that is under way arrives; nothing new begins, but what follows from it."""
        for _ in range(10_000):
            moved = False
            for shard, link in enumerate(self.links):
                if not link.up:
                    self.link_shard(shard)
                while link.to_shard:
                    self.arrive_at_shard(shard)
                    moved = True
                for frame in link.shard.feed(1000):
                    link.to_core.append(FeedReceived(shard, frame))
                while link.to_core:
                    self.feed(link.to_core.popleft())
                    moved = True
            for number, gateway in self.gateways.items():
                while gateway.to_core:
                    self.do("gateway_core", number)
                    moved = True
                while gateway.to_gateway:
                    self.arrive_at_gateway(number)
                    moved = True
            for client in self.clients:
                if client.attached and (client.unanswered or client.released):
                    self.acknowledge(client, everything=True)
                    moved = True
            if self.unticked:
                self.tick()
                moved = True
            if not moved:
                return
        raise AssertionError("it does not come to rest")

    def heal_and_drain(self) -> None:
        self.crashes = False
        self.settle()
        for _ in range(3):
            for client in self.clients:
                if not client.attached:
                    self.connect(client)
            self.settle()
            # What could not be answered is asked again, and the heartbeat commits what is left.
            self.now_ms += 20_000
            self.tick()
            self.settle()
        assert all(client.attached for client in self.clients), "a client cannot come back"

    def verify(self) -> None:
        """Nothing missing, QoS 2 once, order per (publisher, topic, QoS)."""
        order = {item.body: at for at, item in enumerate(self.published)}
        for client in self.clients:
            since = self.ended.get(client.name, 0)
            got: dict[tuple[bytes, int], list[int]] = {}
            for message in client.received:
                assert not message.retain
                key = (client.filter_of(message.identifier, message.topic), message.qos)
                got.setdefault(key, []).append(order[message.body])
            refused = {(client.filter_of(identifier, topic), order[body]) for identifier, topic, body in client.refused}
            for at, item in enumerate(self.published):
                for name, filter in item.expected:
                    if name != client.name or at < since or at < client.waived.get(filter, 0) or (filter, at) in refused:
                        continue
                    assert any(at in got.get((filter, qos), ()) for qos in (1, 2)), (
                        f"message {at} ({item.topic!r}, QoS {item.qos}) is missing at {client.name!r} for {filter!r}"
                    )
            for (filter, qos), numbers in got.items():
                if qos == 2:
                    twice = {number for number in numbers if numbers.count(number) > 1}
                    assert not twice, f"{twice} came twice at QoS 2 to {client.name!r} for {filter!r}"
                newest: dict[tuple[bytes, bytes, int], int] = {}
                seen: set[int] = set()
                for number in numbers:
                    if number in seen or (filter, number) in refused:
                        continue
                    seen.add(number)
                    item = self.published[number]
                    flow = (item.publisher, item.topic, item.qos)
                    assert newest.get(flow, -1) < number, f"{number} after {newest[flow]} of {flow} at {client.name!r} for {filter!r}"
                    newest[flow] = number

    def verify_rest(self) -> None:
        """When all is acknowledged nothing is left but subscriptions, places and progress; routes are those of subscriptions."""
        wanted: set[int] = set()
        for link in self.links:
            for rows in link.shard.rows.values():
                for family, suffix in rows:
                    assert family in (b"u", b"p", b"q"), f"a row of family {family!r} is left"
                    if family == b"u":
                        wanted.add(int.from_bytes(suffix, "big"))
        for link in self.links:
            assert set(link.shard.routes) == wanted
