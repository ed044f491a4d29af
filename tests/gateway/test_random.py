"""A seeded crowd on one gateway: publishers at every QoS, ephemeral subscribers, shards that answer when they like.

Publishers behave as the specification has it and number their messages per topic; every promise is checked at the clients'
own sockets, so nothing here looks into the core.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from gateway.events import FromPeer, PeerLinked, RetainedTold
from gateway.frames import Forward, Interest, InterestSeen
from gateway.options import Options
from mqtt.packets import AckKind, AckRun, Disconnect, Publish, PublishRun, Subscribe, Subscription
from mqtt.topics import matches
from tests.gateway.scripted import Client, Shell, apart, message

TOPICS = (b"a", b"a/b", b"a/c", b"b/c")
FILTERS = (b"#", b"a/#", b"+/c", b"a/b")
WINDOW = 3


class Publisher:
    def __init__(self, client: Client, name: bytes) -> None:
        self.client = client
        self.name = name
        self.numbers: dict[tuple[bytes, int], int] = defaultdict(int)
        self.next_id = 0
        self.unanswered: dict[int, int] = {}
        self.qos_of: dict[int, int] = {}
        self.unreleased: list[int] = []
        self.sent_order: list[int] = []
        self.acked_order: list[int] = []
        self.repeatable: dict[int, PublishRun] = {}

    def publish(self, rng: Random) -> PublishRun:
        topic, qos = rng.choice(TOPICS), rng.choice((0, 1, 2))
        self.numbers[topic, qos] += 1
        payload = b"%s %d %d" % (self.name, qos, self.numbers[topic, qos])
        packet_id = 0
        if qos:
            self.next_id += 1
            packet_id = self.next_id
            self.unanswered[packet_id] = self.qos_of[packet_id] = qos
            self.sent_order.append(packet_id)
        sent = message(topic, payload, qos, packet_id)
        if qos == 2:
            self.repeatable[packet_id] = message(topic, payload, 2, packet_id, dup=True)
        return sent

    def read(self, answered_by_home: set[tuple[bytes, int]]) -> list[AckRun]:
        """Take answers; PUBREL for every PUBREC."""
        releases: list[AckRun] = []
        for packet in self.client.take():
            kind, packet_id = _ack(packet)
            assert (self.name, packet_id) in answered_by_home, f"{kind.name} {packet_id} before the shard has answered"
            if kind is AckKind.PUBCOMP:
                self.unreleased.remove(packet_id)
                continue
            if packet_id in self.unanswered:
                assert self.unanswered.pop(packet_id) == (1 if kind is AckKind.PUBACK else 2)
                self.acked_order.append(packet_id)
            if kind is AckKind.PUBREC and self.repeatable.pop(packet_id, None) is not None:
                self.unreleased.append(packet_id)
                releases.append(AckRun(AckKind.PUBREL, [packet_id]))
        return releases


class Subscriber:
    def __init__(self, client: Client, filter: bytes, granted: int) -> None:
        self.client = client
        self.filter = filter
        self.granted = granted
        self.got: list[tuple[bytes, bytes]] = []
        self.inflight: dict[int, AckKind] = {}

    def read(self) -> list[AckRun]:
        """Take messages; the answers that are due."""
        due: list[AckRun] = []
        for packet in self.client.take():
            if isinstance(packet, PublishRun):
                (flags,), (packet_id,), (topic,), (body,) = packet.flags, packet.packet_ids, packet.topics, packet.bodies
                published_qos = int(body[1:].split()[1])
                assert flags >> 1 & 3 == min(published_qos, self.granted) and not flags & 8
                assert matches(self.filter, topic)
                self.got.append((topic, body[1:]))
                if flags & 6:
                    assert packet_id not in self.inflight, f"packet id {packet_id} is used twice"
                    self.inflight[packet_id] = AckKind.PUBACK if flags & 2 else AckKind.PUBREC
                    assert len(self.inflight) <= WINDOW
                    due.append(AckRun(self.inflight[packet_id], [packet_id]))
            else:
                kind, packet_id = _ack(packet)
                assert kind is AckKind.PUBREL and self.inflight[packet_id] is AckKind.PUBREC
                due.append(AckRun(AckKind.PUBCOMP, [packet_id]))
        return due

    def acknowledged(self, run: AckRun) -> None:
        if run.kind is not AckKind.PUBREC:
            del self.inflight[run.packet_ids[0]]


def _ack(packet: object) -> tuple[AckKind, int]:
    assert not isinstance(packet, Publish | Disconnect), f"{packet} was not expected"
    kind, packet_ids = getattr(packet, "kind", None), getattr(packet, "packet_ids", None)
    if packet_ids is None:
        packet_ids = [getattr(packet, "packet_id", 0)]
    assert isinstance(kind, AckKind), f"{packet} was not expected"
    return kind, packet_ids[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_crowd_gets_what_it_was_promised(seed: int) -> None:
    """FIFO per (publisher, topic, QoS), QoS 1 and 2 once on each subscription, windows kept, no acknowledgement before the
    shard's answer, acknowledgements in order, everything delivered in the end; another gateway is forwarded the same."""
    rng = Random(seed)
    shell = Shell(Options(max_inflight=WINDOW, receive_maximum_in=rng.choice((4, 1_000))), n_shards=2, seed=seed)
    shell.turn(PeerLinked(1, "g2"), FromPeer(1, Interest(1, True, [b"a/#"], [], [], [], [])))
    subscribers = []
    for number, filter in enumerate(FILTERS):
        granted = rng.choice((0, 1, 2))
        subscriber = Subscriber(shell.online(f"s{number}", rng.choice((4, 5))), filter, granted)
        shell.turn(FromPeer(1, InterestSeen(100)))
        subscriber.client.send(Subscribe(1, (Subscription(filter, granted, retain_handling=2 if subscriber.client.version == 5 else 0),)))
        shell.turn(FromPeer(1, InterestSeen(100)))
        subscriber.client.take()
        subscribers.append(subscriber)
    while shell.queries:
        query = shell.queries.pop()
        shell.turn(RetainedTold(query.shard, query.id, [], b""))
    names = [b"p%d" % number for number in range(3)]
    publishers = [
        Publisher(shell.online(name.decode(), version, clean=version == 5, expiry_s=rng.choice((0, 60))), name)
        for name, version in zip(names, (4, 5, 5), strict=True)
    ]
    sent: list[tuple[bytes, bytes]] = []
    answered: set[tuple[bytes, int]] = set()
    to_send: dict[Client, list[AckRun]] = defaultdict(list)
    acked: list[tuple[Subscriber, AckRun]] = []

    def read() -> None:
        for publisher in publishers:
            to_send[publisher.client] += publisher.read(answered)
        for subscriber in subscribers:
            acked.extend((subscriber, run) for run in subscriber.read())

    for step in range(150):
        draining = step > 110
        match rng.randrange(5):
            case 0 | 1 if not draining:
                publisher = rng.choice(publishers)
                room = 4 - len(publisher.unanswered) - len(publisher.unreleased)
                runs = [publisher.publish(rng) for _ in range(rng.randrange(0, max(1, min(4, room + 1))))]
                sent += [(run.topics[0], run.bodies[0][1:]) for run in runs]
                if publisher.repeatable and rng.random() < 0.2:
                    runs.append(rng.choice(list(publisher.repeatable.values())))
                if runs:
                    publisher.client.send(*runs)
            case 2:
                count = rng.randrange(1, 3)
                for request in list(shell.requests)[:count]:
                    for entry in request.entries:
                        ids = getattr(entry, "packet_ids", [])
                        answered |= {(getattr(entry, "client", b""), packet_id) for packet_id in ids}
                shell.answer(count)
            case 3:
                client, runs_due = rng.choice([(publisher.client, to_send[publisher.client]) for publisher in publishers])
                if runs_due:
                    client.send(*[runs_due.pop(0) for _ in range(rng.randrange(1, len(runs_due) + 1))])
            case _:
                if acked:
                    subscriber, run = acked.pop(0)
                    subscriber.acknowledged(run)
                    subscriber.client.send(run)
        read()
    while shell.requests or acked or any(to_send.values()):
        for request in shell.requests:
            for entry in request.entries:
                answered |= {(getattr(entry, "client", b""), packet_id) for packet_id in getattr(entry, "packet_ids", [])}
        shell.answer()
        read()
        for client, due in to_send.items():
            while due:
                client.send(due.pop(0))
        while acked:
            subscriber, run = acked.pop(0)
            subscriber.acknowledged(run)
            subscriber.client.send(run)
        read()

    for publisher in publishers:
        assert not publisher.unanswered and not publisher.unreleased
        assert sorted(publisher.acked_order) == publisher.sent_order
        for qos in (1, 2):
            order = [packet_id for packet_id in publisher.acked_order if publisher.qos_of[packet_id] == qos]
            assert order == sorted(order), f"seed {seed}: acknowledgements of QoS {qos} out of order"
    for subscriber in subscribers:
        wanted = [row for row in sent if matches(subscriber.filter, row[0])]
        assert sorted(subscriber.got) == sorted(wanted), f"seed {seed}, filter {subscriber.filter!r}"
        assert_fifo(subscriber.got)
        assert not subscriber.inflight
    forwarded = [
        (topic, body[1:])
        for _, frame in shell.to_peer
        if isinstance(frame, Forward)
        for topic, body in zip(frame.topics, frame.bodies, strict=True)
    ]
    assert sorted(forwarded) == sorted(row for row in sent if matches(b"a/#", row[0]))
    assert_fifo(forwarded)


def assert_fifo(got: list[tuple[bytes, bytes]]) -> None:
    last: dict[tuple[bytes, bytes, bytes], int] = {}
    for topic, payload in got:
        name, qos, number = payload.split()
        assert last.get((topic, name, qos), 0) < int(number), f"{topic!r}: {payload!r} after {last[topic, name, qos]}"
        last[topic, name, qos] = int(number)


def test_one_seed_gives_one_history() -> None:
    """The same events give the same effects, bytes and order included."""

    def history() -> list[object]:
        shell = Shell(n_shards=2)
        clients = [shell.online(name, 5) for name in ("a", "b", "c")]
        for client in clients:
            client.send(Subscribe(1, (Subscription(b"#", 1),)))
        effects: list[object] = []
        for packet_id in range(1, 5):
            effects += [*clients[packet_id % 3].send(message(b"t", b"x", 1, packet_id)), *shell.answer()]
        return effects

    assert history() == history() and apart(message(b"t", b"x")) == [message(b"t", b"x")]
