"""Gateways that are lost, one of them or all at once: when their connections ended, and when wills come."""

from __future__ import annotations

import pytest

from shards.clock import AgeMark, Reading
from shards.frames import (
    LOST,
    Beat,
    Connect,
    Disconnect,
    Live,
    Place,
    Superseded,
    Will,
)  # fmt: skip
from shards.housekeeping import AGE_EVERY_MS, AGE_ROW, LOST_CONNECTIONS_PER_RECORD
from tests.shards.ended import rows
from tests.shards.harness import G, Harness, S, connect, linked, poll, publish, route, topics

# ---------------------------------------------------------------------------------------------- lost gateways


def stay_linked(h: Harness, link: int, ms: int) -> None:
    """Time passes, and only this link is heard."""
    for _ in range(ms // 1_000):
        h.receive(link, Beat())
        h.tick(1_000)


def test_expiry_counts_from_when_a_lost_gateway_was_last_heard() -> None:
    """Not from when the home was sure, 20 s later."""
    h = linked()
    h.link(3, "gateway", "g1:a")
    connect(h, b"c", expiry_s=30)
    heard_ms = h.now_ms
    stay_linked(h, 3, 25_000)
    assert h.core.counters["connections"] == 0 and "s" in rows(h.engine)
    stay_linked(h, 3, 4_000)
    assert "s" in rows(h.engine) and h.now_ms < heard_ms + 30_000
    stay_linked(h, 3, 2_000)
    assert "s" not in rows(h.engine) and h.now_ms < heard_ms + 32_000


def test_a_gateway_that_only_stood_still_is_told_which_of_its_connections_have_ended() -> None:
    """Its link is in order, so it asks nothing; a client that has moved on would otherwise stay connected there for ever."""
    h = linked()
    h.link(3, "gateway", "g1:a")
    first, second = connect(h, b"c", expiry_s=0), connect(h, b"d", expiry_s=60)
    h.take(G, Superseded)
    stay_linked(h, 3, 22_000)
    h.tick()
    (told,) = h.take(G, Superseded)
    assert [tuple(connection) for connection in told.connections] == [(b"c", first.conn), (b"d", second.conn)]


def test_a_gateway_in_whose_place_another_starts_is_lost_at_once() -> None:
    """20 s of waiting for what is known to be gone would make every expiry and will late by as much."""
    h = linked()
    position = route(h, b"w")
    conn = connect(h, b"c", expiry_s=2, will=Will(b"w", 1, False, 0, b"\0gone")).conn
    h.unlink(G)
    h.tick(1_000)
    assert topics(poll(h, b"w", Place(position))) == []
    h.link(3, "gateway", "g0:b")
    h.tick()
    h.tick()
    assert topics(poll(h, b"w", Place(position))) == [b"w"]
    stay_linked(h, 3, 3_000)
    assert "s" not in rows(h.engine)
    assert h.core._homes.newest_conn(h.core._draft, b"c") > conn, "what the old one may still send is refused"


def test_a_gateway_that_is_linked_is_not_lost_because_another_of_its_name_links() -> None:
    """A process that is there and heard is not gone, whatever was started beside it."""
    h = linked()
    conn = connect(h, b"c", expiry_s=60).conn
    h.link(3, "gateway", "g0:b")
    h.tick()
    assert h.core.counters["connections"] == 1
    assert not h.ask(G, publish(b"c", conn, b"t"))[0][0]


def test_an_older_gateway_that_was_never_heard_does_not_end_the_newer_one() -> None:
    """It stood still between its start and its first link; meanwhile another took its place, and the shard was restarted."""
    h = linked()
    h.link(3, "gateway", "g0:b")
    conn = connect(h, b"c", expiry_s=60, link=3).conn
    h.reopen()
    h.numbers["g0:b"] = 1
    h.link(4, "gateway", "g0:A")
    h.tick()
    h.tick()
    h.link(3, "gateway", "g0:b")
    assert not h.ask(3, publish(b"c", conn, b"t"))[0][0]


def test_after_a_restart_an_older_gateway_that_links_first_does_not_end_the_newer_one() -> None:
    """Both were known; the newer one is only the later to link again, and its connections live."""
    h = linked()
    h.ask(G, Connect(b"old", False, 60, 5, None))
    h.link(3, "gateway", "g0:b")
    conn = connect(h, b"c", expiry_s=60, link=3).conn
    h.reopen()
    h.numbers["g0:b"] = 1
    h.link(G, "gateway", "g0:a")
    h.tick()
    h.tick()
    h.link(3, "gateway", "g0:b")
    assert not h.ask(3, publish(b"c", conn, b"t"))[0][0]


def test_frames_that_waited_while_the_shard_stood_still_count_as_heard() -> None:
    """A shard that was stopped for a minute must not declare gateways lost whose frames lie before it."""
    h = linked()
    connect(h, b"c", expiry_s=60)
    h.receive(G, Beat())
    h.tick(60_000)
    assert h.core.counters["connections"] == 1


@pytest.mark.parametrize("away_ms", [0, 1_000, 3_000, 60_000])
def test_after_a_crash_of_everything_a_session_expires_by_the_time_that_passed(away_ms: int) -> None:
    """Its connection ended when a process of before was last heard: known to AGE_EVERY_MS, and never taken for earlier."""
    h = linked()
    connect(h, b"c", expiry_s=30)
    ended_ms = h.now_ms
    h.core.note(AGE_ROW, AgeMark(h.now_ms, Reading(0, "b", 0), False).encode())
    h.tick()
    h.reopen()
    h.now_ms += away_ms
    h.link(G, "gateway", "g0:b")
    h.tick()
    while "s" in rows(h.engine):
        assert h.now_ms < ended_ms + 30_000 + max(AGE_EVERY_MS, away_ms) + 1_000
        stay_linked(h, G, 1_000)
    assert h.now_ms >= ended_ms + 30_000
    assert not connect(h, b"c", expiry_s=30).present


def test_a_connect_that_comes_before_the_loss_is_written_down_knows_of_it() -> None:
    """A session whose connection ended longer ago than its expiry is not resumed, however many there are to be ended first."""
    h = linked()
    clients = [b"c%d" % n for n in range(1_200)]
    h.ask(G, *(Connect(client, False, 3, 5, None) for client in clients))
    h.core.note(AGE_ROW, AgeMark(h.now_ms, Reading(0, "b", 0), False).encode())
    h.tick()
    h.reopen()
    h.now_ms += 60_000
    h.link(G, "gateway", "g0:b")
    number = h.request(G, *(Connect(client, False, 3, 5, None) for client in clients))
    h.tick()
    (answer,) = [frame for frame in h.sent[G] if getattr(frame, "number", 0) == number]
    assert [reply.present for reply in answer.replies] == [False] * len(clients)  # type: ignore[union-attr]


# ---------------------------------------------------------------------------------------------- wills


def test_a_delayed_will_fires_once_whatever_crashes() -> None:
    """In the record that erases its timer: the message and the end of the timer are one."""
    h = linked()
    position = route(h, b"w")
    connected = connect(h, b"c", expiry_s=600, will=Will(b"w", 1, False, 5, b"\0gone"))
    h.ask(G, Disconnect(b"c", connected.conn, LOST, None))
    for crash in range(4):
        h.reopen(power=crash % 2 == 0)
        h.link(G, "gateway", "g0:a")
        h.link(S, "session", f"s0:{crash}")
        h.tick(2_000, sync=crash % 2 == 1)
    h.reopen()
    h.link(S, "session", "s0:z")
    h.pass_time(10_000)
    assert topics(poll(h, b"w", Place(position))) == [b"w"]


def test_a_will_that_was_due_while_everything_was_down_fires_at_the_start() -> None:
    """Also that of a client that was connected when everything ended, as soon as its gateway is known to be gone."""
    h = linked()
    position = route(h, b"#")
    away = connect(h, b"away", expiry_s=600, will=Will(b"w/away", 1, False, 5, b"\0gone"))
    connect(h, b"there", expiry_s=600, will=Will(b"w/there", 1, False, 5, b"\0gone"))
    h.ask(G, Disconnect(b"away", away.conn, LOST, None))
    h.core.note(AGE_ROW, AgeMark(h.now_ms, Reading(0, "b", 0), False).encode())
    h.tick()
    h.reopen()
    h.now_ms += 100_000
    h.link(S, "session", "s0:b")
    h.tick()
    assert topics(poll(h, b"#", Place(position))) == [b"w/away"]
    h.link(G, "gateway", "g0:b")
    h.tick()
    h.tick()
    h.settle()
    assert topics(poll(h, b"#", Place(position))) == [b"w/away", b"w/there"]
    assert len(h.take(G, Live)) == 1


def test_a_gateway_that_is_heard_again_keeps_what_was_not_ended_yet() -> None:
    """Nor does it lose the connections that it takes from then on."""
    h = linked()
    clients = [b"c%d" % n for n in range(LOST_CONNECTIONS_PER_RECORD + 100)]
    h.ask(G, *(Connect(client, False, 600, 5, None) for client in clients))
    h.tick(21_000)
    assert h.core.counters["connections"] == 100
    h.receive(G, Beat())
    conn = connect(h, b"new", expiry_s=600).conn
    h.settle()
    assert h.core.counters["connections"] == 101
    assert not h.ask(G, publish(b"new", conn, b"t"))[0][0]
