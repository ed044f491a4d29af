"""Two gateway cores and one real shard core, every frame through its codec: what each expects of the other is what it does.

The model of a shard in `scripted` says what the tests of the gateway mean; here it is measured against the shard itself.
"""

from __future__ import annotations

from gateway.events import Event, FromPeer, FromSession, FromShard, PeerLinked, Replied, RetainedTold, SocketLost
from gateway.frames import Frame as PeerFrame
from gateway.frames import decode as decode_peer
from gateway.frames import encode as encode_peer
from mqtt.packets import Ack, AckKind, AckRun, Connect, Disconnect, Properties, Publish, PublishRun, Subscribe, Subscription, Will
from mqtt.reason import ReasonCode
from sessions.frames import Attach, Attached
from shards.frames import Answer, Live, Query, Result, RetainedMessages, RetainedPage, Route, Superseded
from tests.gateway.scripted import Client, Shell, message
from tests.shards.harness import Harness


class World:
    """Gateways that know each other, on one shard.  `settle` carries everything to its end."""

    def __init__(self, count: int) -> None:
        self.shard = Harness()
        self.gateways = [Shell(name=f"g{number}", seed=number) for number in range(count)]
        self.numbers: list[dict[int, int]] = [{} for _ in range(count)]
        for link, gateway in enumerate(self.gateways):
            self.shard.link(link, "gateway", f"g{link}")
            gateway.turn(*[PeerLinked(other, f"g{other}") for other in range(count) if other != link])
        self.shard.link(9, "session", "s0")
        self.settle()

    def settle(self) -> None:
        """Until nobody has anything to say."""
        while self._round():
            pass

    def _round(self) -> bool:
        said = False
        for link, gateway in enumerate(self.gateways):
            for request in gateway.requests:
                self.numbers[link][self.shard.request(link, *request.entries)] = request.id
            for query in gateway.queries:
                self.shard.receive(link, Query(query.id, RetainedPage(query.filter, query.after, query.count_max)))
            said = said or bool(gateway.requests or gateway.queries)
            gateway.requests.clear()
            gateway.queries.clear()
        self.shard.tick()
        for link, gateway in enumerate(self.gateways):
            events: list[Event] = []
            for frame in self.shard.sent[link]:
                if isinstance(frame, Answer):
                    events.append(Replied(0, self.numbers[link].pop(frame.number), frame.replies))
                elif isinstance(frame, Superseded | Live):
                    events.append(FromShard(0, frame))
                elif isinstance(frame, Result):
                    assert isinstance(frame.told, RetainedMessages)
                    events.append(RetainedTold(0, frame.id, frame.told.values, frame.told.next_after))
            self.shard.sent[link].clear()
            for other, peer in enumerate(self.gateways):
                events += [FromPeer(other, _coded(told)) for to, told in peer.to_peer if to == link and other != link]
                peer.to_peer = [row for row in peer.to_peer if row[0] != link]
            if events:
                gateway.turn(*events)
                said = True
        return said

    def online(self, gateway: int, packet: Connect) -> Client:
        client = self.gateways[gateway].client(packet.version)
        client.send(packet)
        self.settle()
        assert len(client.packets) == 1, f"{packet.client_id} got no CONNACK"
        client.packets.clear()
        return client

    def send(self, client: Client, *packets: object) -> None:
        client.send(*packets)  # type: ignore[arg-type]
        self.settle()


def _coded(frame: PeerFrame) -> PeerFrame:
    return decode_peer(encode_peer(frame))


def test_every_qos_reaches_subscribers_at_both_gateways() -> None:
    """Stored for a durable route or for nobody, a message goes live after the shard's answer, wherever its subscriber is."""
    world = World(2)
    here, there = world.online(0, Connect(5, "here")), world.online(1, Connect(4, "there"))
    for client in (here, there):
        world.send(client, Subscribe(1, (Subscription(b"a/+", 2),)))
        client.take()
    world.shard.ask(9, Route([(1, b"a/stored")], []))
    publisher = world.online(0, Connect(5, "p"))
    publisher.send(message(b"a/stored", b"1", 1, 1), message(b"a/only", b"2", 2, 2), message(b"x", b"3", 1, 3), message(b"a/only", b"4"))
    assert publisher.take() == [] and here.take() == [message(b"a/only", b"4")]
    world.settle()
    unheard = Ack(AckKind.PUBACK, 3, ReasonCode.NO_MATCHING_SUBSCRIBERS)
    assert publisher.take() == [AckRun(AckKind.PUBACK, [1]), AckRun(AckKind.PUBREC, [2]), unheard]
    assert here.take() == [message(b"a/stored", b"1", 1, 1), message(b"a/only", b"2", 2, 2)]
    assert there.take() == [message(b"a/only", b"4"), message(b"a/stored", b"1", 1, 1), message(b"a/only", b"2", 2, 2)]


def test_a_client_that_changes_gateways_is_closed_at_the_older() -> None:
    """Superseded reaches the gateway that holds it, and what it publishes there afterwards is stale."""
    world = World(2)
    older = world.online(0, Connect(5, "c"))
    newer = world.online(1, Connect(5, "c"))
    assert older.take() == [Disconnect(ReasonCode.SESSION_TAKEN_OVER)] and older.closed
    assert newer.closed is None
    twice = [world.gateways[0].client(5) for _ in range(2)]
    for client in twice:
        client.shell.turn(client.event(Connect(5, "d")))
    world.settle()
    assert [client.closed is None for client in twice] == [False, True]


def test_a_will_reaches_live_subscribers_at_every_gateway_once() -> None:
    """From the shard to each gateway, not from gateway to gateway."""
    world = World(2)
    here, there = world.online(0, Connect(4, "here")), world.online(1, Connect(4, "there"))
    for client in (here, there):
        world.send(client, Subscribe(1, (Subscription(b"w", 1),)))
        client.take()
    lost = world.online(0, Connect(5, "c", will=Will(b"w", b"gone", 1)))
    polite = world.online(0, Connect(5, "d", will=Will(b"w", b"not this", 1)))
    world.send(polite, Disconnect())
    lost.shell.turn(SocketLost(lost.socket, "reset"))
    world.settle()
    assert here.take() == [message(b"w", b"gone", 1, 1)] == there.take()


def test_retained_messages_and_their_expiry() -> None:
    """Kept at every QoS, replaced, deleted by an empty payload; properties and what is left of the interval come along."""
    world = World(1)
    publisher = world.online(0, Connect(5, "p"))
    world.send(
        publisher, message(b"r/0", b"old", retain=True), message(b"r/0", b"new", retain=True), message(b"r/1", b"x", 1, 1, retain=True)
    )
    world.send(publisher, message(b"r/1", b"", 1, 2, retain=True), Publish(5, 3, b"r/2", b"y", Properties(message_expiry_interval=60)))
    subscriber = world.online(0, Connect(5, "s"))
    world.send(subscriber, Subscribe(1, (Subscription(b"r/#", 1),)))
    _, *got = subscriber.take()
    plain = [packet for packet in got if isinstance(packet, PublishRun)]
    kept = [packet for packet in got if isinstance(packet, Publish)]
    assert plain == [message(b"r/0", b"new", retain=True)]
    assert [(packet.topic, packet.flags, packet.payload) for packet in kept] == [(b"r/2", 3, b"y")]
    assert 0 < (kept[0].properties.message_expiry_interval or 0) <= 60


def test_qos_2_ids_of_a_durable_session_are_rows_of_its_home() -> None:
    """A repeat on the next connection is known, PUBREL ends it, a second PUBREL is not found."""
    world = World(1)
    connect = Connect(5, "p", clean_start=False, properties=Properties(session_expiry_interval=100))

    def again() -> Client:
        client = world.gateways[0].client(5)
        client.send(connect)
        world.settle()
        _, attach = world.gateways[0].to_session[-1]
        world.gateways[0].turn(*_attached(attach))
        assert len(client.take()) == 1
        return client

    client = again()
    world.send(client, message(b"t", b"1", 2, 7))
    assert len(client.take()) == 1
    client.shell.turn(SocketLost(client.socket, "reset"))
    world.settle()
    client = again()
    world.send(client, message(b"t", b"1", 2, 7, dup=True))
    assert client.take() == [AckRun(AckKind.PUBREC, [7])]
    assert world.shard.core.counters["messages_repeated"] == 1
    world.send(client, AckRun(AckKind.PUBREL, [7]), AckRun(AckKind.PUBREL, [7]))
    assert client.take() == [AckRun(AckKind.PUBCOMP, [7]), Ack(AckKind.PUBCOMP, 7, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)]


def _attached(attach: object) -> list[Event]:
    assert isinstance(attach, Attach)
    return [FromSession(0, Attached(attach.conn, 0, []))]
