"""What every committer promises (shards/committer.py): with one copy, and with three over a network."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from shards.committer import Record
from shards.engine import StoreFailed
from tests.contracts.committers import CommitterHarness, Heard, LocalHarness
from tests.replication.contract import ReplicatedHarness

FORMS: dict[str, Callable[[], CommitterHarness]] = {"local": LocalHarness, "replicated": ReplicatedHarness}


@pytest.fixture(params=sorted(FORMS))
def harness(request: pytest.FixtureRequest) -> CommitterHarness:
    return FORMS[request.param]()


def record(position: int) -> Record:
    return Record(position, [(0, b"%012d" % position, b"%d" % position)])


def settle(harness: CommitterHarness) -> None:
    while harness.step():
        pass


def watermark(heard: list[Heard]) -> int:
    return max((position for what, position in heard if what == "committed"), default=-1)


def test_nothing_is_committed_before_what_was_found_is_on_disk(harness: CommitterHarness) -> None:
    # Property: the first watermark comes after a sync, and covers what a restart found.
    harness.committer.submit(record(5))
    assert harness.heard == []
    settle(harness)
    found = harness.crash(power=False)
    harness.heard.clear()
    harness.reopen(found)
    assert harness.heard == []
    settle(harness)
    assert harness.heard == [("committed", 5)]


def test_an_accepted_record_is_committed_without_anything_else_happening(harness: CommitterHarness) -> None:
    # Property: no timer, no second record is needed.
    settle(harness)
    harness.committer.submit(record(7))
    settle(harness)
    assert watermark(harness.heard) == 7


@pytest.mark.slow
def test_committed_records_survive_a_power_cut_at_any_step(harness: CommitterHarness) -> None:
    # Property: whenever the power goes, and whatever the disk kept beyond its duty, all committed records are there, and
    # what is there is a prefix of what was accepted.
    for seed in range(300):
        rng = random.Random(seed)
        harness = type(harness)()
        accepted: list[int] = []
        refused: set[int] = set()
        position = 0
        for _ in range(rng.randint(1, 25)):
            if rng.random() < 0.5:
                position += rng.randint(1, 3)
                if rng.random() < 0.1:
                    harness.fail_next_write()
                    refused.add(position)
                else:
                    accepted.append(position)
                harness.committer.submit(record(position))
            else:
                harness.step()
        committed = watermark(harness.heard)
        found = harness.crash(power=True, survivors=rng.randint(0, 3))
        assert found == accepted[: len(found)], f"seed {seed}"
        assert [p for p in accepted if p <= committed] == found[: sum(p <= committed for p in accepted)], f"seed {seed}"
        assert {p for what, p in harness.heard if what == "refused"} == refused, f"seed {seed}"


@pytest.mark.slow
def test_a_sync_commits_what_was_written_before_it_started_and_no_more(harness: CommitterHarness) -> None:
    # Property: a record that arrives while a sync runs is not committed by that sync.
    for seed in range(200):
        rng = random.Random(seed)
        harness = type(harness)()
        settle(harness)
        position = 0
        for _ in range(20):
            if rng.random() < 0.6:
                position += 1
                harness.committer.submit(record(position))
            else:
                harness.step()
        committed = watermark(harness.heard)
        assert max(harness.crash(power=True), default=0) >= committed, f"seed {seed}"


def test_positions_are_committed_in_order_and_all_of_them(harness: CommitterHarness) -> None:
    # Property: the watermark only grows, and reaches every accepted record in the end.
    rng = random.Random(3)
    for position in range(1, 200):
        harness.committer.submit(record(position))
        while rng.random() < 0.4:
            harness.step()
    settle(harness)
    positions = [position for _, position in harness.heard]
    assert positions == sorted(set(positions))
    assert positions[-1] == 199
    assert len(positions) < 199, "a sync covers more than one record"


def test_a_refused_record_is_told_at_once_and_its_neighbours_are_committed(harness: CommitterHarness) -> None:
    # Property: a full disk concerns the one record; nothing of it is found after a restart.
    settle(harness)
    harness.committer.submit(record(1))
    harness.fail_next_write()
    harness.committer.submit(record(2))
    assert ("refused", 2) in harness.heard
    harness.committer.submit(record(3))
    settle(harness)
    assert watermark(harness.heard) == 3
    assert harness.crash(power=True) == [1, 3]


def test_a_refused_record_alone_commits_nothing(harness: CommitterHarness) -> None:
    # Property: refused and committed exclude each other.
    settle(harness)
    harness.heard.clear()
    harness.fail_next_write()
    harness.committer.submit(record(4))
    settle(harness)
    assert harness.heard == [("refused", 4)]


def test_after_a_failed_sync_nothing_is_ever_committed(harness: CommitterHarness) -> None:
    # Property: no answer is drawn from a file whose fsync failed, and no new record is taken.
    settle(harness)
    harness.committer.submit(record(1))
    harness.fail_next_sync()
    settle(harness)
    assert harness.heard[-1] == ("failed", -1)
    told = list(harness.heard)
    with pytest.raises(StoreFailed):
        harness.committer.submit(record(2))
    settle(harness)
    assert harness.heard == told


def test_positions_must_grow(harness: CommitterHarness) -> None:
    # Property: a shard that numbers backwards is stopped before anything is written.
    settle(harness)
    harness.committer.submit(record(5))
    for position in (5, 4):
        with pytest.raises(AssertionError):
            harness.committer.submit(record(position))
    settle(harness)
    assert harness.crash(power=True) == [5]
