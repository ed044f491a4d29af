"""The safety net: it finds nothing where nothing is wrong, and each kind of thing that can be wrong is found, counted and mended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shards.engine import HOME_FAMILY
from shards.frames import LOST, NORMAL, Disconnect, Query, Result, RoutesFound, RoutesOf, Unknown, UnknownFound, Will
from shards.ids import sub_id
from shards.options import ShardOptions
from shards.rows import (
    ACTIVE,
    CONNECTION,
    INCOMING,
    LOSS,
    PLACE,
    PROGRESS,
    RANGE,
    SESSION,
    SLOT,
    SUBSCRIPTION,
    TIMER,
    TO_COPY,
    WORK,
    ConnectionRow,
    SessionRow,
    SubscriptionRow,
    client_key,
    pack_row,
    pack_session,
    pack_subscription,
    u64,
)  # fmt: skip
from shards.timers import CONNECTION_END, EXPIRY, WILL
from tests.shards.ended import KEPT_MS, fill, owner, rows, work_through
from tests.shards.harness import G, Harness, S, connect

EVERY_MS = 60_000


def swept(**options: int) -> Harness:
    made = Harness(options=ShardOptions(gc_interval_ms=EVERY_MS, **options))  # type: ignore[arg-type]
    made.link(G, "gateway", "g0:a")
    made.link(S, "session", "s0:a")
    made.tick()
    return made


def sweep(h: Harness) -> None:
    """Until one sweep has gone over everything, and what it began is done."""
    sweeper = h.core._housekeeping._sweep
    before = sweeper.sweeps
    h.pass_time(EVERY_MS)
    for _ in range(10_000):
        if sweeper.sweeps > before:
            break
        h.tick(h.core.wait_ms)
    assert sweeper.sweeps > before
    h.settle()


def found(h: Harness) -> dict[str, int]:
    return {kind: count for kind, count in h.core.gc_found.items() if count}


def plant(h: Harness, *ops: tuple[bytes, bytes | None]) -> None:
    h.engine.write([(HOME_FAMILY, key, value) for key, value in ops])


def test_nothing_is_found_where_sessions_live_and_end() -> None:
    """Connected, away, away with a will, without end, ended, ended a moment ago; over restarts and several sweeps."""
    h = swept(gc_batch=3)
    token = owner(h)
    for n, (expiry_s, how) in enumerate([(0, None), (0, LOST), (100, None), (100, LOST), (100, NORMAL), (10, LOST), (0xFFFFFFFF, LOST)]):
        client = b"c%d" % n
        connected = connect(h, client, expiry_s=expiry_s, will=Will(b"w", 1, False, 70, b"\0gone"))
        if expiry_s:
            fill(h, client, connected, token, 3, first=n * 10 + 1)
        if how is not None:
            h.ask(G, Disconnect(client, connected.conn, how, None))
    for _ in range(3):
        sweep(h)
        work_through(h, token)
    h.reopen()
    h.link(G, "gateway", "g0:b")
    h.link(S, "session", "s0:b")
    for _ in range(14):
        sweep(h)
    assert found(h) == {}
    assert h.core.counters["sessions_expired"] == 1, "the others had ended before the restart"


def orphan(family: bytes, suffix: bytes, value: bytes = b"x") -> tuple[bytes, bytes]:
    return client_key(family, b"gone", suffix), value


SUB = pack_subscription(SubscriptionRow(b"t", 1, 0, 0, ACTIVE, []))


@pytest.mark.parametrize(
    ("kind", "row"),
    [
        ("subscription", orphan(SUBSCRIPTION, u64(5), SUB)),
        ("place", orphan(PLACE, u64(5) + b"\0")),
        ("range", orphan(RANGE, u64(5))),
        ("progress", orphan(PROGRESS, b"")),
        ("incoming", orphan(INCOMING, b"\0\7")),
        ("loss", orphan(LOSS, u64(1))),
        ("to_copy", orphan(TO_COPY, u64(1))),
    ],
)
def test_rows_without_a_session_are_erased(kind: str, row: tuple[bytes, bytes]) -> None:
    """However many there are; a route that one had becomes work.  Rows of a session that is there stay."""
    h = swept()
    token = owner(h)
    connected = connect(h, b"here", expiry_s=600)
    fill(h, b"here", connected, token, 2, first=1)
    before = rows(h.engine)
    plant(h, row, (row[0] + b"2" if kind not in ("subscription", "progress") else row[0], row[1]))
    sweep(h)
    assert found(h) == {kind: 1} and h.core.counters[f"gc_found_{kind}"] == 1
    assert h.core.counters["session_rows_collected"] == (1 if kind in ("subscription", "progress") else 2)
    work_through(h, token)
    assert rows(h.engine) == before
    sweep(h)
    assert found(h) == {kind: 1}


def away(h: Harness, client: bytes, due_ms: int, expiry_s: int = 60) -> list[tuple[bytes, bytes | None]]:
    """The rows of a session that is away, without its timer."""
    return [
        (client_key(SESSION, client), pack_session(SessionRow(256, expiry_s, 5, 1, due_ms))),
        (client_key(CONNECTION, client), pack_row(ConnectionRow(256, "", h.now_ms, False, None))),
    ]


def test_a_session_whose_timer_is_missing_ends_all_the_same() -> None:
    """One that was due long ago ends at once, one that is not yet due at its time."""
    h = swept()
    plant(h, *away(h, b"past", h.now_ms - 5), *away(h, b"future", h.now_ms + 500_000))
    sweep(h)
    assert found(h) == {"expiry": 2} and rows(h.engine)["s"] == 1
    h.pass_time(500_000)
    assert "s" not in rows(h.engine) and found(h) == {"expiry": 2}
    h.pass_time(KEPT_MS)
    assert rows(h.engine) == {}


def test_a_session_that_is_neither_connected_nor_away_is_away_from_now_on() -> None:
    """Nothing would ever have ended it."""
    h = swept()
    plant(h, *away(h, b"c", 0), *away(h, b"never", 0, 0xFFFFFFFF))
    sweep(h)
    assert found(h) == {"session": 1}
    h.pass_time(61_000)
    assert rows(h.engine) == {"s": 1, "c": 2, "T": 1}


def test_the_row_of_a_connection_that_nothing_would_erase_goes() -> None:
    """An older version left them behind when a session expired."""
    h = swept()
    plant(h, (client_key(CONNECTION, b"c"), pack_row(ConnectionRow(256, "", 1, False, None))))
    sweep(h)
    h.settle()
    assert found(h) == {"connection": 1} and rows(h.engine) == {}


@pytest.mark.parametrize("kind", [EXPIRY, WILL, CONNECTION_END])
@pytest.mark.parametrize("there", ["nobody", "connected", "away"])
def test_timers_that_stand_for_nothing_are_erased(kind: bytes, there: str) -> None:
    """Those of clients that are connected or not there, and those with another time than the rows say."""
    h = swept()
    if there != "nobody":
        connected = connect(h, b"c", expiry_s=86_400)
        if there == "away":
            h.ask(G, Disconnect(b"c", connected.conn, NORMAL, None))
    before = rows(h.engine)
    plant(h, (TIMER + u64(h.now_ms + 40_000_000) + kind + b"c", b""))
    sweep(h)
    assert found(h) == {"timer": 1} and rows(h.engine) == before


def test_answers_for_senders_that_nobody_knows_are_erased() -> None:
    """Those of the senders that are linked stay."""
    h = swept()
    connect(h, b"c")
    slots = [key for key, _ in h.engine.scan(HOME_FAMILY, SLOT, SLOT + b"\xff", 1_000)]
    plant(h, (SLOT + b"gateway-9:dead\x05", b"x"), (SLOT + b"gateway-9:dead\x06", b"x"))
    sweep(h)
    assert found(h) == {"sender": 2}
    assert set(slots) <= {key for key, _ in h.engine.scan(HOME_FAMILY, SLOT, SLOT + b"\xff", 1_000)}
    assert h.engine.get(HOME_FAMILY, SLOT + b"gateway-9:dead\x05") is None


@pytest.mark.parametrize("batch", [1, 7, 1_000])
def test_a_turn_looks_at_no_more_rows_than_the_batch(batch: int) -> None:
    """So a sweep over many rows delays nobody, and still sees all of them."""
    h = swept(gc_batch=batch)
    for n in range(100):
        plant(h, *away(h, b"c%d" % n, h.now_ms + 500_000))
    scan: Callable[..., list[tuple[bytes, bytes]]] = h.engine.scan
    asked: list[int] = []

    def count(family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        if start[:1] == SESSION:
            asked.append(limit)
        return scan(family, start, end, limit, bytes_max)

    h.engine.scan = count  # type: ignore[method-assign]
    sweep(h)
    assert found(h) == {"expiry": 100} and max(asked) <= batch + 2


def test_a_sweep_begins_again_after_the_interval() -> None:
    """And not while nothing may expire, nor while there is other work."""
    h = swept()
    sweeper = h.core._housekeeping._sweep
    h.pass_time(EVERY_MS - 1_000)
    assert sweeper.sweeps == 0
    for n in range(1, 4):
        sweep(h)
        assert sweeper.sweeps == n


def test_routes_can_be_asked_for_by_home_and_judged_there() -> None:
    """What sessions.sweeping needs: pages of routes with their clients, and which of them no row knows."""
    h = swept()
    token = owner(h)
    connected = connect(h, b"c", expiry_s=600)
    first = sub_id(0, token, 1)
    subs = fill(h, b"c", connected, token, 5, first=first)
    plant(h, (client_key(WORK, b"d", u64(first + 9)), pack_row((b"t",))))

    def ask(query: RoutesOf | Unknown) -> list[tuple[int, bytes]]:
        h.receive(S, Query(1, query))
        h.tick()
        (result,) = h.take(S, Result)
        assert isinstance(result.told, RoutesFound | UnknownFound)
        return [(number, client) for number, client in result.told.routes]

    assert ask(RoutesOf(0, 0, 3)) == [(sub, b"c") for sub in subs[:3]]
    assert ask(RoutesOf(0, subs[2], 3)) == [(sub, b"c") for sub in subs[3:]]
    assert ask(RoutesOf(1, 0, 3)) == []
    assert ask(Unknown([(subs[0], b"c"), (first + 8, b"c"), (first + 9, b"d"), (subs[1], b"d")])) == [(first + 8, b"c"), (subs[1], b"d")]
