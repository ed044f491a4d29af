"""A shard that is away holds up nobody who reads another one."""

from __future__ import annotations

import pytest

from sessions.events import ShardLinked, ShardLost
from sessions.idle import NEVER_MS
from sessions.options import SessionOptions
from shards.frames import Poll, RetainedPage
from tests.sessions.scripted import CLIENT, Script
from tests.sessions.test_retained import keep, subscribe

AWAY, THERE = 0, 1


def behind(receive_max: int, filters: int) -> Script:
    """A session that is away, with a message for each of its filters in either of two shards."""
    s = Script(3, SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS))
    s.owned()
    conn = s.attached(receive_max=receive_max)
    for number in range(filters):
        s.subscribed(conn, b"a/%d" % number)
    s.rest()
    s.detach(conn)
    s.rest()
    for shard in (AWAY, THERE):
        for number in range(filters):
            s.publish(1, topic=b"a/%d" % number, shard=shard)
    return s


def takes(s: Script, turns: int = 200) -> int:
    """How many messages come in so many milliseconds, all of them acknowledged."""
    got = 0
    for _ in range(turns):
        s.tick()
        s.answer()
        delivered = s.delivered()
        got += len(delivered)
        s.puback(s.core._state.sessions[CLIENT].conn, *[packet_id for _, packet_id, _ in delivered])
    return got


def lose(s: Script, shard: int) -> None:
    s.feed(ShardLost(shard))
    s.shards[shard].unlink()
    s.queries = [query for query in s.queries if query.shard != shard]


SIZES = [(1, 1), (20, 1), (20, 9), (1024, 30)]


@pytest.mark.parametrize(("receive_max", "filters"), SIZES)
def test_what_others_have_comes_while_one_is_away(receive_max: int, filters: int) -> None:
    """Also where the window has room for one poll only; what it has comes as soon as it is back."""
    s = behind(receive_max, filters)
    lose(s, AWAY)
    s.attach(receive_max=receive_max)
    assert takes(s) == filters
    s.feed(ShardLinked(AWAY))
    assert takes(s) == filters


@pytest.mark.parametrize(("receive_max", "filters"), SIZES)
def test_what_it_was_asked_for_when_it_went_keeps_no_room(receive_max: int, filters: int) -> None:
    """The polls had been sent and were not answered; they are sent again when it is back."""
    s = behind(receive_max, filters)
    conn = s.attach(receive_max=receive_max)
    while not s.polls():
        for ask in list(s.asked):
            s.commit(ask)
        for query in [query for query in s.queries if not isinstance(query.ask, Poll)]:
            s.tell(query)
        s.tick()
    assert {query.shard for query in s.queries} >= {AWAY}
    lose(s, AWAY)
    session = s.core._state.by_conn[conn]
    assert takes(s) == filters and not session.asking.reserved and not session.asking.reserved_bytes
    s.feed(ShardLinked(AWAY))
    assert takes(s) == filters


def test_retained_messages_that_it_was_asked_for_keep_no_room_either() -> None:
    """They come when it is back, and what another one has stored meanwhile at once."""
    s = Script(3, SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS))
    s.owned()
    keep(s, 3, shard=AWAY)
    conn = s.attached(receive_max=1)
    subscribe(s, conn)
    for _ in range(50):
        s.tick()
        for ask in list(s.asked):
            s.commit(ask)
        for query in [query for query in s.queries if not isinstance(query.ask, RetainedPage)]:
            s.tell(query)
    assert [query.shard for query in s.queries] == [AWAY]
    lose(s, AWAY)
    s.publish(5, topic=b"r/x", shard=THERE)
    s.live(THERE)
    assert takes(s) == 5
    s.feed(ShardLinked(AWAY))
    assert takes(s) == 3
