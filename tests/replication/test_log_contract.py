"""What the core counts on of a log: the one on disk, and the one in memory that the simulation runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shards.replication.ports import Log
from tests.replication.disk import MemoryLog
from tests.replication.logs import again, copied, entry, make, quick, run

Crashed = Callable[[Log], Log]
"""What a process finds after this log was killed, the page cache kept."""


@pytest.fixture(params=["on disk", "in memory"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Log, Crashed]]:
    if request.param == "in memory":
        memory = MemoryLog()

        def crashed(log: Log) -> Log:
            memory.crash(power=False)
            return memory

        yield memory, crashed
        return
    with quick() as path:
        yield make(path / "log"), lambda log: again(copied(path / "log", path / "copy"))


def everything(log: Log) -> list[tuple[int, int]]:
    return [(each.index, each.epoch) for each in log.read(log.first, 1 << 20, 1 << 30)] if log.first <= log.last else []


def test_an_empty_log_begins_at_one(pair: tuple[Log, Crashed]) -> None:
    """The entry before the first has epoch 0, and nothing is promised."""
    log, _ = pair
    assert (log.first, log.last, log.promised, log.epoch_at(0), log.epoch_at(1)) == (1, 0, 0, 0, None)


def test_writes_are_visible_at_once_and_there_after_a_sync(pair: tuple[Log, Crashed]) -> None:
    """Entries and promise."""
    log, crashed = pair
    log.append(run(1, 5))
    log.promise(3)
    assert (log.last, log.promised, log.epoch_at(5)) == (5, 3, 1)
    log.sync()
    again = crashed(log)
    assert (everything(again), again.promised) == ([(index, 1) for index in range(1, 6)], 3)


def test_entries_take_the_place_of_what_was_there_from_the_first_on(pair: tuple[Log, Crashed]) -> None:
    """Fewer than were there, and more."""
    log, crashed = pair
    log.append(run(1, 9))
    log.append(run(4, 5, 2))
    assert everything(log) == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]
    log.append(run(5, 8, 3))
    log.sync()
    assert everything(crashed(log)) == [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3), (7, 3), (8, 3)]


def test_reading_ends_behind_the_entry_with_which_the_bytes_are_reached(pair: tuple[Log, Crashed]) -> None:
    """At least one; at most so many."""
    log, _ = pair
    log.append([entry(index, payload=bytes(10)) for index in range(1, 11)])
    for first, entries_max, bytes_max, wanted in (
        (1, 3, 1000, 3),
        (1, 9, 20, 2),
        (1, 9, 21, 3),
        (5, 9, 1, 1),
        (10, 9, 99, 1),
        (11, 9, 99, 0),
    ):
        found = log.read(first, entries_max, bytes_max)
        assert [each.index for each in found] == list(range(first, first + wanted)), (first, entries_max, bytes_max)


def test_what_is_trimmed_may_go_and_what_is_behind_stays(pair: tuple[Log, Crashed]) -> None:
    """The epoch before the first entry stays known, and so after a restart."""
    log, crashed = pair
    for index in range(1, 41):
        log.append([entry(index, 1 + index // 10)])
        log.sync()
    log.trim(25)
    log.sync()
    for each in (log, crashed(log)):
        assert each.first <= 26
        assert each.last == 40
        assert each.epoch_at(each.first - 1) is not None
        assert everything(each) == [(index, 1 + index // 10) for index in range(each.first, 41)]


def test_a_log_that_is_begun_anew_goes_on_behind_the_checkpoint(pair: tuple[Log, Crashed]) -> None:
    """Durable without a sync, and so is what was promised before."""
    log, crashed = pair
    log.append(run(1, 5))
    log.sync()
    log.promise(7)
    log.reset(100, 6)
    assert (log.first, log.last, log.epoch_at(100), log.promised) == (101, 100, 6, 7)
    again = crashed(log)
    assert (again.first, again.last, again.epoch_at(100), again.promised) == (101, 100, 6, 7)
    again.append([entry(101, 7)])
    assert everything(again) == [(101, 7)]


def test_a_promise_does_not_fall(pair: tuple[Log, Crashed]) -> None:
    """The same again is none."""
    log, _ = pair
    log.promise(4)
    log.promise(4)
    with pytest.raises(AssertionError, match="epoch 3 promised after 4"):
        log.promise(3)


def test_an_entry_that_leaves_a_gap_is_a_mistake_of_the_caller(pair: tuple[Log, Crashed]) -> None:
    """Nothing of it is there."""
    log, _ = pair
    log.append(run(1, 3))
    with pytest.raises(AssertionError, match="entry 5"):
        log.append([entry(5)])
    assert log.last == 3
