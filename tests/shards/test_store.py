"""The store over generations (shards/store.py), against a plain list of messages."""

from __future__ import annotations

import random

import pytest

from shards.engine import Op, index_of
from shards.engine_memory import MemoryEngine
from shards.generations import GenerationDropped
from shards.layouts.registry import UnknownLayout
from shards.lts import StructureMismatch
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Read, StaleKey, Store, TopicKey
from tests.shards.topic_model import any_filter, any_topic, matches

MANY = 1 << 40


class Shard:
    """A store that is written record by record, and the plain list of what it should hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.options = StoreOptions(thresholds=self.rng.choice(((100, 10), (2, 1), (0,), (1, None))))
        self.engine = MemoryEngine()
        self.store = Store.open(self.engine, self.options)
        self.engine.sync()
        self.messages: list[tuple[int, bytes, bytes]] = []
        self.keys: dict[bytes, TopicKey] = {}
        self.last = 0
        self.unsynced = 0

    def publish(self, count: int) -> None:
        ops: list[Op] = []
        for _ in range(count):
            self.last += self.rng.randint(1, 3)
            topic = any_topic(self.rng)
            key = self.keys.get(topic) or self.keys.setdefault(topic, self.store.key_of(topic))
            value = encode_message(0, self.last, b"p", topic, b"\0")
            self.store.append(ops, key, self.last, value)
            self.messages.append((self.last, topic, value))
        self.store.flush(ops)
        self._write(self.store.take_growth() + ops)

    def roll(self) -> None:
        self.last += 1
        self._write(self.store.roll(self.last, 0, 0))
        self.keys = {}

    def drop_oldest(self) -> None:
        oldest = self.store.generations()[0]
        if oldest.until is not None:
            self._write(self.store.drop(oldest.id))
            self.engine.sync()
            self.store.erase(oldest.id)
            self.messages = [message for message in self.messages if message[0] >= oldest.until]

    def restart(self) -> None:
        self.engine = self.engine.crash(power=self.rng.random() < 0.5)
        self.store = Store.open(self.engine, self.options)
        self.keys = {}

    def expected(self, topic_filter: bytes, after: int, upto: int) -> list[tuple[int, bytes]]:
        return [(position, value) for position, topic, value in self.messages if after < position <= upto and matches(topic_filter, topic)]

    def _write(self, ops: list[Op]) -> None:
        self.engine.write(ops)
        self.engine.sync()


@pytest.mark.parametrize("seed", range(25))
def test_what_was_put_is_read_over_rolls_drops_and_restarts(seed: int) -> None:
    # Property: over any history, the streams of a filter hold exactly the matching messages of the kept generations.
    shard = Shard(seed)
    rng = shard.rng
    for _ in range(25):
        action = rng.random()
        if action < 0.12:
            shard.roll()
        elif action < 0.18:
            shard.drop_oldest()
        elif action < 0.26:
            shard.restart()
        else:
            shard.publish(rng.randint(1, 12))
        shard.store.check()
    for _ in range(30):
        topic_filter = any_filter(rng)
        after = rng.randint(-1, shard.last)
        upto = rng.randint(after, shard.last + 2)
        streams = shard.store.streams(topic_filter, after)
        references = [(generation, stream.static) for generation, stream in streams]
        assert references == sorted(set(references)), "by generation, then static key"
        found: list[tuple[int, bytes]] = []
        for generation, stream in streams:
            assert shard.store.stream_of(generation, stream.static, topic_filter) == stream
            place, done = after, False
            while not done:
                read = shard.store.read(generation, stream, place, upto, rng.randint(1, 4), rng.choice((50, MANY)), rng.choice((3, MANY)))
                found += read.messages
                place, done = read.place, read.done
        kept = shard.expected(topic_filter, after, upto)
        assert sorted(found) == kept
        assert shard.store.read_range(topic_filter, references, after, upto) == kept


def test_a_key_from_before_a_roll_is_refused() -> None:
    # Property: nothing is ever written to a sealed generation, even by a caller with an old cache.
    store = Store.open(MemoryEngine(), StoreOptions())
    key = store.key_of(b"a")
    store.roll(10, 0, 0)
    ops: list[Op] = []
    with pytest.raises(StaleKey, match="generation 1, the current one is 2"):
        store.append(ops, key, 11, b"")
    assert ops == []


def test_growth_that_was_given_back_comes_again() -> None:
    # Property: a refused record loses no structure: its growth is in the next record, and messages are found after a crash.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions())
    key = store.key_of(b"a/b")
    growth = store.take_growth()
    assert growth and store.take_growth() == []
    store.give_back(growth)
    store.key_of(b"a/c")
    again = store.take_growth()
    assert again[: len(growth)] == growth and len(again) > len(growth)
    ops = again
    value = encode_message(0, 0, b"", b"a/b", b"\0")
    store.append(ops, key, 5, value)
    store.flush(ops)
    engine.write(ops)
    store = Store.open(engine.crash(power=False), StoreOptions())
    assert store.read_range(b"a/b", [(1, key.static)], 0, 9) == [(5, value)]


def test_a_roll_carries_growth_that_nobody_has_taken() -> None:
    # Property: structure learned for a sealed generation is never left in memory only.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions())
    key = store.key_of(b"a/b")
    ops: list[Op] = []
    store.append(ops, key, 3, encode_message(0, 0, b"", b"a/b", b"\0"))
    engine.write(ops + store.roll(10, 0, 0))
    again = Store.open(engine.crash(power=False), StoreOptions())
    assert [stream.static for _, stream in again.streams(b"#", 0)] == [key.static]


def test_a_stream_ends_when_the_watermark_reaches_the_roll() -> None:
    # Property: `ended` is said only when the roll itself is within upto: before, it may be lost and the generation go on.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions())
    ops: list[Op] = []
    key = store.key_of(b"a")
    value = encode_message(0, 0, b"", b"a", b"\0")
    store.append(ops, key, 5, value)
    store.flush(ops)
    engine.write(store.take_growth() + ops)
    ((generation, stream),) = store.streams(b"a", 0)
    assert store.read(generation, stream, 0, 10, 9, MANY, MANY) == Read([5], [value], 10, True, False)
    engine.write(store.roll(20, 0, 0))
    assert store.read(generation, stream, 10, 19, 9, MANY, MANY) == Read([], [], 19, True, False)
    assert store.read(generation, stream, 10, 20, 9, MANY, MANY) == Read([], [], 20, True, True)
    assert store.read(generation, stream, 0, 20, 9, MANY, MANY).ended
    assert [g for g, _ in store.streams(b"a", 19)] == [1], "until the roll is surely committed, the old one is offered"
    assert store.streams(b"a", 20) == []


def test_reading_a_dropped_generation_names_it() -> None:
    # Property: read, stream_of and read_range say which generation is gone; none gives an empty answer.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions())
    key = store.key_of(b"a")
    ((generation, stream),) = store.streams(b"a", 0)
    engine.write(store.take_growth() + store.roll(20, 0, 0) + store.drop(1))
    for erased in (False, True):
        if erased:
            store.erase(1)
        with pytest.raises(GenerationDropped, match="generation 1 "):
            store.read(generation, stream, 0, 30, 1, 1, 1)
        with pytest.raises(GenerationDropped, match="generation 1 "):
            store.stream_of(1, key.static, b"a")
        with pytest.raises(GenerationDropped, match="generation 1 "):
            store.read_range(b"a", [(1, key.static)], 0, 30)
        with pytest.raises(GenerationDropped):
            store.generation_of(3)
    assert [info.id for info in store.generations()] == [2]


def test_a_place_is_not_read_with_a_filter_it_does_not_belong_to() -> None:
    # Property: a mixed-up place is a loud mistake, not an empty range.
    store = Store.open(MemoryEngine(), StoreOptions())
    key = store.key_of(b"a/b")
    with pytest.raises(StructureMismatch):
        store.read_range(b"a/c", [(1, key.static)], 0, 9)


def test_a_change_of_the_layout_is_live_at_the_next_roll() -> None:
    # Property: generations keep what they were made with; the next one is made as configured then, without a restart or with one.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions("skipstream", (9,)))
    stored: list[tuple[int, bytes]] = []

    def publish(position: int) -> None:
        ops: list[Op] = []
        value = encode_message(0, position, b"p", b"a/b", b"\0")
        store.append(ops, store.key_of(b"a/b"), position, value)
        store.flush(ops)
        engine.write(store.take_growth() + ops)
        stored.append((position, value))

    publish(1)
    store.change(StoreOptions("record_batch", (0,)))
    publish(2)
    engine.write(store.roll(10, 0, 0))
    publish(11)
    with pytest.raises(UnknownLayout):
        store.change(StoreOptions("from_the_future"))
    engine.write(store.roll(20, 0, 0))
    publish(21)
    engine.sync()
    engine = engine.crash(power=True)
    store = Store.open(engine, StoreOptions("wildcard_optimized_v2", (5,)))
    publish(22)
    engine.write(store.roll(30, 0, 0))
    publish(31)
    made = [(info.layout, info.options.thresholds) for info in store.generations()]
    assert made == [("skipstream", (9,)), ("record_batch", (0,)), ("record_batch", (0,)), ("skipstream", (5,))]
    references = [(int(generation), stream.static) for generation, stream in store.streams(b"a/+", 0)]
    assert store.read_range(b"a/+", references, 0, 40) == stored


def test_idle_work_for_a_sealed_generation_waits_for_its_last_messages() -> None:
    # Property: a roll that is submitted long before it is committed does not leave the old generation unfinished.
    engine = MemoryEngine()
    store = Store.open(engine, StoreOptions("record_batch", (0,)))
    ops: list[Op] = []
    for position in range(1, 200):
        store.append(ops, store.key_of(b"d/%d" % (position % 7)), position, encode_message(0, 0, b"", b"d/%d" % (position % 7), b"\0"))
    store.flush(ops)
    engine.write(store.take_growth() + ops + store.roll(260, 0, 0))

    def pages() -> int:
        return len(engine.scan(index_of(1), bytes(7) + b"\x03", bytes(7) + b"\x04", 1000)) if engine.has_family(index_of(1)) else 0

    assert not store.idle_work(0) and pages() == 0
    while store.idle_work(260):
        pass
    assert pages() == 2, "one for each varying level"
