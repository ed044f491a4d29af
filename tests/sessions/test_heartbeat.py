"""durable_sessions.heartbeat_interval: how long progress may wait that is lost without harm; and how many sessions wait together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sessions.events import SettingsChanged
from sessions.idle import NEVER_MS
from sessions.options import SessionOptions
from tests.sessions.scripted import Script, families


@pytest.mark.parametrize("heartbeat_ms", [100, 60_000])
def test_the_heartbeat_says_how_long_acknowledgements_may_wait(heartbeat_ms: int) -> None:
    """Not before, and then at once."""
    s = Script(options=SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, heartbeat_ms=heartbeat_ms))
    s.owned()
    conn = s.attached(receive_max=100)
    s.subscribed(conn, b"#", 1)
    s.rest()
    s.publish(2)
    s.live()
    s.rest()
    s.puback(conn, 1)
    s.tick()
    s.tick(heartbeat_ms - 2)
    assert s.asked == []
    s.tick(2)
    assert [families(commit) for commit in s.commits()] == ["q"]


@pytest.mark.parametrize(("before_ms", "after_ms", "wait_ms"), [(60_000, 100, 100), (100, 60_000, 100)])
def test_another_heartbeat_counts_at_once(before_ms: int, after_ms: int, wait_ms: int) -> None:
    """What waits already waits no longer than either says; what comes then as long as the new one says."""
    options = SessionOptions(lazy_commit_ms=0, idle_poll_ms=NEVER_MS, heartbeat_ms=before_ms)
    s = Script(options=options)
    s.owned()
    conn = s.attached(receive_max=100)
    s.subscribed(conn, b"#", 1)
    s.rest()
    s.publish(3)
    s.live()
    s.rest()
    s.puback(conn, 1)
    s.tick()
    s.core.handle(SettingsChanged(replace(options, heartbeat_ms=after_ms)))
    s.tick(wait_ms - 2)
    assert s.asked == []
    s.tick(2)
    assert [families(commit) for commit in s.commits()] == ["q"]
    s.rest()
    s.puback(conn, 2)
    s.tick()
    s.tick(after_ms - 2)
    assert s.asked == []
    s.tick(2)
    assert len(s.commits()) == 1


def crowd(sessions: int, heartbeat_ms: int) -> tuple[Script, list[int]]:
    """So many sessions that have got a message, and acknowledged it; nothing is to be committed."""
    s = Script(options=SessionOptions(lazy_commit_ms=20, idle_poll_ms=NEVER_MS, heartbeat_ms=heartbeat_ms))
    s.owned()
    conns = [s.attached(b"c%d" % number) for number in range(sessions)]
    for conn in conns:
        s.subscribed(conn, b"#", 1)
    message(s, conns, 1)
    s.tick(heartbeat_ms)
    s.rest()
    s.tick(1_000)
    assert s.asked == []
    return s, conns


def message(s: Script, conns: list[int], number: int) -> None:
    s.publish(1)
    s.live()
    s.tick()
    for conn in conns:
        s.puback(conn, number)


@pytest.mark.parametrize(("sessions", "heartbeat_ms", "later_ms"), [(4, 5_000, 20), (24, 5_000, 100), (24, 60, 60)])
def test_the_more_sessions_have_messages_the_longer_these_wait_to_be_committed(sessions: int, heartbeat_ms: int, later_ms: int) -> None:
    """All together, at 200 sessions a second beyond four, and never longer than the heartbeat."""
    s, conns = crowd(sessions, heartbeat_ms)
    message(s, conns, 2)
    s.tick(later_ms)
    assert len(s.commits()) == sessions
    s.rest()
    message(s, conns, 3)
    s.tick(later_ms - 3)
    assert s.commits() == []
    s.tick(3)
    assert len(s.commits()) == sessions


def test_what_waits_longer_for_company_than_another_heartbeat_waits_no_longer_than_that() -> None:
    """durable_sessions.heartbeat_interval counts at once."""
    s, conns = crowd(24, 5_000)
    message(s, conns, 2)
    s.core.handle(SettingsChanged(replace(s.options, heartbeat_ms=30)))
    s.tick(27)
    assert s.commits() == []
    s.tick(3)
    assert len(s.commits()) == 24
