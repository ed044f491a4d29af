"""What of a log is on its disk, and the twin of the log that forgets."""

from __future__ import annotations

import random

from shards.replication.entry import Entry, Kind
from shards.replication.events import StartSync
from shards.replication.writing import Writing
from tests.replication.disk import MemoryLog


def entries(epoch: int, first: int, last: int) -> list[Entry]:
    return [Entry(index, epoch, Kind.RECORD, b"%d" % epoch) for index in range(first, last + 1)]


def synced(writing: Writing, log: MemoryLog) -> None:
    writing.sync_started()
    log.sync()
    writing.sync_done()


def test_what_a_restart_finds_is_not_on_the_disk_before_a_sync() -> None:
    """It may be in the page cache only."""
    log = MemoryLog()
    log.append(entries(1, 1, 3))
    writing = Writing(log)
    assert (writing.stable, writing.wanted()) == (0, [StartSync()])
    synced(writing, log)
    assert (writing.stable, writing.wanted()) == (3, [])


def test_one_sync_at_a_time_covers_what_was_written_when_it_began() -> None:
    """What comes meanwhile asks for the next."""
    log = MemoryLog()
    writing = Writing(log)
    assert writing.wanted() == [StartSync()] and writing.wanted() == []
    writing.append(entries(1, 1, 2))
    writing.sync_started()
    writing.append(entries(1, 3, 3))
    assert writing.wanted() == []
    writing.sync_done()
    assert (writing.stable, writing.wanted()) == (2, [StartSync()])


def test_what_is_replaced_while_a_sync_runs_is_not_covered_by_it() -> None:
    """The sync knew another entry there."""
    log = MemoryLog()
    writing = Writing(log)
    writing.wanted()
    writing.append(entries(1, 1, 5))
    writing.sync_started()
    writing.append(entries(2, 3, 4))
    writing.sync_done()
    assert writing.stable == 2
    writing.wanted()
    synced(writing, log)
    assert writing.stable == 4


def test_a_promise_counts_when_it_is_on_the_disk() -> None:
    """As entries do."""
    log = MemoryLog()
    writing = Writing(log)
    writing.promise(4)
    writing.wanted()
    assert writing.stable_epoch == 0
    synced(writing, log)
    assert writing.stable_epoch == 4


def test_what_is_said_to_be_on_the_disk_is_there_after_a_power_cut() -> None:
    """Random writes, syncs and cuts: stable entries and promises survive, and what survives is what was written up to some moment."""
    rng = random.Random(6)
    for _ in range(300):
        log = MemoryLog()
        writing = Writing(log)
        epoch, covered, state, said = 1, 0, "idle", [(0, 0)]
        for _ in range(rng.randint(1, 30)):
            match rng.randrange(5):
                case 0 | 1:
                    first = rng.randint(max(1, log.last - 2), log.last + 1)
                    epoch += first <= log.last
                    writing.append(entries(epoch, first, first + rng.randint(0, 2)))
                case 2:
                    writing.promise(epoch)
                case 3 if state == "running":
                    log.sync_end(covered)
                    writing.sync_done()
                    state = "idle"
                case _:
                    if state == "asked":
                        writing.sync_started()
                        covered, state = log.sync_begin(), "running"
                    elif writing.wanted():
                        state = "asked"
            writing.check()
            said.append((log.last, log.promised))
        whole = {index: log.epoch_at(index) for index in range(1, writing.stable + 1)}
        log.crash(True, rng.randint(0, log.unsynced))
        assert all(log.epoch_at(index) == epoch for index, epoch in whole.items())
        assert log.promised >= writing.stable_epoch
        assert (log.last, log.promised) in said
