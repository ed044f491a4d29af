"""Retained messages after SUBACK: copied into rows before they leave, page by page, never older than what came through the store."""

from __future__ import annotations

import pytest

from sessions.events import ToldBy
from sessions.frames import Subacked, Subscribe
from sessions.options import SessionOptions
from shards.frames import RetainedPage
from shards.messages import RETAIN
from shards.rows import RANGE, SUBSCRIPTION
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
    assert families(commit) == "qr" and s.delivered() == []
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
    assert families(s.commits()[0]) == "qr" and s.delivered() == []
    s.rest()
    assert s.delivered() == [(b"r0", 1, 0x33)]
