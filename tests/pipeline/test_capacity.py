"""What is stored, how fast it grows, when the quota is reached, who would lose what: reckoned from what the reader says."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.capacity import DAY_MS, Generation, amount, forecast, leases_behind, patterns_of, per_value_byte, present_rates, would_go

HOUR = DAY_MS // 24
NOW = 1_800_000_000_000
MIB = 1 << 20


def generation(
    number: int, *, created_h: float, sealed_h: float | None, rows: int | None, size: int | None, klass: str = "default", shard: int = 0
) -> Generation:
    """created_h, sealed_h: hours ago."""
    sealed = None if sealed_h is None else NOW - int(sealed_h * HOUR)
    return Generation(
        shard,
        number,
        klass,
        number * 100,
        None if sealed_h is None else number * 100 + 100,
        rows,
        size,
        NOW - int(created_h * HOUR),
        sealed,
    )


def test_cuts_become_generations() -> None:
    """As CUTS has them, of all shards."""
    row = {
        "id": 7,
        "class": "slow",
        "since": 5,
        "until": None,
        "rows": 3,
        "bytes": 9,
        "created_ms": 1,
        "sealed_ms": None,
        "layout": "x",
        "streams": 2,
    }
    found = Generation.all_of({"shards": {"0": {"generations": [row]}, "3": {"generations": [row | {"until": 8, "sealed_ms": 4}]}}})
    assert found == [Generation(0, 7, "slow", 5, None, 3, 9, 1, None), Generation(3, 7, "slow", 5, 8, 3, 9, 1, 4)]
    assert (found[0].over_ms, found[1].over_ms) == (1, 4)


def test_the_present_rate_is_that_of_the_newest_generations_of_each_class_and_shard() -> None:
    """What was a day ago does not count, and shards and classes add up."""
    generations = [
        generation(1, created_h=30, sealed_h=20, rows=10**9, size=10**9),
        generation(2, created_h=2, sealed_h=1, rows=3600, size=36_000),
        generation(3, created_h=1, sealed_h=None, rows=3600, size=36_000),
        generation(4, created_h=1, sealed_h=None, rows=7200, size=7200, klass="slow"),
        generation(1, created_h=1, sealed_h=None, rows=3600, size=3600, shard=1),
    ]
    rates = present_rates(generations, NOW)
    assert rates is not None and rates == pytest.approx((1 + 2 + 1, 10 + 2 + 1))


def test_what_nobody_counted_is_unknown_and_not_nothing() -> None:
    """Generations from before there were counts."""
    generations = [generation(1, created_h=2, sealed_h=None, rows=None, size=None)]
    assert present_rates(generations, NOW) is None
    found = forecast(generations, {"default": DAY_MS}, NOW, 5 * MIB, 10 * MIB)
    assert (found.rows_per_s, found.bytes_per_s, found.steady_bytes, found.days) == (None, None, None, None)


def test_the_quota_is_reached_when_more_comes_than_goes() -> None:
    """One day of 24 MiB an hour, nothing goes before a week: at 240 MiB of room that is in ten hours."""
    generations = [generation(1, created_h=24, sealed_h=None, rows=1000, size=24 * 24 * MIB)]
    used = 24 * 24 * MIB
    found = forecast(generations, {"default": 7 * DAY_MS}, NOW, used, used + 240 * MIB)
    assert found.days == pytest.approx(10 / 24)
    assert forecast(generations, {"default": 7 * DAY_MS}, NOW, used, None).days is None
    assert forecast(generations, {"default": 7 * DAY_MS}, NOW, used, used).days == 0


def test_what_is_dropped_in_time_makes_room() -> None:
    """The same rate, but as much goes each hour as comes: never; unless the last hour alone is too much."""
    generations = [generation(n, created_h=25 - n, sealed_h=24 - n, rows=1000, size=24 * MIB) for n in range(1, 24)]
    generations.append(generation(24, created_h=1, sealed_h=None, rows=1000, size=24 * MIB))
    used = 24 * 24 * MIB
    never = forecast(generations, {"default": DAY_MS}, NOW, used, used + 50 * MIB)
    assert never.days is None
    assert never.steady_bytes is not None and never.steady_bytes == pytest.approx(25 * 24 * MIB, rel=0.1)
    soon = forecast(generations, {"default": DAY_MS}, NOW, used, used + 20 * MIB)
    assert soon.days == pytest.approx(20 / 24 / 24, rel=0.05)
    # The shard's own clock says that all of it is held back for long.
    held = {(0, each.id): 30 * DAY_MS for each in generations}
    assert forecast(generations, {"default": DAY_MS}, NOW, used, used + 50 * MIB, held).days == pytest.approx(50 / 24 / 24, rel=0.05)


def test_each_class_has_its_own_rate_and_its_own_time() -> None:
    """What is written by the MiB and kept for an hour does not grow for the year that a little is kept."""
    generations = [
        generation(1, created_h=3, sealed_h=2, rows=1, size=60 * MIB),
        generation(2, created_h=2, sealed_h=1, rows=1, size=60 * MIB),
        generation(3, created_h=1, sealed_h=None, rows=1, size=60 * MIB),
        generation(4, created_h=1, sealed_h=None, rows=1, size=MIB, klass="year"),
    ]
    used = 181 * MIB
    found = forecast(generations, {"default": HOUR, "year": 365 * DAY_MS}, NOW, used, 100_000 * MIB)
    # Two hours of the one, a year and an hour of the other, and what is there of it.
    assert found.steady_bytes == pytest.approx((2 * 60 + 365 * 24 + 2 + 60) * MIB, rel=0.01)
    assert found.days is None
    soon = forecast(generations, {"default": HOUR, "year": 365 * DAY_MS}, NOW, used, 1182 * MIB)
    # Both grow for two hours, from then on the little.
    assert soon.days is not None and soon.days == pytest.approx((1182 - 180) / 24, rel=0.08)


def test_a_class_that_is_not_in_the_map_any_more_grows_no_more() -> None:
    """Nothing is current in it, so nothing comes."""
    over = [generation(1, created_h=3, sealed_h=1, rows=3600, size=3600 * 1000, klass="old")]
    current = generation(2, created_h=1, sealed_h=None, rows=3600, size=3600)
    assert present_rates([*over, current], NOW) == pytest.approx((1, 1))


def test_what_is_held_beyond_its_time_makes_no_room() -> None:
    """Who holds it now may hold it for long: a lease whose reader is away, a session."""
    generations = [
        generation(1, created_h=4, sealed_h=2, rows=1, size=100 * MIB),
        generation(2, created_h=2, sealed_h=None, rows=1, size=2 * MIB),
    ]
    used = 102 * MIB
    free = forecast(generations, {"default": HOUR}, NOW, used, used + MIB)
    held = forecast(generations, {"default": HOUR}, NOW, used, used + MIB, held={(0, 1)})
    assert free.steady_bytes is not None and held.steady_bytes is not None
    assert held.steady_bytes - free.steady_bytes == 100 * MIB
    assert free.days is None and held.days is not None


@given(st.integers(0, 1 << 32), st.integers(1, 20), st.integers(1, 200))
def test_the_forecast_is_the_first_moment_at_which_the_files_fill_the_quota(seed: int, count: int, room: int) -> None:
    """Looked at from each moment at which something goes, and from the one that is told: not before it, and then."""
    rng = random.Random(seed)
    edges = [*sorted((rng.uniform(0.1, 30) for _ in range(count)), reverse=True), 0.0]
    generations = [
        generation(n, created_h=edges[n] + 1, sealed_h=None if n == count else edges[n], rows=1, size=rng.randrange(1, 60) * MIB)
        for n in range(count + 1)
    ]
    used = sum(each.bytes or 0 for each in generations)
    period = rng.choice([HOUR, DAY_MS])
    quota = used + room * MIB
    found = forecast(generations, {"default": period, "another": 100 * DAY_MS}, NOW, used, quota)
    rates = present_rates(generations, NOW)
    assert rates is not None
    rate = rates[1] * per_value_byte(generations, used) / 1000
    factor = per_value_byte(generations, used)
    drops = [(max(0, each.over_ms + period - NOW), (each.bytes or 0) * factor) for each in generations if each.until is not None]

    def files(at_ms: float) -> float:
        """Just before what goes at that moment."""
        return used + rate * at_ms - sum(size for due, size in drops if due < at_ms)

    horizon = period + max([HOUR, *(each.over_ms - each.created_ms for each in generations if each.until is not None)])
    told_ms = horizon if found.days is None else found.days * DAY_MS
    full = [files(due) >= quota for due, _ in drops if due < told_ms - 1]
    assert not any(full), "it was full before"
    # Where nothing fills it, however little room is left, there is no moment to be told.
    assert files(told_ms) < quota if found.days is None else files(told_ms) >= quota - MIB


def test_a_pattern_of_many_generations_is_one() -> None:
    """Added up, with the rate since the first of them, largest first; an estimate anywhere makes it one."""
    generations = [generation(1, created_h=2, sealed_h=1, rows=1, size=1), generation(2, created_h=1, sealed_h=None, rows=1, size=1)]

    def row(number: int, pattern: str, rows: int, size: int, sampled: bool = False) -> dict[str, Any]:
        return {
            "shard": 0,
            "generation": number,
            "class": "default",
            "stream": 1,
            "pattern": pattern,
            "rows": rows,
            "bytes": size,
            "sampled": sampled,
        }

    stats = {"patterns": [row(1, "a/+", 3600, 100), row(2, "a/+", 3600, 100, True), row(2, "b", 7200, 900), row(9, "late", 1, 1)]}
    found = patterns_of(stats, generations, NOW)
    assert [(each.pattern, each.rows, each.bytes, each.sampled) for each in found] == [
        ("b", 7200, 900, False), ("a/+", 7200, 200, True), ("late", 1, 1, False),
    ]  # fmt: skip
    assert found[0].rows_per_s == pytest.approx(2.0) and found[1].rows_per_s == pytest.approx(1.0)
    assert found[2].rows_per_s is None, "its generation is not known"


def test_who_has_not_taken_what_would_go_is_named() -> None:
    """Only what is sealed and older goes; a lease at its end or beyond loses nothing."""
    old, young, current = (
        generation(1, created_h=9, sealed_h=8, rows=50, size=1), generation(2, created_h=8, sealed_h=1, rows=60, size=1),
        generation(3, created_h=1, sealed_h=None, rows=70, size=1),
    )  # fmt: skip
    going = would_go([old, young, current], 6 * HOUR, NOW)
    assert going == [old]
    assert would_go([old, young, current], 0, NOW) == [old, young]
    leases = [{"name": "done", "to": {"0": 200}, "filters": []}, {"name": "late", "to": {"0": 150}, "filters": ["a/#", "b"]}]
    (loser,) = leases_behind(leases, going)
    assert (loser.name, loser.filter, loser.generation, loser.messages, loser.held) == ("late", "a/# b", 1, 50, True)


@pytest.mark.parametrize(
    ("size", "text"), [(None, "unknown"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes_are_for_people(size: int | None, text: str) -> None:
    """One unit, one decimal."""
    assert amount(size) == text
