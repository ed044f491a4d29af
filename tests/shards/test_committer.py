"""The local committer's core, effect by effect, and the bytes of a record."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.committer import (
    BadRecord,
    Committed,
    Failed,
    LocalCommitter,
    Opened,
    Record,
    Refused,
    StartSync,
    Submit,
    SyncDone,
    SyncFailed,
    SyncStarted,
    Write,
    WriteRefused,
)
from shards.engine import StoreFailed

GOLDEN = "01000000020000000201000000000000b7c48fd00100000003000000050000006b657976616c75650000000004000000ffffffff676f6e65"


def record(position: int) -> Record:
    return Record(position, [(0, b"k", b"v")])


def idle(position: int = 0) -> LocalCommitter:
    core = LocalCommitter()
    assert core.handle(Opened(position)) == [StartSync()]
    assert core.handle(SyncStarted()) == []
    assert core.handle(SyncDone()) == [Committed(position)]
    return core


def test_the_watermark_after_opening_waits_for_a_sync() -> None:
    # Property: committed is unknown until a sync covers what was recovered.
    core = LocalCommitter()
    assert core.handle(Opened(41)) == [StartSync()]
    assert core.committed == -1
    core.handle(SyncStarted())
    assert core.handle(Submit(record(42))) == [Write(record(42))]
    assert core.handle(SyncDone()) == [Committed(41), StartSync()]


def test_a_record_is_written_at_once_and_synced_if_nothing_is() -> None:
    # Property: adaptive: the first record starts a sync, those behind it share the next one.
    core = idle()
    assert core.handle(Submit(record(1))) == [Write(record(1)), StartSync()]
    assert core.handle(Submit(record(2))) == [Write(record(2))], "asked, not begun: the same sync covers it"
    assert core.handle(SyncStarted()) == []
    assert core.handle(Submit(record(3))) == [Write(record(3))]
    assert core.handle(Submit(record(4))) == [Write(record(4))]
    assert core.unsynced_records == 4
    assert core.handle(SyncDone()) == [Committed(2), StartSync()]
    assert core.unsynced_records == 2
    core.handle(SyncStarted())
    assert core.handle(SyncDone()) == [Committed(4)]
    assert core.unsynced_records == 0
    assert core.state == "idle"


def test_a_refused_write_takes_back_its_record_only() -> None:
    # Property: the sync still commits what came before; the record may come again, or a later one instead.
    core = idle()
    core.handle(Submit(record(1)))
    core.handle(Submit(record(2)))
    assert core.handle(WriteRefused(2, "full")) == [Refused(2, "full")]
    core.handle(SyncStarted())
    assert core.handle(SyncDone()) == [Committed(1)]
    assert core.state == "idle"
    with pytest.raises(AssertionError, match="submitted after"):
        core.handle(Submit(record(1)))
    assert core.handle(Submit(record(3))) == [Write(record(3)), StartSync()]


def test_a_refused_record_can_be_submitted_again() -> None:
    # Property: refused twice, then taken: committed like any other, and nothing in its place.
    core = idle()
    core.handle(Submit(record(1)))
    for _ in range(2):
        assert core.handle(Submit(record(2))) == [Write(record(2))]
        assert core.handle(WriteRefused(2, "full")) == [Refused(2, "full")]
        core.check()
    assert core.handle(Submit(record(2))) == [Write(record(2))]
    core.handle(SyncStarted())
    assert core.handle(SyncDone()) == [Committed(2)]


def test_a_refusal_during_a_sync_leaves_nothing_to_sync() -> None:
    # Property: no sync is asked for when nothing was written since the last one began.
    core = idle()
    core.handle(Submit(record(1)))
    core.handle(SyncStarted())
    core.handle(Submit(record(2)))
    core.handle(WriteRefused(2, "full"))
    assert core.handle(SyncDone()) == [Committed(1)]
    assert core.state == "idle"


def test_a_failed_sync_is_final() -> None:
    # Property: Failed once, then no record is taken and no sync is asked for.
    core = idle()
    core.handle(Submit(record(1)))
    core.handle(SyncStarted())
    assert core.handle(SyncFailed("EIO")) == [Failed("EIO")]
    with pytest.raises(StoreFailed, match="EIO"):
        core.handle(Submit(record(2)))
    with pytest.raises(AssertionError):
        core.handle(SyncStarted())
    with pytest.raises(AssertionError):
        core.handle(SyncDone())
    assert core.committed == 0


@pytest.mark.parametrize("event", [SyncStarted(), SyncDone(), Opened(3)])
def test_events_out_of_turn_are_refused_and_change_nothing(event: SyncStarted | SyncDone | Opened) -> None:
    # Property: a shell that reports what cannot have happened is stopped.
    core = idle()
    with pytest.raises(AssertionError):
        core.handle(event)
    core.check()
    assert core.state == "idle"


def test_nothing_is_submitted_before_the_store_is_open() -> None:
    # Property: closed takes no record.
    with pytest.raises(AssertionError, match="before the store was opened"):
        LocalCommitter().handle(Submit(record(1)))


ops = st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=40), st.none() | st.binary(max_size=40))


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(ops, max_size=8))
def test_a_record_survives_its_bytes(position: int, written: list[tuple[int, bytes, bytes | None]]) -> None:
    # Property: decode(encode(r)) == r, for deletes, empty keys and empty values too.
    made = Record(position, written)
    assert Record.decode(made.encode()) == made


def test_the_bytes_of_a_record_are_those_of_the_format_page() -> None:
    # Property: golden bytes of version 1.
    made = Record(258, [(1, b"key", b"value"), (0, b"gone", None)])
    assert made.encode().hex() == GOLDEN


def test_no_changed_byte_of_a_record_is_overlooked() -> None:
    # Property: any single damaged byte, and any cut, is refused.
    data = Record(258, [(1, b"key", b"value"), (0, b"gone", None)]).encode()
    rng = random.Random(1)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= rng.randint(1, 255)
        with pytest.raises(BadRecord):
            Record.decode(bytes(damaged))
        with pytest.raises(BadRecord):
            Record.decode(data[:at])
    with pytest.raises(BadRecord):
        Record.decode(data + b"\0")
