"""Retained messages after SUBACK: copied into rows before they leave, page by page, never older than what came through the store."""

from __future__ import annotations

import pytest

from sessions.events import ToldBy
from sessions.frames import Subacked, Subscribe
from sessions.options import SessionOptions
from shards.frames import RetainedPage, Route
from shards.messages import RETAIN
from shards.rows import RANGE, SUBSCRIPTION, TO_COPY, pack_row, u64
from tests.sessions.scripted import CLIENT, Script, families


def keep(s: Script, count: int, qos: int = 1, shard: int = 0, publisher: bytes = b"p") -> None:
    for n in range(count):
        s.shards[shard].publish(publisher, b"r/%02d" % n, qos | RETAIN, b"\0r%d" % n)


def subscribe(s: Script, conn: int, qos: int = 1, handling: int = 0, filter: bytes = b"#", options: int = 0) -> None:
    s.gateway(Subscribe(conn, 1, [(filter, qos, options, handling)], 7))


def test_retained_messages_are_committed_before_they_leave() -> None:
    """Also those of QoS 1: they come from no stream, so the row holds the copy."""
    s = Script()
    s.owned()
    keep(s, 2)
    conn = s.attached()
    subscribe(s, conn)
    s.rest()
    assert s.delivered() == [(b"r0", 1, 0x33), (b"r1", 2, 0x33)]
    (row,) = s.range_rows()
    assert (row.shard, len(row.copies), row.count1) == (-1, 2, 2)


def test_copies_wait_for_their_commit() -> None:
    """The page is answered, the commit is not: nothing leaves."""
    s = Script()
    s.owned()
    keep(s, 1)
    conn = s.attached()
    subscribe(s, conn)
    while not s.sent:
        s.tick()
        s.answer()
    s.tick()
    for query in list(s.queries):
        s.tell(query)
    s.tick()
    (commit,) = s.commits()
    assert families(commit) == "qr-v" and s.delivered() == []
    s.commit()
    s.tick()
    assert s.delivered() == [(b"r0", 1, 0x33)]


def test_copies_come_again_after_a_crash_and_are_erased_when_acknowledged() -> None:
    """From the row, although the retained message is gone by then."""
    s = Script()
    s.owned()
    keep(s, 3, qos=2)
    conn = s.attached()
    subscribe(s, conn, qos=2)
    s.rest()
    assert len(s.delivered()) == 3
    s.pubrec(conn, 0x8002)
    s.rest()
    s.home.retained.clear()
    s.start()
    s.owned()
    conn = s.attach()
    s.rest()
    assert s.delivered() == [(b"r0", 0x8001, 0x3D), (b"r2", 0x8003, 0x3D)]
    s.pubcomp(conn, 0x8002)
    s.pubrec(conn, 0x8001, 0x8003)
    s.rest()
    s.pubcomp(conn, 0x8001, 0x8003)
    s.rest()
    assert not [family for family, _ in s.home.rows[CLIENT] if family == RANGE]


@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(handling: int, first: int, second: int) -> None:
    """0 always, 1 only for a new subscription, 2 never [MQTT-3.3.1-9 to -11]."""
    s = Script()
    s.owned()
    keep(s, 1)
    conn = s.attached()
    for expected in (first, second):
        subscribe(s, conn, handling=handling)
        s.rest()
        assert len(s.delivered()) == expected


def test_pages_of_all_homes_are_read_as_far_as_there_is_room() -> None:
    """Three shards, small pages, a small window: one page at a time, everything once, after SUBACK."""
    s = Script(3, SessionOptions(batch_size=4, lazy_commit_ms=0))
    s.owned()
    for shard in range(3):
        keep(s, 10, shard=shard, publisher=b"%d" % shard)
    conn = s.attached(receive_max=3)
    subscribe(s, conn)
    got: list[tuple[bytes, int, int]] = []
    for _ in range(150):
        s.tick()
        assert sum(isinstance(query.ask, RetainedPage) for query in s.queries) <= 1
        assert s.core._state.by_conn[conn].window.unsent <= 7
        s.answer()
        delivered = s.delivered()
        assert not delivered or s.sent[0] == Subacked(conn, 1, [1])
        got += delivered
        s.puback(conn, *[packet_id for _, packet_id, _ in delivered])
    assert len(got) == 30 and {first for _, _, first in got} == {0x33}


def test_a_literal_filter_asks_only_its_home() -> None:
    """The topic of a filter without wildcards has one home."""
    s = Script(3)
    s.owned()
    conn = s.attached()
    subscribe(s, conn, filter=b"r/01")
    asked: list[int] = []
    for _ in range(9):
        s.tick()
        asked += [query.shard for query in s.queries if isinstance(query.ask, RetainedPage)]
        s.answer()
    assert asked == [s.slots.shard_of(b"r/01")]


def test_a_newer_message_that_came_first_is_not_followed_by_the_older() -> None:
    """The last value a subscriber sees is the newest one (PROTOCOLS 10)."""
    s = Script()
    s.owned()
    keep(s, 2)
    conn = s.attached()
    subscribe(s, conn)
    while not s.sent:
        s.tick()
        s.answer()
    s.tick()
    (page,) = [query for query in s.queries if isinstance(query.ask, RetainedPage)]
    told = s.home.query(page.ask)
    s.home.publish(b"p", b"r/01", 1 | RETAIN, b"\0newer")
    s.live()
    s.queries.remove(page)
    for query in list(s.queries):
        s.tell(query)
    s.feed(ToldBy(0, page.id, told))
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"newer", b"r0"]


def test_qos_0_needs_no_row() -> None:
    """A subscription at QoS 0: retained messages are delivered directly."""
    s = Script()
    s.owned()
    keep(s, 2, qos=1)
    conn = s.attached()
    subscribe(s, conn, qos=0)
    s.rest()
    assert s.delivered() == [(b"r0", 0, 0x31), (b"r1", 0, 0x31)]
    assert sorted(family for family, _ in s.home.rows[CLIENT]) == sorted([b"q", SUBSCRIPTION])


def test_an_unsubscribe_ends_it() -> None:
    """No page is asked for any more."""
    s = Script(options=SessionOptions(batch_size=2, lazy_commit_ms=0))
    s.owned()
    keep(s, 9)
    conn = s.attached(receive_max=2)
    subscribe(s, conn)
    s.rest()
    first = s.delivered()
    s.unsubscribe(conn, b"#")
    for _ in range(10):
        s.rest()
        s.puback(conn, *[packet_id for _, packet_id, _ in first])
        first = s.delivered()
    assert s.core.counters.retained < 9
    assert not [query for query in s.queries if isinstance(query.ask, RetainedPage)]


def test_copies_of_a_session_taken_over_still_wait_for_their_commit() -> None:
    """They are in memory, and in no row yet."""
    s = Script()
    s.owned()
    keep(s, 1)
    conn = s.attached()
    subscribe(s, conn)
    while not any(isinstance(query.ask, RetainedPage) for query in s.queries):
        s.tick()
        for ask in list(s.asked):
            s.commit(ask)
        for query in [query for query in s.queries if not isinstance(query.ask, RetainedPage)]:
            s.tell(query)
    s.tell()
    s.attach()
    s.tick()
    assert families(s.commits()[0]) == "qr-v" and s.delivered() == []
    s.rest()
    assert s.delivered() == [(b"r0", 1, 0x33)]


def until_suback(s: Script) -> None:
    """No page has been told."""
    while not s.sent:
        s.tick()
        for ask in list(s.asked):
            s.commit(ask)
        for query in [query for query in s.queries if not isinstance(query.ask, RetainedPage)]:
            s.tell(query)
    assert isinstance(s.sent[0], Subacked)


def to_copy(s: Script) -> int:
    return sum(family == TO_COPY for family, _ in s.home.rows[CLIENT])


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_was_still_to_be_copied_when_the_session_actor_died_is_copied_by_the_next(qos: int) -> None:
    """A row is there before SUBACK; it goes with the last page."""
    s = Script(3)
    s.owned()
    for shard in range(3):
        keep(s, 4, qos=2, shard=shard, publisher=b"%d" % shard)
    conn = s.attached()
    subscribe(s, conn, qos=qos)
    until_suback(s)
    assert to_copy(s) == 1
    s.start()
    s.owned()
    s.attach()
    s.rest()
    assert len(s.delivered()) == 12 and not to_copy(s)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_page_that_was_committed_is_not_copied_again_after_a_crash(qos: int) -> None:
    """Neither what has a row, which says that it comes again, nor QoS 0; what was not committed was given to nobody."""
    s = Script(2, SessionOptions(batch_size=2, lazy_commit_ms=0))
    s.owned()
    for shard in range(2):
        keep(s, 5, qos=2, shard=shard, publisher=b"%d" % shard)
    conn = s.attached(receive_max=20)
    subscribe(s, conn, qos=qos)
    until_suback(s)
    got: list[bytes] = []
    for steps in range(25):
        for _ in range(steps):
            s.tick()
            s.answer_one()
        # What was committed has left.
        s.tick()
        got += [payload for payload, _, first in s.delivered() if not first & 8]
        s.start()
        s.owned()
        s.attach(receive_max=20)
    s.rest()
    got += [payload for payload, _, first in s.delivered() if not first & 8]
    assert sorted(got) == sorted([b"r%d" % n for n in range(5)] * 2) and not to_copy(s)


def test_who_goes_on_first_waits_until_all_that_is_retained_is_at_home() -> None:
    """What the former one had given out of the store may be newer than what a home has by then."""
    s = Script(2)
    s.owned()
    keep(s, 1)
    conn = s.attached()
    subscribe(s, conn)
    until_suback(s)
    s.start()
    s.owned()
    s.attach()
    while not (routes := [ask for ask in s.asked if ask.entries == [Route([], [])]]):
        s.tick()
        for query in list(s.queries):
            s.tell(query)
        for ask in [ask for ask in s.asked if ask.entries != [Route([], [])]]:
            s.commit(ask)
    assert len(routes) == 2
    s.commit(routes[0])
    s.tick()
    assert not [query for query in s.queries if isinstance(query.ask, RetainedPage)]
    s.commit(routes[1])
    for query in list(s.queries):
        s.tell(query)
    s.tick()
    assert [query for query in s.queries if isinstance(query.ask, RetainedPage)]
    s.rest()
    assert [payload for payload, _, _ in s.delivered()] == [b"r0"]


def test_the_row_is_of_the_newest_subscribe() -> None:
    """One that comes while the first is not through wants all of them once more."""
    s = Script(options=SessionOptions(batch_size=2, lazy_commit_ms=0))
    s.owned()
    keep(s, 6)
    conn = s.attached(receive_max=2)
    subscribe(s, conn)
    s.rest()
    first = s.delivered()
    subscribe(s, conn)
    s.rest()
    s.start()
    s.owned()
    s.attach(receive_max=30)
    s.rest()
    assert {payload for payload, _, _ in s.delivered()} >= {b"r%d" % n for n in range(6)} and len(first) == 2 and not to_copy(s)


def test_the_row_goes_with_its_subscription() -> None:
    """However that ends: with UNSUBSCRIBE, or when another takes its place."""
    s = Script(options=SessionOptions(batch_size=2, lazy_commit_ms=0))
    s.owned()
    keep(s, 9)
    conn = s.attached(receive_max=2)
    subscribe(s, conn)
    s.rest()
    assert to_copy(s) == 1
    s.unsubscribe(conn, b"#")
    s.rest()
    assert to_copy(s) == 0
    subscribe(s, conn, qos=0)
    subscribe(s, conn, qos=1, handling=2)
    s.rest()
    assert to_copy(s) == 0


def test_a_row_without_its_subscription_is_erased() -> None:
    """A release that does not know it has removed that."""
    s = Script()
    s.owned()
    s.subscribed(s.attached(), b"a")
    s.home.rows[CLIENT][TO_COPY, u64(99)] = pack_row(([0], b""))
    s.start()
    s.owned()
    s.attach()
    s.rest()
    assert not to_copy(s)


def test_a_connection_that_comes_back_gets_what_the_one_before_had_not_got() -> None:
    """The session is still in memory, or not."""
    s = Script(options=SessionOptions(batch_size=2, lazy_commit_ms=0))
    s.owned()
    keep(s, 6)
    conn = s.attached(receive_max=2)
    subscribe(s, conn)
    s.rest()
    got = [payload for payload, _, _ in s.delivered()]
    conn = s.attach(receive_max=30)
    s.rest()
    got += [payload for payload, _, _ in s.delivered()]
    assert set(got) == {b"r%d" % n for n in range(6)} and not to_copy(s)


def test_a_subscribe_that_is_asked_again_of_the_next_session_actor_brings_all_of_them_once() -> None:
    """Its rows were committed and its answer was lost: what was to be gone on with is of the same SUBSCRIBE."""
    for turns in range(6):
        s = Script(3)
        s.owned()
        for shard in range(3):
            keep(s, 4, qos=2, shard=shard, publisher=b"%d" % shard)
        conn = s.attached()
        subscribe(s, conn, qos=2)
        until_suback(s)
        s.start()
        s.owned()
        conn = s.attach()
        while not s.sent:
            s.tick()
            s.answer()
        got = [payload for payload, _, _ in s.delivered()]
        subscribe(s, conn, qos=2)
        for _ in range(turns):
            s.tick()
            s.answer_one()
        s.rest()
        got += [payload for payload, _, _ in s.delivered()]
        assert sorted(got) == sorted([b"r%d" % n for n in range(4)] * 3) and not to_copy(s)
