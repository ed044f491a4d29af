"""A shard's store that ends before any one of the steps of writing, idle work, rolling, dropping and erasing, and is opened again.

The steps are the calls to the engine that change something: whatever the code does between two of them is in memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shards.engine import HOME_FAMILY, Engine, Op, index_of
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.layouts.registry import LAYOUTS
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import GenerationDropped, Store
from tests.contracts.disks import copy_of_living
from tests.contracts.layouts import OPENERS
from tests.shards.damage import read_all

STEPS_MAX = 400
RECORDS, MESSAGES, GENERATIONS = 4, 3, 3


class Stopped(Exception):
    """The process ends here."""


class Stopping:
    """The changing calls of an engine, counted."""

    def __init__(self, engine: Engine, stop_at: int) -> None:
        self._engine = engine
        self._stop_at = stop_at
        self.taken = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def _step(self) -> None:
        self.taken += 1
        if self.taken == self._stop_at:
            raise Stopped

    def create_family(self, family: int) -> None:
        self._step()
        self._engine.create_family(family)

    def drop_family(self, family: int) -> None:
        self._step()
        self._engine.drop_family(family)

    def write(self, ops: Sequence[Op]) -> None:
        self._step()
        self._engine.write(ops)

    def sync(self) -> None:
        self._step()
        self._engine.sync()


class Life:
    """What was written and promised. records: the messages of each, in their order; synced: how many of them are safe."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self.records: list[list[tuple[int, bytes]]] = []
        self.synced = 0
        self.position = 0
        self.dropping = 0
        self.dropped = 0

    def record(self, engine: Stopping | Engine, store: Store, count: int) -> None:
        ops: list[Op] = []
        written: list[tuple[int, bytes]] = []
        for _ in range(count):
            self.position += 1
            topic = b"a/%d/t" % (self.position % 5)
            value = encode_message(1, 0, b"p", topic, b"\x00%d" % self.position)
            store.append(ops, store.key_of(topic), self.position, value)
            written.append((self.position, value))
        store.flush(ops)
        self.records.append(written)
        engine.write([*store.take_growth(), *ops, (HOME_FAMILY, b"x", b"%d" % self.position)])

    def sync(self, engine: Stopping | Engine) -> None:
        safe = len(self.records)
        engine.sync()
        self.synced = safe

    def run(self, engine: Stopping | Engine) -> None:
        store = Store.open(engine, self.options)  # type: ignore[arg-type]
        for generation in range(1, GENERATIONS + 1):
            for number in range(RECORDS):
                self.record(engine, store, MESSAGES)
                if number % 2:
                    self.sync(engine)
                    store.idle_work(self.position)
            if generation == GENERATIONS:
                return
            if generation == 1:
                store.create_next()
            self.position += 1
            self.records.append([])
            engine.write(store.roll(self.position, 1, 1))
            self.record(engine, store, 1)
            self.sync(engine)
            for _ in range(12):
                store.idle_work(self.position)
            if generation == 2:
                self.dropping = 1
                engine.write(store.drop(1))
                self.sync(engine)
                self.dropped = 1
                store.erase_index(1)
                store.erase(1)

    def check(self, engine: Engine, power: bool) -> None:
        """Nothing promised is lost, nothing is half there, nothing is left over, and it goes on."""
        store = Store.open(engine, self.options)
        store.check()
        infos = store.generations()
        assert engine.families() == [HOME_FAMILY, *[info.id for info in infos]], "no family without a row"
        assert infos[0].id == 1 or not engine.has_family(index_of(1)), "and no index without its messages"
        assert store.lost_at_open == ()
        gone = infos[0].since
        if gone:
            assert infos[0].id == 2 and self.dropping
            with pytest.raises(GenerationDropped):
                store.generation_of(gone - 1)
        else:
            assert not self.dropped, "a drop that was synced stays"
        found = sorted(message for info in infos for message in read_all(store, info.id))
        for records in range(len(self.records) if not power else self.synced, len(self.records) + 1):
            if found == [message for record in self.records[:records] for message in record if message[0] >= gone]:
                break
        else:
            # The last record may have been the one that was not written; a killed process loses no other.
            done = [message for record in self.records[:-1] for message in record if message[0] >= gone]
            assert not power and found == done and self.synced < len(self.records), (found, self.synced)
        for info in infos:
            inside = [position for position, _ in read_all(store, info.id)]
            assert all(info.since <= position and (info.until is None or position < info.until) for position in inside)
        before = found
        self.position += 100
        engine.write(store.roll(self.position, 1, 1))
        self.record(engine, store, 2)
        for _ in range(40):
            store.idle_work(self.position)
        assert sorted(message for info in store.generations() for message in read_all(store, info.id)) == before + self.records[-1]


TESTED = {
    "pagestream": StoreOptions("pagestream", (100, 2)),
    "skipstream": StoreOptions("skipstream", (100, 2)),
    "record_batch": StoreOptions("record_batch", (100, 2)),
    "wildcard_optimized": StoreOptions("wildcard_optimized", (100, 2), 8, 9, 1),
}


@pytest.fixture(params=TESTED)
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> StoreOptions:
    # A few dozen messages go through all that happens to an index.
    for name in ("pagestream", "record_batch"):
        monkeypatch.setitem(LAYOUTS, name, OPENERS[f"{name}_small"])
    return TESTED[request.param]


def lives(options: StoreOptions, begin: Callable[[], Engine], end: Callable[[Engine], Engine], power: bool, every: int = 1) -> int:
    """One life for each step at which it can stop; returns how many steps a whole one has."""
    for stop_at in range(1, STEPS_MAX, every):
        life = Life(options)
        engine = begin()
        stopping = Stopping(engine, stop_at)
        try:
            life.run(stopping)
        except Stopped:
            left = end(engine)
            try:
                life.check(left, power)
            finally:
                left.close()
        else:
            return stopping.taken
    raise AssertionError("a life without an end")


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("survivors", [0, 1])
def test_a_store_that_ends_before_any_step_loses_nothing_promised(options: StoreOptions, power: bool, survivors: int) -> None:
    # Property: a killed process loses no record; a power cut none that was synced; no generation is half there, and no family is left.
    def end(engine: Engine) -> Engine:
        assert isinstance(engine, MemoryEngine)
        return engine.crash(power, min(survivors, engine.unsynced_writes) if power else 0)

    steps = lives(options, MemoryEngine, end, power)
    assert steps > 30, "the engine was asked for every step of it"


@pytest.mark.slow
def test_rocksdb_that_is_killed_before_any_step_loses_nothing(options: StoreOptions, tmp_path: Path) -> None:
    # Property: the same on real files: what lies in the directory at that moment opens whole.
    made: list[Path] = []

    def begin() -> Engine:
        made.append(tmp_path / f"made-{len(made)}")
        return RocksEngine(str(made[-1]))

    def end(engine: Engine) -> Engine:
        left = tmp_path / f"left-{len(made)}"
        copy_of_living(made[-1], left)
        engine.close()
        shutil.rmtree(made[-1])
        return RocksEngine(str(left))

    # Every fourth is enough here: the order of the steps is covered by the engine in memory.
    lives(options, begin, end, power=False, every=4)
