"""Entries into the data engine, and the row that says how far it is."""

from __future__ import annotations

import pytest

from shards.committer import Record
from shards.engine import HOME_FAMILY, Op, StoreFailed
from shards.engine_memory import MemoryEngine
from shards.replication.applying import APPLIED_ROW, applied_in, apply
from shards.replication.entry import Entry, Kind, of_family
from shards.replication.own import Applied


def record(index: int, position: int, *ops: Op) -> Entry:
    return Entry(index, 1, Kind.RECORD, Record(position, ops).encode())


def test_nothing_is_applied_in_an_empty_engine() -> None:
    """Not even an entry 0."""
    assert applied_in(MemoryEngine()) == Applied(0, 0, 0)


def test_ops_and_the_row_are_there_together() -> None:
    """One write: whatever of it survives a crash says how far it is."""
    engine = MemoryEngine()
    apply(engine, [Entry(1, 1, Kind.NOOP), record(2, 70, (0, b"k", b"v"))], 70)
    assert engine.unsynced_writes == 1
    assert applied_in(engine) == Applied(2, 1, 70)
    assert engine.get(0, b"k") == b"v"
    assert engine.get(HOME_FAMILY, APPLIED_ROW) == bytes((0x94, 1, 2, 1, 70)), "docs/formats.md: a change of these is a new version"


def test_applying_again_changes_nothing() -> None:
    """After a crash everything behind the row is: puts, deletions, families that are made and dropped."""
    entries = [
        of_family(1, 1, Kind.MAKE, 4),
        record(2, 70, (0, b"g4", b""), (4, b"k", b"v")),
        record(3, 71, (0, b"g4", None)),
        of_family(4, 1, Kind.DROP, 4),
        of_family(5, 1, Kind.MAKE, 5),
        record(6, 72, (5, b"k", b"w")),
    ]
    engine = MemoryEngine()
    for _ in range(2):
        apply(engine, entries, 72)
        assert engine.families() == [0, 5]
        assert engine.get(0, b"g4") is None and engine.get(5, b"k") == b"w"


def test_a_family_that_is_there_or_gone_already_is_no_mistake() -> None:
    """Making and dropping are durable at once, the row that says so is not."""
    engine = MemoryEngine()
    engine.create_family(7)
    apply(engine, [of_family(1, 1, Kind.MAKE, 7)], 0)
    engine.drop_family(7)
    apply(engine, [of_family(2, 1, Kind.DROP, 7)], 0)
    assert engine.families() == [0] and applied_in(engine).index == 2


def test_a_row_of_another_version_is_refused() -> None:
    """With a sentence: a newer program has written here."""
    engine = MemoryEngine()
    engine.write([(HOME_FAMILY, APPLIED_ROW, bytes((0x91, 9)))])
    with pytest.raises(StoreFailed, match="of version 9 found"):
        applied_in(engine)
