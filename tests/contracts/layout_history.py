"""One store driven through a random history, and compared with a plain list of messages.

Records of any size over the shapes of topics, syncs, rolls to any layout, drops, idle work, full disks, several readers with places that
survive, and reads of everything that was read before. The process dies at any point between two steps and within one, by a kill,
after which everything written is there, or by a power cut, after which a prefix of the writes is there that has all that was synced; then a
restart may give positions again that were lost.

What is never allowed: that anything below the watermark is lost, told twice, told out of order or told anew as something else; that
anything above it is told; that a generation which was dropped is read as an empty one.
"""

from __future__ import annotations

import random
from itertools import groupby
from typing import NamedTuple

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.engine import HOME_FAMILY, Op, StoreFull
from shards.frames import Place
from shards.layouts.pagestream import PageStream
from shards.layouts.port import Layout
from shards.layouts.record_batch import RecordBatch
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.reading import Reader
from shards.store import GenerationDropped, Store, Stream, TopicKey
from shards.tail import Tail
from tests.contracts.disks import Disk
from tests.contracts.layout_model import MANY, Call, Message, Model, Poller, Range, Told, Walker, difference
from tests.contracts.topic_shapes import SHAPES, some_filter

THRESHOLDS: tuple[tuple[int | None, ...], ...] = ((100, 10), (100, 2), (2, 1), (0,), (1, 0), (3, None), (None,))
KEYS = ((64, 20, 4), (8, 9, 1), (16, 7, 1), (8, 12, 2), (24, 64, 4), (8, 1, 1))
"""bits_per_topic_level, epoch_bits, topic_index_bytes: also such that epochs are short and much is equal."""

_POSITION_ROW = b"mposition"
_READER_ROW = b"mreader"
_LONG_PAUSE = 1 << 21
_NO_TAIL = 1 << 62
_CHECKED_AGAIN = 12


class Known(NamedTuple):
    """A topic, and how it lies in the structure of its class."""

    topic: bytes
    klass: str
    layout: str
    levels: tuple[bytes | None, ...]
    varying: list[bytes]


class Died(Exception):
    """The process was killed in the middle of a step."""


class History:
    """watermark: everything up to here is synced, so it may be read and is never lost. written: the last record that is written."""

    def __init__(self, seed: str, layouts: tuple[str, ...], disk: Disk) -> None:
        self.rng = random.Random(seed)
        self.layouts = layouts
        self.disk = disk
        self.thresholds = self.rng.choice(THRESHOLDS)
        self.shape = self.rng.choice(SHAPES)(self.rng)
        self.size_max = self.rng.choice((0, 20, 20, 300, 9000))
        self.maps = [ClassMap()]
        self.model = Model()
        self.calls: list[Call] = []
        self.ranges: list[Range] = []
        self.last = self.written = self.watermark = self.serial = 0
        self.keys: dict[bytes, TopicKey] = {}
        self.waiting: list[tuple[int, int]] = []
        self.held: list[Op] = []
        self.saved: list[Op] = []
        self.dies = False
        self.happened = {"messages": 0, "rolls": 0, "drops": 0, "folds": 0, "refused": 0, "kills": 0, "power cuts": 0, "messages lost": 0}
        topics = [self.shape(self.rng) for _ in range(20)]
        if self.rng.random() < 0.4:
            self.maps += [self._class_map(topics) for _ in range(2)]
        self._open()
        filters = [some_filter(topics, self.rng) for _ in range(4)]
        self.pollers = [Poller(each, 0, self._reader(tail), Place(0)) for each, tail in zip(filters, (1, 0, 1, 0), strict=True)]
        self.walkers = [Walker(some_filter(topics, self.rng)) for _ in range(2)]

    # ---- what may happen

    def step(self) -> None:
        rng = self.rng
        what = rng.random()
        self.dies = rng.random() < 0.03
        try:
            if what < 0.36:
                self.publish()
            elif what < 0.48:
                self.sync()
            elif what < 0.66:
                self.idle()
            elif what < 0.72:
                self.roll()
            elif what < 0.76:
                self.drop()
            elif what < 0.79:
                self.pause()
            elif what < 0.83:
                self.dies = True
            else:
                self.read()
                self.again()
            for poller in self.pollers:
                if rng.random() < 0.4:
                    self.poll(poller)
            if rng.random() < 0.2:
                rng.choice(self.walkers).walk(self.store, self.watermark, rng)
            if self.dies:
                raise Died
        except Died:
            self.crash(power=rng.random() < 0.6)
        self.check()

    def publish(self) -> None:
        ops: list[Op] = []
        self._put_some(ops)
        self.store.flush(ops)
        self._submit([], ops)

    def sync(self) -> None:
        self._write_held()
        self.disk.sync()
        self.watermark = self.written
        while self.waiting and self.waiting[0][0] <= self.watermark and self.rng.random() < 0.8:
            self.store.erase(self.waiting.pop(0)[1])
        if self.rng.random() < 0.5:
            self.tail.trim(self.watermark)

    def idle(self) -> None:
        for _ in range(self.rng.choice((1, 3, 20, 20))):
            refused = self.rng.random() < 0.05 and self.disk.refuse_next_write()
            self.happened["folds"] += self.store.idle_work(self.watermark)
            if refused:
                # Whether it wrote anything or not: what follows is not concerned.
                self._use_up_refusal()

    def roll(self, alone: bool = False) -> None:
        """Of one class, or of all: then another map of classes may come into force. Its record may have messages before and after it.
        alone: it has none."""
        rng, currents = self.rng, self.store.currents()
        if rng.random() < 0.3:
            self.store.create_next(rng.random() < 0.5)
        if rng.random() < 0.5:
            self.store.change(self._options())
        before: list[Op] = []
        if not alone and rng.random() < 0.3:
            self._put_some(before)
        self.last += 1
        known = self._shapes()
        klass = rng.choice([None, *(info.klass for info in currents)]) if len(currents) > 1 else None
        ops = self.store.roll(self.last, 0, 0, klass)
        self.keys = {}
        self._check_inherited(known)
        self.happened["rolls"] += 1
        if not alone and rng.random() < 0.4:
            self._put_some(ops)
            self.store.flush(ops)
        self._submit([], before + ops) if before else self._submit(ops, [])

    def drop(self) -> None:
        sealed = [info.id for info in self.store.generations() if info.until is not None]
        if not sealed:
            return
        generation = sealed[0] if self.rng.random() < 0.8 else self.rng.choice(sealed)
        self.last += 1
        ops = self.store.drop(generation)
        self.model.drop(self.last, generation)
        self.waiting.append((self.last, generation))
        self.happened["drops"] += 1
        self._submit([], ops)

    def pause(self) -> None:
        """Nobody publishes for longer than an epoch: an empty record, if the layout wants one, lets followers have all there is."""
        self.sync()
        for _ in self.store.currents():
            # Once is enough for a class; after a restart each class may come to know of its own by itself.
            now = max([self.last + 1, *self._epoch_ends()])
            if self.store.wants_tick(self.last, now):
                self.last = now
                self._submit([], [])
                self.sync()
        if self.watermark == self.last and self.model.messages:
            newest, cut = self.model.messages[-1].position, self.store.cutoff(b"#", self.watermark)
            assert cut >= newest, f"the cut-off stays at {cut}, {newest} is the newest message and its epoch has ended"
            assert not self.store.wants_tick(self.last, self.last + _LONG_PAUSE), "once is enough"

    def _epoch_ends(self) -> list[int]:
        """The last position of the epoch in which we are, in each class that has such."""
        bits = [info.options.epoch_bits for info in self.store.currents() if info.layout == "wildcard_optimized"]
        return [((self.last >> each) + 1 << each) - 1 for each in bits if each < 64]

    def crash(self, power: bool) -> None:
        self.dies = False
        self.happened["power cuts" if power else "kills"] += 1
        written = self.written
        self._stop(power)
        self._open()
        if self.rng.random() < 0.2:
            # Again, before anything was synced.
            self._stop(power)
            self._open()
        row = self.disk.engine.get(HOME_FAMILY, _POSITION_ROW)
        self.last = self.written = int.from_bytes(row, "big") if row else 0
        assert self.last >= self.watermark, "what was synced is there"
        assert power or self.last == written, "a kill takes nothing that was written"
        self.happened["messages lost"] += self.model.forget_above(self.last)
        self._check_counts()
        self.disk.sync()
        self.watermark = self.last
        self.tail = Tail(self.last, self.rng.choice((0, 20_000, MANY)))
        self.readers = [Reader(self.store, Tail(_NO_TAIL, 1)), Reader(self.store, self.tail)]
        for number, poller in enumerate(self.pollers):
            save = self.disk.engine.get(HOME_FAMILY, _READER_ROW + bytes((number,)))
            poller.reader = self._reader(number % 2 == 0)
            poller.restore(int.from_bytes(save, "big") if save else None)

    # ---- what is read

    def poll(self, poller: Poller) -> None:
        for _ in range(self.rng.choice((1, 4))):
            for segment in poller.poll(self.model, self.watermark, self.rng):
                if len(self.ranges) < 200:
                    self.ranges.append(Range(poller.filter, segment))
        if self.rng.random() < 0.3:
            number = self.pollers.index(poller)
            self.saved.append((HOME_FAMILY, _READER_ROW + bytes((number,)), poller.save().to_bytes(8, "big")))

    def read(self) -> None:
        """All streams of some filter between any two positions."""
        rng = self.rng
        topics = [message.topic for message in rng.sample(self.model.messages, min(3, len(self.model.messages)))]
        topic_filter = some_filter(topics, rng)
        after = rng.choice((0, rng.randint(0, self.watermark), max(0, self.watermark - rng.randint(0, 2000))))
        upto = rng.choice((self.watermark, rng.randint(after, max(after, self.watermark))))
        found: list[Told] = []
        streams = self.store.streams(topic_filter, after)
        references = [(generation, stream.static) for generation, stream in streams]
        assert references == sorted(set(references))
        for generation, stream in streams:
            assert self.store.stream_of(generation, stream.static, topic_filter) == stream
            messages = self._in_pieces(generation, stream, after, upto)
            found += messages
            if messages and len(self.calls) < 200:
                self.calls.append(Call(generation, stream.static, topic_filter, after, upto, messages))
        expected = self.model.expected(topic_filter, after, upto)
        assert sorted(found) == expected, difference(topic_filter, sorted(found), expected)
        assert self.store.read_range(topic_filter, references, after, upto) == expected

    def again(self) -> None:
        """What was read or told before, whatever happened since."""
        rng, gone = self.rng, self.model.gone
        for call in rng.sample(self.calls, min(_CHECKED_AGAIN, len(self.calls))):
            if call.generation in gone:
                with pytest.raises(GenerationDropped):
                    self.store.stream_of(call.generation, call.static, call.filter)
                continue
            stream = self.store.stream_of(call.generation, call.static, call.filter)
            count = rng.choice((1, 3, len(call.messages)))
            upto = rng.choice((call.upto, self.watermark))
            found = self.store.read(call.generation, stream, call.after, upto, count, MANY, MANY)
            same = found.messages if upto == call.upto else found.messages[: len(call.messages)]
            assert same == call.messages[:count], "the same arguments, the same messages; later, the same first ones"
        for told in rng.sample(self.ranges, min(_CHECKED_AGAIN, len(self.ranges))):
            segment = told.segment
            read = rng.choice(self.readers).range(told.ask, self.watermark)
            if read.lost:
                assert gone & {generation for generation, _ in segment.streams}, "lost, and nothing of it was dropped"
            else:
                assert not gone & {generation for generation, _ in segment.streams}, "dropped, and not lost"
                assert (read.positions, read.values) == (segment.positions, segment.values), "a range is what was told first"

    def check(self) -> None:
        self.store.check()
        self.tail.check()
        there = {int(info.id) for info in self.store.generations()}
        assert not there & self.model.gone
        assert {message.generation for message in self.model.messages} - self.model.gone <= there
        for position, generation in self.model.lost(self.rng):
            said = self.store.dropped_between(position - 1, position)
            assert generation in {row.generation for row in said}, f"{position} went with {generation}, and {said} is said"
        for poller in self.pollers:
            cut = self.store.cutoff(poller.filter, self.watermark)
            for info in self.store.currents():
                cut = max(cut, self._layout(info.id).cutoff(poller.filter, self.watermark))
            assert cut <= self.watermark, "the cut-off is beyond what is committed"
            if self.rng.random() < 0.2:
                poller.check(self.model)

    def finish(self) -> None:
        """Everything is sealed, worked on until there is nothing more to do, and read."""
        self.pause()
        self.roll(alone=True)
        self.sync()
        self._check_counts()
        slices = 0
        while self.store.idle_work(self.watermark):
            slices += 1
            assert slices < 20_000, "idle work comes to an end"
        self.happened["folds"] += slices
        self._all_folded()
        end = self.model.messages[-1].position if self.model.messages else 0
        for power in (None, True):
            if power is not None:
                self.crash(power)
                self.pause()
            for _ in range(3):
                self.read()
                self.again()
            for poller in self.pollers:
                before = None
                while poller.place != before:
                    before = poller.place
                    self.poll(poller)
                assert not poller.place.horizon and poller.place.cut >= end, f"{poller.filter!r} stays at {before}, {end} is the end"
                poller.check(self.model)
        for walker in self.walkers:
            walker.finish(self.store, self.model, self.watermark)
        self.check()

    # ---- within

    def _put_some(self, ops: list[Op]) -> None:
        """Messages, one by one and all at once, as a shard has them."""
        rng, fresh = self.rng, []
        for _ in range(rng.choice((1, 2, 5, 20, 60, 150))):
            self.last += rng.choice((1, 1, 1, 3, 500))
            topic = self.shape(rng)
            key = self.keys.get(topic)
            if key is None:
                key = self.keys[topic] = self.store.key_of(topic)
            self.serial += 1
            value = encode_message(1, self.serial, b"c" * rng.choice((3, 30)), topic, bytes(rng.randint(0, self.size_max)))
            self.tail.append(self.last, topic, value, (key.generation, key.static))
            fresh.append((key, Message(self.last, topic, value, key.generation)))
        self.model.messages += [message for _, message in fresh]
        self.happened["messages"] += len(fresh)
        for _, run in groupby(fresh, lambda each: each[0].generation):
            keys, messages = zip(*run, strict=True)
            if rng.random() < 0.5:
                self.store.append_all(ops, keys, [message.position for message in messages], [message.value for message in messages])
                continue
            for key, message in zip(keys, messages, strict=True):
                self.store.append(ops, key, message.position, message.value)

    def _check_counts(self) -> None:
        """What is written of how much a generation holds is what it holds by what is written."""
        for info in self.store.generations():
            held = [message for message in self.model.messages if message.generation == info.id]
            found = self.store.counts(info.id)
            assert found == (len(held), sum(len(message.value) for message in held)), f"{found} in {info.id}, which holds {len(held)}"
            for position, rows, size in self.store.marks(info.id, -1, MANY):
                below = [len(message.value) for message in held if message.position < position]
                assert (rows, size) == (len(below), sum(below)), f"{rows} below {position} in {info.id}, where {len(below)} are"

    def _open(self) -> None:
        self.store = Store.open(self.disk.engine, self._options())
        self.keys = {}
        self.waiting, self.held, self.saved = [], [], []
        self.tail = Tail(self.last, MANY)
        self.readers = [Reader(self.store, Tail(_NO_TAIL, 1)), Reader(self.store, self.tail)]

    def _stop(self, power: bool) -> None:
        if power:
            self.disk.cut_power(self.rng)
        else:
            self.disk.kill()

    def _reader(self, tail: int | bool) -> Reader:
        return self.readers[bool(tail)]

    def _options(self) -> StoreOptions:
        if self.rng.random() < 0.2:
            self.thresholds = self.rng.choice(THRESHOLDS)
        return StoreOptions(self.rng.choice(self.layouts), self.thresholds, *self.rng.choice(KEYS), self.rng.choice(self.maps))

    def _submit(self, growth: list[Op], ops: list[Op]) -> None:
        """One record. A full disk refuses it now and then: then it is held and comes again, the growth in one of two ways."""
        if self.dies and self.rng.random() < 0.5:
            raise Died
        growth = self.store.take_growth() + growth
        if self.held:
            self.held += growth + ops
            self._write_held()
        elif self.rng.random() < 0.06 and self.disk.refuse_next_write():
            self.happened["refused"] += 1
            with pytest.raises(StoreFull):
                self.disk.engine.write(self._record(growth + ops))
            if self.rng.random() < 0.5:
                self.store.give_back(growth)
                self.held = ops
            else:
                self.held = growth + ops
            return
        else:
            self.disk.engine.write(self._record(growth + ops))
            self.saved, self.written = [], self.last
        if self.dies:
            raise Died

    def _write_held(self) -> None:
        """What was refused comes first, with what was given back."""
        if self.held or self.written < self.last:
            ops = self.store.take_growth() + self.held
            self.disk.engine.write(self._record(ops))
            self.held, self.saved, self.written = [], [], self.last

    def _record(self, ops: list[Op]) -> list[Op]:
        return [*ops, *self.saved, (HOME_FAMILY, _POSITION_ROW, self.last.to_bytes(8, "big"))]

    def _use_up_refusal(self) -> None:
        try:
            self.disk.engine.write([])
        except StoreFull:
            pass

    def _layout(self, generation: int) -> Layout:
        return self.store._generations.layout(generation)

    def _class_map(self, topics: list[bytes]) -> ClassMap:
        chosen = [("short", 1), ("long", 100), ("other", 10)][: self.rng.choice((1, 2, 3))]
        return ClassMap(tuple(RetentionClass(name, some_filter(topics, self.rng) or b"+", period) for name, period in chosen))

    def _shapes(self) -> list[Known]:
        """Topics that were put with a varying level in them, as they are known."""
        of_class = {info.klass: info for info in self.store.currents()}
        found = []
        for topic in self.keys:
            info = of_class[self.store.class_of(topic)]
            shape = self._layout(info.id).structure.lookup(topic)
            if shape is not None and shape[1]:
                found.append(Known(topic, info.klass, info.layout, shape[0].levels, shape[1]))
        return found

    def _check_inherited(self, known: list[Known]) -> None:
        """Who begins in the same layout need not learn again what varies."""
        of_class = {info.klass: info for info in self.store.currents()}
        for topic, klass, layout, levels, varying in known:
            info = of_class[self.store.class_of(topic)]
            if (info.klass, info.layout) == (klass, layout):
                heir = self._layout(info.id).structure.lookup(topic)
                assert heir is not None and (heir[0].levels, heir[1]) == (levels, varying), f"{topic!r} was {levels!r} and is {heir!r}"

    def _all_folded(self) -> None:
        """Of sealed generations that are open each stream has one segment and nothing beside it, or few messages and none."""
        for layout in self.store._generations._open.values():
            if isinstance(layout, PageStream | RecordBatch) and layout._index._sealed:
                small = layout._bounds.small_stream
                for index in layout._index._streams.values():
                    assert len(index.segments) <= 1 and not index.state.garbage
                    assert index.uncovered == 0 or (index.uncovered < small and not index.segments)

    def _in_pieces(self, generation: int, stream: Stream, after: int, upto: int) -> list[Told]:
        rng = self.rng
        found: list[Told] = []
        place, done = after, False
        count, size, keys = rng.choice((1, 5, 100, MANY)), rng.choice((100, 20_000, MANY)), rng.choice((2, 30, MANY))
        while not done:
            read = self.store.read(generation, stream, place, upto, count, size, keys)
            assert len(read.messages) <= count
            assert len(read.messages) <= 1 or sum(len(value) for _, value in read.messages) <= size
            assert read.done or read.place > place
            found += read.messages
            place, done = read.place, read.done
            assert not found or found[-1][0] <= place
        assert [position for position, _ in found] == sorted({position for position, _ in found})
        assert self._in_columns(generation, stream, after, upto, count, size) == found
        return found

    def _in_columns(self, generation: int, stream: Stream, after: int, upto: int, count: int, size: int) -> list[Told]:
        found: list[Told] = []
        place, done = after, False
        while not done:
            positions, _, _, reached, done = columns = self.store.bulk(generation, stream, place, upto, count, size)
            values = columns.values
            assert len(values) <= count
            assert len(values) <= 1 or sum(len(value) for value in values) <= size
            assert done or reached > place
            found += zip(memoryview(positions).cast("Q").tolist(), values, strict=True)
            place = reached
            assert not found or found[-1][0] <= place
        return found
