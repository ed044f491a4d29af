"""Steady time (shards/steady.py): no step of the wall clock moves it, and people are still shown the wall clock."""

from __future__ import annotations

import pytest

from shards.clock import AgeMark, ClockJump, Reading
from shards.steady import STEPS_KEPT, SteadyClock, WallRow, WallStep

HOUR_MS = 3_600_000
WALL_MS = 1_760_000_000_000


def test_in_a_new_store_it_is_the_wall_clock() -> None:
    # Property: as long as nobody sets the clock, the two are one, and nothing is noted.
    clock = SteadyClock(None, None, 0, WALL_MS)
    assert clock.steady_ms(0) == WALL_MS
    for age_ms in (5, 1_000, 30 * 24 * HOUR_MS):
        assert clock.steady_ms(age_ms) == WALL_MS + age_ms
        assert clock.look(7, age_ms, WALL_MS + age_ms + 900) is None
    assert clock.row == WallRow(WALL_MS)


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS, 10 * 365 * 24 * HOUR_MS, 1_001])
def test_a_step_of_the_wall_clock_moves_it_by_nothing(step_ms: int) -> None:
    # Property: the step is told once, is remembered with its position, and steady time goes on; a restart changes none of it.
    clock = SteadyClock(None, None, 0, WALL_MS)
    assert clock.look(50, 10, WALL_MS + 10 + step_ms) == ClockJump(WALL_MS + 10, WALL_MS + 10 + step_ms)
    assert clock.look(51, 20, WALL_MS + 20 + step_ms) is None
    assert clock.steady_ms(20) == WALL_MS + 20
    again = SteadyClock(WallRow.decode(clock.row.encode()), None, 30, WALL_MS + 30 + step_ms)
    assert again.look(60, 30, WALL_MS + 30 + step_ms) is None
    assert again.steady_ms(30) == WALL_MS + 30
    assert again.row.wall_ms(49, WALL_MS + 5) == WALL_MS + 5
    assert again.row.wall_ms(50, WALL_MS + 15) == WALL_MS + 15 + step_ms


def test_many_small_steps_are_one_when_they_come_to_a_second() -> None:
    # Property: what people are shown is never wrong by more than a second.
    clock = SteadyClock(None, None, 0, WALL_MS)
    assert [clock.look(n, n, WALL_MS + n + 300 * n) is not None for n in range(8)] == [False] * 4 + [True] + [False] * 3
    assert clock.row.steps == (WallStep(4, 1_200),)


def test_a_search_by_wall_clock_begins_early_enough() -> None:
    # Property: whatever was published when the clock showed this or more, also before a step back, is not before the answer.
    row = WallRow(WALL_MS, (WallStep(10, HOUR_MS), WallStep(20, -HOUR_MS)))
    for position, steady_ms in ((5, WALL_MS), (15, WALL_MS + 10), (25, WALL_MS + 20)):
        assert row.earliest_steady_ms(row.wall_ms(position, steady_ms)) <= steady_ms
    assert WallRow(WALL_MS).earliest_steady_ms(5) == 5
    assert WallRow(WALL_MS, (WallStep(1, -HOUR_MS),)).earliest_steady_ms(5) == 5


def test_a_store_from_before_goes_on_with_the_clock_of_its_mark() -> None:
    # Property: its messages carry the wall clock, and expire as they would have, also when it is wrong at this opening.
    mark = AgeMark(500, Reading(WALL_MS + 500, "a", 9), True)
    clock = SteadyClock(None, mark, 700, WALL_MS + 10**12)
    assert clock.steady_ms(700) == WALL_MS + 700
    assert clock.look(3, 700, WALL_MS + 10**12) is not None


def test_steps_without_end_are_forgotten_from_the_oldest() -> None:
    # Property: the row is bounded; what is older than all it knows is shown with the oldest.
    clock = SteadyClock(None, None, 0, WALL_MS)
    for n in range(STEPS_KEPT + 5):
        assert clock.look(10 * n, n, WALL_MS + (n + 1) * HOUR_MS) is not None
    assert len(clock.row.steps) == STEPS_KEPT and clock.row.steps[0].position == 50
    assert clock.row.wall_ms(0, WALL_MS) == WALL_MS + clock.row.steps[0].offset_ms


def test_the_bytes_of_a_row() -> None:
    # Property: round trip, golden bytes of version 1, and a newer version is refused.
    row = WallRow(5, (WallStep(6, -7),))
    assert WallRow.decode(row.encode()) == row
    assert row.encode().hex() == "01" + "92" + "05" + "91" + "92" + "06" + "f9"
    with pytest.raises(ValueError, match="version"):
        WallRow.decode(b"\x02" + row.encode()[1:])
