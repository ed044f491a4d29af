"""Which sites hold copies: all shards have theirs, sites have equally many, and nothing moves without need."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.replication.allocation import TooFewSites, first_copies, moved_copies, preferred_leaders

SITES = st.sets(st.sampled_from("abcdefg"), min_size=1)
FACTOR = st.integers(1, 7)
ROWS = st.lists(st.sets(st.sampled_from("abcdefg"), max_size=5), min_size=1, max_size=24)


def spread(rows: list[tuple[str, ...]], sites: set[str]) -> int:
    """How many copies more one site has than another."""
    held = Counter(site for row in rows for site in row)
    return max(held[site] for site in sites) - min(held[site] for site in sites)


def test_the_first_allocation_goes_round() -> None:
    """Each shard begins one site further than the one before."""
    assert first_copies(4, "cab", 2) == [("a", "b"), ("b", "c"), ("c", "a"), ("a", "b")]
    assert first_copies(2, "a", 3) == [("a",), ("a",)]


@given(st.integers(1, 6), SITES, FACTOR)
def test_the_first_allocation_is_whole_and_even(turns: int, sites: set[str], factor: int) -> None:
    """As many copies as there can be, on different sites, and all sites have equally many when shards go round."""
    rows = first_copies(turns * len(sites), sites, factor)
    assert [len(set(row)) for row in rows] == [min(len(sites), factor)] * turns * len(sites)
    assert spread(rows, sites) == 0


@given(ROWS, SITES, FACTOR)
def test_wherever_copies_are_they_come_to_be_whole_and_even(now: list[set[str]], sites: set[str], factor: int) -> None:
    """On the sites that are named and on no other; asked again, nothing moves."""
    rows = moved_copies(now, sites, factor)
    assert [len(set(row)) for row in rows] == [min(len(sites), factor)] * len(now)
    assert {site for row in rows for site in row} <= sites
    assert spread(rows, sites) <= 1
    assert moved_copies(rows, sites, factor) == rows


@given(st.integers(1, 6), st.sampled_from(("abcd", "abcde", "bcdef")), FACTOR)
def test_who_leaves_gives_away_what_it_had_and_nothing_else_moves_far(turns: int, sites: str, factor: int) -> None:
    """The others take its copies; at most as many again change places between them, to be even."""
    now = first_copies(turns * len(sites), sites, factor)
    rows = moved_copies(now, sites[1:], factor)
    held = sum(sites[0] in row for row in now)
    assert sum(len(set(row) - set(old)) for row, old in zip(rows, now, strict=True)) <= 2 * held


@given(st.integers(1, 6), SITES, FACTOR)
def test_the_first_allocation_is_one_that_nobody_would_change(turns: int, sites: set[str], factor: int) -> None:
    """`ds set-replicas` with the same sites moves nothing."""
    now = first_copies(turns * len(sites), sites, factor)
    assert moved_copies(now, sites, factor) == [tuple(sorted(row)) for row in now]


def test_no_site_is_too_few() -> None:
    """In either way."""
    with pytest.raises(TooFewSites):
        first_copies(1, (), 3)
    with pytest.raises(TooFewSites):
        moved_copies([{"a"}], (), 3)


@given(st.integers(1, 40), SITES, FACTOR)
def test_who_ought_to_lead_at_first_is_the_first_of_each_row(shards: int, sites: set[str], factor: int) -> None:
    """So all lead equally many, but for one."""
    rows = first_copies(shards, sites, factor)
    assert preferred_leaders(rows) == [row[0] for row in rows]


@given(ROWS)
def test_who_ought_to_lead_has_a_copy(rows: list[set[str]]) -> None:
    """Or nobody does; asked again it is the same."""
    found = preferred_leaders(rows)
    assert all((site in row) if row else site == "" for site, row in zip(found, rows, strict=True))
    assert found == preferred_leaders([sorted(row, reverse=True) for row in rows])
