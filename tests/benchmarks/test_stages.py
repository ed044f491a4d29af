"""Where looks at a running broker are put down, and how its CPU is shared out."""

from __future__ import annotations

import os
from xml.etree import ElementTree

import pytest

from benchmarks.flame import drawn
from benchmarks.stages import STAGES, shares, stacks_of, stage_of, threads_s

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
        (["Syncing._in_thread (actors/syncing.py:122)"], None),
        (["main_loop (ray/_private/worker.py:1059)", "_rest (actors/main_thread.py:50)"], None),
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


def test_a_flame_graph_has_a_box_for_each_function_on_top_of_who_calls_it() -> None:
    """As wide as it was seen often; lines of one function are one box, and what is outside of ours is left out."""
    raw = f"{LOOP};_run (actors/pump.py:67);handle (shards/core.py:1) 30\n{LOOP};_run (actors/pump.py:68);<lambda> (gateway/core.py:2) 10\n"
    picture = ElementTree.fromstring(drawn(stacks_of(raw), "store"))
    boxes = {group[0].text: group[1] for group in picture}
    assert {title: float(box.get("width", 0)) for title, box in boxes.items()} == {
        "store: 100.0 %": 1199.7, "_run (actors/pump.py): 100.0 %": 1199.7, "handle (shards/core.py): 75.0 %": 899.7,
        "<lambda> (gateway/core.py): 25.0 %": 299.7,
    }  # fmt: skip
    heights = [float(boxes[title].get("y", 0)) for title in boxes]
    assert heights == [34, 17, 0, 0]
