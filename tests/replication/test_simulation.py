"""The shipped core keeps every promise, whatever breaks."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.replication.simulation import run

SEEDS = 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_nothing_acknowledged_is_lost_whatever_breaks(part: int) -> None:
    """Nor doubled, nor out of order; all copies hold the same; everything goes on when it is mended. Each part sees all of the trouble."""
    happened: Counter[str] = Counter()
    for seed in range(SEEDS * part, SEEDS * (part + 1)):
        happened.update(run(seed).happened)
    for what in (
        "power cut",
        "kill",
        "target",
        "refused",
        "install",
        "disk lost",
        "serves",
        "ends before StartSync",
        "ends before Apply",
        "ends before Send",
    ):
        assert happened[what], f"seeds of part {part} have no {what!r}"


@pytest.mark.slow
def test_one_seed_gives_one_history() -> None:
    """Note for note, so that a seed that was found can be looked at."""
    assert run(5).history() == run(5).history() != run(6).history()
