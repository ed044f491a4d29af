"""Positions and age (shards/clock.py): no clock can move them back, and no implausible one forward."""

from __future__ import annotations

import random

import pytest

from shards.clock import BACKWARD_TOLERATED_MS, FORWARD_BELIEVED_MS, AgeClock, AgeMark, ClockJump, PositionClock, Reading

HOUR_MS = 3_600_000
WALL_MS = 1_760_000_000_000


def test_positions_follow_elapsed_time() -> None:
    # Property: a position counts microseconds since the last one of the run before.
    clock = PositionClock(1_000)
    clock.at(50)
    assert clock.take() == 1_001, "the first reading stands for the last position"
    clock.at(350)
    assert clock.take() == 1_300
    assert clock.last == 1_300


@pytest.mark.parametrize("seed", range(20))
def test_positions_only_grow_whatever_the_readings_do(seed: int) -> None:
    # Property: strictly increasing over jumps, standstill, going back, and restarts from any committed position.
    rng = random.Random(seed)
    committed = 0
    seen: list[int] = []
    for _ in range(6):
        clock = PositionClock(committed)
        elapsed = rng.randint(0, 10**12)
        taken: list[int] = []
        for _ in range(40):
            elapsed = max(0, elapsed + rng.choice((0, 1, 1000, -500, 10**9)))
            clock.at(elapsed)
            taken.extend(clock.take() for _ in range(rng.randint(0, 4)))
        assert taken == sorted(set(taken))
        assert all(position > committed for position in taken)
        if taken:
            kept = taken[: rng.randint(0, len(taken))]
            seen += kept
            committed = kept[-1] if kept else committed
    assert seen == sorted(set(seen))


def test_a_burst_beyond_one_a_microsecond_still_gets_distinct_positions() -> None:
    # Property: max(last + 1, elapsed); time catches up afterwards.
    clock = PositionClock(0)
    clock.at(0)
    assert [clock.take() for _ in range(5)] == [1, 2, 3, 4, 5]
    clock.at(3)
    assert clock.take() == 6
    clock.at(100)
    assert clock.take() == 100


def at(boottime_ms: int, wall_ms: int = WALL_MS, boot: str = "boot-1") -> Reading:
    return Reading(wall_ms, boot, boottime_ms)


def test_a_new_store_has_age_0() -> None:
    # Property: age counts from the making of the store.
    clock = AgeClock(None, at(5_000))
    assert clock.age_ms(at(5_000)) == 0
    assert clock.age_ms(at(7_000)) == 2_000
    assert not clock.suspended


@pytest.mark.parametrize("step_ms", [-(10**12), -HOUR_MS, HOUR_MS, 10**13])
def test_a_wall_step_within_a_boot_moves_no_age(step_ms: int) -> None:
    # Property: within a boot only CLOCK_BOOTTIME counts, over restarts of the process as well.
    clock = AgeClock(None, at(0))
    assert clock.age_ms(at(1_000, WALL_MS + step_ms)) == 1_000
    mark = clock.mark(at(2_000, WALL_MS + step_ms))
    again = AgeClock(mark, at(60_000, WALL_MS - step_ms))
    assert again.age_ms(at(61_000)) == 61_000
    assert not again.suspended


@pytest.mark.parametrize(
    ("off_ms", "counted_ms"),
    [(0, 0), (HOUR_MS, HOUR_MS), (FORWARD_BELIEVED_MS, FORWARD_BELIEVED_MS), (-1, 0), (-BACKWARD_TOLERATED_MS, 0)],
)
def test_a_plausible_wall_clock_counts_the_time_switched_off(off_ms: int, counted_ms: int) -> None:
    # Property: over a reboot the wall says how long it was; small drift backwards counts as nothing.
    mark = AgeMark(10_000, at(99_000), False)
    clock = AgeClock(mark, at(3_000, WALL_MS + off_ms, "boot-2"))
    assert not clock.suspended and clock.jump is None
    assert clock.age_ms(at(3_500, WALL_MS, "boot-2")) == 10_000 + counted_ms + 500


@pytest.mark.parametrize("off_ms", [FORWARD_BELIEVED_MS + 1, -BACKWARD_TOLERATED_MS - 1, -WALL_MS])
def test_an_implausible_jump_suspends_until_accepted(off_ms: int) -> None:
    # Property: nothing may expire by a clock nobody believes; the suspension outlives restarts and reboots; the age stays sane.
    mark = AgeMark(10_000, at(99_000), False)
    clock = AgeClock(mark, at(3_000, WALL_MS + off_ms, "boot-2"))
    assert clock.suspended
    assert clock.jump == ClockJump(WALL_MS, WALL_MS + off_ms)
    assert clock.age_ms(at(4_000, WALL_MS, "boot-2")) == 11_000
    mark = AgeMark.decode(clock.mark(at(5_000, WALL_MS, "boot-2")).encode())
    assert AgeClock(mark, at(6_000, WALL_MS, "boot-2")).suspended
    rebooted = AgeClock(mark, at(10, WALL_MS + HOUR_MS, "boot-3"))
    assert rebooted.suspended
    assert rebooted.age_ms(at(10, WALL_MS, "boot-3")) == 12_000
    rebooted.accept()
    assert not rebooted.suspended
    mark = rebooted.mark(at(20, WALL_MS + HOUR_MS, "boot-3"))
    assert not AgeClock(mark, at(5, WALL_MS + 2 * HOUR_MS, "boot-4")).suspended


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS, 1_001])
def test_a_step_of_the_wall_clock_is_marked_at_once(step_ms: int) -> None:
    # Property: else, after a reboot, the step since the last mark would count as time that passed. Drift is no step.
    clock = AgeClock(None, at(0))
    assert clock.wants_mark(at(0, WALL_MS))
    clock.mark(at(0, WALL_MS))
    assert not clock.wants_mark(at(8_999, WALL_MS + 8_999 + 999))
    assert clock.wants_mark(at(9_000, WALL_MS + 9_000))
    assert clock.wants_mark(at(10, WALL_MS + 10 + step_ms))
    mark = clock.mark(at(10, WALL_MS + 10 + step_ms))
    assert not clock.wants_mark(at(20, WALL_MS + 20 + step_ms))
    assert AgeClock(mark, at(0, WALL_MS + 60_010 + step_ms, "boot-2")).age_ms(at(0, 0, "boot-2")) == 60_010


def test_the_age_never_goes_back() -> None:
    # Property: readings that come out of order, and a boottime behind the mark's, give the newest age again.
    clock = AgeClock(None, at(0))
    assert clock.age_ms(at(500)) == 500
    assert clock.age_ms(at(400)) == 500
    behind = AgeClock(AgeMark(700, at(1_000), False), at(900))
    assert behind.age_ms(at(900)) == 700


def test_a_reading_of_another_boot_is_a_mistake() -> None:
    # Property: boottimes of two boots are never subtracted.
    clock = AgeClock(None, at(0))
    with pytest.raises(AssertionError, match="boot-2"):
        clock.age_ms(at(10, boot="boot-2"))


def test_the_bytes_of_a_mark() -> None:
    # Property: round trip, golden bytes of version 1, and a newer version is refused.
    mark = AgeMark(5, Reading(6, "b", 7), True)
    assert AgeMark.decode(mark.encode()) == mark
    assert mark.encode().hex() == "01" + "9505" + "06" + "a162" + "07" + "c3"
    with pytest.raises(ValueError, match="version"):
        AgeMark.decode(b"\x02" + mark.encode()[1:])
