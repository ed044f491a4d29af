"""Leases: what they hold, for how long, at which price, and what is said when they lose something."""

from __future__ import annotations

from typing import Any

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.events import QuotaChanged, TickEnded
from shards.frames import (
    LEASE_FORBIDDEN,
    LEASE_SENSELESS,
    LEASE_TAKEN,
    LEASE_UNKNOWN,
    LEASES_FULL,
    START_EARLIEST,
    START_LATEST,
    LeaseAck,
    LeaseDone,
    LeaseDrop,
    LeasePut,
    Leases,
    LeasesFound,
    Query,
    Result,
    RetentionFound,
    RetentionState,
)
from shards.leases import LEASES_MAX, LeaseRow
from shards.options import ShardOptions, StoreOptions
from shards.retention import SUSPENDED, Dropped, LeaseExpired, LeaseLost
from tests.shards.harness import G, Harness, connect, publish

A = 3
"""The link of a command."""
LONG = 1 << 62
LENGTH_MS, PERIOD_MS = 10_000, 20_000


class World(Harness):
    """A shard that stores everything, with short generations."""

    def __init__(self, store: StoreOptions | None = None) -> None:
        super().__init__(options=ShardOptions(generation_ms=LENGTH_MS, retention_ms=PERIOD_MS, capture=(b"#",)), store=store)
        self.begin("a")

    def begin(self, incarnation: str) -> None:
        self.link(G, "gateway", f"g0:{incarnation}")
        self.link(A, "admin", f"admin-1:{incarnation}")
        self.conn = connect(self, b"p").conn

    def put(self, name: bytes, start: int = START_EARLIEST, **but: Any) -> LeaseDone:
        fields: dict[str, Any] = {"ttl_ms": LONG, "max_age_ms": LONG, "max_bytes": LONG, "block": False, "filters": [], **but}
        (done,) = self.ask(A, LeasePut(name, start=start, **fields))
        assert isinstance(done, LeaseDone)
        return done

    def fill(self, *topics: bytes) -> int:
        """One message for each, and the position of the last."""
        self.ask(G, publish(b"p", self.conn, *(topics or (b"a",))))
        return self.core.watermark

    def next_generation(self) -> None:
        self.fill()
        self.pass_time(LENGTH_MS + 2_000)

    def over(self) -> None:
        """The time of everything that is sealed is over, and whatever may go has gone."""
        self.pass_time(PERIOD_MS + 5_000)

    def generations(self) -> list[int]:
        return [info.id for info in self.core._store.generations()]

    def lease(self, name: bytes) -> LeaseRow:
        self.receive(A, Query(1, Leases()))
        self.tick()
        (result,) = self.take(A, Result)
        assert isinstance(result.told, LeasesFound)
        return {of: LeaseRow(*row) for of, row in result.told.leases}[name]

    def held(self) -> dict[int, str]:
        self.receive(A, Query(1, RetentionState()))
        self.tick()
        (result,) = self.take(A, Result)
        assert isinstance(result.told, RetentionFound)
        return {row[0]: row[5] for row in result.told.generations}

    def news(self, kind: type) -> list[object]:
        return [item for item in self.core.retention.news if isinstance(item, kind)]


def test_what_a_lease_has_not_taken_stays_and_goes_when_it_has() -> None:
    """Its place decides, not its age; the first generation goes alone, as the place is behind it and before the second."""
    w = World()
    w.put(b"l")
    w.next_generation()
    first = w.core._store.generations()[0].until
    assert first is not None
    w.next_generation()
    w.over()
    w.over()
    assert w.generations()[0] == 1 and w.held()[1] == "lease l"
    assert w.ask(A, LeaseAck(b"l", first - 2)) == [LeaseDone(LEASE_TAKEN, first - 2)]
    w.over()
    assert w.generations()[0] == 1, "one position is still to be taken"
    w.ask(A, LeaseAck(b"l", first - 1))
    w.over()
    assert w.generations()[0] == 2 and w.held()[2] == "lease l"
    assert w.news(Dropped) == [Dropped(1, "default", "period")]
    assert w.lease(b"l").losses == 0


def test_a_lease_begins_where_it_is_told() -> None:
    """At the first message that is there, behind the last, or at a position in between, never outside."""
    w = World()
    w.next_generation()
    last = w.fill()
    assert w.put(b"first").position == -1
    assert w.put(b"last", START_LATEST).position > last
    assert w.put(b"here", last - 1).position == last - 1
    assert w.put(b"beyond", 1 << 50).position <= w.core.watermark
    w.ask(A, LeaseDrop(b"first"), LeaseDrop(b"here"))
    w.over()
    w.over()
    since = w.core._store.generations()[0].since
    assert since > 0 and w.put(b"first").position == since - 1


def test_a_place_only_grows_and_never_beyond_what_is_stored() -> None:
    """Acknowledging twice, out of order, or too far does no harm; renewing keeps the place."""
    w = World()
    last = w.fill()
    w.put(b"l")
    assert w.ask(A, LeaseAck(b"l", last), LeaseAck(b"l", last), LeaseAck(b"l", 3)) == [LeaseDone(LEASE_TAKEN, last)] * 3
    (done,) = w.ask(A, LeaseAck(b"l", 1 << 60))
    assert isinstance(done, LeaseDone) and done.position <= w.core.watermark
    assert w.put(b"l").position == done.position


@pytest.mark.parametrize("restart", [False, True])
def test_a_lease_that_nobody_renews_is_gone(restart: bool) -> None:
    """By the age of the shard, over restarts; the log says so."""
    w = World()
    w.put(b"l", ttl_ms=60_000)
    w.pass_time(50_000)
    w.put(b"l", ttl_ms=60_000)
    if restart:
        w.reopen()
        w.begin("b")
    w.pass_time(55_000)
    assert w.core.counters["leases"] == 1
    w.pass_time(10_000)
    assert w.core.counters["leases"] == 0 and w.news(LeaseExpired) == [LeaseExpired("l", -1)]
    assert w.ask(A, LeaseAck(b"l", 1)) == [LeaseDone(LEASE_UNKNOWN, 0)]


@pytest.mark.parametrize("bound", ["age", "bytes", "quota"])
def test_beyond_its_bounds_a_lease_is_passed_over_and_says_what_it_lost(bound: str) -> None:
    """The loss record is there after a crash; with `block` the same lease holds."""
    w = World()
    but = {"age": {"max_age_ms": 30_000}, "bytes": {"max_bytes": 10}, "quota": {}}[bound]
    w.put(b"l", **but)
    w.put(b"blocks", block=True, **but)
    w.next_generation()
    until = w.core._store.generations()[0].until
    assert until is not None
    if bound == "quota":
        w.core.handle(QuotaChanged(1))
    w.over()
    w.over()
    assert w.held()[1] == "lease blocks" and w.lease(b"l").losses == 0
    w.ask(A, LeaseDrop(b"blocks"))
    w.pass_time(5_000)
    assert 1 not in w.generations()
    assert w.news(LeaseLost) == [LeaseLost("l", 1)] and w.news(Dropped) == [Dropped(1, "default", "lease")]
    w.reopen(power=True)
    w.begin("b")
    row = w.lease(b"l")
    assert (row.losses, row.lost_from, row.lost_upto) == (1, 0, until - 1) and row.lost_wall_ms > 0
    assert row.position == -1, "it goes on behind the gap by itself"


def test_within_its_bounds_it_holds() -> None:
    """A lease with room in both bounds, below the soft mark of the quota."""
    w = World()
    w.put(b"l", max_age_ms=10 * PERIOD_MS, max_bytes=1 << 20)
    w.next_generation()
    w.over()
    w.over()
    assert w.held()[1] == "lease l"
    w.pass_time(10 * PERIOD_MS)
    assert w.lease(b"l").losses == 1


def test_several_losses_are_one_record() -> None:
    """From the first position to the last, with their number."""
    w = World()
    w.put(b"l", max_age_ms=0)
    w.next_generation()
    w.next_generation()
    second = w.core._store.generations()[1].until
    assert second is not None
    w.over()
    w.over()
    row = w.lease(b"l")
    assert row.losses >= 2 and row.lost_from == 0 and row.lost_upto >= second - 1


def test_each_class_goes_by_its_own_period() -> None:
    """One that is kept for longer is in nobody else's way, and nobody else is in its."""
    w = World(StoreOptions(classes=ClassMap((RetentionClass("long", b"long/#", 4 * PERIOD_MS),))))
    w.fill(b"a", b"long/a")
    w.pass_time(LENGTH_MS + 2_000)
    sealed = {info.klass: info.id for info in w.core._store.generations() if info.until is not None}
    assert set(sealed) == {"default", "long"}
    w.over()
    assert w.news(Dropped) == [Dropped(sealed["default"], "default", "period")]
    w.pass_time(4 * PERIOD_MS)
    assert Dropped(sealed["long"], "long", "period") in w.news(Dropped)


def test_at_most_one_generation_goes_in_a_turn() -> None:
    """And each second has one turn."""
    w = World()
    w.put(b"l", block=True)
    for _ in range(4):
        w.next_generation()
    w.over()
    w.over()
    assert w.core.retention.dropped == 0
    w.ask(A, LeaseDrop(b"l"))
    before = w.core.retention.dropped
    for count in (1, 2, 3):
        w.tick(1_000)
        w.tick(10)
        assert w.core.retention.dropped == before + count


def test_at_most_one_generation_of_all_classes_goes_in_a_turn() -> None:
    """Both are over at the same moment; the second goes a second later."""
    w = World(StoreOptions(classes=ClassMap((RetentionClass("other", b"other/#", PERIOD_MS),))))
    w.put(b"l", block=True)
    w.fill(b"a", b"other/a")
    w.pass_time(LENGTH_MS + 2_000)
    w.over()
    assert w.core.counters["generations_held"] == 2
    w.ask(A, LeaseDrop(b"l"))
    before = w.core.retention.dropped
    for count in (1, 2):
        w.tick(1_000)
        assert w.core.retention.dropped == before + count
    assert {item.klass for item in w.news(Dropped) if isinstance(item, Dropped)} == {"default", "other"}


def test_while_the_clock_is_not_accepted_nothing_goes() -> None:
    """No generation and no lease; the state says why."""
    w = World()
    w.put(b"l", ttl_ms=60_000)
    w.next_generation()
    w.now_ms += 100 * PERIOD_MS
    for _ in range(5):
        w.now_ms += 1_000
        w._carry_out(w.core.handle(TickEnded(w.now_ms * 1000, w.now_ms, w.now_ms, age_suspended=True)))
        w.commit()
    assert w.core.retention.state().generations[0][5] == SUSPENDED and w.generations()[0] == 1
    assert w.core.counters["leases"] == 1
    w.over()
    assert 1 not in w.generations() and w.core.counters["leases"] == 0


def test_gateways_have_no_leases() -> None:
    """Only readers and commands may; another role is refused and changes nothing."""
    w = World()
    put = LeasePut(b"l", LONG, LONG, LONG, False, [], START_EARLIEST)
    assert w.ask(G, put, LeaseAck(b"l", 1), LeaseDrop(b"l")) == [LeaseDone(LEASE_FORBIDDEN, 0)] * 3
    w.link(7, "reader", "r:a")
    assert w.ask(7, put) == [LeaseDone(LEASE_TAKEN, -1)]


def test_there_are_a_hundred_at_most() -> None:
    """One that is there is renewed also when there are so many."""
    w = World()
    for n in range(LEASES_MAX):
        assert w.put(b"l%d" % n).code == LEASE_TAKEN
    assert w.put(b"more").code == LEASES_FULL
    assert w.put(b"l7").code == LEASE_TAKEN
    w.ask(A, LeaseDrop(b"l7"))
    assert w.put(b"more").code == LEASE_TAKEN


@pytest.mark.parametrize("but", [{"ttl_ms": 0}, {"ttl_ms": -1}, {"max_bytes": -1}, {"max_age_ms": 1 << 63}, {"filters": [b"a"] * 101}])
def test_what_cannot_be_is_refused(but: dict[str, Any]) -> None:
    """Nothing is written."""
    w = World()
    assert w.put(b"l", **but).code == LEASE_SENSELESS
    assert w.put(b"").code == w.put(b"l" * 257).code == w.put(b"l", -3).code == LEASE_SENSELESS
    assert w.core.counters["leases"] == 0


def test_filters_of_a_lease_are_stored_from_then_on_over_restarts_and_not_longer() -> None:
    """They come and go with it."""
    h = Harness(options=ShardOptions())
    h.link(G, "gateway", "g0:a")
    h.link(A, "admin", "admin-1:a")
    conn = connect(h, b"p").conn
    stored: list[int] = []

    def publish_once() -> None:
        before = h.core.counters["messages_stored"]
        h.ask(G, publish(b"p", conn, b"a/1", b"b"))
        stored.append(h.core.counters["messages_stored"] - before)

    publish_once()
    h.ask(A, LeasePut(b"l", LONG, LONG, LONG, False, [b"a/+"], START_LATEST))
    publish_once()
    h.reopen()
    h.link(G, "gateway", "g0:b")
    h.link(A, "admin", "admin-1:b")
    conn = connect(h, b"p").conn
    publish_once()
    h.ask(A, LeasePut(b"l", LONG, LONG, LONG, False, [b"b"], START_LATEST))
    publish_once()
    h.ask(A, LeaseDrop(b"l"))
    publish_once()
    assert stored == [0, 1, 1, 1, 0]


def test_a_command_leaves_no_row_behind() -> None:
    """Five minutes after it has ended; a gateway that is gone is refused for ever, a command never comes back under its name."""
    w = World()
    w.put(b"l")
    w.unlink(A)
    del w.names[A]
    w.pass_time(400_000)
    assert [key for key, _ in w.engine.scan(0, b"n", b"o", 100) if b"admin" in key] == []
    assert [key for key, _ in w.engine.scan(0, b"z", b"{", 100) if b"admin" in key] == []
