"""Faults are drawn evenly, and a seed means the same ones."""

from __future__ import annotations

import random
from collections import Counter

from tests.lake.faults import CUT_BYTES, FAULTS, bytes_drawn, drawn


def test_each_fault_comes_as_often_as_the_others() -> None:
    """In thirty, each four or five times; in fewer than seven, none twice."""
    counts = Counter(drawn(30, random.Random(1)))
    assert set(counts) == set(FAULTS) and set(counts.values()) == {4, 5}
    assert max(Counter(drawn(5, random.Random(1))).values()) == 1


def test_a_seed_means_the_same_faults() -> None:
    """And another seed other ones."""
    assert drawn(30, random.Random(7)) == drawn(30, random.Random(7)) != drawn(30, random.Random(8))


def test_cuts_fall_into_every_order_of_magnitude() -> None:
    """Within the bounds; the first bytes of an answer as often as the last of a hundred thousand."""
    chance = random.Random(1)
    found = [bytes_drawn(chance) for _ in range(2000)]
    assert CUT_BYTES[0] <= min(found) and max(found) <= CUT_BYTES[1]
    orders = Counter(len(str(each)) for each in found)
    assert set(orders) == set(range(1, 7)) and min(orders.values()) > 100
