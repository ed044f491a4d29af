"""The table of lives in the simulator: all pairs of values, and as much of the rest as there is time for.

LIVES=n plays so many lives drawn from the table beside the pairs, LIVES_SEED=n draws others; the gate plays all of them.
"""

from __future__ import annotations

import os
from functools import cache
from random import Random

import pytest

from tests.lives.simulated import live, worlds
from tests.lives.table import Life, full, pairs

SEED = int(os.environ.get("LIVES_SEED") or 0)
DRAWN = int(os.environ.get("LIVES") or 5_000)
PARTS = 10


@cache
def lives() -> list[Life]:
    table = list(full())
    return pairs(table, SEED) + Random(SEED).sample(table, min(DRAWN, len(table)))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_is_as_the_specification_says(part: int) -> None:
    """Sessions, what they hold, and wills: at both ends of every way a connection can end, and for the second and third one."""
    wrong: dict[Life, list[str]] = {}
    for number, chosen in enumerate(worlds(lives()[part::PARTS])):
        wrong.update(live(chosen, SEED * 10_000 + part * 100 + number))
    assert not wrong, "\n".join([f"{life.name}: {'; '.join(what)}" for life, what in list(wrong.items())[:20]])
