"""What an archive says it lost is what it lost; and messages wait for it as long as they were told to, and no longer."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast_spark.client import Client
from pipeline.archive import USUAL
from pipeline.archive_plan import GenerationSeen, Seen, next_round
from pipeline.archived import Lost, Reached, State
from shards.classes import ClassMap, RetentionClass
from shards.options import StoreOptions
from tests.actors.served import Served
from tests.pipeline.archives import archived, endpoint, keys_in, keys_of, lease, messages, state_of, store

MINUTE_MS = 60_000
LIVE = replace(USUAL, live_after_ms=0)


def lost_of(reached: list[Reached], seen: list[GenerationSeen], *gone: Lost) -> list[int]:
    """Numbers of the generations that a round calls lost."""
    state = State(number=1, reached={(each.shard, each.generation): each for each in reached})
    return [each.generation for each in next_round(Seen("site:1", {0: 1000}, {0: ()}, tuple(seen), gone), state, None, 1 << 40).lost]


LONG = GenerationSeen(0, 1, "long", 0, None, 5, 50)
LONG_DONE = Reached(0, 1, 0, 900, 5, 0)
DONE = Reached(0, 7, 500, 600, 5, 0)
GONE = Lost(0, 7, "default", 500, 600, "period")


def test_what_went_before_the_archive_of_its_class_began_is_not_lost_by_it() -> None:
    """Though another class has something older in the archive. What comes behind the beginning is."""
    before, behind = Lost(0, 3, "default", 100, 200, "period"), Lost(0, 8, "default", 600, 700, "period")
    assert lost_of([LONG_DONE, DONE], [LONG], before, GONE, behind) == [8]
    assert lost_of([LONG_DONE], [LONG], before) == []
    assert lost_of([DONE], [LONG], before, GONE) == []


def test_what_a_lease_would_have_held_is_lost_though_its_class_was_not_begun() -> None:
    """The archive's own lease was there when it went."""
    assert lost_of([LONG_DONE], [LONG], Lost(0, 9, "brief", 100, 200, "lease")) == [9]


def test_when_it_is_not_known_of_what_class_the_beginning_was_nothing_is_left_unsaid() -> None:
    """Generations that were archived, and are remembered no more."""
    assert lost_of([Reached(0, 2, 50, 100, 5, 0), DONE], [LONG], Lost(0, 3, "default", 100, 200, "period")) == [3]


@pytest.mark.parametrize(
    ("number", "since", "reason"), [(0, 0, ""), (1 << 20, 0, "store lost"), ((1 << 20) + 1, 300, "restored")],
    ids=["remembered no more", "a store that was lost", "what came after a backup"],
)  # fmt: skip
def test_what_stands_for_everything_is_lost_from_the_end_of_the_archive_on(number: int, since: int, reason: str) -> None:
    """What lies below that is in the archive, which may have more than the backup that was restored."""
    (lost,) = next_round(
        Seen("site:2", {0: 5000}, {0: ()}, (), (Lost(0, number, "default", since, 900, reason),)),
        State(number=1, reached={(0, 7): DONE}), None, 1 << 40,
    ).lost  # fmt: skip
    assert (lost.start, lost.stop) == (600, 900)


@pytest.mark.slow
def test_what_another_archiver_has_taken_in_the_meantime_is_not_lost(tmp_path: Path) -> None:
    """It was archived, acknowledged and dropped between two looks of this one."""
    with store(per_generation=10, generations=2, n_shards=1) as (broker, published):

        def step(name: str) -> None:
            if name == "after the lease is put" and 2 in broker.shards.generations():
                archived(broker, tmp_path)
                broker.drop(2)

        archived(broker, tmp_path, replace(USUAL, round_bytes=1), rounds_max=1)
        done = archived(broker, tmp_path, step=step)
        assert done.lost == [] and state_of(tmp_path).lost == () and keys_in(tmp_path) == keys_of(published[:20])


@pytest.mark.slow
def test_a_loss_that_another_archiver_makes_good_is_not_committed(tmp_path: Path) -> None:
    """The other one had read it before it went, and commits it while this one is at work."""
    with store(per_generation=10, generations=3, n_shards=1) as (broker, published):
        one_round = replace(USUAL, lease=None, round_bytes=1)
        archived(broker, tmp_path, one_round, rounds_max=1)
        has_read, may_commit = threading.Event(), threading.Event()

        def other(name: str) -> None:
            if name == "committing":
                has_read.set()
                assert may_commit.wait(120)

        def mine(name: str) -> None:
            if name == "committing":
                may_commit.set()
                thread.join(120)

        thread = threading.Thread(target=archived, args=(broker, tmp_path, one_round), kwargs={"rounds_max": 1, "step": other})
        thread.start()
        assert has_read.wait(120)
        broker.drop(2)
        done = archived(broker, tmp_path, replace(USUAL, lease=None), step=mine)
        assert done.lost == [] and state_of(tmp_path).lost == () and keys_in(tmp_path) == keys_of(published[:30])


def with_classes(broker: Served) -> dict[str, list[int]]:
    with Client(endpoint(broker)) as client:
        found: dict[str, list[int]] = {}
        for each in client.cuts()["shards"]["0"]["generations"]:
            found.setdefault(each["class"], []).append(each["id"])
    return found


@pytest.mark.slow
def test_an_archive_that_begins_late_has_lost_nothing(tmp_path: Path) -> None:
    """On a store with a class that is kept longer than what went long ago of the others."""
    kept_long = ClassMap((RetentionClass("long", b"$app/#", 1 << 45),))
    with store(per_generation=20, generations=3, n_shards=1, store=StoreOptions("skipstream", classes=kept_long)) as (broker, published):
        broker.drop(min(with_classes(broker)["default"]))
        left = [each for number, each in enumerate(published) if number >= 20 or each.topic.startswith(b"$app/")]
        for _ in range(2):
            assert archived(broker, tmp_path, LIVE).lost == []
        assert state_of(tmp_path).lost == () and keys_in(tmp_path) == keys_of(left)


@pytest.mark.slow
def test_messages_wait_for_the_archive_within_its_bound(tmp_path: Path) -> None:
    """Their time is over, and they stay until they are archived; beyond the bound of the lease they go, and it says what it lost."""
    mine = replace(USUAL, lease_max_age_ms=20 * MINUTE_MS)
    with store(per_generation=10, generations=1, n_shards=1, generation_ms=MINUTE_MS, retention_ms=2 * MINUTE_MS) as (broker, published):

        def pass_on(times: int) -> None:
            for _ in range(times):
                published.extend(more := messages(2, 1000 + len(published)))
                broker.publish(*more)
                broker.roll()

        archived(broker, tmp_path, mine)
        taken = Counter(keys_in(tmp_path))
        pass_on(8)
        assert broker.shards.generations()[0] == 2, "what was archived went, and nothing else"
        assert archived(broker, tmp_path, mine).lost == []
        assert keys_in(tmp_path) == keys_of(published) and keys_in(tmp_path) > taken
        pass_on(4)
        assert broker.shards.generations()[0] > 2, "what was archived goes"
        first = broker.shards.generations()[0]
        pass_on(30)
        assert broker.shards.generations()[0] > first, "beyond the bound it goes unarchived"
        done = archived(broker, tmp_path, mine)
        assert done.lost and {each.reason for each in done.lost} == {"lease"}
        assert keys_in(tmp_path) < keys_of(published)
        lost = sum(keys_of(published).values()) - sum(keys_in(tmp_path).values())
        assert lost == 2 * len(done.lost), "each generation that was lost had two messages"
        assert lease(broker) == done.acknowledged


@pytest.mark.slow
def test_a_lease_lives_on_through_a_run_that_takes_longer_than_it(tmp_path: Path) -> None:
    """Each round renews it."""
    brief = replace(USUAL, lease_ttl_ms=3 * MINUTE_MS, round_bytes=1)
    with store(per_generation=10, generations=4, n_shards=1, generation_ms=MINUTE_MS) as (broker, published):
        passes = iter(range(3))

        def step(name: str) -> None:
            if name == "scanning" and next(passes, None) is not None:
                broker.shards.pass_time(2 * MINUTE_MS)

        done = archived(broker, tmp_path, brief, step=step)
        assert done.lost == [] and lease(broker) == done.acknowledged and keys_in(tmp_path) >= keys_of(published[:40])
