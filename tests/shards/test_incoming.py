"""QoS 2 ids of publishers at their home: known until PUBREL, or until the await_rel_timeout where there is one."""

from __future__ import annotations

import pytest

from shards.frames import (
    NOT_PERMITTED,
    REFUSED_RULES,
    REPEATED,
    Connect,
    Connected,
    Entry,
    Place,
    Publish,
    Published,
    Release,
    Released,
)
from shards.options import ShardOptions
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics

TAKEN, KNOWN = [Published(False, b"")], [Published(False, bytes([REPEATED]))]
MINUTE_MS = 60_000


def message(conn: int, packet_id: int) -> Entry:
    return publish(b"p", conn, b"t", qos=2, ids=[packet_id], keep=True)


def with_timeout(ms: int) -> Harness:
    h = Harness(options=ShardOptions(await_rel_ms=ms))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    return h


def stored(h: Harness, position: int) -> int:
    return len(topics(poll(h, b"t", Place(position))))


def test_without_a_timeout_an_id_is_known_for_ever() -> None:
    """A day later, over a crash: and nothing is written of when it was taken."""
    h = linked()
    position = route(h, b"t")
    conn = connect(h, b"p", expiry_s=10_000_000).conn
    assert h.ask(G, message(conn, 5)) == TAKEN
    h.pass_time(86_400_000)
    assert h.ask(G, message(conn, 5)) == KNOWN
    assert h.core.counters["ids_timed_out"] == 0
    assert stored(h, position) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_a_message_that_the_rules_refuse_is_known_as_a_repeat_or_not_taken(crash: bool) -> None:
    """Only its home knows the ids of a session that is resumed; one that is not known stays free."""
    h = linked()
    position = route(h, b"t")
    conn = connect(h, b"p", expiry_s=10_000_000).conn
    assert h.ask(G, message(conn, 5)) == TAKEN
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:b")
        h.link(S, "session", "s0:b")
        (again,) = h.ask(G, Connect(b"p", False, 10_000_000, 5, None))
        assert isinstance(again, Connected)
        conn = again.conn
    asks = Publish(b"p", conn, True, 0, bytes([4 | NOT_PERMITTED] * 2), [5, 6], [b"t", b"t"], [b"\0", b"\0"])
    assert h.ask(G, asks) == [Published(False, bytes([REPEATED, REFUSED_RULES]))]
    assert stored(h, position) == 1
    assert h.ask(G, message(conn, 6)) == TAKEN


@pytest.mark.parametrize("crash", [False, True])
def test_an_id_that_waited_too_long_is_free(crash: bool) -> None:
    """A moment before the timeout it is known, at the timeout its message is new; others are not touched."""
    h = with_timeout(10 * MINUTE_MS)
    position = route(h, b"t")
    connected = connect(h, b"p", expiry_s=10_000_000)
    conn = connected.conn
    assert h.ask(G, message(conn, 5)) == TAKEN
    since_ms = h.now_ms
    h.pass_time(MINUTE_MS)
    assert h.ask(G, message(conn, 6)) == TAKEN
    h.pass_time(since_ms + 10 * MINUTE_MS - h.now_ms - 2)
    assert h.ask(G, message(conn, 5)) == KNOWN
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:b")
        h.link(S, "session", "s0:b")
        (again,) = h.ask(G, Connect(b"p", False, 10_000_000, 5, None))
        assert isinstance(again, Connected)
        conn = again.conn
    else:
        h.tick()
    assert h.ask(G, message(conn, 5)) == TAKEN
    assert h.ask(G, message(conn, 6)) == KNOWN
    assert h.core.counters["ids_timed_out"] == 1
    assert stored(h, position) == 3


def test_a_repeat_does_not_make_an_id_younger() -> None:
    """It counts from the message that was taken; PUBREL behind the timeout finds nothing."""
    h = with_timeout(MINUTE_MS)
    route(h, b"t")
    conn = connect(h, b"p", expiry_s=10_000_000).conn
    assert h.ask(G, message(conn, 5)) == TAKEN
    h.pass_time(MINUTE_MS // 2)
    assert h.ask(G, message(conn, 5)) == KNOWN
    h.pass_time(MINUTE_MS // 2)
    assert h.ask(G, Release(b"p", conn, [5])) == [Released(False, b"\0")]
    assert h.core.counters["ids_timed_out"] == 1


def test_ids_of_before_there_was_a_timeout_count_from_their_next_use() -> None:
    """Nobody knows when they were taken, and a change of the setting must not free them at once."""
    h = linked()
    route(h, b"t")
    conn = connect(h, b"p", expiry_s=10_000_000).conn
    assert h.ask(G, message(conn, 5)) == TAKEN
    h.options = ShardOptions(await_rel_ms=MINUTE_MS)
    h.reopen()
    h.pass_time(5 * MINUTE_MS)
    h.link(G, "gateway", "g0:b")
    conn = connect(h, b"p", expiry_s=10_000_000).conn
    assert h.ask(G, message(conn, 5)) == KNOWN
    h.pass_time(MINUTE_MS)
    assert h.ask(G, message(conn, 5)) == TAKEN
