"""A replica's process ends exactly at a step of what it writes; `make soak-cluster` goes through all of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.actors.replica.fail_points import POINTS, NoSuchPoint, chosen
from tests.actors.replica.walk import walk
from tests.faultdisk.control import DEADLY, PATTERN_BYTES_MAX

FEW = (
    "before entries are synced by a leader", "after entries are synced by a leader", "before a checkpoint is what this copy has",
    "after the former data are put aside", "after a log behind a checkpoint has its name",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.timeout(240)
async def test_a_process_that_ends_at_a_step_of_a_write_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Some points: before and after the sync that an acknowledgement waits for, and in the middle of an installed checkpoint."""
    said: list[str] = []
    assert await walk(tmp_path, FEW, random.Random(1), said.append) == len(FEW) and len(said) == 2


def test_a_point_that_is_not_there_is_one_sentence() -> None:
    """It says which there are."""
    with pytest.raises(NoSuchPoint, match="no point is called 'before breakfast'; there are: before entries are written by a follower, "):
        chosen(["before breakfast"])


def test_each_point_is_a_call_at_which_a_process_can_be_ended() -> None:
    """Before it and after it, each once; the names fit into what is shared with the process."""
    assert all(point.op is None or point.op in DEADLY for point in POINTS.values())
    assert all(len(point.pattern) <= PATTERN_BYTES_MAX for point in POINTS.values())
    assert len(set(POINTS.values())) == len(POINTS) and sum(point.after for point in POINTS.values()) * 2 == len(POINTS)
