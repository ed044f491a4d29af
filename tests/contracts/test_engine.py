"""What every engine promises (shards/engine.py), on both of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shards.bulk import gathered
from shards.engine import Engine, FamilyMissing, Op, StoreFailed, index_of
from tests.contracts.engines import ENGINES, Harness, make


@pytest.fixture(params=[*ENGINES, "exposed"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    made = make(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def engine(harness: Harness) -> Engine:
    return harness.engine


def everything(engine: Engine) -> dict[int, list[tuple[bytes, bytes]]]:
    return {family: engine.scan(family, b"", b"\xff" * 8, 1 << 20) for family in engine.families()}


def test_a_new_engine_has_family_0_and_nothing_in_it(engine: Engine) -> None:
    # Property: family 0 always exists.
    assert everything(engine) == {0: []}


def test_a_write_is_visible_at_once_in_all_its_families(engine: Engine) -> None:
    # Property: no sync is needed to read what was written.
    engine.create_family(1)
    engine.write([(0, b"a", b"1"), (1, b"a", b"2"), (1, b"b", b"")])
    assert engine.get(0, b"a") == b"1"
    assert engine.get(1, b"a") == b"2"
    assert engine.get(1, b"b") == b""
    assert engine.get(0, b"b") is None
    assert engine.get_many(1, [b"b", b"x", b"a", b"b"]) == [b"", None, b"2", b""]
    assert engine.get_many(1, []) == []


def test_the_sequence_number_grows_with_every_write_and_with_nothing_else(harness: Harness) -> None:
    # Property: who has seen a number has seen every write before it; families, syncs, reads and writes of nothing move it nowhere.
    engine = harness.engine
    engine.create_family(1)
    numbers = [engine.latest_sequence()]
    for ops in ([(0, b"a", b"1")], [(0, b"b", b"2"), (1, b"b", b"2")], [(0, b"a", None)], [(0, b"never", None)]):
        engine.write(ops)
        numbers.append(engine.latest_sequence())
    assert numbers == sorted(set(numbers))
    engine.write([])
    engine.sync()
    engine.create_family(2)
    engine.drop_family(2)
    engine.scan(0, b"", b"\xff", 10)
    assert engine.latest_sequence() == numbers[-1]
    assert harness.kill().latest_sequence() == numbers[-1], "a kill loses no finished write"


def test_a_family_takes_about_as_much_as_was_written_to_it(engine: Engine) -> None:
    # Property: family_bytes grows with what is written to that family, and with nothing else; what does not compress counts about whole.
    for family in (1, 2):
        engine.create_family(family)
    empty = [engine.family_bytes(family) for family in (0, 1, 2)]
    rng = random.Random(1)
    engine.write([(1, b"%d" % n, rng.randbytes(1000)) for n in range(1000)])
    engine.sync()
    now = [engine.family_bytes(family) for family in (0, 1, 2)]
    assert 900_000 < now[1] - empty[1] < 4_000_000
    assert now[0] == empty[0] and now[2] == empty[2]
    engine.drop_family(2)
    with pytest.raises(FamilyMissing, match="2"):
        engine.family_bytes(2)


def test_later_ops_of_a_write_win(engine: Engine) -> None:
    # Property: ops are applied in order, also on one key.
    engine.write([(0, b"k", b"1"), (0, b"k", None), (0, b"j", b"1"), (0, b"j", b"2"), (0, b"i", None), (0, b"i", b"3")])
    assert everything(engine) == {0: [(b"i", b"3"), (b"j", b"2")]}


def test_a_write_to_a_missing_family_is_refused_whole(engine: Engine) -> None:
    # Property: atomic means that nothing of a bad write is there.
    with pytest.raises(FamilyMissing, match="7"):
        engine.write([(0, b"a", b"1"), (7, b"a", b"1")])
    assert everything(engine) == {0: []}
    engine.write([(0, b"a", b"2")])
    assert engine.get(0, b"a") == b"2"


def test_reading_a_missing_family_says_so(engine: Engine) -> None:
    # Property: a dropped family is never silently empty.
    engine.create_family(3)
    engine.drop_family(3)
    for call in (
        lambda: engine.get(3, b"a"),
        lambda: engine.get_many(3, [b"a"]),
        lambda: engine.scan(3, b"", b"z", 1),
        lambda: engine.cursor(3, b"", b"z"),
        lambda: engine.drop_family(3),
    ):
        with pytest.raises(FamilyMissing, match="3"):
            call()


def test_families_are_made_once_and_0_is_never_dropped(engine: Engine) -> None:
    # Property: making or dropping what must not be is a loud mistake.
    engine.create_family(2)
    with pytest.raises(ValueError, match="2"):
        engine.create_family(2)
    with pytest.raises(ValueError, match="0"):
        engine.drop_family(0)
    assert engine.families() == [0, 2]


def test_an_index_comes_after_its_generation_and_goes_with_it(harness: Harness) -> None:
    # Property: nothing of it outlives its generation, and whoever goes through all families does not meet it.
    engine = harness.engine
    with pytest.raises(FamilyMissing, match="1"):
        engine.create_family(index_of(1))
    engine.create_family(1)
    assert not engine.has_family(index_of(1))
    engine.create_family(index_of(1))
    with pytest.raises(ValueError, match="-1"):
        engine.create_family(index_of(1))
    engine.write([(1, b"message", b"m"), (index_of(1), b"page", b"p" * 1000)])
    engine.sync()
    engine = harness.kill()
    assert engine.families() == [0, 1] and engine.has_family(1) and engine.has_family(index_of(1))
    assert engine.get(index_of(1), b"page") == b"p" * 1000 and everything(engine) == {0: [], 1: [(b"message", b"m")]}
    engine.drop_family(1)
    assert not engine.has_family(index_of(1))
    with pytest.raises(FamilyMissing, match="-1"):
        engine.get(index_of(1), b"page")
    engine.create_family(1)
    engine.create_family(index_of(1))
    assert engine.get(index_of(1), b"page") is None
    engine.drop_family(index_of(1))
    assert engine.families() == [0, 1] and not engine.has_family(index_of(1))


def test_what_a_generation_takes_is_told_with_its_index(engine: Engine) -> None:
    # Property: retention by size counts what goes when the generation goes.
    for family in (1, 2, index_of(1)):
        engine.create_family(family)
    empty = [engine.family_bytes(family) for family in (0, 1, 2)]
    rng = random.Random(2)
    engine.write([(index_of(1), b"%d" % n, rng.randbytes(1000)) for n in range(1000)])
    engine.sync()
    now = [engine.family_bytes(family) for family in (0, 1, 2)]
    assert 900_000 < now[1] - empty[1] < 4_000_000 and (now[0], now[2]) == (empty[0], empty[2])


def test_a_family_made_again_is_empty(engine: Engine) -> None:
    # Property: nothing of a dropped family comes back under its number.
    engine.create_family(1)
    engine.write([(1, b"a", b"1")])
    engine.drop_family(1)
    engine.create_family(1)
    assert everything(engine) == {0: [], 1: []}


def test_scan_takes_start_leaves_end_and_stops_at_the_limit(engine: Engine) -> None:
    # Property: start inclusive, end exclusive, key order, at most limit.
    engine.write([(0, bytes((n,)), b"v%d" % n) for n in range(10, 20)])
    keys = [key[0] for key, _ in engine.scan(0, b"\x0b", b"\x0f", 100)]
    assert keys == [11, 12, 13, 14]
    assert engine.scan(0, b"\x0b", b"\x0f", 2) == [(b"\x0b", b"v11"), (b"\x0c", b"v12")]
    assert engine.scan(0, b"\x0b", b"\x0f", 0) == []
    assert engine.scan(0, b"\x0f", b"\x0f", 5) == []
    assert engine.scan(0, b"\x0f", b"\x0b", 5) == []
    assert engine.scan(0, b"", b"\x0a", 5) == []
    for start, end, limit in ((b"\x0b", b"\x0f", 100), (b"", b"\xff", 3), (b"", b"\xff", 0), (b"\x0f", b"\x0b", 9), (b"\x30", b"\x40", 9)):
        assert list(zip(*gathered(engine.columns(0, start, end, limit)), strict=True)) == engine.scan(0, start, end, limit)


@pytest.mark.parametrize(("bytes_max", "count"), [(1, 1), (10, 1), (11, 2), (20, 2), (21, 3), (1000, 5)])
def test_scan_stops_with_the_value_that_reaches_the_byte_bound(engine: Engine, bytes_max: int, count: int) -> None:
    # Property: never an entry after the bound is reached, always at least one.
    engine.write([(0, bytes((n,)), b"x" * 10) for n in range(5)])
    assert len(engine.scan(0, b"", b"\xff", 100, bytes_max)) == count
    assert [len(column) for column in gathered(engine.columns(0, b"", b"\xff", 100, bytes_max))] == [count, count]
    assert len(engine.scan(0, b"", b"\xff", 2, bytes_max)) == min(count, 2)


def test_a_scan_keeps_its_bounds_over_many_entries_and_sizes(engine: Engine) -> None:
    # Property: in whatever form entries are asked for, the bounds are kept wherever they fall, though they come some at a time.
    rng = random.Random(4)
    rows = [(n.to_bytes(2, "big"), bytes(rng.choice((0, 1, 30, 30, 30, 5000)))) for n in range(700)]
    engine.write([(0, key, value) for key, value in rows])
    for _ in range(120):
        start, end = rng.randrange(700), rng.choice((700, rng.randrange(701)))
        limit, bytes_max = rng.choice((1, 7, 8, 9, 31, 33, 72, 100, 700)), rng.choice((1, 100, 300, 6000, 1 << 30))
        expected = []
        for key, value in rows[start:end][:limit]:
            expected.append((key, value))
            if sum(len(value) for _, value in expected) >= bytes_max:
                break
        asked = (0, start.to_bytes(2, "big"), end.to_bytes(2, "big"), limit, bytes_max)
        assert engine.scan(*asked) == expected
        keys, values, size = engine.keys_and_values(*asked)
        assert list(zip(keys, values, strict=True)) == expected and size == sum(map(len, values))
        found = list(engine.columns(*asked))
        assert all(len(keys) == len(values) > 0 and lengths == [len(value) for value in values] for keys, values, lengths in found)
        assert list(zip(*gathered(found), strict=True)) == expected


def test_a_cursor_seeks_and_steps_within_its_bounds(engine: Engine) -> None:
    # Property: a cursor sees lower <= key < upper, whatever is sought.
    engine.write([(0, bytes((n,)), b"v%d" % n) for n in range(0, 20, 2)])
    cursor = engine.cursor(0, b"\x04", b"\x0b")
    assert not cursor.valid()
    cursor.seek(b"\x05")
    assert cursor.valid() and cursor.key() == b"\x06" and cursor.value() == b"v6"
    cursor.next()
    assert cursor.key() == b"\x08"
    cursor.seek(b"\x06")
    assert cursor.key() == b"\x06"
    cursor.seek(b"")
    assert cursor.key() == b"\x04"
    cursor.seek(b"\x0a")
    assert cursor.key() == b"\x0a"
    cursor.next()
    assert not cursor.valid()
    cursor.seek(b"\x0c")
    assert not cursor.valid()


def test_a_kill_loses_no_finished_write_and_no_family(harness: Harness) -> None:
    # Property: what was written, synced or not, survives kill -9.
    harness.engine.create_family(1)
    harness.engine.write([(0, b"a", b"1"), (1, b"b", b"2")])
    harness.engine.sync()
    harness.engine.write([(0, b"a", None), (1, b"c", b"3")])
    harness.engine.create_family(2)
    harness.engine.drop_family(1)
    engine = harness.kill()
    assert everything(engine) == {0: [], 2: []}
    engine.write([(2, b"d", b"4")])
    assert harness.kill().get(2, b"d") == b"4"


def test_a_checkpoint_holds_everything_written(engine: Engine, tmp_path: Path) -> None:
    # Property: a checkpoint can be made while the store is used, and only once under a name.
    engine.create_family(1)
    engine.write([(0, b"a", b"1"), (1, b"b", b"2")])
    path = str(tmp_path / "copy")
    engine.checkpoint(path)
    engine.write([(1, b"c", b"3")])
    assert engine.get(1, b"c") == b"3"
    with pytest.raises(StoreFailed):
        engine.checkpoint(path)


def test_after_close_nothing_is_written(engine: Engine) -> None:
    # Property: a closed engine refuses, and closing twice is harmless.
    engine.close()
    engine.close()
    with pytest.raises(StoreFailed):
        engine.write([(0, b"a", b"1")])
    with pytest.raises(StoreFailed):
        engine.sync()
    with pytest.raises(StoreFailed):
        engine.get(0, b"a")


@pytest.mark.parametrize("seed", range(12))
def test_reads_agree_with_a_plain_dict(harness: Harness, seed: int) -> None:
    # Property: over any history of writes, deletes, drops, kills and syncs, all reads agree with dicts of sorted keys.
    rng = random.Random(seed)
    model: dict[int, dict[bytes, bytes]] = {0: {}}

    def any_key() -> bytes:
        return bytes(rng.choice((0, 1, 97, 255)) for _ in range(rng.randint(0 if rng.random() < 0.1 else 1, 3)))

    for _ in range(60):
        engine = harness.engine
        action = rng.random()
        if action < 0.08 and len(model) < 4:
            family = next(number for number in range(1, 9) if number not in model)
            engine.create_family(family)
            model[family] = {}
        elif action < 0.12 and len(model) > 1:
            family = rng.choice(sorted(model)[1:])
            engine.drop_family(family)
            del model[family]
        elif action < 0.15:
            engine.sync()
        elif action < 0.18:
            harness.kill()
        else:
            ops: list[Op] = []
            for _ in range(rng.choice((1, 2, 40))):
                family, key = rng.choice(sorted(model)), any_key()
                value = None if rng.random() < 0.3 else rng.randbytes(rng.randint(0, 5))
                ops.append((family, key, value))
                if value is None:
                    model[family].pop(key, None)
                else:
                    model[family][key] = value
            engine.write(ops)
        engine = harness.engine
        assert engine.families() == sorted(model)
        family = rng.choice(sorted(model))
        entries = sorted(model[family].items())
        low, high, limit = any_key(), any_key(), rng.randint(1, 6)
        within = [(key, value) for key, value in entries if low <= key < high]
        assert engine.scan(family, low, high, limit) == within[:limit]
        assert list(zip(*gathered(engine.columns(family, low, high, limit)), strict=True)) == within[:limit]
        cursor = engine.cursor(family, low, high)
        walked: list[tuple[bytes, bytes]] = []
        cursor.seek(low)
        while cursor.valid():
            walked.append((cursor.key(), cursor.value()))
            cursor.next()
        assert walked == within
        asked = [any_key() for _ in range(3)]
        assert engine.get_many(family, asked) == [model[family].get(key) for key in asked] == [engine.get(family, key) for key in asked]
    assert everything(harness.engine) == {family: sorted(entries.items()) for family, entries in model.items()}
