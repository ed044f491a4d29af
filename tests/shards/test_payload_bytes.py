"""What a shard says of payloads (shards.counting.Counting.payload_bytes): their bytes, exactly, whatever they were stored with."""

from __future__ import annotations

import random

import pytest

from mqtt.body import payload_bytes, strip_properties
from shards.entries import Publish
from shards.frames import Published, Will
from shards.messages import header
from tests.shards.harness import G, connect, route
from tests.shards.test_writers import append, block, stored, with_reader

# Properties that were looked at already, so any bytes of a right length will do here: a user property.
SHORT = b"\x26\x00\x01a\x00\x02bc"
LONG = b"\x26\x00\x01a\x01\x00" + bytes(256)


def body(payload: int, properties: bytes = b"") -> bytes:
    size = len(properties)
    return (bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))) + properties + bytes(payload)


@pytest.mark.parametrize("properties", [b"", SHORT, LONG])
def test_a_payload_is_what_is_left_without_properties(properties: bytes) -> None:
    """With a length of one byte, of two, and of none."""
    for size in (0, 1, 300):
        made = body(size, properties)
        assert payload_bytes(made) == len(strip_properties(made)) == size


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("store_qos0", [False, True])
def test_what_is_counted_is_what_is_stored(seed: int, store_qos0: bool) -> None:
    """Frames in which some is wanted and some is not, some is retained, some comes again, with properties and without."""
    rng = random.Random(seed)
    h = with_reader(store_qos0=store_qos0)
    route(h, b"wanted/#")
    connection = connect(h, b"publisher", expiry_s=100)
    for _ in range(60):
        n = rng.randrange(1, 8)
        qos = [rng.choice((0, 1, 2)) for _ in range(n)]
        flags = bytes([each << 1 | (rng.random() < 0.3) for each in qos])
        topics = [rng.choice((b"wanted/a", b"wanted/bcd/%d" % rng.randrange(20), b"other/%d" % rng.randrange(5))) for _ in range(n)]
        bodies = [body(rng.randrange(50), rng.choice((b"", b"", SHORT, LONG))) for _ in range(n)]
        ids = [rng.randrange(1, 30) for _ in range(n)]
        (reply,) = h.ask(G, Publish(b"publisher", connection.conn, True, 5, flags, ids, topics, bodies))
        assert isinstance(reply, Published)
    counted = h.core.counters
    assert counted["messages_repeated"] > 0 and counted["messages_nobody"] > 0
    values = stored(h)
    assert counted["messages_stored"] == len(values) > 50
    assert counted["payload_bytes_stored"] == sum([payload_bytes(header(value)[4]) for value in values])


def test_wills_and_what_writers_put_in_are_counted() -> None:
    """They come over no connection."""
    h = with_reader()
    route(h, b"#")
    assert append(h, block(0, b"a", b"b", body=body(7, SHORT))).stored == 2
    connect(h, b"mortal", will=Will(b"will/t", 1, False, 0, body(11)))
    h.unlink(G)
    h.pass_time(60_000)
    assert [payload_bytes(header(value)[4]) for value in stored(h)] == [7, 7, 11]
    assert h.core.counters["payload_bytes_stored"] == 25
