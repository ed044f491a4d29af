"""Retained messages for a durable subscription with real shards: the owner of the session dies at any turn after SUBACK."""

from __future__ import annotations

import pytest

from sessions.events import FromGateway
from sessions.frames import Deliver, Subacked, Subscribe
from sessions.options import SessionOptions
from shards.frames import Publish
from shards.rows import TO_COPY
from tests.sessions.real_shards import GATEWAY, NEVER_MS, Broker
from tests.shards.ended import rows
from tests.shards.harness import G, connect

EACH = 5
TURNS = (1, 2, 3, 5, 8, 12, 18, 27)

pytestmark = pytest.mark.slow


def kept(broker: Broker) -> set[bytes]:
    """Of clients whose home is that of the topic, five for each shard."""
    topics: set[bytes] = set()
    for shard, h in enumerate(broker.shards):
        client = next(b"p%d" % n for n in range(99) if broker.slots.shard_of(b"p%d" % n) == shard)
        mine = [topic for n in range(99) if broker.slots.shard_of(topic := b"r/%d" % n) == shard][:EACH]
        conn = connect(h, client).conn
        h.ask(G, Publish(client, conn, False, 77, b"\5" * EACH, list(range(1, EACH + 1)), mine, [b"\0" + topic for topic in mine]))
        topics.update(mine)
    return topics


def delivered(broker: Broker) -> list[bytes]:
    """First deliveries."""
    found: list[bytes] = []
    for frame in broker.to_gateway:
        if isinstance(frame, Deliver):
            for _, indexes, _, firsts, _ in frame.to:
                found += [frame.messages[i][1][1:] for i, first in zip(indexes, firsts, strict=True) if not first & 8]
    broker.to_gateway.clear()
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("turns", TURNS)
def test_all_of_them_come_whenever_the_owner_dies_after_suback(qos: int, turns: int) -> None:
    """Once, but for what comes with DUP; then no row is left of it."""
    broker = Broker(options=SessionOptions(gc_interval_ms=NEVER_MS, batch_size=2))
    broker.start_owner()
    broker.rest()
    topics = kept(broker)
    connected = broker.connect(b"reader", 600)
    broker._feed(FromGateway(GATEWAY, Subscribe(connected.conn, 1, [(b"r/+", qos, 0, 0)], 0)))
    while not any(isinstance(frame, Subacked) for frame in broker.to_gateway):
        broker.turn()
    for _ in range(turns - 1):
        broker.turn()
    got = delivered(broker)
    broker.kill_owner()
    broker.turn()
    broker.start_owner()
    broker.rest()
    broker.connect(b"reader", 600)
    broker.rest(2_000)
    got += delivered(broker)
    assert set(got) == topics
    assert len(got) == len(topics)
    assert not any(rows(h.engine).get(TO_COPY.decode(), 0) for h in broker.shards)
