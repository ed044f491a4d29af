"""Sequence numbers, packet identifiers and ranges, against a plain set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.ranges import RangeLog, Terms
from sessions.seqno import SPAN_MAX, Track


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("committed", [0, 5, 32_700, 32_766, 32_767, 32_768, 65_533, 65_535, 10**9])
def test_an_identifier_names_one_open_number(qos: int, committed: int) -> None:
    """Over every wrap: identifiers of the largest span are different, in the track's half, and lead back to their number."""
    track = Track(qos, committed, committed + 1, committed)
    packet_ids = track.packet_ids(committed + 1, SPAN_MAX)
    assert len(set(packet_ids)) == SPAN_MAX
    assert all(0 < packet_id < 0x8000 if qos == 1 else 0x8000 <= packet_id < 0x10000 for packet_id in packet_ids)
    for at in (0, 1, SPAN_MAX // 2, SPAN_MAX - 1):
        number = committed + 1 + at
        assert track.packet_id(number) == packet_ids[at]
        assert track.number_of(packet_ids[at]) == number
    if qos == 2:
        assert packet_ids[0] == 0x8000 | (committed + 1) & 0x7FFF


@given(
    qos=st.sampled_from([1, 2]),
    start=st.sampled_from([0, 32_760, 65_530]),
    runs=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=12, unique=True), max_size=12),
)
def test_numbers_finish_in_any_order(qos: int, start: int, runs: list[list[int]]) -> None:
    """Runs are finished at once or one by one, with the same result: committed is the prefix without a gap."""
    track = Track(qos, start, start + 13, start)
    track.reached(start + 12)
    finished: set[int] = set()
    for run in runs:
        numbers = [start + at for at in run]
        if not track.finish_run([track.packet_id(number) for number in numbers]):
            for number in numbers:
                assert track.is_open(number) == (number not in finished)
                if track.is_open(number):
                    track.finish(number)
                finished.add(number)
        else:
            assert not finished & set(numbers)
        finished.update(numbers)
        prefix = start
        while prefix + 1 in finished:
            prefix += 1
        assert track.committed == prefix
        assert all(track.is_finished(number) == (number in finished) for number in range(start + 1, start + 13))
        track.check()


def test_a_run_that_is_not_the_oldest_open_one_is_not_taken_at_once() -> None:
    """A gap before it, a gap inside, more than was sent, or something finished out of order."""
    track = Track(1, 0, 10, 0)
    track.reached(5)
    for packet_ids in ([2, 3], [1, 3], [1, 2, 4, 3], [1, 2, 3, 4, 5, 6], [1, 1]):
        assert not track.finish_run(packet_ids) and track.committed == 0
    track.finish(3)
    assert not track.finish_run([1, 2])


def test_adjacent_ranges_grow_only_while_no_commit_has_them() -> None:
    """One row for many small frames; a new one after a commit, under new terms, over a bound, or on another shard."""
    one, two = Track(1), Track(2)
    log = RangeLog(one, two, 1, messages_max=5, streams_max=2)
    terms = Terms(9, b"#", 2, 0, 0)

    def add(after: int, count1: int, count2: int, stream: bytes = b"a", shard: int = 0, under: Terms = terms, merged: bool = True) -> int:
        log.add(under, shard, merged, [(1, stream)], after, after + 5, count1, count2, [], 1)
        log.check()
        return len(log.open)

    assert [add(0, 1, 0), add(10, 0, 1), add(20, 2, 0, b"b")] == [1, 1, 1]
    assert [(r.first1, r.count1, r.first2, r.count2, r.after, r.upto, r.streams) for r in log.open.values()] == [
        (1, 3, 1, 1, 0, 25, [(1, b"a"), (1, b"b")])
    ]
    assert add(30, 1, 0, b"c") == 2, "a third stream"
    assert add(40, 4, 0, b"c") == 2
    assert add(50, 1, 0, b"c") == 3, "a sixth message"
    assert len(log.take_fresh()) == 3
    assert add(60, 1, 0, b"c") == 4, "the row is on its way"
    assert add(70, 1, 0, b"c", shard=1) == 5
    assert add(80, 1, 0, b"c", shard=1, under=Terms(9, b"#", 2, 0, 0)) == 6
    assert add(90, 1, 0, b"c", shard=1, merged=False) == 7


def test_a_range_ends_when_both_tracks_have_passed_it() -> None:
    """A slow message on one track holds its own range, and those behind it on the same track, nothing else."""
    one, two = Track(1), Track(2)
    log = RangeLog(one, two, 1, 100, 10)
    terms = Terms(9, b"#", 2, 0, 0)
    log.add(terms, 0, False, [(1, b"a")], 0, 5, 1, 1, [], 1)
    log.take_fresh()
    log.add(terms, 0, False, [(1, b"a")], 5, 10, 0, 2, [], 1)
    one.reached(1)
    two.reached(3)
    for number in (1, 2, 3):
        two.finish(number)
    assert not log.progressed2(), "the second was never written"
    assert list(log.open) == [1]
    one.finish(1)
    assert log.progressed1()
    assert (list(log.open), log.take_dead()) == ([], [1])
    log.check()
