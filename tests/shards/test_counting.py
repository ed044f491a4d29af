"""How much each generation holds (shards/counting.py): exact at any moment, whatever ends in between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from shards import counting
from shards.classes import ClassMap, RetentionClass
from shards.engine import Engine, Op, StoreDamaged, StoreFull
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine
from shards.engine_secondary import SecondaryEngine
from shards.frames import LOST, Disconnect, Will
from shards.generations import Generations
from shards.layouts.registry import LAYOUTS
from shards.logical import Message, MessageLog
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Counts, GenerationDropped, Store
from tests.shards.harness import G, Harness, S, connect, linked, publish, route

ROW = bytes(7) + b"\x04"
MARK = bytes(7) + b"\x05"
ALL = 1 << 62
CLASSES = ClassMap((RetentionClass("gold", b"gold/#", 1000), RetentionClass("dust", b"+/dust", 10)))


def value_of(topic: bytes, size: int) -> bytes:
    return encode_message(1, 0, b"p", topic, bytes(size))


class Kept:
    """A store, and a list of what is written to it. Records are written by `write`, or lost."""

    def __init__(self, options: StoreOptions | None = None, engine: Engine | None = None) -> None:
        self.options = options or StoreOptions()
        self.engine: Engine = engine if engine is not None else MemoryEngine()
        self.store = Store.open(self.engine, self.options)
        self.messages: list[tuple[int, int, bytes]] = []
        """(generation, position, value) of all that is written."""
        self.last = 0

    def record(self, *messages: tuple[bytes, int]) -> tuple[list[Op], list[tuple[int, int, bytes]]]:
        ops: list[Op] = []
        put: list[tuple[int, int, bytes]] = []
        for topic, size in messages:
            self.last += 1
            key, value = self.store.key_of(topic), value_of(topic, size)
            self.store.append(ops, key, self.last, value)
            put.append((key.generation, self.last, value))
        self.store.flush(ops)
        return [*self.store.take_growth(), *ops], put

    def put(self, *messages: tuple[bytes, int]) -> None:
        ops, put = self.record(*messages)
        self.engine.write(ops)
        self.messages += put

    def roll(self, klass: str | None = None) -> None:
        self.last += 1
        self.engine.write(self.store.roll(self.last, 0, 0, klass))

    def check(self, store: Store | None = None) -> int:
        """All counts and marks against the list; how many marks there are."""
        store = store or self.store
        marks = 0
        for info in store.generations():
            held = [(position, len(value)) for generation, position, value in self.messages if generation == info.id]
            assert store.counts(info.id) == (len(held), sum(size for _, size in held)), info
            places = []
            for position, rows, size in store.marks(info.id, -1, ALL):
                below = [each for at, each in held if at < position]
                assert (rows, size) == (len(below), sum(below)), (info.id, position)
                places.append(position)
            assert places == sorted(places)
            assert len(places) <= len(held) // counting.MARK_ROWS
            marks += len(places)
        return marks


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_counts_and_marks_are_what_a_list_says(layout: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: at any moment, over records of any size, rolls of a class or of all, kills, power cuts that keep any part of what was not
    # synced, and records that a full disk refused and that come again: the rows in the engine are exactly what is written, and so are all
    # marks; a store that was opened goes on from them.
    monkeypatch.setattr(counting, "MARK_ROWS", 8)
    rng = random.Random(seed)
    engine = MemoryEngine()
    kept = Kept(StoreOptions(layout, classes=CLASSES if seed % 2 else ClassMap()), engine)
    engine.sync()
    states: list[tuple[int, int]] = []
    """(written messages, last position) after each write since the last sync."""
    synced = (0, 0)
    marks = 0
    for _ in range(80):
        what = rng.random()
        if what < 0.6:
            topics = [rng.choice((b"a/%d", b"gold/%d", b"x/dust", b"b")) for _ in range(rng.choice((1, 3, 20)))]
            ops, put = kept.record(*((each % rng.randrange(200) if b"%" in each else each, rng.randrange(60)) for each in topics))
            if rng.random() < 0.1:
                engine.fail_next_write()
                with pytest.raises(StoreFull):
                    engine.write(ops)
                if rng.random() < 0.5:
                    # It is held, with another one behind it.
                    more, behind = kept.record((b"b", 1))
                    ops, put = ops + more, put + behind
            engine.write(ops)
            kept.messages += put
            states.append((len(kept.messages), kept.last))
        elif what < 0.7:
            kept.roll(rng.choice([None, *(info.klass for info in kept.store.currents())]))
            states.append((len(kept.messages), kept.last))
        elif what < 0.8:
            engine.sync()
            synced, states = (len(kept.messages), kept.last), []
        elif what < 0.9:
            kept.store.idle_work(kept.last)
            engine.sync()
            synced, states = (len(kept.messages), kept.last), []
        else:
            power = rng.random() < 0.6
            survivors = rng.randint(0, len(states)) if power else len(states)
            count, kept.last = ([synced, *states])[survivors]
            del kept.messages[count:]
            engine = engine.crash(power=power, survivors=survivors)
            kept.engine = engine
            kept.store = Store.open(engine, kept.options)
            engine.sync()
            synced, states = (count, kept.last), []
        marks += kept.check()
    assert marks


def test_a_mark_comes_with_every_1024_messages_and_says_what_is_below_it() -> None:
    # Property: about one for 1,024 messages, whatever the records; asking for a part gives that part; bounds are (after, upto].
    kept = Kept()
    for count in (1000, 23, 1, 1, 2500, 10):
        kept.put(*[(b"a/%d" % (n % 50), n % 7) for n in range(count)])
    kept.check()
    marks = kept.store.marks(1, -1, ALL)
    assert [(mark.position, mark.rows) for mark in marks] == [(1025, 1024), (3526, 3525)]
    assert kept.store.marks(1, 1025, 3526) == marks[1:] and kept.store.marks(1, 1024, 3525) == marks[:1]
    assert kept.store.marks(1, 1025, 3525) == [] == kept.store.marks(1, 3526, ALL)
    for _ in range(100):
        kept.put(*[(b"b", 0)] * 7)
        kept = _reopened(kept)
    assert len(kept.store.marks(1, -1, ALL)) == 3, "restarts between all records take no mark away"
    kept.check()


def _reopened(kept: Kept) -> Kept:
    kept.store = Store.open(kept.engine, kept.options)
    return kept


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_layout_reads_a_count_or_a_mark(layout: str) -> None:
    # Property: reading every stream of everything gives the messages and nothing else, before and after idle work and a seal.
    kept = Kept(StoreOptions(layout, (0,)))
    for _ in range(40):
        kept.put(*[(b"a/%d" % (n % 90), 3) for n in range(99)], (b"b", 1))
    for _ in range(2):
        while kept.store.idle_work(kept.last):
            pass
        streams = [(generation, stream.static) for generation, stream in kept.store.streams(b"#", -1)]
        found = kept.store.read_range(b"#", streams, -1, kept.last)
        assert found == [(position, value) for _, position, value in kept.messages]
        assert kept.check() == 3
        kept.roll()
    kept = _reopened(kept)
    assert kept.check() == 3 and kept.store.counts(3) == (0, 0)


def test_a_generation_that_was_begun_without_counts_stays_unknown_and_the_next_is_counted() -> None:
    # Property: an older store is gone on with, and no number is made up for it; nor is a row begun in it.
    kept = Kept()
    kept.put(*[(b"a", 1)] * 2000)
    kept.engine.write(
        [(1, ROW, None), *((1, bytes(7) + b"\x05" + m.position.to_bytes(8, "big"), None) for m in kept.store.marks(1, -1, ALL))]
    )
    kept = _reopened(kept)
    kept.put(*[(b"a", 1)] * 2000)
    assert kept.store.counts(1) is None and kept.store.marks(1, -1, ALL) == [] and kept.engine.get(1, ROW) is None
    kept.roll()
    assert kept.store.counts(1) is None and kept.store.counts(2) == (0, 0)
    kept.put((b"a", 1))
    assert kept.store.counts(2) == (1, len(kept.messages[-1][2]))
    kept = _reopened(kept)
    kept.put((b"a", 1))
    found = kept.store.counts(2)
    assert found is not None and found.rows == 2 and kept.store.counts(1) is None


def test_an_empty_generation_without_counts_is_counted_from_its_first_message() -> None:
    # Property: where nothing is, nothing is missed.
    kept = Kept()
    kept.engine.write([(1, ROW, None)])
    kept = _reopened(kept)
    assert kept.store.counts(1) is None
    kept.put((b"a", 1), (b"b", 2))
    assert kept.check() == 0 and kept.store.counts(1) is not None


def test_what_is_gone_raises_and_a_generation_that_never_was_is_a_fault() -> None:
    # Property: never zeros for what was dropped.
    kept = Kept()
    kept.put((b"a", 1))
    kept.roll()
    kept.engine.write(kept.store.drop(1))
    for ask in (lambda: kept.store.counts(1), lambda: kept.store.marks(1, -1, ALL)):
        with pytest.raises(GenerationDropped):
            ask()
    with pytest.raises(LookupError):
        kept.store.counts(7)


def test_a_record_that_is_thrown_away_is_not_counted() -> None:
    # Property: the storage as a library gives a refused append back to its caller: what is there afterwards is what is counted, what was
    # learned is kept, and so nothing is hidden of what follows.
    engine = MemoryEngine()
    log = MessageLog(engine, StoreOptions())
    log.append([Message(b"a/b", b"1")])
    engine.fail_next_write()
    with pytest.raises(StoreFull):
        log.append([Message(b"a/c", b"2"), Message(b"a/b", b"3")])
    assert log.append([Message(b"a/c", b"4")])
    found = log._store.counts(1)
    assert found is not None and found.rows == 2
    assert sorted(message.payload for message in log.subscribe(b"#")) == [b"1", b"4"]
    again = MessageLog(engine.crash(power=False), StoreOptions())
    again.append([Message(b"a/b", b"5")])
    found = again._store.counts(1)
    assert found is not None and found.rows == 3
    assert sorted(message.payload for message in again.subscribe(b"#")) == [b"1", b"4", b"5"]


class _Unreadable(MemoryEngine):
    """Its counts lie in a block that is broken, until they are written again."""

    def get(self, family: int, key: bytes) -> bytes | None:
        if key == ROW and family == 1 and super().get(family, key) is not None:
            raise StoreDamaged("checksum mismatch")
        return super().get(family, key)


def test_a_count_that_cannot_be_read_is_unknown_and_the_store_opens() -> None:
    # Property: damage stops no shard from opening, and no old number stays behind when counting has ended.
    kept = Kept()
    kept.put((b"a", 1))
    broken = _Unreadable()
    assert isinstance(kept.engine, MemoryEngine)
    broken._families = kept.engine.crash(power=False)._families
    kept.engine = broken
    kept = _reopened(kept)
    kept.put((b"a", 1))
    assert kept.store.counts(1) is None
    kept.roll()
    kept.put((b"a", 1))
    assert kept.store.counts(2) is not None


def test_messages_of_a_shard_are_counted() -> None:
    # Property: through the core, over a restart: what is stored is counted, and what is not is not.
    h = linked()
    route(h, b"#")
    conn = connect(h, b"p").conn
    for number in range(5):
        h.ask(G, publish(b"p", conn, b"a", b"b/%d" % number, ids=[2 * number + 1, 2 * number + 2]))
    h.ask(G, publish(b"p", conn, b"a", qos=0))
    assert h.core._store.counts(1) is not None
    assert h.core._store.counts(1) == Counts(10, h.core.counters["bytes_stored"])
    h.reopen()
    h.link(G, "gateway", "g0:b")
    h.link(S, "session", "s0:b")
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a"))
    found = h.core._store.counts(1)
    assert found is not None and found.rows == 11 and h.core.counters["messages_stored"] == 1


def test_a_frame_that_stores_nothing_writes_no_count() -> None:
    # Property: one row in a record with messages, none in any other.
    h = linked()
    conn = connect(h, b"p").conn
    written: list[Op] = []
    write = h.engine.write

    def watched(ops: Sequence[Op]) -> None:
        written.extend(ops)
        write(ops)

    h.engine.write = watched  # type: ignore[method-assign]
    h.ask(G, publish(b"p", conn, b"a"))
    assert [op for op in written if op[0] == 1] == []
    route(h, b"a")
    written.clear()
    h.ask(G, publish(b"p", conn, b"a", b"a", ids=[5, 6]))
    assert len([op for op in written if op[:2] == (1, ROW)]) == 1


def test_counts_and_marks_are_seen_by_a_secondary(tmp_path: Path) -> None:
    # Property: a reader of the files is told the same, without a question to the shard.
    path = str(tmp_path / "store")
    kept = Kept(engine=RocksEngine(path))
    kept.put(*[(b"a/%d" % n, n % 9) for n in range(1500)])
    kept.roll()
    kept.put((b"b", 2))
    engine = SecondaryEngine(path, str(tmp_path / "scratch"))
    try:
        assert kept.check(Store(engine, Generations.view(engine))) == 1
    finally:
        engine.close()
        kept.engine.close()


def test_a_store_is_counted_on_over_real_restarts(tmp_path: Path) -> None:
    # Property: on RocksDB, closed in order.
    kept = Kept(StoreOptions(classes=CLASSES), RocksEngine(str(tmp_path / "store")))
    for _ in range(3):
        kept.put(*[(b"a/%d" % n, n % 9) for n in range(600)], (b"gold/x", 4))
        kept.engine.close()
        kept.engine = RocksEngine(str(tmp_path / "store"))
        kept = _reopened(kept)
    assert kept.check() == 1
    kept.engine.close()


def test_a_will_is_counted() -> None:
    # Property: what a shard stored of wills is in it as well.
    h = Harness()
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    route(h, b"#")
    conn = connect(h, b"w", will=Will(b"w/t", 1, False, 0, b"\0bye")).conn
    h.ask(G, Disconnect(b"w", conn, LOST, None))
    found = h.core._store.counts(1)
    assert found is not None and found.rows == 1
