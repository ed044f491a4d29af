"""The table itself: nothing impossible is in it, nothing possible is left out of its small parts."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

from tests.lives.oracle import expect
from tests.lives.table import DIMENSIONS, DRAWN, RULES, Ending, Life, broken_rules, coded, full, pairs, pairs_of, sample


@pytest.mark.slow
def test_no_life_breaks_a_rule_and_no_two_are_the_same() -> None:
    """Also by name: a name stands for one life."""
    lives = full()
    assert len(lives) > 100_000
    assert [life for life in lives[::7] if broken_rules(life)] == []
    assert len({life.name for life in lives}) == len(lives)


@pytest.mark.slow
def test_what_is_not_drawn_is_complete() -> None:
    """Of lives put together by chance, each one that breaks no rule has its place in the table."""
    shown = [name for name in DIMENSIONS if name not in DRAWN]
    places = {tuple(getattr(life, name) for name in shown) for life in full()}
    rng = Random(1)
    found = 0
    for _ in range(50_000):
        life = Life(**{name: rng.choice(values) for name, values in DIMENSIONS.items()})
        if not broken_rules(life):
            found += 1
            assert tuple(getattr(life, name) for name in shown) in places, life.name
    assert found > 30


def test_every_rule_is_about_dimensions_and_each_forbids_something() -> None:
    """A rule that nothing breaks would say nothing."""
    for rule in RULES:
        names = [name for name in rule.__annotations__ if name != "return"]
        assert set(names) <= set(DIMENSIONS)
        assert any(rule(*values) for values in product(*[DIMENSIONS[name] for name in names])), rule.__name__


@pytest.mark.slow
def test_pairs_and_samples_are_small_and_hold_what_they_say() -> None:
    """Every pair of values that meets anywhere meets in the small part; every ending is in the sample."""
    lives = full()
    few = pairs()
    assert len(few) < 400
    for some, all_of in zip(pairs_of(coded(few)), pairs_of(coded(lives)), strict=True):
        assert set(some) == set(np.unique(all_of))
    for count in (60, 200):
        chosen = sample(count)
        assert len(set(chosen)) == count
        shares = Counter(life.ending for life in chosen)
        assert set(shares) == set(Ending) and min(shares.values()) >= 2


@pytest.mark.slow
def test_the_oracle_says_every_answer_somewhere() -> None:
    """An answer that is never given would not be looked for: present and not, each kind of will, both of a race."""
    some = full()[::7]
    answers = [way for life in some for way in expect(life)]
    for kind in ("present", "first_present", "third_present"):
        assert {getattr(way, kind) for way in answers} == {True, False}, kind
    dues = {"never" if way.will is None else "with the second" if way.will.by_second else way.will.after_s for way in answers}
    assert dues == {"never", "with the second", 0, 2, 3, 5, 12, 20}
    assert {len(expect(life)) for life in some} == {1, 2, 3}
