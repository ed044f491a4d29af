"""Steady time in processes that have no store (actors/clocks.py)."""

from __future__ import annotations

import time
from pathlib import Path

from actors.clocks import Steady, read_clocks, tell_steady

YEAR_MS = 365 * 24 * 3_600_000


def near(found_ms: int, wanted_ms: int) -> bool:
    return 0 <= found_ms - wanted_ms < 60_000


def test_it_is_the_wall_clock_until_a_shard_has_told_it(tmp_path: Path) -> None:
    """Nobody can have stored anything by then."""
    before_ms = int(time.time() * 1000)
    assert near(Steady(tmp_path, 3).now_ms(), before_ms)


def test_everybody_goes_by_the_first_shard_and_by_another_one_only_while_that_is_away(tmp_path: Path) -> None:
    """Once the first shard has spoken, what others say later changes nothing."""
    early = Steady(tmp_path, 3)
    now = read_clocks()
    tell_steady(tmp_path, 2, now.wall_ms - YEAR_MS, now)
    assert near(early.now_ms(), now.wall_ms - YEAR_MS)
    tell_steady(tmp_path, 1, now.wall_ms - 3 * YEAR_MS, now)
    tell_steady(tmp_path, 0, now.wall_ms - 2 * YEAR_MS, now)
    for steady in (early, Steady(tmp_path, 3)):
        assert near(steady.now_ms(), now.wall_ms - 2 * YEAR_MS)
    tell_steady(tmp_path, 0, now.wall_ms, now)
    assert near(early.now_ms(), now.wall_ms - 2 * YEAR_MS), "the constant of a boot does not change"
