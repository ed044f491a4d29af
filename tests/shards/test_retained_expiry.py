"""Retained messages that have expired: given to nobody, and erased by the sweep (shards/retained.py, shards/sweep.py)."""

from __future__ import annotations

import pytest

from access.identity import Identity
from mqtt.body import make_body
from mqtt.packets import Properties
from shards.frames import Connect, Connected, Publish
from shards.options import ShardOptions
from shards.rows import RETAINED, SOURCE
from tests.shards.harness import G, Harness, S

EVERY_MS = 60_000
ANN = Identity("ann", "password").pack()


def swept(**options: int) -> tuple[Harness, int]:
    h = Harness(options=ShardOptions(gc_interval_ms=EVERY_MS, **options))  # type: ignore[arg-type]
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    (reply,) = h.ask(G, Connect(b"c", True, 0, 5, None, identity=ANN))
    assert isinstance(reply, Connected)
    return h, reply.conn


def retain(h: Harness, conn: int, topic: bytes, expiry_s: int | None) -> None:
    body = make_body(Properties(message_expiry_interval=expiry_s, content_type="t"), b"x")
    h.ask(G, Publish(b"c", conn, False, h.now_ms, b"\1", [0], [topic], [body]))


def kept(h: Harness) -> list[bytes]:
    return [key[1:] for key, _ in h.core._draft.scan(RETAINED, 10_000)]


def test_what_has_expired_is_erased_with_whose_it_was_and_nothing_else() -> None:
    """Only what says that it expires, and only when its time is up; not a fault that is counted."""
    h, conn = swept()
    for topic, expiry_s in ((b"soon", 30), (b"late", 400), (b"never", None)):
        retain(h, conn, topic, expiry_s)
    h.pass_time(2 * EVERY_MS)
    assert kept(h) == [b"late", b"never"] and h.core.counters["retained_expired"] == 1
    assert [key[1:] for key, _ in h.core._draft.scan(SOURCE, 10)] == [b"late", b"never"]
    assert not any(h.core.gc_found.values())
    h.pass_time(10 * EVERY_MS)
    assert kept(h) == [b"never"]


def test_a_newer_one_counts_from_its_own_time() -> None:
    """A topic that is published again and again keeps its message."""
    h, conn = swept()
    for _ in range(5):
        retain(h, conn, b"a", 90)
        h.pass_time(EVERY_MS)
    assert kept(h) == [b"a"]
    retain(h, conn, b"a", None)
    h.pass_time(5 * EVERY_MS)
    assert kept(h) == [b"a"]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_turn_erases_no_more_than_it_looks_at(batch: int) -> None:
    """So ten thousand that expire at once hold nobody up."""
    h, conn = swept(gc_batch=batch)
    for number in range(300):
        retain(h, conn, b"t/%d" % number, 1)
    h.pass_time(EVERY_MS - 5_000)
    most, before = 0, len(kept(h))
    for _ in range(20_000):
        h.tick(20)
        now = len(kept(h))
        most, before = max(most, before - now), now
        if not now:
            break
    assert 0 < most <= batch and before == 0
