"""Where looks at a running broker are put down, and how its CPU is shared out."""

from __future__ import annotations

import os

import pytest

from benchmarks.stages import STAGES, shares, stage_of, threads_s

LOOP = "run (threading.py:971)"


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (["_tick (actors/shard_serving.py:229)", "write (shards/engine_rocks.py:170)"], "shard: RocksDB's write"),
        (
            ["_tick (actors/shard_serving.py:229)", "encode (shards/frames.py:352)", "packb (msgpack/__init__.py:36)"],
            "between parts: frames",
        ),
        (["_tick (actors/gateway.py:275)", "handle (gateway/core.py:183)"], "gateway: publishers, answers, its turns"),
        (["data_received (actors/connection.py:92)"], "sockets: receiving, sending"),
        (["data_received (actors/connection.py:92)", "_read (mqtt/decode.py:124)"], "packets: taken apart, put together"),
        (["_run (actors/pump.py:67)"], "the loop, figures, the rest"),
        (["_begin (actors/syncing.py:92)", "RocksEngine.sync (shards/engine_rocks.py:188)"], None),
        (["main_loop (ray/_private/worker.py:1059)"], None),
    ],
)
def test_a_look_is_put_down_to_the_innermost_of_our_frames(stack: list[str], stage: str | None) -> None:
    """What waits for the disk is no work, and Ray's threads are not the loop."""
    assert stage_of([LOOP, *stack]) == stage


def test_looks_are_counted_by_stage() -> None:
    """Of py-spy's own lines."""
    raw = f"{LOOP};_run (actors/pump.py:67) 3\n{LOOP};handle (sessions/core.py:1) 4\n{LOOP};handle (sessions/acks.py:9) 5\n{LOOP} 99\n"
    assert shares(raw) == {"the loop, figures, the rest": 3, "session actor": 9}
    assert set(shares(raw)) <= {name for name, _ in STAGES}


def test_threads_are_those_of_the_process() -> None:
    """Ours have used something."""
    found = threads_s(os.getpid())
    assert sum(found.values()) > 0 and str(os.getpid()) in found
