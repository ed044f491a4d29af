"""Sessions in memory against a client that keeps what the specification tells a client to keep, over random histories."""

from __future__ import annotations

from random import Random

import pytest

from sessions.frames import PUBACK, PUBCOMP, PUBREC, Acked, Deliver, Detach, Hold, SendPubrel, Subscribe
from sessions.options import SessionOptions
from tests.sessions.memory.scripted import LINK, OTHER_LINK, Script, owned


class Client:
    """What one client has got, and what it owes."""

    def __init__(self, name: bytes, session_id: int, qos: int) -> None:
        self.name = name
        self.session_id = session_id
        self.qos = qos
        self.conn = 0
        self.link = LINK
        self.window = 0
        self.held = self.known = False
        self.owed: list[tuple[int, int]] = []
        """(kind, packet id) of acknowledgements that it has not sent."""
        self.open: dict[int, None] = {}
        """Packet ids that this connection brought and that are not finished."""
        self.qos2: set[int] = set()
        """QoS 2 ids received and not released."""
        self.first1: list[int] = []
        self.first2: list[int] = []
        """What came at QoS 1 without DUP or was not known, and what came at QoS 2, in this order."""
        self.seen1: set[int] = set()

    def deliver(self, payload: int, packet_id: int, first: int) -> None:
        assert packet_id not in self.open or first & 8
        self.open[packet_id] = None
        assert len(self.open) <= self.window, "more than the Receive Maximum"
        if first & 4:
            self.owed.append((PUBREC, packet_id))
            if packet_id not in self.qos2:
                self.qos2.add(packet_id)
                self.first2.append(payload)
        else:
            self.owed.append((PUBACK, packet_id))
            if payload not in self.seen1:
                self.seen1.add(payload)
                self.first1.append(payload)

    def pubrel(self, packet_ids: list[int]) -> None:
        for packet_id in packet_ids:
            self.open[packet_id] = None
            self.qos2.discard(packet_id)
            self.owed.append((PUBCOMP, packet_id))

    def gone(self) -> None:
        self.conn = 0
        self.held = False
        self.owed.clear()
        self.open.clear()


class History:
    def __init__(self, seed: int, options: SessionOptions) -> None:
        self.rng = Random(seed)
        self.s: Script = owned(options)
        self.clients = [Client(b"c%d" % n, 50 + n, n % 2 + 1) for n in range(3)]
        self.published: list[tuple[int, int]] = []

    def hear(self) -> None:
        for _, frame in self.s.take():
            if isinstance(frame, Deliver):
                for conn, indexes, packet_ids, firsts, _ in frame.to:
                    client = self.of(conn)
                    if client is None:
                        continue
                    for index, packet_id, first in zip(indexes, packet_ids, firsts, strict=True):
                        client.deliver(int(frame.messages[index][1][1:]), packet_id, first)
            elif isinstance(frame, SendPubrel):
                client = self.of(frame.conn)
                if client is not None:
                    client.pubrel(frame.packet_ids)

    def of(self, conn: int) -> Client | None:
        """Gateways drop what is for connections that they do not have any more."""
        return next((client for client in self.clients if client.conn == conn), None)

    def connect(self, client: Client, window: int) -> None:
        client.gone()
        client.link = self.rng.choice((LINK, OTHER_LINK))
        client.window = window
        client.conn = self.s.attach(client.name, client.session_id, client.known, window, client.link)
        if not client.known:
            self.s.frame(Subscribe(client.conn, 1, [(b"t", client.qos, 0, 2)], 0), client.link)
        client.known = True

    def step(self) -> None:
        rng, s = self.rng, self.s
        client = rng.choice(self.clients)
        match rng.choice(("publish", "publish", "ack", "ack", "ack", "come", "hold", "leave", "tick", "link")):
            case "publish" if all(client.known for client in self.clients):
                qos = rng.choice((1, 2))
                count = rng.randint(1, 4)
                numbers = range(len(self.published), len(self.published) + count)
                s.forward(*[b"%d" % number for number in numbers], qos=qos)
                self.published += [(number, qos) for number in numbers]
            case "ack" if client.owed:
                kind, packet_id = client.owed.pop(rng.randrange(len(client.owed)))
                if kind != PUBREC:
                    del client.open[packet_id]
                s.frame(Acked(client.conn, kind, [packet_id], False), client.link)
            case "come" if not client.conn or rng.random() < 0.2:
                # A window too small for what was received is the client's own business; ours is not to exceed it.
                self.connect(client, rng.randint(8, 20))
            case "hold" if client.conn:
                client.held = not client.held
                s.frame(Hold(client.conn, client.held), client.link)
            case "leave" if client.conn and rng.random() < 0.5:
                s.frame(Detach(client.conn), client.link)
                client.gone()
            case "link" if rng.random() < 0.1:
                link = rng.choice((LINK, OTHER_LINK))
                s.unlink(link)
                s.link(link)
                for one in self.clients:
                    if one.conn and one.link == link:
                        one.gone()
            case _:
                s.tick()
        self.hear()

    def finish(self) -> None:
        for client in self.clients:
            if not client.conn:
                self.connect(client, 100)
            elif client.held:
                client.held = False
                self.s.frame(Hold(client.conn, False), client.link)
        for _ in range(10_000):
            self.s.tick()
            self.hear()
            for client in self.clients:
                for kind, packet_id in client.owed:
                    if kind != PUBREC:
                        del client.open[packet_id]
                    self.s.frame(Acked(client.conn, kind, [packet_id], False), client.link)
                client.owed.clear()
            if not self.s.core._memory.held_bytes and not any(client.open for client in self.clients):
                return
        raise AssertionError("it does not come to rest")


@pytest.mark.parametrize("seed", range(30))
def test_what_is_not_dropped_comes_in_order_and_qos_2_once(seed: int) -> None:
    """Over connections that come and go at two gateways, windows that change, and acknowledgements in any order."""
    history = History(seed, SessionOptions())
    for _ in range(300):
        history.step()
    history.finish()
    for client in history.clients:
        two = [number for number, qos in history.published if min(qos, client.qos) == 2]
        one = [number for number, qos in history.published if min(qos, client.qos) == 1]
        assert client.first1 == one
        assert client.first2 == two
    assert history.published


@pytest.mark.parametrize("seed", range(10))
def test_what_is_dropped_is_counted(seed: int) -> None:
    """Small queues: what comes is in order, and what does not come is exactly what the counters say."""
    history = History(seed, SessionOptions(queue_count_max=3, memory_bytes_max=400))
    for _ in range(300):
        history.step()
    history.finish()
    came = 0
    for client in history.clients:
        assert client.first1 == sorted(client.first1)
        assert client.first2 == sorted(set(client.first2))
        came += len(client.first1) + len(client.first2)
    counters = history.s.counters
    dropped = counters.memory_dropped_queue_full + counters.memory_dropped_all_full
    assert came + dropped == 3 * len(history.published)
    assert dropped
