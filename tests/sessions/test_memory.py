"""What a session that is online takes in its session actor while nothing happens, however many streams its filter matches."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import sessions.session
from sessions.frames import Attach, Subscribe
from sessions.options import SessionOptions
from tests.sessions.scripted import Script

ROOT = Path(sessions.session.__file__).parent.parent
FEW, MANY = 4, 32
"""The first few make what all of them share."""
IDLE_BYTES_MAX = 4_096


@contextmanager
def counting() -> Iterator[list[int]]:
    """Bytes that the session core and the tries in it have taken meanwhile, and hold; the model shards are left out."""
    ours = [tracemalloc.Filter(True, str(ROOT / part / "*")) for part in ("sessions", "mqtt")]
    took: list[int] = []
    gc.collect()
    tracemalloc.start()
    try:
        yield took
        gc.collect()
        took.append(sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(ours).traces))
    finally:
        tracemalloc.stop()


def online(s: Script, numbers: range) -> None:
    """So many sessions with the filter #, at the head; everything that is only on its way is over."""
    conns: list[int] = []
    for number in numbers:
        client = b"c%d" % number
        conn, present, session_id, _ = s.home.connect(client)
        s.gateway(Attach(client, conn, session_id, present, 5, 100))
        conns.append(conn)
    s.rest()
    for conn in conns:
        s.gateway(Subscribe(conn, 1, [(b"#", 1, 0, 2)], 0))
    s.rest()
    for _ in range(12):
        s.tick(1_000)
        s.answer()
    s.rest()
    s.sent.clear()


@pytest.mark.slow
def test_an_idle_session_takes_no_more_than_4_kb() -> None:
    """With one shard; a further one takes a place, and what sees that it stands still."""
    s = Script(options=SessionOptions(lazy_commit_ms=0))
    s.owned()
    online(s, range(FEW))
    s.publish(3)
    s.live()
    s.rest()
    with counting() as took:
        online(s, range(FEW, FEW + MANY))
    assert len(s.core._state.by_conn) == FEW + MANY and not s.queries
    assert took[0] / MANY <= IDLE_BYTES_MAX, f"{took[0] / MANY:.0f} bytes each"
    assert took[0] / MANY > IDLE_BYTES_MAX / 4, "it is not counted"
