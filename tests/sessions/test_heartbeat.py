"""durable_sessions.heartbeat_interval: how long progress may wait that is lost without harm."""

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
