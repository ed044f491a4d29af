"""The disk of the in-memory engine: what a kill keeps, what a power cut forgets, and how it fails."""

from __future__ import annotations

import random

import pytest

from shards.engine import Op, StoreFailed, StoreFull
from shards.engine_memory import MemoryEngine


def rows(engine: MemoryEngine, family: int = 0) -> dict[bytes, bytes]:
    return dict(engine.scan(family, b"", b"\xff" * 9, 1 << 30))


def test_a_kill_keeps_what_a_power_cut_then_forgets() -> None:
    # Property: three states: written survives a kill only; synced survives both; a kill does not make anything synced.
    engine = MemoryEngine()
    engine.write([(0, b"a", b"1")])
    engine.sync()
    engine.write([(0, b"b", b"2")])
    engine = engine.crash(power=False)
    assert rows(engine) == {b"a": b"1", b"b": b"2"}
    engine = engine.crash(power=True)
    assert rows(engine) == {b"a": b"1"}


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    # Property: writes made while a sync runs are not on disk when it ends.
    engine = MemoryEngine()
    engine.write([(0, b"a", b"1")])
    covered = engine.sync_begin()
    engine.write([(0, b"b", b"2")])
    engine.sync_end(covered)
    assert engine.unsynced_writes == 1
    assert rows(engine.crash(power=True)) == {b"a": b"1"}


def test_a_sync_cut_off_by_the_power_promises_nothing() -> None:
    # Property: only a sync that ended counts.
    engine = MemoryEngine()
    engine.write([(0, b"a", b"1")])
    engine.sync_begin()
    assert rows(engine.crash(power=True)) == {}


@pytest.mark.parametrize("seed", range(30))
def test_a_power_cut_leaves_a_prefix_of_the_writes(seed: int) -> None:
    # Property: after a power cut the store is as it was after some write at or after the last sync that ended, in all families.
    rng = random.Random(seed)
    engine = MemoryEngine()
    engine.create_family(1)
    states: list[tuple[dict[bytes, bytes], dict[bytes, bytes]]] = [({}, {})]
    synced = 0
    for _ in range(rng.randint(1, 40)):
        if rng.random() < 0.2:
            engine.sync()
            synced = len(states) - 1
            continue
        ops: list[Op] = []
        after = (dict(states[-1][0]), dict(states[-1][1]))
        for _ in range(rng.randint(1, 5)):
            family, key = rng.randint(0, 1), bytes((rng.randint(0, 5),))
            value = None if rng.random() < 0.4 else rng.randbytes(2)
            ops.append((family, key, value))
            if value is None:
                after[family].pop(key, None)
            else:
                after[family][key] = value
        engine.write(ops)
        states.append(after)
    survivors = rng.randint(0, 4)
    expected = states[min(len(states) - 1, synced + survivors)]
    engine = engine.crash(power=True, survivors=survivors)
    assert (rows(engine, 0), rows(engine, 1)) == expected


def test_families_are_durable_at_once() -> None:
    # Property: creating and dropping survive a power cut without a sync, as RocksDB does it; data in a new one does not.
    engine = MemoryEngine()
    engine.create_family(1)
    engine.create_family(2)
    engine.write([(1, b"a", b"1"), (2, b"a", b"1"), (0, b"a", b"1")])
    engine.drop_family(1)
    engine = engine.crash(power=True)
    assert engine.families() == [0, 2]
    assert rows(engine) == rows(engine, 2) == {}


def test_a_full_disk_refuses_one_write_whole() -> None:
    # Property: StoreFull leaves nothing behind and the next write works.
    engine = MemoryEngine()
    engine.fail_next_write()
    with pytest.raises(StoreFull, match="No space"):
        engine.write([(0, b"a", b"1")])
    engine.write([(0, b"b", b"2")])
    engine.sync()
    assert rows(engine.crash(power=True)) == {b"b": b"2"}


def test_a_failed_sync_is_the_end_of_the_engine() -> None:
    # Property: a second sync of the same file never says yes; what was not synced is not promised.
    engine = MemoryEngine()
    engine.write([(0, b"a", b"1")])
    engine.fail_next_sync()
    with pytest.raises(StoreFailed, match="Input/output"):
        engine.sync()
    with pytest.raises(StoreFailed, match="failed before"):
        engine.sync()
    with pytest.raises(StoreFailed, match="failed before"):
        engine.write([(0, b"b", b"2")])
    with pytest.raises(StoreFailed, match="failed before"):
        engine.get(0, b"a")
    assert rows(engine.crash(power=True)) == {}


def test_a_crashed_engine_answers_nothing() -> None:
    # Property: the old process is gone; only the engine that crash returned is used.
    engine = MemoryEngine()
    after = engine.crash(power=False)
    with pytest.raises(StoreFailed, match="crashed"):
        engine.write([(0, b"a", b"1")])
    after.write([(0, b"a", b"1")])
    assert rows(after) == {b"a": b"1"}


@pytest.mark.parametrize("seed", range(10))
def test_the_sorted_keys_follow_every_mixture_of_changes(seed: int) -> None:
    # Property: few or many changes between scans, in any order on the same keys, leave the keys sorted and complete.
    rng = random.Random(seed)
    engine = MemoryEngine()
    model: dict[bytes, bytes] = {}
    for _ in range(40):
        ops: list[Op] = []
        for _ in range(rng.choice((1, 2, 300))):
            key = b"%03d" % rng.randrange(400)
            value = None if rng.random() < 0.4 else b"v"
            ops.append((0, key, value))
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        engine.write(ops)
        if rng.random() < 0.5:
            assert engine.scan(0, b"", b"\xff", 1 << 20) == sorted(model.items())
