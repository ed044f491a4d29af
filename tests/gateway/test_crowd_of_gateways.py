"""A seeded crowd on three gateways: publishers at each, plain subscribers, and members of shared groups who come and go.

Frames between gateways arrive when they like, in order on each link.  One member of each group stays, so nothing has an excuse
to be lost; what members got and acknowledged is counted at their own sockets."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest

from gateway.events import SocketLost
from gateway.groups import is_shared, matched_filter
from gateway.options import Options
from mqtt.packets import AckKind, AckRun, Connack, Connect, Disconnect, Properties, PublishRun, Subscribe, Subscription, Unsubscribe
from mqtt.topics import matches
from tests.gateway.linked import Linked
from tests.gateway.scripted import Client, message

TOPICS = (b"a", b"a/b", b"b")
GROUPS = (b"$share/g/#", b"$share/h/a/#", b"$share/h/#")


@dataclass(eq=False)
class Subscriber:
    """One life of a subscriber: it ends with its connection."""

    client: Client
    filter: bytes
    granted: int
    got: list[bytes] = field(default_factory=list)
    unacknowledged: dict[int, bytes] = field(default_factory=dict)
    due: list[AckRun] = field(default_factory=list)

    def read(self) -> None:
        for packet in self.client.take():
            if isinstance(packet, PublishRun):
                (flags,), (packet_id,), (body,) = packet.flags, packet.packet_ids, packet.bodies
                assert flags == min(int(body[1:].split()[1]), self.granted) << 1, "QoS, and neither DUP nor RETAIN"
                self.got.append(body[1:])
                if flags == 2:
                    assert packet_id not in self.unacknowledged
                    self.unacknowledged[packet_id] = body[1:]
                if flags:
                    self.due.append(AckRun(AckKind.PUBACK if flags == 2 else AckKind.PUBREC, [packet_id]))
            elif isinstance(packet, AckRun):
                assert packet.kind is AckKind.PUBREL
                self.due.append(AckRun(AckKind.PUBCOMP, packet.packet_ids))

    def acknowledge(self, run: AckRun) -> None:
        self.due.remove(run)
        if run.kind is AckKind.PUBACK:
            del self.unacknowledged[run.packet_ids[0]]
        self.client.send(run)


class Crowd:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.linked = Linked(3, Options(receive_maximum_in=10_000))
        self.lives: list[Subscriber] = []
        self.there: list[Subscriber] = []
        self.publishers = [shell.online(f"p{index}", 4) for index, shell in enumerate(self.linked.shells)]
        self.numbers: Counter[tuple[int, int, bytes]] = Counter()
        self.sent: list[tuple[bytes, bytes]] = []
        self.names = 0

    def join(self, index: int, filter: bytes, name: str = "") -> Subscriber:
        """A new subscriber, or a new life of one."""
        self.names += 1
        client = self.linked[index].client(5)
        limits = Properties(receive_maximum=self.rng.randrange(1, 4))
        client.send(Connect(5, name or f"s{self.names}", properties=limits))
        self.linked.answer(index)
        assert isinstance(client.packets.pop(0), Connack)
        granted = self.rng.choice((0, 1, 1, 2))
        client.send(Subscribe(1, (Subscription(filter, granted, retain_handling=2),)))
        subscriber = Subscriber(client, filter, granted)
        self.lives.append(subscriber)
        self.there.append(subscriber)
        return subscriber

    def publish(self) -> None:
        rng = self.rng
        index, topic, qos = rng.randrange(3), rng.choice(TOPICS), rng.choice((0, 1, 2))
        self.numbers[index, qos, topic] += 1
        payload = b"%d %d %s %d" % (index, qos, topic, self.numbers[index, qos, topic])
        self.sent.append((topic, payload))
        self.publishers[index].send(message(topic, payload, qos, len(self.sent) if qos else 0))

    def go_on(self) -> None:
        """Something that always happens in the end happens now."""
        rng = self.rng
        match rng.randrange(3):
            case 0:
                self.linked.answer(rng.randrange(3), rng.randrange(1, 3))
            case 1:
                self.linked.arrive(*rng.choice(list(self.linked.wires)), rng.randrange(1, 4))
            case _:
                subscriber = rng.choice(self.there)
                if subscriber.due:
                    subscriber.acknowledge(rng.choice(subscriber.due))
        self.read()

    def read(self) -> None:
        for subscriber in self.there:
            subscriber.read()

    def go(self, subscriber: Subscriber) -> None:
        """A member goes, in one of four ways."""
        client = subscriber.client
        match self.rng.randrange(4):
            case 0:
                client.send(Disconnect())
            case 1:
                client.shell.turn(SocketLost(client.socket, "reset"))
            case 2:
                # It stays connected for as long as it acknowledges what it has, or for shorter.
                client.send(Unsubscribe(2, (subscriber.filter,)))
                subscriber.read()
                for run in subscriber.due[:1]:
                    subscriber.acknowledge(run)
                client.send(Disconnect())
            case _:
                name = next(name for name, conn in client.shell.homes.newest.items() if conn == client_conn(subscriber))
                self.join(self.rng.randrange(3), self.rng.choice(GROUPS), name.decode())
                assert client.closed == "session taken over"
        self.read()
        self.there.remove(subscriber)

    def drain(self) -> None:
        before = -1
        while before != sum(len(life.got) for life in self.lives) or any(life.due for life in self.there):
            before = sum(len(life.got) for life in self.lives)
            for index in range(3):
                self.linked.answer(index)
            self.linked.settle()
            self.read()
            for subscriber in self.there:
                while subscriber.due:
                    subscriber.acknowledge(subscriber.due[0])
            self.read()


def client_conn(subscriber: Subscriber) -> int:
    return subscriber.client.shell.core._state.by_socket[subscriber.client.socket].conn


def assert_fifo(subscriber: Subscriber) -> None:
    last: dict[bytes, int] = defaultdict(int)
    for payload in subscriber.got:
        of, _, number = payload.rpartition(b" ")
        assert last[of] < int(number), f"{subscriber.filter!r}: {payload!r} after {last[of]}"
        last[of] = int(number)


@pytest.mark.parametrize("seed", range(8))
def test_a_crowd_without_changes_is_served_in_order_and_fairly(seed: int) -> None:
    """Each message once to each group and to each plain subscriber, FIFO for each taker, the same number for each member."""
    crowd = Crowd(seed)
    rng = crowd.rng
    plain = [crowd.join(index, b"#") for index in range(3)]
    groups = {group: [crowd.join(rng.randrange(3), group) for _ in range(rng.randrange(1, 6))] for group in GROUPS}
    crowd.drain()
    for _ in range(160):
        if rng.random() < 0.5:
            crowd.publish()
        crowd.go_on()
    crowd.drain()
    for subscriber in crowd.lives:
        assert_fifo(subscriber)
    everything = sorted(payload for _, payload in crowd.sent)
    for subscriber in plain:
        assert sorted(subscriber.got) == everything
    for group, members in groups.items():
        wanted = sorted(payload for topic, payload in crowd.sent if matches(matched_filter(group), topic))
        assert sorted(payload for member in members for payload in member.got) == wanted
        for member in members:
            # Of what enters by one gateway each one gets its share but for less than two messages.
            assert abs(len(member.got) - len(wanted) / len(members)) < 4, [len(member.got) for member in members]
    assert sum(shell.core.counters.shared_handed_on for shell in crowd.linked.shells) == 0


@pytest.mark.parametrize("seed", range(16))
def test_a_crowd_whose_members_come_and_go_loses_nothing_and_gets_nothing_twice(seed: int) -> None:
    """Of the members that got a message exactly one keeps it: it acknowledged it, or it got it at QoS 0 or 2.  All others went
    without having acknowledged it."""
    crowd = Crowd(seed)
    rng = crowd.rng
    plain = [crowd.join(index, b"#") for index in range(3)]
    staying = [crowd.join(rng.randrange(3), group) for group in GROUPS]
    crowd.drain()
    for _ in range(200):
        match rng.randrange(10):
            case 0:
                crowd.join(rng.randrange(3), rng.choice(GROUPS))
            case 1:
                going = [member for member in crowd.there if member not in plain and member not in staying]
                if going:
                    crowd.go(rng.choice(going))
            case 2 | 3 | 4 | 5:
                crowd.publish()
        crowd.go_on()
    crowd.drain()
    for subscriber in plain:
        assert_fifo(subscriber)
        assert sorted(subscriber.got) == sorted(payload for _, payload in crowd.sent)
    for group in GROUPS:
        kept: Counter[bytes] = Counter()
        for member in crowd.lives:
            if member.filter == group:
                assert len(set(member.got)) == len(member.got), "twice to one member"
                kept.update(payload for payload in member.got if payload not in member.unacknowledged.values())
        assert is_shared(group) and kept == Counter(payload for topic, payload in crowd.sent if matches(matched_filter(group), topic))
    counters = [shell.core.counters for shell in crowd.linked.shells]
    assert sum(row.shared_lost + row.live_dropped_queue_full for row in counters) == 0
    if seed == 0:
        assert sum(row.shared_handed_on for row in counters) > 5, "the crowd does what it is there for"
