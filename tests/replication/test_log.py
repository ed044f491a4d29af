"""The replicated log of a shard: appended, replaced, trimmed, begun anew, and opened again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shards.engine import StoreDamaged, StoreFailed, StoreInUse
from shards.replication.configuration import first as first_record
from shards.replication.entry import Entry, Kind
from shards.replication.log import ReplicatedLog
from shards.replication.log_format import SEGMENT_HEAD_BYTES
from shards.replication.log_opening import open_log
from tests.replication.logs import INCARNATION, RID, SHARD, SMALL, again, copied, entry, found, held, make, put, run, segments


def trim(log: ReplicatedLog, index: int) -> None:
    log.trim(index)
    log.sync()


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    """Entries of all kinds, over several segments, with their epochs and payloads."""
    log = make(tmp_path / "log")
    assert (log.first, log.last, log.last_epoch, log.epoch_at(0), log.epoch_at(1)) == (1, 0, 0, 0, None)
    entries = [Entry(1, 1, Kind.NOOP), *run(2, 9), Entry(10, 4, Kind.MAKE, b"\0\0\0\7"), entry(11, 4, b""), entry(12, 4, bytes(5000))]
    for each in entries:
        put(log, [each])
    assert held(log) == entries
    assert len(segments(tmp_path / "log")) > 2
    log.close()
    log = again(tmp_path / "log")
    assert held(log) == entries
    assert [log.epoch_at(index) for index in (0, 1, 9, 10, 12, 13)] == [0, 1, 1, 4, 4, None]
    assert (log.last, log.last_epoch, log.cut_bytes) == (12, 4, 0)


def test_a_reader_gets_as_much_as_it_asks_for_and_at_least_one(tmp_path: Path) -> None:
    """Bounds of count and bytes; nothing of what is not in the log."""
    log = make(tmp_path / "log")
    put(log, run(1, 30))
    assert [each.index for each in log.read(4, 3, 1 << 20)] == [4, 5, 6]
    assert [each.index for each in log.read(4, 100, 45)] == [4, 5, 6]
    assert [each.index for each in log.read(30, 100, 0)] == [30]
    assert log.read(0, 1, 1) == log.read(31, 1, 1) == []


def test_other_entries_take_the_place_of_a_suffix(tmp_path: Path) -> None:
    """Also of one that reaches back over several segments, and of all there is; a restart finds the same."""
    log = make(tmp_path / "log")
    for first in range(1, 40, 4):
        put(log, run(first, first + 3))
    for first, last, epoch in ((38, 45, 2), (11, 12, 3), (1, 3, 4)):
        kept = [each for each in held(log) if each.index < first]
        put(log, run(first, last, epoch))
        assert held(log) == [*kept, *run(first, last, epoch)]
        assert found(copied(tmp_path / "log", tmp_path / "copy")) == (1, 0, held(log))


def test_a_prefix_goes_by_whole_segments_that_nobody_needs(tmp_path: Path) -> None:
    """Not what is behind the index, not what a reader has pinned, not the segment that is written to."""
    log = make(tmp_path / "log")
    for first in range(1, 41):
        put(log, [entry(first)])
    trim(log, 0)
    assert log.first == 1
    pin = log.pin(9)
    trim(log, 40)
    assert 1 < log.first <= 9
    pin.index = 20
    trim(log, 40)
    assert 9 < log.first <= 20
    pin.let_go()
    trim(log, 30)
    assert 20 < log.first <= 31
    trim(log, 40)
    assert len(segments(tmp_path / "log")) <= 2, "the one that is written to, and the next"
    assert held(log) == run(log.first, 40)
    assert log.epoch_at(log.first - 1) == 1
    assert found(copied(tmp_path / "log", tmp_path / "copy")) == (log.first, 1, held(log))


def test_what_was_found_stays_readable_when_it_is_trimmed(tmp_path: Path) -> None:
    """A thread that reads for a replica meets no closed file."""
    log = make(tmp_path / "log")
    for index in range(1, 21):
        put(log, [entry(index)])
    located = log.locate(1, 3, 1 << 20)
    trim(log, 20)
    assert log.first > 3
    assert [each for piece in located for each in piece.read()] == run(1, 3)


def test_a_log_begun_anew_holds_nothing_of_before(tmp_path: Path) -> None:
    """Behind a checkpoint: the entry before the first is known by its epoch, and a crash before the old segments went changes nothing."""
    log = make(tmp_path / "log")
    for index in range(1, 21):
        put(log, [entry(index)])
    before = copied(tmp_path / "log", tmp_path / "before")
    log.reset(500, 7)
    assert (log.first, log.last, log.last_epoch, log.epoch_at(500), held(log)) == (501, 500, 7, 7, [])
    assert found(copied(tmp_path / "log", tmp_path / "copy")) == (501, 7, [])
    for old in segments(before):
        mixed = copied(tmp_path / "log", tmp_path / "copy")
        # Unlinked oldest first: this one and all behind it are still there.
        for each in segments(before):
            if each.name >= old.name and not (mixed / each.name).exists():
                (mixed / each.name).write_bytes(each.read_bytes())
        assert found(mixed) == (501, 7, [])
        assert len(segments(mixed)) == 1
    put(log, run(501, 503, 8))
    assert found(copied(tmp_path / "log", tmp_path / "copy")) == (501, 7, run(501, 503, 8))


def test_a_log_can_be_begun_anew_while_it_is_synced(tmp_path: Path) -> None:
    """Both write the promise and make segments: they take turns, and what is there afterwards is what was begun."""
    log = make(tmp_path / "log")
    with ThreadPoolExecutor(1) as thread:
        for turn in range(1, 30):
            log.append(run(log.last + 1, log.last + 9))
            log.promise(turn)
            syncing = thread.submit(log.sync)
            log.reset(turn * 100, 1)
            syncing.result()
            assert held(log) == []
            log.append(run(turn * 100 + 1, turn * 100 + 5))
            log.sync()
            assert found(copied(tmp_path / "log", tmp_path / "copy")) == (turn * 100 + 1, 1, run(turn * 100 + 1, turn * 100 + 5))
            assert again_promised(tmp_path) == turn


def test_a_crash_while_a_segment_is_made_or_dropped_loses_nothing(tmp_path: Path) -> None:
    """A part of a segment, a new one with nothing in it, old ones that were not unlinked yet."""
    log = make(tmp_path / "log")
    for index in range(1, 11):
        put(log, [entry(index)])
    before = copied(tmp_path / "log", tmp_path / "before")
    (before / "0000000000000009.seg.part").write_bytes(b"HOLD")
    assert found(before) == (1, 0, run(1, 10))
    assert not list(before.glob("*.part"))

    files = len(segments(tmp_path / "log"))
    while len(segments(tmp_path / "log")) == files:
        put(log, [entry(log.last + 1)])
    made = segments(tmp_path / "log")[-1]
    assert made.stat().st_size == SEGMENT_HEAD_BYTES, "the next segment is there before it is needed"
    assert found(copied(tmp_path / "log", tmp_path / "copy")) == (1, 0, run(1, log.last))

    all_of_it = held(log)
    old = segments(copied(tmp_path / "log", tmp_path / "before"))
    trim(log, log.last)
    assert len(old) > 3
    for each in old[1:]:
        if not (tmp_path / "log" / each.name).exists():
            (tmp_path / "log" / each.name).write_bytes(each.read_bytes())
    first, _, entries = found(copied(tmp_path / "log", tmp_path / "copy"))
    assert entries == all_of_it[first - 1 :]


def test_a_log_is_open_once(tmp_path: Path) -> None:
    """The lock goes with the log that has it."""
    log = make(tmp_path / "log")
    with pytest.raises(StoreInUse, match="another process has this log open"):
        again(tmp_path / "log")
    log.close()
    again(tmp_path / "log").close()


def test_a_log_that_is_missing_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """An emptied disk must not count as a copy: who says `new` has the right to."""
    with pytest.raises(StoreDamaged, match="is missing"):
        again(tmp_path / "none")
    make(tmp_path / "log").close()
    segments(tmp_path / "log")[0].unlink()
    with pytest.raises(StoreDamaged, match="is missing"):
        again(tmp_path / "log")


def test_a_log_of_another_shard_or_of_a_later_incarnation_is_refused(tmp_path: Path) -> None:
    """A directory that was moved to a wrong place; one of an earlier incarnation goes on."""
    make(tmp_path / "log").close()
    for shard, incarnation in ((SHARD + 1, INCARNATION), (SHARD, INCARNATION - 1)):
        with pytest.raises(StoreDamaged, match=f"it is of shard {SHARD} and incarnation {INCARNATION}"):
            open_log(str(tmp_path / "log"), shard, incarnation)
    log = open_log(str(tmp_path / "log"), SHARD, INCARNATION + 5, limits=SMALL)
    for index in range(1, 15):
        put(log, [entry(index)])
    log.close()
    with pytest.raises(StoreDamaged, match=f"incarnation {INCARNATION + 5}"):
        again(tmp_path / "log")


def test_a_write_is_visible_at_once_and_a_promise_too(tmp_path: Path) -> None:
    """A sync makes them last; the promise of an epoch is never below that of the last entry."""
    log = make(tmp_path / "log")
    assert (log.promised, log.rid, log.configuration) == (0, RID, None)
    log.append(run(1, 2, 3))
    log.promise(4)
    assert (log.last, log.promised) == (2, 4)
    assert again_promised(tmp_path) == 3
    log.remember(first_record(frozenset((RID,)), "nonce"))
    log.sync()
    log.close()
    assert again_promised(tmp_path) == 4
    log = again(tmp_path / "log")
    assert (log.rid, log.configuration) == (RID, first_record(frozenset((RID,)), "nonce"))
    with pytest.raises(AssertionError, match="epoch 3 promised after 4"):
        log.promise(3)


def again_promised(tmp_path: Path) -> int:
    log = again(copied(tmp_path / "log", tmp_path / "copy"))
    log.close()
    return log.promised


def test_a_log_is_not_made_over_another(tmp_path: Path) -> None:
    """Whoever says `new` twice has lost track; one that was being made when the process died is made again."""
    make(tmp_path / "log").close()
    with pytest.raises(StoreFailed, match="a log is there already"):
        make(tmp_path / "log")
    (tmp_path / "log" / "promise").unlink()
    with pytest.raises(StoreDamaged, match="no segment or no promise"):
        again(tmp_path / "log")
    make(tmp_path / "log").close()


@pytest.mark.parametrize(
    ("entries", "story"),
    [
        (run(12, 12), "entry 12 for a log from 1 to 10"),
        (run(0, 2), "entry 0 for a log from 1 to 10"),
        ([entry(11), entry(13)], "entry 13 behind 11"),
        ([entry(11, 3), entry(12, 2)], "entry 12 of epoch 2 behind one of 3"),
        ([entry(11, 0)], "entry 11 of epoch 0 behind one of 1"),
    ],
)
def test_entries_that_do_not_fit_are_a_mistake_of_the_caller(tmp_path: Path, entries: list[Entry], story: str) -> None:
    """Nothing of them reaches the disk, and the log goes on."""
    log = make(tmp_path / "log")
    put(log, run(1, 10))
    with pytest.raises(AssertionError, match=story):
        put(log, entries)
    put(log, run(11, 11))
    assert held(log) == run(1, 11)
