"""Stores that former commits wrote are opened, read, gone on with and worked on. tests/golden/make.py made them."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

import pytest

from shards.engine import Engine, Op, index_of
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.layouts.registry import LAYOUTS
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.salvage import open_store
from shards.store import Store
from tests.golden.make import HERE, THEN, digest
from tests.shards.topic_model import matches

FILTERS = (
    "#",
    "hot/#",
    "device/+/t",
    "device/7/+",
    "device/3/t",
    "fleet/+/sensor/4",
    "fleet/5/sensor/+",
    "fleet/2/sensor/2",
    "$special/#",
    "+/+",
)
MANY = 1 << 40
NAMES = sorted(path.stem for path in HERE.glob("*.zip"))
Line = tuple[int, str, str]


def expected(name: str) -> list[Line]:
    found = []
    for line in (HERE / f"{name}.txt").read_text().splitlines():
        position, rest = line.split(" ", 1)
        topic, value = rest.rsplit(" ", 1)
        found.append((int(position), str(ast.literal_eval(topic)), value))
    return found


def unpacked(name: str, directory: Path) -> RocksEngine:
    with zipfile.ZipFile(HERE / f"{name}.zip") as packed:
        packed.extractall(directory / "store")
    return RocksEngine(str(directory / "store"))


def copied(engine: Engine) -> MemoryEngine:
    copy = MemoryEngine()
    families = engine.families()
    for family in (*families, *[index_of(family) for family in families if family and engine.has_family(index_of(family))]):
        if family:
            copy.create_family(family)
        copy.write([(family, key, value) for key, value in engine.scan(family, b"", b"\xff" * 64, MANY)])
    return copy


def check(store: Store, lines: list[Line], upto: int) -> None:
    for topic_filter in FILTERS:
        found = []
        for generation, stream in store.streams(topic_filter.encode(), 0):
            place, done = 0, False
            while not done:
                read = store.read(generation, stream, place, upto, 7, MANY, MANY)
                found += [(position, digest(value)) for position, value in read.messages]
                place, done = read.place, read.done
        assert sorted(found) == [
            (position, value) for position, topic, value in lines if position <= upto and matches(topic_filter.encode(), topic.encode())
        ], topic_filter


@pytest.mark.slow
@pytest.mark.parametrize("engine_name", ["rocksdb", "memory"])
@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_a_former_commit_is_read_and_gone_on_with(name: str, engine_name: str, tmp_path: Path) -> None:
    # Property: every message is found, before and after idle work, new messages and a roll, cut off anywhere, under any options.
    stored = unpacked(name, tmp_path)
    engine: Engine = stored if engine_name == "rocksdb" else copied(stored)
    store = Store.open(engine, StoreOptions())
    lines = expected(name)
    last = lines[-1][0]
    apart = name.endswith("-apart")
    assert engine.has_family(index_of(1)) == apart, "an index is among the messages of its generation where that began with it"
    assert not store.lost_at_open and len(store.generations()) == (8 if name.endswith("-classes") else 3)
    for upto in (last, lines[len(lines) // 2][0], lines[10][0] - 1):
        check(store, lines, upto)
    while store.idle_work(last):
        pass
    check(store, lines, last)
    for _ in range(2):
        last += 1
        ops: list[Op] = []
        value = encode_message(1, 5, b"new", b"device/7/t", b"\0")
        store.append(ops, store.key_of(b"device/7/t"), last, value)
        store.flush(ops)
        engine.write(store.take_growth() + ops)
        lines.append((last, "device/7/t", digest(value)))
        last += 1
        engine.write(store.roll(last, 0, 0))
    while store.idle_work(last):
        pass
    check(store, lines, last)
    store.check()
    engine.close()
    if engine is not stored:
        stored.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-classes")])
def test_the_classes_of_a_former_commit_are_what_they_were(name: str, tmp_path: Path) -> None:
    # Property: the class of each generation, how long it is kept, the map in force and what was dropped are read as they were written.
    stored = unpacked(name, tmp_path)
    store = Store.open(stored, StoreOptions(classes=THEN))
    assert not store.map_changed
    store.check()
    kept = [(info.id, info.klass, info.until is None, store.period_ms(info, 7)) for info in store.generations()]
    assert kept == [
        (1, "default", False, 7),
        (2, "odd", False, 80_000),
        (3, "fleet", False, 1 << 62),
        (4, "default", False, 7),
        (6, "fleet", False, 1 << 62),
        (7, "default", True, 7),
        (8, "hot", True, 1_000),
        (9, "odd", True, 80_000),
    ]
    (gone,) = store.dropped_between(0, MANY)
    assert gone == (5, "odd", kept_since(store, 4), kept_since(store, 7), 30, 55, 1_800_000_000_000, "by hand")
    assert store.dropped_between(kept_since(store, 7) - 1, MANY) == []
    stored.close()


def kept_since(store: Store, generation: int) -> int:
    return next(info.since for info in store.generations() if info.id == generation)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-apart")])
def test_an_index_that_was_lost_is_made_anew(name: str, tmp_path: Path) -> None:
    # Property: also that of a sealed generation, and until then everything is found without it.
    engine = unpacked(name, tmp_path)
    table = max(engine.tables(index_of(1)))
    engine.close()
    (tmp_path / "store" / table).unlink()
    engine = open_store(str(tmp_path / "store"))
    assert not engine.has_family(index_of(1)) and any("the index of generation 1" in said for said in engine.damage_found)
    store, lines = Store.open(engine, StoreOptions()), expected(name)
    check(store, lines, lines[-1][0])
    while store.idle_work(lines[-1][0]):
        pass
    assert engine.has_family(index_of(1))
    check(store, lines, lines[-1][0])
    engine.close()


def test_every_layout_has_a_golden_store() -> None:
    # Property: a layout that ships is one that later commits promise to read.
    without = set(LAYOUTS) - {name.split("-")[0] for name in NAMES}
    assert not without, f"make one for {sorted(without)}, once: python -m tests.golden.make NAME"
