"""What only wildcard_optimized promises: its bytes on disk, its jumps, its cut-off, and that equal keys are told apart."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shards.classes import ClassMap, RetentionClass
from shards.engine import Op
from shards.engine_memory import MemoryEngine
from shards.layouts.learned import hash_of
from shards.layouts.port import LayoutOptions
from shards.layouts.wildcard_optimized import WildcardOptimized, epochs
from shards.lts import RESERVED_PREFIX, TopicStructure
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.store import Store
from tests.shards.topic_model import any_filter, any_topic, matches

MANY = 1 << 60
EPOCH = 1 << 20
GOLDEN = [
    ("0000000000000000451d709d1a626917b0", "bda91198af13a133"),
    ("000000000000000045ff6020386de88a7a", "80dd4f749324bace"),
    ("00000000000000004c00000000000000016f6e65", "ff6020386de88a7a"),
    ("00000000000000004c0000000000000001706c616e74", "a5bf101d2b411454"),
    ("000000000000000050a5bf101d2b411454", "dbda840002b80618"),
    ("000000000000000050dbda840002b80618", "1d709d1a626917b0"),
    ("80dd4f740102030405060709", "6f74686572"),
    ("bda9119801020304050e75017cace788f82ca73dcf5e072d4d660708", "76616c7565"),
]


class Shelf:
    """A layout, its engine, and the plain list of what it holds."""

    def __init__(self, thresholds: tuple[int | None, ...] = (0,), level_bits: int = 64, epoch_bits: int = 20, index_bytes: int = 4) -> None:
        self.engine = MemoryEngine()
        self.engine.create_family(1)
        self.options = LayoutOptions(thresholds, level_bits, epoch_bits, index_bytes)
        self.layout = WildcardOptimized.open(self.engine, 1, self.options)
        self.messages: list[tuple[int, bytes, bytes]] = []

    def put(self, topic: bytes, position: int) -> None:
        ops: list[Op] = []
        value = encode_message(1, 0, b"p", topic, b"%d" % position)
        self.layout.put(ops, self.layout.key_of(topic), position, value)
        self.engine.write(self.layout.take_growth() + ops)
        self.messages.append((position, topic, value))

    def reopen(self) -> None:
        self.layout = WildcardOptimized.open(self.engine, 1, self.options)

    def read(self, topic_filter: bytes, after: int, upto: int, count: int = MANY) -> list[int]:
        """The positions found, which are those that a plain look gives."""
        found: list[tuple[int, bytes]] = []
        for stream in self.layout.streams(topic_filter):
            place, done = after, False
            while not done:
                read = self.layout.read(stream, place, upto, count, MANY, MANY)
                found += read.messages
                place, done = read.place, read.done
        self.layout._epochs.check()
        expected = [(at, value) for at, topic, value in self.messages if after < at <= upto and matches(topic_filter, topic)]
        assert sorted(found) == expected, topic_filter
        return [at for at, _ in sorted(found)]


def test_the_keys_are_those_of_the_format_page() -> None:
    # Property: golden bytes; a change here is a new layout with a new name, never a change of this one.
    shelf = Shelf((9, 0))
    ops: list[Op] = []
    for topic, position, value in ((b"plant/7/t", 0x0102030405060708, b"value"), (b"one", 0x0102030405060709, b"other")):
        key = shelf.layout.key_of(topic)
        ops += shelf.layout.take_growth()
        shelf.layout.put(ops, key, position, value)
    shelf.engine.write(ops)
    assert [(key.hex(), value.hex()) for key, value in shelf.engine.scan(1, b"", b"\xff" * 40, 100)] == GOLDEN


def test_the_options_are_in_the_keys() -> None:
    # Property: fewer bits of a level, more of the offset, more bytes of the static key: golden bytes.
    shelf = Shelf((9, 0), 16, 56, 6)
    ops: list[Op] = []
    shelf.layout.put(ops, shelf.layout.key_of(b"plant/7/t"), 0x010203040506070A, b"value")
    assert ops[0][1].hex() == "bda91198af13" + "01" + "e750" + "ca73" + "0203040506070a"


def test_no_message_lies_among_the_rows_of_the_structure() -> None:
    # Property: a truncated static key of zeros is written as 1, and is read under it.
    shelf = Shelf((None,), index_bytes=1)
    topics = [b"t%d" % n for n in range(1500)]
    zeros = [topic for topic in topics if TopicStructure((None,)).learn(topic)[0].static[0] == 0]
    assert len(zeros) > 2
    for number, topic in enumerate(zeros):
        shelf.put(topic, number)
    assert all(not key.startswith(RESERVED_PREFIX) for _, key, _ in _data(shelf))
    for topic in zeros:
        assert len(shelf.read(topic, -1, MANY)) == 1


def _data(shelf: Shelf) -> list[tuple[int, bytes, bytes]]:
    rows = shelf.engine.scan(1, b"", b"\xff" * 90, MANY)
    return [(1, key, value) for key, value in rows if any(value == stored for _, _, stored in shelf.messages)]


@pytest.mark.parametrize("seed", range(15))
def test_equal_hashes_and_equal_static_keys_mix_nothing_up(seed: int) -> None:
    # Property: with one byte of hash and of static key, and epochs from one position to a single one, reads are exact.
    rng = random.Random(seed)
    shelf = Shelf(rng.choice(((0,), (2, 1), (None, 0), (3, None))), 8, rng.choice((0, 1, 5, 9, 20, 64)), 1)
    position = 0
    for _ in range(300):
        position += rng.choice((1, 1, 1, 40, 900))
        shelf.put(any_topic(rng), position)
        if rng.random() < 0.1:
            if rng.random() < 0.2:
                shelf.reopen()
            after = rng.choice((-1, rng.randint(0, position)))
            shelf.read(any_filter(rng), after, rng.randint(after + 1, position + 1), rng.choice((1, 3, MANY)))
    for topic_filter in (b"#", b"+/#", b"+/+/+", b"$s/#"):
        shelf.read(topic_filter, -1, position, 7)


def test_collisions_are_counted() -> None:
    # Property: two values of a level with one hash, and two streams with one topic index: told apart, and seen in the counter.
    shelf = Shelf((1, 0), 8, 20, 1)
    level = b"0"
    twin = next(b"%d" % n for n in range(1, 9999) if hash_of(b"%d" % n)[:1] == hash_of(level)[:1])
    shelf.put(b"d/" + level, 1)
    shelf.put(b"d/" + twin, 2)
    assert shelf.read(b"d/" + level, -1, 5) == [1] and shelf.layout.counters.collision == 1
    streams = Shelf((None,), index_bytes=1)
    for n in range(300):
        streams.put(b"s%d" % n, n)
    for n in range(300):
        assert streams.read(b"s%d" % n, -1, 300) == [n]
    assert streams.layout.counters.collision > 0


def test_more_than_ten_levels_are_not_learned_as_varying() -> None:
    # Property: where ten levels of a path vary, further ones stay literal, also in the next generation; nothing is refused.
    shelf = Shelf()
    rng = random.Random(1)
    topics = [b"/".join(b"%d" % rng.randrange(3) for _ in range(14)) for _ in range(30)]
    for position, topic in enumerate(topics):
        shelf.put(topic, position)
    assert {leaf.levels.count(None) for leaf in shelf.layout.structure.leaves()} == {10}
    assert all(None not in leaf.levels[10:] for leaf in shelf.layout.structure.leaves())
    shelf.engine.create_family(2)
    heir = shelf.layout.inherit_into(2, shelf.options)
    heir.key_of(b"/".join([b"new"] * 14))
    assert {leaf.levels.count(None) for leaf in heir.structure.leaves()} == {10}
    shelf.reopen()
    shelf.put(b"/".join([b"newer"] * 14), 40)
    assert {leaf.levels.count(None) for leaf in shelf.layout.structure.leaves()} == {10}
    for topic in topics[:5]:
        assert shelf.read(topic, -1, 50)
        assert shelf.read(topic.rpartition(b"/")[0] + b"/+", -1, 50)


def test_one_device_costs_a_few_jumps_and_again_none() -> None:
    # Property: in an epoch with 1,000 devices one is found by seeks, not by a scan; what was collected is not looked for again.
    shelf = Shelf()
    for n in range(2000):
        shelf.put(b"d/%d" % (n % 1000), n)
    shelf.put(b"d/0", 2 * EPOCH)
    counters = shelf.layout.counters
    assert shelf.read(b"d/42", -1, EPOCH) == [42, 1042]
    assert counters.seek <= 3 and counters.next <= 3 and counters.collision == 0
    before = (counters.seek, counters.next)
    for after in (-1, 42, 500):
        shelf.read(b"d/42", after, EPOCH - 1)
    assert (counters.seek, counters.next) == before
    shelf.read(b"d/+", -1, EPOCH)
    assert counters.next - before[1] == 2000, "everything wanted: neighbour by neighbour"


def test_many_epochs_without_a_match_are_bounded_by_what_may_be_examined() -> None:
    # Property: examine_max ends a search over epochs, not only within messages; the place moves on and nothing is lost.
    shelf = Shelf(epoch_bits=4)
    for n in range(400):
        shelf.put(b"d/%d" % (0 if n in (0, 399) else 1), n * 16)
    (stream,) = shelf.layout.streams(b"d/0")
    found, place, reads, done = [], -1, 0, False
    while not done:
        counters = shelf.layout.counters
        moves = counters.seek + counters.next
        read = shelf.layout.read(stream, place, MANY, 9, MANY, 20)
        assert counters.seek + counters.next - moves <= 30
        found += [position for position, _ in read.messages]
        place, done, reads = read.place, read.done, reads + 1
    assert found == [0, 399 * 16] and 10 < reads < 100


@pytest.mark.parametrize("epoch_bits", [6, 20, 64])
def test_an_epoch_larger_than_a_page_comes_in_pages(epoch_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: what is kept in memory is bounded, whatever the length of an epoch; every message still comes once and in order.
    monkeypatch.setattr(epochs, "PAGE_KEYS_MAX", 10)
    monkeypatch.setattr(epochs, "KEYS_HELD_MAX", 100)
    shelf = Shelf(epoch_bits=epoch_bits)
    rng = random.Random(epoch_bits)
    for n in range(500):
        shelf.put(b"d/%d/%d" % (rng.randrange(40), rng.randrange(3)), n)
    for topic_filter in (b"#", b"d/7/#", b"d/+/2", b"d/3/1"):
        for after, upto in ((-1, 499), (100, 450), (-1, 30), (444, 499)):
            assert shelf.read(topic_filter, after, upto, rng.choice((1, 4, 25, MANY))) is not None


def test_a_message_that_sorts_before_those_that_were_read_is_found() -> None:
    # Property: in an epoch that is not complete, later messages have smaller keys; no read, however it is bounded, passes one over.
    rng = random.Random(5)
    shelf = Shelf(epoch_bits=12)
    place, seen = -1, []
    for position in range(0, 12_000, 13):
        shelf.put(b"d/%d" % rng.randrange(50), position)
        if rng.random() < 0.2:
            seen += shelf.read(b"d/+", place, position)
            place = position
    assert seen == [position for position, _, _ in shelf.messages if position <= place]


def test_the_cut_off_is_the_end_of_the_last_complete_epoch() -> None:
    # Property: for any head, what is behind the cut-off can get no company; it never lies above the head.
    for bits, length in ((1, 2), (2, 4), (10, 1024), (20, 1 << 20), (21, 1 << 21), (24, 1 << 24)):
        shelf = Shelf(epoch_bits=bits)
        shelf.put(b"a/b", 9 * length)
        for upto in (0, length - 2, length - 1, length, 5 * length - 2, 5 * length - 1, 5 * length):
            cut = shelf.layout.cutoff(b"#", upto)
            assert cut == max(e * length - 1 for e in range(7) if e * length - 1 <= upto)


def test_a_class_in_which_nothing_waits_keeps_nobody_waiting() -> None:
    # Property: who reads all classes goes as far as the slowest cut-off, so an empty generation has none: nobody would end its epoch.
    classes = ClassMap((RetentionClass("short", b"s/#", 1),))
    store = Store.open(MemoryEngine(), StoreOptions("wildcard_optimized", (None, 0), classes=classes))

    def put(topic: bytes, position: int) -> None:
        ops: list[Op] = []
        store.append(ops, store.key_of(topic), position, encode_message(1, 0, b"p", topic, b"\0"))
        store.flush(ops)
        store.engine.write(store.take_growth() + ops)

    put(b"s/1", 1)
    put(b"literal", 2)
    assert store.cutoff(b"#", 3) == -1 and store.wants_tick(3, EPOCH)
    assert store.cutoff(b"#", EPOCH) == EPOCH and not store.wants_tick(EPOCH, 9 * EPOCH)
    store.engine.write(store.roll(2 * EPOCH + 1, 0, 0, "short"))
    put(b"literal", 2 * EPOCH + 5)
    assert not store.wants_tick(2 * EPOCH + 5, 9 * EPOCH)
    assert store.cutoff(b"#", 2 * EPOCH + 5) == 2 * EPOCH + 5, "and it was put off until somebody published to the other class"


def test_nothing_is_put_off_where_nothing_can_come_before() -> None:
    # Property: no cut-off without varying levels, in a single epoch without end, and in a sealed generation.
    shelf = Shelf((None, None, 0))
    shelf.put(b"a/b", 1)
    shelf.put(b"x/y/z", 2)
    assert shelf.layout.cutoff(b"a/b", 77) == 77
    assert shelf.layout.cutoff(b"nothing/here", 77) == 77
    assert shelf.layout.cutoff(b"#", 77) == -1
    shelf.layout.seal()
    assert shelf.layout.cutoff(b"#", 77) == 77
    endless = Shelf(epoch_bits=64)
    endless.put(b"a/b", 1)
    assert endless.layout.cutoff(b"#", 77) == 77
    assert not endless.layout.wants_tick(77, 1 << 62)


def test_an_empty_record_is_wanted_once_for_the_last_epoch() -> None:
    # Property: only while something with varying levels waits, only when its epoch is over, once, and once after a restart.
    shelf = Shelf((None, 0))
    assert not shelf.layout.wants_tick(0, 9 * EPOCH)
    shelf.put(b"literal", 3)
    assert not shelf.layout.wants_tick(3, 9 * EPOCH)
    shelf.put(b"a/b", 5)
    assert not shelf.layout.wants_tick(5, EPOCH - 2)
    assert shelf.layout.wants_tick(5, EPOCH - 1) and shelf.layout.wants_tick(5, EPOCH)
    assert not shelf.layout.wants_tick(EPOCH, 9 * EPOCH), "the record at EPOCH was it"
    shelf.reopen()
    assert shelf.layout.wants_tick(EPOCH, 9 * EPOCH), "nobody knows what was the last message"
    assert not shelf.layout.wants_tick(9 * EPOCH, 20 * EPOCH)
    shelf.put(b"literal", 9 * EPOCH + 1)
    assert shelf.layout.wants_tick(9 * EPOCH + 1, 20 * EPOCH), "who reads it together with others waits, too"
    shelf.layout.seal()
    assert not shelf.layout.wants_tick(9 * EPOCH + 1, 20 * EPOCH)


def test_messages_of_a_stream_sort_by_epoch_hash_and_time() -> None:
    # Property: it is the order of the design: in an epoch one device after the other, over epochs by time.
    shelf = Shelf(epoch_bits=8)
    for n in range(200):
        shelf.put(b"d/%d" % (n % 5), n * 5)
    rows = [next((position, topic) for position, topic, stored in shelf.messages if stored == value) for _, _, value in _data(shelf)]
    assert [position >> 8 for position, _ in rows] == sorted(position >> 8 for position, _ in rows)
    for (before, device), (after, other) in pairwise(rows):
        assert before < after or before >> 8 < after >> 8 or device != other
    assert sum(one[1] != two[1] for one, two in pairwise(rows)) < 5 * len({position >> 8 for position, _ in rows})
