"""What has ended is gone at once: a session actor looks for garbage seldom, and many clients come and go."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from sessions.frames import Subscribe
from sessions.session import Cursor, Session
from shards.frames import Route
from tests.sessions.scripted import Script

ROUTE_WAIT_MS = 10_000


def unsubscribed(s: Script, filter: bytes) -> None:
    conn = s.attached()
    s.subscribed(conn, filter)
    s.rest()
    s.unsubscribe(conn, filter)
    s.rest()
    s.detach(conn)


def given_up(s: Script, filter: bytes) -> None:
    """A shard was away for too long."""
    conn = s.attached()
    _routed(s, conn, filter)
    s.tick(ROUTE_WAIT_MS)
    s.rest()
    s.detach(conn)


def interrupted(s: Script, filter: bytes) -> None:
    """The connection went while the last commit was under way."""
    conn = s.attached()
    _routed(s, conn, filter)
    s.detach(conn)
    s.rest()
    s.tick(ROUTE_WAIT_MS)


def _routed(s: Script, conn: int, filter: bytes) -> None:
    s.gateway(Subscribe(conn, 1, [(filter, 1, 0, 2)], 0))
    s.stop_at(Route)
    s.answer()
    s.tick()
    assert _alive(filter), "there is something to let go"


def _alive(filter: bytes) -> list[int]:
    return [each.shard for each in gc.get_objects() if isinstance(each, Cursor) and each.sub.terms.filter == filter]


@pytest.mark.needs("interpreted")
@pytest.mark.parametrize("ends", [unsubscribed, given_up, interrupted])
def test_nothing_of_a_subscription_that_ended_waits_for_a_collection(ends: Callable[[Script, bytes], None]) -> None:
    """Nor of its session, which has ended with its connection."""
    filter = b"let go/" + ends.__name__.encode()
    gc.collect()
    gc.disable()
    try:
        s = Script(2)
        s.owned()
        ends(s, filter)
        s.rest()
        sessions = [each.client for each in gc.get_objects() if isinstance(each, Session) and each.dropped]
    finally:
        gc.enable()
    assert _alive(filter) == []
    assert sessions == []
