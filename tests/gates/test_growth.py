"""Whether something has grown is told from the most that was held in two spans, by process and together."""

from __future__ import annotations

import os

import pytest

from tests.gates.growth import TOGETHER, Grown, Growth, Look


def looked(*held: int, warm: int = 4) -> Growth:
    """A look after each case: what one of two processes held; the other one held 100 always."""
    growth = Growth(warm, {})
    for done, each in enumerate(held, 1):
        growth.looks.append(Look(done, {"gateway 7": each, "shard 8": 100, TOGETHER: each + 100}))
    return growth


def test_what_goes_up_and_down_has_not_grown() -> None:
    """The most of the second half of warming up is compared with the most of as many cases at the end."""
    growth = looked(10, 50, 100, 60, 100, 60, 100, 60, 100)
    growth.judge()
    assert growth.ratios() == {"gateway 7": 1.0, "shard 8": 1.0, TOGETHER: 1.0}


def test_one_process_that_grew_is_found_whatever_the_others_hold() -> None:
    """It is named; together they may still be within."""
    growth = looked(10, 10, 100, 100, 100, 106)
    assert growth.ratios()[TOGETHER] < 1.05
    with pytest.raises(Grown, match=r"^gateway 7: 1\.060 of what was held"):
        growth.judge()


def test_a_process_of_ray_is_judged_among_all_and_not_by_itself() -> None:
    """A megabyte of the raylet's is nothing of ours; many of them are, whoever holds them."""

    def of_ray(*held: int) -> Growth:
        growth = Growth(4, {})
        for done, each in enumerate(held, 1):
            growth.looks.append(Look(done, {"ray 7": each, "shard 8": 100, TOGETHER: each + 100}))
        return growth

    of_ray(10, 10, 10, 10, 12, 12).judge()
    with pytest.raises(Grown, match=r"^together"):
        of_ray(10, 10, 10, 10, 20, 20).judge()


def test_what_it_held_at_first_does_not_count() -> None:
    """Neither what starting took for a moment nor what it has not filled yet."""
    looked(500, 10, 100, 100, 100, 100).judge()
    with pytest.raises(Grown):
        looked(500, 500, 100, 100, 120, 120).judge()


def test_what_grew_and_shrank_again_is_no_growth() -> None:
    """Only the end counts: a peak between is no leak."""
    looked(10, 10, 100, 100, 300, 300, 100, 100).judge()


def test_too_few_cases_are_not_judged() -> None:
    """And that is said."""
    growth = looked(10, 20, 30, 40)
    growth.judge()
    assert "too few cases" in str(growth)


def test_a_look_is_of_every_process_and_of_all_together() -> None:
    """In bytes, without what is mapped from files."""
    growth = Growth(1, {os.getpid(): "tests"})
    growth.look(5)
    (look,) = growth.looks
    assert look.done == 5
    assert look.bytes[TOGETHER] == look.bytes[f"tests {os.getpid()}"] > 1 << 20
