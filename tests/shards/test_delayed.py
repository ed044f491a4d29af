"""Delayed messages at their home (shards/delayed.py): when they enter, that they do so once, in which order, and what bounds them."""

from __future__ import annotations

from random import Random

import pytest

from access.denials import Denial
from access.identity import Identity
from access.rights import Right
from access.rules import CLOSED, compile_access
from access.rules_file import parse_rules
from mqtt.body import make_body
from mqtt.packets import Properties
from shards.events import AccessChanged, QuotaChanged
from shards.frames import (
    NOT_PERMITTED,
    REFUSED_QUOTA,
    REFUSED_RULES,
    REPEATED,
    Connect,
    Connected,
    Delay,
    Live,
    Place,
    Published,
    Query,
    Result,
    RetainedMessages,
    RetainedPage,
)
from shards.housekeeping import DUE_BYTES_PER_RECORD
from shards.messages import header
from shards.options import ShardOptions
from shards.rows import DELAYED, TIMER
from tests.shards.harness import G, Harness, S, connect, linked, poll, route, topics

SECOND = 1_000


def delay(
    client: bytes, conn: int, *rows: tuple[int, bytes], qos: int = 1, retain: int = 0, keep: bool = False, ids: list[int] | None = None,
    bodies: list[bytes] | None = None,
) -> Delay:  # fmt: skip
    """rows: (seconds, topic)."""
    n = len(rows)
    made = bodies or [b"\0m%d" % number for number in range(n)]
    flags, seconds, names = bytes([qos << 1 | retain]) * n, [row[0] for row in rows], [row[1] for row in rows]
    return Delay(client, conn, keep, flags, ids or list(range(1, n + 1)), seconds, names, made)


def take(h: Harness, entry: Delay) -> bytes:
    """The codes; empty when all wait now."""
    (reply,) = h.ask(G, entry)
    assert isinstance(reply, Published) and not reply.stale
    return reply.codes


def entered(h: Harness, topic_filter: bytes = b"#") -> list[bytes]:
    return topics(poll(h, topic_filter, Place(0)))


def test_a_message_enters_when_it_is_due() -> None:
    """To the tick: stored for who wants it then, and told to live subscribers; its time is that of its entering."""
    h = linked()
    conn = connect(h, b"c").conn
    assert take(h, delay(b"c", conn, (5, b"a/1"), (9, b"a/2"))) == b""
    start = route(h, b"a/#")
    h.tick(5 * SECOND - 10)
    assert entered(h) == [] and h.take(G, Live) == []
    h.tick(10)
    now_ms = h.now_ms
    (live,) = h.take(G, Live)
    assert live == Live(b"c", 2, b"a/1", b"\0m0")
    found = poll(h, b"a/#", Place(start))
    (value,) = [value for segment in found.segments for value in segment.values]
    flags, published_at_ms, publisher, topic, body = header(value)
    assert (flags, publisher, topic, body) == (1, b"c", b"a/1", b"\0m0") and published_at_ms == now_ms
    assert h.core.counters["messages_delayed"] == 1


def test_order_is_that_of_the_due_times_and_then_of_the_connection() -> None:
    """Two that are due at once come as they were published."""
    h = linked()
    conn = connect(h, b"c").conn
    take(h, delay(b"c", conn, (3, b"3a"), (1, b"1a"), (3, b"3b"), (0, b"0"), (1, b"1b")))
    h.pass_time(4 * SECOND)
    assert [live.topic for live in h.take(G, Live)] == [b"0", b"1a", b"1b", b"3a", b"3b"]


@pytest.mark.parametrize("power", [True, False])
def test_a_restart_changes_nothing(power: bool) -> None:
    """What was due while the broker was away enters when it is back; the count is right again."""
    h = linked()
    conn = connect(h, b"c").conn
    route(h, b"#")
    take(h, delay(b"c", conn, (5, b"early"), (60, b"late")))
    h.reopen(power)
    assert h.core.counters["messages_delayed"] == 2
    h.now_ms += 30 * SECOND
    h.link(G, "gateway", "g0:b")
    h.link(S, "session", "s0:b")
    h.tick()
    assert entered(h) == [b"early"] and h.core.counters["messages_delayed"] == 1
    h.reopen(power)
    h.link(S, "session", "s0:c")
    h.pass_time(60 * SECOND)
    assert sorted(entered(h)) == [b"early", b"late"] and h.core.counters["messages_delayed"] == 0


@pytest.mark.parametrize("seed", range(30))
def test_each_enters_once_wherever_the_power_goes(seed: int) -> None:
    """What was acknowledged enters once; what was not, once or never; never before its time."""
    rng = Random(seed)
    h = linked()
    incarnation = 0
    conn = connect(h, b"c").conn
    route(h, b"#")
    acknowledged: dict[bytes, int] = {}
    sent = 0
    for _ in range(60):
        kind = rng.randrange(6)
        if kind < 2:
            seconds, name = rng.randrange(8), b"t/%d" % sent
            sent += 1
            number = h.request(G, delay(b"c", conn, (seconds, name)))
            h.tick(rng.randrange(50), sync=rng.random() < 0.6)
            if any(getattr(frame, "number", 0) == number for frame in h.sent[G]):
                acknowledged[name] = h.now_ms + seconds * SECOND - 60
        elif kind < 5:
            h.tick(rng.randrange(3 * SECOND), sync=rng.random() < 0.7)
        else:
            h.reopen(power=rng.random() < 0.5)
            incarnation += 1
            h.link(G, "gateway", f"g{incarnation:02}:a")
            h.link(S, "session", f"s{incarnation:02}:a")
            conn = connect(h, b"c").conn
        found = entered(h)
        assert len(set(found)) == len(found), found
        assert all(acknowledged[name] <= h.now_ms for name in found if name in acknowledged)
    h.pass_time(20 * SECOND)
    found = entered(h)
    assert len(set(found)) == len(found) and set(acknowledged) <= set(found)
    assert not h.core._draft.scan(DELAYED, 10) and h.core.counters["messages_delayed"] == 0


def test_a_quota_bounds_how_many_wait() -> None:
    """Each refused for itself; the bound may change while the broker runs, and what waits stays."""
    h = linked(delayed_max=2)
    conn = connect(h, b"c").conn
    assert take(h, delay(b"c", conn, (5, b"a"), (5, b"b"), (5, b"c"))) == bytes([0, 0, REFUSED_QUOTA])
    h.tick(6 * SECOND)
    assert take(h, delay(b"c", conn, (5, b"d"))) == b""
    h.core.handle(QuotaChanged(2))
    assert take(h, delay(b"c", conn, (5, b"e"))) == bytes([REFUSED_QUOTA]), "the store is full"
    h.core.handle(QuotaChanged(0))
    assert take(h, delay(b"c", conn, (5, b"e"))) == b""


def test_a_3_1_1_connection_ends_with_its_first_refusal() -> None:
    """As for messages that are stored at once: what it has sent behind that must not come before it."""
    h = linked(delayed_max=0)
    (reply,) = h.ask(G, Connect(b"c", True, 0, 4, None))
    assert isinstance(reply, Connected)
    refused, stale = h.ask(G, delay(b"c", reply.conn, (5, b"a")), delay(b"c", reply.conn, (5, b"b")))
    assert refused == Published(False, bytes([REFUSED_QUOTA])) and stale == Published(True, b"")


def test_qos_2_ids_are_rows_of_the_home() -> None:
    """In the record of the message: a repeat after a crash is known, and waits once."""
    h = linked()
    conn = connect(h, b"c", expiry_s=99).conn
    assert take(h, delay(b"c", conn, (5, b"a"), qos=2, keep=True, ids=[9])) == b""
    h.reopen(power=True)
    h.link(G, "gateway", "g0:b")
    h.link(S, "session", "s0:b")
    conn = connect(h, b"c", expiry_s=99).conn
    assert take(h, delay(b"c", conn, (5, b"a"), qos=2, keep=True, ids=[9])) == bytes([REPEATED])
    route(h, b"#")
    h.pass_time(6 * SECOND)
    assert entered(h) == [b"a"]


def test_what_was_not_permitted_is_known_or_refused() -> None:
    """The gateway asks so when it cannot know whether the home has the id (shards.entries)."""
    h = linked()
    conn = connect(h, b"c", expiry_s=99).conn
    entry = delay(b"c", conn, (5, b"a"), qos=2, keep=True)
    assert take(h, entry._replace(flags=bytes([4 | NOT_PERMITTED]))) == bytes([REFUSED_RULES])
    assert h.core.counters["messages_delayed"] == 0


def test_an_old_connection_delays_nothing() -> None:
    """It is fenced like everything else of it."""
    h = linked()
    conn = connect(h, b"c").conn
    connect(h, b"c")
    (reply,) = h.ask(G, delay(b"c", conn, (5, b"a")))
    assert reply == Published(True, b"") and h.core.counters["messages_delayed"] == 0


def test_the_publisher_may_be_gone_when_it_is_due() -> None:
    """It was acknowledged, so it comes."""
    h = linked()
    conn = connect(h, b"c").conn
    route(h, b"#")
    take(h, delay(b"c", conn, (900, b"a")))
    h.unlink(G)
    h.pass_time(1_000 * SECOND)
    assert entered(h) == [b"a"]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("right", ["publish", "retain", "delay", "all"])
def test_rights_are_asked_for_again_when_it_is_due(right: str, crash: bool) -> None:
    """Publish, delay, and retain where it is retained: who has lost one has delayed nothing, and it is counted and told to the log; who
    was not told to go has."""
    h = linked()
    route(h, b"#")
    for name in ("ann", "bob"):
        (reply,) = h.ask(G, Connect(name.encode(), True, 0, 5, None, identity=Identity(name, "password").pack()))
        assert isinstance(reply, Connected)
        take(h, delay(name.encode(), reply.conn, (5, b"a/" + name.encode()), retain=1))
    if crash:
        h.reopen()
        h.link(G, "gateway", "g0:b")
        h.link(S, "session", "s0:b")
    text = f"version = 1\n[[rule]]\ndeny = ['{right}']\ntopics = ['#']\nusers = ['ann']\n[[rule]]\nallow = ['all']\ntopics = ['#']\n"
    h.core.handle(AccessChanged(compile_access(2, parse_rules(text), claims=False, decides=False)))
    h.pass_time(6 * SECOND)
    assert entered(h) == [b"a/bob"] and [live.topic for live in h.take(G, Live)] == [b"a/bob"]
    assert (h.core.counters["messages_delayed"], h.core.counters["delayed_denied"], h.core.counters["wills_denied"]) == (0, 1, 0)
    assert h.core.denied() == [Denial(b"ann", Right.PUBLISH | Right.RETAIN | Right.DELAY, b"a/ann", 1)]


def test_without_valid_rules_nothing_enters() -> None:
    """Rules are wanted and none can be read: a fault of the configuration fails closed."""
    h = linked()
    conn = connect(h, b"c").conn
    route(h, b"#")
    take(h, delay(b"c", conn, (5, b"a")))
    h.core.handle(AccessChanged(CLOSED))
    h.pass_time(6 * SECOND)
    assert entered(h) == [] and h.take(G, Live) == [] and h.core.counters["messages_delayed"] == 0


def test_a_record_takes_so_many_bytes_of_what_is_due() -> None:
    """Large messages that are due at once enter in several records, in order, one at least in each; the others wait for the next turn."""
    h = linked()
    conn = connect(h, b"c").conn
    large = b"\0" + b"x" * (DUE_BYTES_PER_RECORD * 2 // 5)
    rows = [(5, b"t/%d" % number) for number in range(5)]
    take(h, delay(b"c", conn, *rows, bodies=[large] * 5))
    over = b"\0" + b"x" * (DUE_BYTES_PER_RECORD + 1)
    take(h, delay(b"c", conn, (5, b"t/5"), (5, b"t/6"), bodies=[over, b"\0"], ids=[6, 7]))
    h.now_ms += 6 * SECOND
    per_turn: list[list[bytes]] = []
    while h.core.counters["messages_delayed"]:
        h.tick()
        per_turn.append([live.topic for live in h.take(G, Live)])
        assert h.core.busy == bool(h.core.counters["messages_delayed"]), "the rest waits for the next turn only"
    assert per_turn == [[b"t/0", b"t/1"], [b"t/2", b"t/3"], [b"t/4"], [b"t/5"], [b"t/6"]]


def test_retain_counts_from_when_it_enters() -> None:
    """Before that the older one is the retained message of its topic."""
    h = linked()
    conn = connect(h, b"c").conn
    take(h, delay(b"c", conn, (5, b"a"), retain=1))
    kept: list[int] = []
    for _ in range(2):
        h.receive(G, Query(1, RetainedPage(b"a", b"", 10)))
        h.tick()
        (result,) = h.take(G, Result)
        assert isinstance(result.told, RetainedMessages)
        kept.append(len(result.told.values))
        h.tick(6 * SECOND)
    assert kept == [0, 1]


def test_its_expiry_counts_from_when_it_enters() -> None:
    """A message for in an hour that is good for a minute is good for that minute."""
    h = linked()
    conn = connect(h, b"c").conn
    route(h, b"#")
    body = make_body(Properties(message_expiry_interval=60, user_properties=(("z", "1"), ("a", "2"))), b"x")
    take(h, delay(b"c", conn, (3_600, b"a"), bodies=[body]))
    h.pass_time(3_601 * SECOND)
    found = poll(h, b"#", Place(0))
    (value,) = [value for segment in found.segments for value in segment.values]
    assert header(value)[4] == body and h.now_ms - header(value)[1] < 2 * SECOND


def test_a_sweep_mends_what_cannot_be() -> None:
    """A row without its timer gets one, a timer without its row goes, and both are counted as faults of ours."""
    h = Harness(options=ShardOptions(gc_interval_ms=1_000))
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"c").conn
    route(h, b"#")
    take(h, delay(b"c", conn, (50, b"a"), (60, b"b")))
    timers = [key for key, _ in h.core._draft.scan(TIMER, 10) if key[9:10] == b"d"]
    h.core._draft.delete(timers[0])
    h.core._draft.put(timers[0][:10] + b"\xff" * 8, b"")
    h.pass_time(30 * SECOND)
    found = h.core.gc_found
    assert (found["delayed"], found["timer"]) == (1, 1) and sum(found.values()) == 2
    h.pass_time(40 * SECOND)
    assert sorted(entered(h)) == [b"a", b"b"]
