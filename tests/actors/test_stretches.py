"""Counting what lies behind a place: as many as there are, for whatever places in whatever order, and each message read about once."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.inquiry.stretches import CHUNK_ROWS, NONE, Behind, Counted, Some, Stretches
from shards.layouts.port import Stream

EVERYTHING = 1 << 40


def bytes_of(positions: list[int]) -> int:
    """The messages of a log differ in size."""
    return sum(1 + position % 7 for position in positions)


class Log:
    """Positions of the messages of a stream, and how many of them were read. chunk: the most that one read gives."""

    def __init__(self, positions: list[int], chunk: int) -> None:
        self.positions = sorted(positions)
        self.chunk = chunk
        self.read = self.reads = 0

    def reading(self, after: int, upto: int) -> Some:
        begin, end = bisect_right(self.positions, after), bisect_right(self.positions, upto)
        found = self.positions[begin : min(end, begin + self.chunk)]
        self.read += len(found)
        self.reads += 1
        done = len(found) == end - begin
        return Some(len(found), upto if done else found[-1], found[0] if found else NONE, bytes_of(found))

    def behind(self, place: int, upto: int) -> Behind:
        found = [position for position in self.positions if place < position <= upto]
        return Behind(len(found), True, found[0] if found else NONE, bytes_of(found))


@given(
    st.lists(st.integers(0, 300), unique=True),
    st.lists(st.tuples(st.integers(-1, 300), st.integers(0, 20), st.integers(1, 50) | st.none()), min_size=1, max_size=30),
    st.integers(1, 20),
)
def test_every_place_is_told_what_lies_behind_it(positions: list[int], asked: list[tuple[int, int, int | None]], chunk: int) -> None:
    """Whatever was asked before, while messages come; who wants enough only is told at least so many when there are more."""
    log, counting, upto = Log(positions, chunk), Stretches(), 100
    for place, more, enough in asked:
        upto = min(300, upto + more)
        if place >= upto:
            continue
        wanted = log.behind(place, upto)
        found = counting.behind(place, upto, enough or EVERYTHING, log.reading)
        assert found.first == wanted.first
        if enough is None or found.whole:
            assert found == wanted
        else:
            assert enough <= found.rows <= wanted.rows


def test_a_message_is_read_about_once() -> None:
    """By forty that wait at different places, and by all of them again when some more have come."""
    log, counting = Log(list(range(0, 100_000, 2)), CHUNK_ROWS), Stretches()
    places = [(number * 7_919) % 100_000 for number in range(40)]
    for place in places:
        assert counting.behind(place, 100_000, EVERYTHING, log.reading) == log.behind(place, 100_000)
    once = log.read
    assert 50_000 <= once < 150_000
    for place in places:
        counting.behind(place, 100_000, EVERYTHING, log.reading)
    assert log.read == once
    log.positions += range(100_001, 100_101)
    for place in places:
        assert counting.behind(place, 200_000, EVERYTHING, log.reading).rows == log.behind(place, 200_000).rows
    assert log.read == once + 100


def test_marks_do_not_grow_with_how_often_somebody_looks() -> None:
    """A place that stands still, behind which a message comes between two looks."""
    log, counting = Log([0], CHUNK_ROWS), Stretches()
    for upto in range(10, 10_000, 10):
        log.positions.append(upto)
        assert counting.behind(5, upto, EVERYTHING, log.reading).rows == upto // 10
    assert counting.marks <= 3


def test_who_waits_in_one_gap_between_messages_costs_one_mark_and_no_reading() -> None:
    """From both sides, in any order; forty places in each of ten gaps, which begin one before a message."""
    log, counting = Log([100 * number + 1 for number in range(1, 11)], CHUNK_ROWS), Stretches()
    places = [100 * gap + (number * 17) % 100 for number in range(40) for gap in range(10)]
    for place in places[:300]:
        assert counting.behind(place, 2_000, EVERYTHING, log.reading) == log.behind(place, 2_000)
    reads, marks = log.reads, counting.marks
    for place in places[300:]:
        assert counting.behind(place, 2_000, EVERYTHING, log.reading) == log.behind(place, 2_000)
    assert log.reads - reads <= 10 and marks <= counting.marks <= 12
    for place in reversed(range(1, 1_100)):
        assert counting.behind(place, 2_000, EVERYTHING, log.reading) == log.behind(place, 2_000)
    once = log.reads
    for place in range(1_100):
        assert counting.behind(place, 2_000, EVERYTHING, log.reading) == log.behind(place, 2_000)
    assert log.reads <= once + 1


def test_what_is_gone_is_forgotten_and_there_is_a_bound() -> None:
    """Of dropped generations at once; and everything, when it is more than may be kept."""
    log, counted, stream = Log([1, 2, 3], CHUNK_ROWS), Counted(marks_max=4), Stream(b"s")
    for shard, generation in ((0, 1), (0, 2), (1, 1)):
        counted.of(shard, generation, stream).behind(0, 10, EVERYTHING, log.reading)
    counted.keep(0, {2})
    assert [counted.of(*at, stream).marks for at in ((0, 1), (0, 2), (1, 1))] == [0, 2, 2]
    counted.bound()
    assert counted.of(0, 2, stream).marks == 2
    counted.of(1, 1, stream).behind(2, 10, EVERYTHING, log.reading)
    counted.bound()
    assert [counted.of(*at, stream).marks for at in ((0, 2), (1, 1))] == [0, 0]


@pytest.mark.parametrize("enough", [1, 10_000, 25_000])
def test_counting_ends_when_there_are_enough_and_goes_on_from_there(enough: int) -> None:
    """The next that asks reads what was not read yet."""
    log, counting = Log(list(range(100_000)), CHUNK_ROWS), Stretches()
    first = counting.behind(-1, 200_000, enough, log.reading)
    assert not first.whole and enough <= first.rows < enough + CHUNK_ROWS
    assert counting.behind(-1, 200_000, EVERYTHING, log.reading) == Behind(100_000, True, 0, bytes_of(list(range(100_000))))
    assert log.read == 100_000
