"""A disk that is full or slow on purpose, around an engine in memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from actors.chaos.disk import ExposedEngine, LogHindrance
from shards import backends
from shards.backends import open_backend
from shards.engine import StoreFull
from shards.engine_memory import MemoryEngine
from shards.replication import log_segment
from shards.replication.log_format import SegmentHead
from shards.replication.log_segment import Segment


class Faults:
    def __init__(self) -> None:
        self.is_full, self.seconds = False, 0.0

    def delay_s(self) -> float:
        return self.seconds

    def full(self) -> bool:
        return self.is_full


def test_a_full_disk_refuses_what_wants_room_and_keeps_the_rest(tmp_path: Path) -> None:
    """Nothing of what was refused is there; reads and syncs go on; with room again all works."""
    faults = Faults()
    engine = ExposedEngine(MemoryEngine(), faults)
    engine.write([(0, b"a", b"1")])
    faults.is_full = True
    with pytest.raises(StoreFull, match="on purpose"):
        engine.write([(0, b"b", b"2")])
    with pytest.raises(StoreFull, match="on purpose"):
        engine.create_family(1)
    with pytest.raises(StoreFull, match="on purpose"):
        engine.checkpoint(str(tmp_path / "copy"))
    engine.sync()
    assert (engine.get(0, b"a"), engine.get(0, b"b"), engine.families()) == (b"1", None, [0])
    faults.is_full = False
    engine.write([(0, b"b", b"2")])
    assert engine.get(0, b"b") == b"2"


def test_a_slow_disk_takes_longer_to_sync_and_to_do_nothing_else() -> None:
    """By what the fault says."""
    faults = Faults()
    faults.seconds = 0.03
    engine = ExposedEngine(MemoryEngine(), faults)
    began = time.monotonic()
    engine.write([(0, b"a", b"1")])
    engine.get(0, b"a")
    assert time.monotonic() - began < 0.03
    engine.sync()
    assert time.monotonic() - began >= 0.03


def test_engines_are_as_they_are_unless_somebody_wraps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not to be broken on purpose pays nothing for it."""
    assert type(open_backend("memory", "")) is MemoryEngine
    monkeypatch.setattr(backends, "wrap", lambda engine: ExposedEngine(engine, Faults()))
    assert type(open_backend("memory", "")) is ExposedEngine


def test_what_only_some_engines_have_is_reached_through_it() -> None:
    """Such as what RocksDB found broken, or how it lets its log go."""
    engine = ExposedEngine(MemoryEngine(), Faults())
    assert getattr(engine, "release_log", None) is None
    assert engine.fail_next_write.__self__ is not engine  # type: ignore[attr-defined]


def test_the_log_of_a_replica_is_hindered_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it refuses has left nothing behind; unless somebody puts something in its way there is nothing."""
    assert log_segment.hindrance is None
    faults = Faults()
    monkeypatch.setattr(log_segment, "hindrance", LogHindrance(faults))
    segment = Segment.make(str(tmp_path), SegmentHead(0, 1, 1, False, 0, 0, 0))
    before = segment.bytes
    faults.is_full = True
    with pytest.raises(StoreFull, match="on purpose"):
        segment.write([b"abc"], 3)
    assert segment.bytes == before
    faults.is_full, faults.seconds = False, 0.03
    segment.write([b"abc"], 3)
    began = time.monotonic()
    segment.sync()
    assert segment.bytes == before + 3 and time.monotonic() - began >= 0.03
