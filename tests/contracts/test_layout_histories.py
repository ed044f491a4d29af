"""Random histories of a store over every layout and both engines, compared with a plain list (tests/contracts/layout_history.py).

A share of what gate 1 of the storage engine runs. STORE_SEED=n runs one again, STORE_SEEDS=n the first n.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from tests.contracts.campaign import ALONE, chosen, live

lived = cache(live)
"""A history that another test needs too goes once."""

SEEDS = 152
FAST = 40
"""Of each kind ten, and the first ones on RocksDB."""


def _seeds() -> list[object]:
    if os.environ.get("STORE_SEED"):
        return [int(os.environ["STORE_SEED"])]
    slow = [pytest.mark.slow]
    return [pytest.param(seed, marks=slow if seed >= FAST else []) for seed in range(int(os.environ.get("STORE_SEEDS") or SEEDS))]


@pytest.mark.parametrize("seed", _seeds())
def test_what_was_put_is_read_whatever_happens_between(seed: int) -> None:
    # Property: over any history of records, rolls, drops, folds, full disks, kills and power cuts each reader is told what was
    # committed, exactly, in order, and again the same; nothing above the watermark; and of what was dropped that it was.
    lived(seed)


def test_the_seeds_go_over_each_layout_on_each_engine() -> None:
    # Property: 1,000 seeds have at least 20 histories of every layout on every engine, and of stores that change layouts.
    cells = [chosen(seed).cell for seed in range(1000)]
    for layout in (*ALONE, "changing"):
        for engine in ("memory", "rocksdb"):
            assert cells.count(f"{layout}/{engine}") >= 20, (layout, engine)
            assert len({chosen(seed).small for seed in range(1000) if cells[seed] == f"{layout}/{engine}"}) == 2


@pytest.mark.slow
def test_crashes_take_what_was_not_synced_on_both_engines() -> None:
    # Property: a power cut is one: some of these histories lose messages that were written, on RocksDB too.
    for seeds in (range(8), range(36, 40)):
        assert sum(lived(seed)["messages lost"] for seed in seeds) > 0, [chosen(seed).cell for seed in seeds]


def test_a_seed_gives_the_same_history_again() -> None:
    # Property: what happens depends on the seed only, so a failure can be looked at.
    assert live(3) == lived(3)
