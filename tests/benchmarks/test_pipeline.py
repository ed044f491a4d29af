"""The parts of the pipeline's benchmark that need no broker and no Spark."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from statistics import mean

from benchmarks.pipeline import Round, Rounds
from benchmarks.pipeline_live import Shared
from benchmarks.pipeline_load import PER_FRAME, frames
from holdfast_spark.protocol import decode_messages, encode_messages
from shards.messages import encode_message
from tests.lake.stored import payload_of_body


def test_the_load_has_as_many_rows_as_asked_for_and_of_the_size_of_the_gate() -> None:
    """Frames fit the protocol; a row as stored has about 190 bytes; a seed means the same rows."""
    every = list(frames(PER_FRAME + 10))
    assert [len(flags) for flags, _, _, _ in every] == [PER_FRAME, 10]
    for columns in every:
        found = decode_messages(memoryview(b"".join(encode_messages(*columns))))
        assert (found.clients, found.topics, found.bodies) == columns[1:]
    _, clients, topics, bodies = every[0]
    stored = [len(encode_message(1, 0, c, t, b)) for c, t, b in zip(clients, topics, bodies, strict=True)]
    assert 180 <= mean(stored) <= 200
    assert all(body[0] == 0 and payload_of_body(body).endswith(b'"}') for body in bodies[:100])
    assert list(frames(100)) == list(frames(100))


def test_devices_come_evenly() -> None:
    """Each has one topic, and none comes much more often than another."""
    _, clients, topics, _ = next(frames(PER_FRAME))
    counts = Counter(clients)
    assert max(counts.values()) - min(counts.values()) <= 1 and len(counts) == len(set(topics)) == 2000


def test_a_round_says_what_a_row_costs_and_whom() -> None:
    """All parts together, and the broker's without Spark."""
    each = Round(100, 0.5, {"spark": 1.5, "reader": 0.5, "shards": 0.25})
    assert (each.us_per_row, each.broker_us, each.rows_per_s) == (2.25, 0.75, 200)
    assert str(each) == "2.25 us/row (1.50 spark + 0.50 reader + 0.25 shards), 0 k rows/s"


def test_rounds_are_told_by_the_best_of_them() -> None:
    """Each figure by its own."""
    rounds = Rounds((Round(100, 0.5, {"spark": 1.0, "reader": 0.5}), Round(100, 0.25, {"spark": 2.0, "reader": 0.25})))
    assert rounds.cheapest is rounds.every[0] and rounds.broker_us == 0.25 and rounds.rows_per_s == 400


def test_what_is_left_is_told_by_the_middle_window() -> None:
    """One bad window on either side decides nothing."""
    assert Shared((100.0, 10.0, 100.0), (80.0, 80.0, 5.0), 1e6).part == 0.8


ORPHAN = """
import os, subprocess, sys, time
from benchmarks.meter import measure
from benchmarks.pipeline_spark import adopt_orphans

adopt_orphans()
burning = "import os, time\\nif os.fork() == 0:\\n    while time.process_time() < 0.5: pass\\nos._exit(0)"
subprocess.run([sys.executable, "-S", "-c", burning], check=True)
deadline = time.monotonic() + 60
while measure({"it": [os.getpid()]})["it"].cpu_s - time.process_time() < 0.4:
    assert time.monotonic() < deadline
print("counted")
"""


def test_what_an_orphan_uses_is_counted() -> None:
    """Spark ends a daemon before its workers at times; what these have used by then, and use yet, is the round's all the same."""
    assert subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=True).stdout == "counted\n"
