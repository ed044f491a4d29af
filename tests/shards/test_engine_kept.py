"""A read of many entries goes on where the one before it ended, and is told nothing else than one that begins anew."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import shards.engine_kept
from shards.engine import FamilyMissing, StoreDamaged
from shards.engine_kept import KEPT_MAX
from shards.engine_rocks import RocksEngine, RocksOptions

END = b"\xf0"
PORTION = 256
COUNT = 3000


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    """With some files of few entries, and some entries in memory."""
    made = RocksEngine(str(tmp_path / "store"), RocksOptions(write_buffer_bytes=1 << 20, compacts=False))
    made.create_family(1)
    rng = random.Random(5)
    numbers = list(range(COUNT))
    for at in range(0, COUNT, 1000):
        made.write([(1, key(number), value(number)) for number in rng.sample(numbers[at : at + 1000], 1000)])
        if at < 2000:
            made._rdict(1).flush(True)
    yield made
    made.close()


def key(number: int) -> bytes:
    return number.to_bytes(2, "big")


def value(number: int) -> bytes:
    return b"%d" % number * 20


def read(
    engine: RocksEngine, start: int, limit: int = PORTION, bytes_max: int | None = None, end: bytes = END, goes_on: bool = False
) -> list[int]:
    keys, values, size = engine.keys_and_values(1, key(start), end, limit, bytes_max, goes_on)
    numbers = [int.from_bytes(each, "big") for each in keys]
    assert values == [value(number) for number in numbers] and size == sum(map(len, values))
    return numbers


def read_on(engine: RocksEngine, found: list[int]) -> None:
    """To the end, by portions."""
    while numbers := read(engine, len(found)):
        found += numbers


def kept(engine: RocksEngine) -> int:
    assert engine._kept is not None
    return len(engine._kept)


def test_portion_by_portion_it_is_the_whole(engine: RocksEngine) -> None:
    """The last portion has what is left, and nothing is kept behind it."""
    found: list[int] = []
    for portion in range(COUNT // PORTION + 1):
        numbers = read(engine, portion * PORTION)
        found += numbers
        assert kept(engine) == (len(numbers) == PORTION)
    assert found == list(range(COUNT))


def test_few_entries_are_gone_on_with_where_that_is_asked_for(engine: RocksEngine) -> None:
    """As they may be large; else nothing is kept for so few."""
    read(engine, 0, 5)
    assert kept(engine) == 0
    found: list[int] = []
    while numbers := read(engine, len(found), 7, goes_on=True):
        found += numbers
        assert kept(engine) == (len(numbers) == 7)
    assert found == list(range(COUNT))


def test_writing_elsewhere_flushing_and_merging_between_portions_change_nothing(engine: RocksEngine) -> None:
    """Behind the upper bound and in other families; the files that it began with are gone by then."""
    engine.create_family(2)
    found: list[int] = []
    for portion in range(COUNT // PORTION + 1):
        found += read(engine, portion * PORTION)
        engine.write([(1, END + key(portion), b"behind"), (2, key(portion), b"beside"), (0, key(portion), b"home")])
        engine.release_log()
        engine.compact(1)
    assert found == list(range(COUNT))


def test_what_is_added_behind_is_read_too(engine: RocksEngine) -> None:
    """An index is made of a stream that goes on growing: it was through only when it had all."""
    found = read(engine, 0)
    for number in range(COUNT, COUNT + 10):
        engine.write([(1, key(number), value(number))])
        found += read(engine, len(found))
    while numbers := read(engine, len(found)):
        found += numbers
    assert found == list(range(COUNT + 10))


def test_whoever_begins_elsewhere_is_told_what_is_there(engine: RocksEngine) -> None:
    """Further on, further back, at the same place again, and with another upper bound."""
    rng = random.Random(6)
    following = 0
    for _ in range(120):
        start = rng.choice((following, following, rng.randrange(COUNT), following + 1, max(0, following - 1)))
        end, bound = rng.choice(((END, COUNT), (END, COUNT), (key(2500), 2500)))
        limit, bytes_max = rng.choice((PORTION, PORTION, 300, 5)), rng.choice((None, None, None, 9000))
        numbers = read(engine, start, limit, bytes_max, end)
        expected = list(range(start, min(start + limit, bound)))
        if bytes_max is not None:
            sizes = [sum(len(value(number)) for number in expected[:count]) for count in range(len(expected))]
            expected = expected[: sum(size < bytes_max for size in sizes)]
        assert numbers == expected
        following = numbers[-1] + 1 if numbers else 0


def test_rows_that_change_are_never_read_from_what_was(engine: RocksEngine) -> None:
    """`scan`, which is for these, begins anew."""
    first = engine.scan(1, key(0), END, PORTION)
    engine.write([(1, key(PORTION), b"changed")])
    second = engine.scan(1, first[-1][0] + b"\x00", END, PORTION)
    assert second[0] == (key(PORTION), b"changed") and kept(engine) == 0


def test_few_are_kept(engine: RocksEngine) -> None:
    """As each holds on to files and memory: those that were gone on with last."""
    for number in range(KEPT_MAX + 3):
        read(engine, 0, end=key(2000 + number))
    assert kept(engine) == KEPT_MAX
    read(engine, PORTION, end=key(2000))
    read(engine, PORTION, end=key(2000 + KEPT_MAX + 2))
    assert kept(engine) == KEPT_MAX


def test_none_is_kept_for_long(engine: RocksEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next write, or the next read, ends it."""
    read(engine, 0)
    engine.write([(0, b"a", b"b")])
    assert kept(engine) == 1
    monkeypatch.setattr(shards.engine_kept, "KEPT_S", -1.0)
    engine.write([(0, b"a", b"b")])
    assert kept(engine) == 0
    read(engine, 0)
    assert read(engine, PORTION, end=key(2000)) == list(range(PORTION, 2 * PORTION))
    assert kept(engine) == 1, "that of the second"


def test_a_family_that_is_dropped_is_not_read_on(engine: RocksEngine) -> None:
    """Nor is its space held; made again it is empty."""
    read(engine, 0)
    engine.drop_family(1)
    assert kept(engine) == 0
    with pytest.raises(FamilyMissing):
        read(engine, PORTION)
    engine.create_family(1)
    assert read(engine, PORTION) == []


def test_damage_further_on_is_told(engine: RocksEngine, tmp_path: Path) -> None:
    """An iterator of this kind ends at it as at the last entry."""
    engine.compact(1)
    engine.close()
    table = max((tmp_path / "store").glob("*.sst"), key=lambda path: path.stat().st_size)
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2] + bytes(2000) + whole[len(whole) // 2 + 2000 :])
    again = RocksEngine(str(tmp_path / "store"))
    found: list[int] = []
    with pytest.raises(StoreDamaged):
        read_on(again, found)
    assert PORTION < len(found) < COUNT - 1 and found == list(range(len(found)))
    again.close()
