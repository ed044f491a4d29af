"""What is remembered of dropped generations (shards/dropped.py): nobody who has not read one is left without a word."""

from __future__ import annotations

import random

import pytest

from shards.dropped import DROPPED_REMEMBERED_MAX, Dropped, DroppedRows, dropped_key
from shards.engine import StoreFailed
from shards.engine_memory import MemoryEngine
from shards.generations import row_key
from shards.options import StoreOptions
from shards.store import Store


def _opened(engine: MemoryEngine) -> Store:
    return Store.open(engine, StoreOptions(), 5, 1000)


def _three(engine: MemoryEngine) -> Store:
    """Generations 1 to 99, 100 to 199, 200 and on; made at 1000, 2000 and 3000."""
    store = _opened(engine)
    engine.write(store.roll(100, 1, 2000))
    engine.write(store.roll(200, 1, 3000))
    return store


def test_a_dropped_generation_is_remembered_with_its_times_and_the_reason() -> None:
    # Property: class, positions, three times and the reason are known after the drop, and after a restart.
    engine = MemoryEngine()
    store = _three(engine)
    engine.write(store.drop(1, 9000, "lease"))
    wanted = [Dropped(1, "default", 0, 100, 1000, 2000, 9000, "lease")]
    assert store.dropped_between(-1, 1000) == wanted
    assert _opened(engine.crash(power=False)).dropped_between(-1, 1000) == wanted


def test_when_it_was_sealed_is_known_even_if_the_next_one_went_first() -> None:
    # Property: the time of the seal is the time at which the next began, wherever that one is now.
    engine = MemoryEngine()
    store = _three(engine)
    engine.write(store.drop(2))
    engine.write(store.drop(1))
    assert [row.sealed_wall_ms for row in store.dropped_between(-1, 1000)] == [2000, 3000]


@pytest.mark.parametrize(
    ("after", "upto", "found"),
    [
        (-1, 0, [1]),
        (0, 99, [1]),
        (98, 99, [1]),
        (99, 99, []),
        (99, 100, [2]),
        (50, 100, [1, 2]),
        (199, 500, []),
        (198, 500, [2]),
        (120, 60, []),
    ],
)
def test_only_those_are_told_that_may_have_held_something_of_a_range(after: int, upto: int, found: list[int]) -> None:
    # Property: dropped_between answers for exactly the positions p with after < p <= upto.
    engine = MemoryEngine()
    store = _three(engine)
    engine.write(store.drop(1) + store.drop(2))
    assert [row.generation for row in store.dropped_between(after, upto)] == found


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_stands_for_all_that_are_forgotten_and_for_no_more_than_it_must(seed: int) -> None:
    # Property: over any order of drops, each position that was dropped is in a row or below the sum; at most so many rows are kept; the sum
    # reaches no row that is kept; a restart knows the same.
    rng = random.Random(seed)
    engine = MemoryEngine()
    rows = DroppedRows(engine, {})
    count = DROPPED_REMEMBERED_MAX + rng.randint(0, 30)
    # Two classes: their generations lie over each other.
    spans = [(n, n * 10, n * 10 + rng.choice((10, 10, 400))) for n in range(1, count + 1)]
    late = rng.sample(spans, 5)
    for n, since, until in [span for span in spans if span not in late] + late:
        engine.write(rows.put(Dropped(n, "default", since, until, 0, 0, 0, "period")))
    kept = engine.scan(0, b"d", b"e", 1 << 30)
    for known in (rows, DroppedRows(engine, {})):
        told = known.between(-1, 1 << 40)
        assert len(known) == min(count, DROPPED_REMEMBERED_MAX) and len(kept) == len(known) + (count > DROPPED_REMEMBERED_MAX)
        assert (told[0].generation == 0) == (count > DROPPED_REMEMBERED_MAX)
        named = {row.generation for row in told}
        forgotten = [span for span in spans if span[0] not in named]
        assert len(forgotten) == count - len(known)
        if forgotten:
            assert told[0].until == max(until for _, _, until in forgotten) <= min(row.until for row in told[1:])
            assert known.between(told[0].until - 2, 1 << 40)[0].generation == 0
            assert known.between(told[0].until - 1, 1 << 40)[0].generation != 0


def test_what_an_older_program_dropped_is_told_as_the_sum() -> None:
    # Property: in a store whose generations went without a word, everything below the first that is there counts as dropped; for ever.
    engine = MemoryEngine()
    store = _three(engine)
    engine.write([(0, row_key(1), None)])
    engine.drop_family(1)
    store = _opened(engine)
    assert store.dropped_between(-1, 1000) == [Dropped(0, "", 0, 100, 0, 0, 0, "")]
    assert store.dropped_between(99, 1000) == []
    engine.write(store.drop(2, 7))
    for _ in range(2):
        assert [(row.generation, row.until) for row in store.dropped_between(-1, 1000)] == [(0, 100), (2, 200)]
        store = _opened(engine)


def test_a_store_that_has_lost_nothing_says_nothing() -> None:
    # Property: neither a fresh store nor rolls make a loss.
    engine = MemoryEngine()
    assert _three(engine).dropped_between(-1, 1 << 60) == []


def test_a_generation_that_cannot_be_read_counts_as_dropped() -> None:
    # Property: whoever had not read one that is lost or given up is told, with "damaged".
    engine = MemoryEngine()
    store = _three(engine)
    store._generations.give_up(1, "a planted fault")
    wanted = [Dropped(1, "default", 0, 100, 1000, 2000, 0, "damaged")]
    assert store.dropped_between(-1, 1000) == wanted
    engine.drop_family(1)
    store = _opened(engine)
    assert store.lost_at_open == (1,) and store.dropped_between(50, 1000) == wanted
    assert store.dropped_between(99, 1000) == []


def test_rows_are_those_of_the_format_page() -> None:
    # Property: golden bytes of version 1; a newer version is refused with a sentence.
    row = Dropped(258, "gold", 1, 2, 3, 4, 5, "by hand")
    key, value = row.encode()
    assert key.hex() == "6400000102"
    assert value.hex() == "01" + "97" + "a4" + b"gold".hex() + "0102030405" + "a7" + b"by hand".hex()
    assert Dropped.decode(key, value) == row
    with pytest.raises(StoreFailed, match="version 02"):
        Dropped.decode(dropped_key(1), b"\x02" + value[1:])
