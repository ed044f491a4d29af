"""The table of lives in the simulator: all pairs of values, and as much of the rest as there is time for.

LIVES=n plays so many lives drawn from the table beside the pairs, LIVES_SEED=n draws others; the gate plays all of them.
`python -m tests.lives NAME` plays one by its name.
"""

from __future__ import annotations

import os
from functools import cache
from random import Random

import pytest

from tests.lives.simulated import live, worlds
from tests.lives.table import Life, full, pairs

SEED = int(os.environ.get("LIVES_SEED") or 0)
DRAWN = int(os.environ.get("LIVES") or 1_500)
PARTS = 6
CRASHED = 400


@cache
def lives() -> list[Life]:
    return [*pairs(SEED), *Random(SEED).sample(full(), min(DRAWN, len(full())))]


def require_right(chosen: list[Life], seed: int, crashes: bool = False) -> None:
    wrong: dict[Life, list[str]] = {}
    for number, together in enumerate(worlds(chosen)):
        wrong.update(live(together, seed + number, crashes=crashes))
    assert not wrong, "\n".join([f"{life.name}: {'; '.join(what)}" for life, what in list(wrong.items())[:20]])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_every_life_is_as_the_specification_says(part: int) -> None:
    """Sessions, what they hold, and wills: at both ends of every way a connection can end, and for the second and third one."""
    require_right(lives()[part::PARTS], SEED * 10_000 + part * 100)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_lives_are_the_same_while_shards_crash() -> None:
    """Timers, sessions and wills are rows of records: killed or without power, a home goes on where it was, and a will comes once."""
    require_right(Random(SEED + 1).sample(full(), CRASHED), SEED * 10_000 + 5_000, crashes=True)
