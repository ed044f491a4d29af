"""Retention classes over any history, against lists: maps that change, rolls, drops, kills and power cuts (shards/generations.py)."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.engine import Op
from shards.engine_memory import MemoryEngine
from shards.frames import Place, Poll
from shards.generations import GenerationDropped
from shards.messages import encode_message, topic_of
from shards.options import StoreOptions
from shards.reading import Reader
from shards.store import StaleKey, Store, TopicKey
from shards.tail import Tail
from tests.shards.topic_model import any_filter, any_topic, matches

MANY = 1 << 40
DEFAULT_MS = 777
LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")


def any_map(rng: random.Random) -> ClassMap:
    names = rng.sample(("gold", "a-1", "b_2", "z"), rng.randint(0, 3))
    return ClassMap(tuple(RetentionClass(name, any_filter(rng) or b"+", rng.randint(1, 9)) for name in names))


def class_of(classes: ClassMap, topic: bytes) -> str:
    return next((each.name for each in classes.classes if matches(each.filter, topic)), "default")


@dataclass
class Generation:
    klass: str
    since: int
    until: int | None = None
    left_ms: int = 0
    """The last period of its class, once that is in the map no more."""


@dataclass
class OnDisk:
    """What a store should hold."""

    generations: dict[int, Generation]
    in_force: ClassMap
    messages: list[tuple[int, bytes, bytes, int]] = field(default_factory=list)
    """position, topic, value, generation"""
    dropped: dict[int, Generation] = field(default_factory=dict)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.engine = MemoryEngine()
        self.wanted = any_map(rng)
        self.last = 0
        self.keys: dict[bytes, TopicKey] = {}
        self.rolls = 0
        self._open()
        self.engine.sync()
        names = self.wanted.names
        self.now = OnDisk({number: Generation(name, 0) for number, name in enumerate(names, 1)}, self.wanted)
        self.unsynced: list[OnDisk] = []
        self.synced = deepcopy(self.now)
        self.synced_upto = 0
        self.told: list[tuple[int, bytes]] = []
        self.place = Place(0)

    def _open(self) -> None:
        rng = self.rng
        self.options = StoreOptions(
            rng.choice(LAYOUTS), rng.choice(((100, 10), (2, 1), (0,))), epoch_bits=rng.choice((3, 64)), classes=self.wanted
        )
        self.store = Store.open(self.engine, self.options)
        self.reader = Reader(self.store, Tail(1 << 62, 1), waits=False)
        self.keys = {}

    def _write(self, ops: list[Op]) -> None:
        self.engine.write([*self.store.take_growth(), *ops])
        self.now.in_force = self.store._generations.classes
        self.unsynced.append(deepcopy(self.now))

    def sync(self) -> None:
        self.engine.sync()
        self.synced, self.unsynced = deepcopy(self.now), []
        self.synced_upto = self.last

    # ---- what may happen

    def publish(self) -> None:
        ops: list[Op] = []
        if self.rolls != self.store.rolls:
            self.keys, self.rolls = {}, self.store.rolls
        current = {each.klass: number for number, each in self.now.generations.items() if each.until is None}
        rng = self.rng
        few = [any_topic(rng) for _ in range(rng.randint(1, 10))]
        # Often one busy topic in each of two classes: so much of a topic in one record that a layout holds it back until the record ends.
        topics = few if rng.random() < 0.6 else [topic for topic in rng.sample((b"a", b"b", b"c/a", b"0/0"), 2) for _ in range(20)]
        for topic in topics:
            self.last += rng.randint(1, 3)
            key = self.keys.get(topic) or self.keys.setdefault(topic, self.store.key_of(topic))
            assert key.generation == current[class_of(self.now.in_force, topic)], "invariant 3"
            value = encode_message(0, self.last, b"p", topic, b"\0")
            self.store.append(ops, key, self.last, value)
            self.now.messages.append((self.last, topic, value, key.generation))
        self.store.flush(ops)
        self._write(ops)

    def roll(self) -> None:
        self.last += 1
        now = self.now
        klass = self.rng.choice((None, *now.in_force.names))
        ops = self.store.roll(self.last, 0, 0, klass)
        names = (klass,) if klass is not None else self.wanted.names
        for each in now.generations.values():
            if each.until is None and (klass is None or each.klass == klass):
                each.until = self.last
        if klass is None:
            for left in now.in_force.classes:
                if left.name not in names:
                    for each in now.generations.values():
                        if each.klass == left.name:
                            each.left_ms = left.period_ms
        newest = max(now.generations)
        for number, name in enumerate(names, newest + 1):
            now.generations[number] = Generation(name, self.last)
        self._write(ops)

    def change(self) -> None:
        """Another map, or only other periods, or back to that in force."""
        rng = self.rng
        same = tuple(RetentionClass(each.name, each.filter, rng.randint(1, 9)) for each in self.store._generations.classes.classes)
        self.wanted = rng.choice((any_map(rng), any_map(rng), ClassMap(same)))
        self.store.change(StoreOptions(self.options.layout, classes=self.wanted))
        assert self.store.map_changed != self.wanted.sorts_as(self.now.in_force)
        self._write([])

    def drop(self) -> None:
        sealed = [number for number, each in self.now.generations.items() if each.until is not None]
        if not sealed:
            return
        number = self.rng.choice(sealed)
        self._write(self.store.drop(number, 5))
        self.now.dropped[number] = self.now.generations.pop(number)
        self.now.messages = [message for message in self.now.messages if message[3] != number]
        self.unsynced[-1] = deepcopy(self.now)
        self.sync()
        self.store.erase(number)

    def die(self) -> None:
        power = self.rng.random() < 0.5
        survivors = self.rng.randint(0, len(self.unsynced)) if power else len(self.unsynced)
        self.engine = self.engine.crash(power=power, survivors=survivors)
        self.now = deepcopy([self.synced, *self.unsynced][survivors])
        if self.rng.random() < 0.5:
            self.wanted = any_map(self.rng)
        self._open()
        self.unsynced = []
        self.sync()

    def idle(self) -> None:
        if self.rng.random() < 0.5:
            self.store.create_next(of_all=self.rng.random() < 0.5)
        while self.store.idle_work(self.synced_upto) and self.rng.random() < 0.8:
            pass

    def follow(self) -> None:
        """One poll of somebody who follows everything; what was dropped before it was read is missing, and nothing else."""
        if self.place.cut >= self.synced_upto and not self.place.horizon:
            return
        polled = self.reader.poll(Poll(b"+/#", self.place, self.rng.randint(1, 8), 1 << 20), self.synced_upto)
        assert polled is not None
        self.place = polled.place
        for segment in polled.segments:
            self.told += [(position, topic_of(value)) for position, value in zip(segment.positions, segment.values, strict=True)]

    # ---- what always holds

    def check(self) -> None:
        store, now = self.store, self.now
        store.check()
        found = {info.id: (info.klass, info.since, info.until) for info in store.generations()}
        assert found == {number: (each.klass, each.since, each.until) for number, each in now.generations.items()}
        assert store.map_changed == (not self.wanted.sorts_as(now.in_force))
        in_force = self.wanted if not store.map_changed else now.in_force
        for info in store.generations():
            periods = [classes.period_ms(info.klass) for classes in (self.wanted, in_force)]
            wanted = (
                DEFAULT_MS if info.klass == "default" else next((ms for ms in periods if ms is not None), now.generations[info.id].left_ms)
            )
            assert store.period_ms(info, DEFAULT_MS) == wanted, (info, periods)

    def check_reads(self) -> None:
        rng = self.rng
        topic_filter, after = any_filter(rng), rng.randint(-1, self.last)
        upto = rng.randint(after, self.last + 2)
        found: list[tuple[int, bytes]] = []
        for generation, stream in self.store.streams(topic_filter, after):
            place, done = after, False
            while not done:
                read = self.store.read(generation, stream, place, upto, rng.randint(1, 4), MANY, MANY)
                found += read.messages
                place, done = read.place, read.done
        kept = [(at, value) for at, topic, value, _ in self.now.messages if after < at <= upto and matches(topic_filter, topic)]
        assert sorted(found) == kept
        _in_order(found)
        wanted = [
            number
            for number, each in self.now.dropped.items()
            if each.until is not None and max(after + 1, each.since) < min(upto + 1, each.until)
        ]
        assert [row.generation for row in self.store.dropped_between(after, upto)] == sorted(wanted)
        for number in wanted:
            with pytest.raises(GenerationDropped):
                self.store.stream_of(number, b"", b"#")


def _in_order(found: list[tuple[int, bytes]]) -> None:
    by_topic: dict[bytes, int] = {}
    for position, value in found:
        topic = topic_of(value)
        assert by_topic.get(topic, -1) < position, "first in, first out, also when the topic has changed its class"
        by_topic[topic] = position


@pytest.mark.parametrize("seed", range(40))
def test_classes_agree_with_lists_over_any_history(seed: int) -> None:
    # Property: every message is in the generation of its class, read once, in order for its topic; what is dropped is said; a kill or a
    # power cut leaves what was written, with the map that was in force then.
    world = World(seed)
    acts = [world.publish] * 8 + [world.roll] * 3 + [world.change] * 2 + [world.drop, world.die, world.idle] + [world.sync] * 3
    for _ in range(60):
        world.rng.choice(acts)()
        world.check()
    for _ in range(8):
        world.check_reads()


@pytest.mark.parametrize("seed", range(25))
def test_who_follows_gets_everything_once_and_in_order_while_classes_change(seed: int) -> None:
    # Property: one place of constant size is enough for all classes: nothing is left out and nothing comes twice, over rolls of single
    # classes and of all, and over restarts.
    world = World(seed)
    acts = [world.publish] * 6 + [world.roll] * 3 + [world.change] * 2 + [world.die, world.idle] + [world.sync] * 3 + [world.follow] * 8
    for _ in range(80):
        world.rng.choice(acts)()
        world.check()
    world.sync()
    while world.place.horizon or world.place.cut < world.synced_upto:
        world.follow()
    wanted = [(position, topic) for position, topic, _, _ in world.now.messages if matches(b"+/#", topic)]
    assert sorted(world.told) == wanted
    by_topic: dict[bytes, list[int]] = {}
    for position, topic in world.told:
        by_topic.setdefault(topic, []).append(position)
    assert all(older < newer for positions in by_topic.values() for older, newer in pairwise(positions))


def test_a_key_from_before_a_change_of_classes_is_refused() -> None:
    # Property: nothing is stored under the new map by way of the old one.
    store = Store.open(MemoryEngine(), StoreOptions())
    key, rolls = store.key_of(b"a/b"), store.rolls
    store.change(StoreOptions(classes=ClassMap((RetentionClass("gold", b"a/#", 1),))))
    assert store.key_of(b"a/b") == key, "until the roll the old map counts"
    store.roll(10, 0, 0)
    assert store.rolls > rolls and store.key_of(b"a/b").generation == 3
    with pytest.raises(StaleKey, match=r"generation 1, the current one is 2 \(default\) or 3 \(gold\)"):
        store.append([], key, 11, b"")
