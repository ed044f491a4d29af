"""Retention classes (shards/classes.py) and their generations: the map, its rows, and what becomes of a class that goes."""

from __future__ import annotations

import random
from itertools import product

import pytest

from shards.classes import CLASSES_MAX, CLASSES_ROW, NO_CLASSES, ClassMap, ClassMapInvalid, RetentionClass, covers, overlap
from shards.engine import HOME_FAMILY, Op, StoreFailed
from shards.engine_memory import MemoryEngine
from shards.frames import Place, Poll
from shards.generations import GenerationDropped, GenerationId, GenerationInfo, Generations, row_key
from shards.layouts.port import LayoutOptions
from shards.messages import encode_message
from shards.options import StoreOptions
from shards.reading import Reader
from shards.store import Store
from shards.tail import Tail
from tests.shards.topic_model import matches

GOLD = RetentionClass("gold", b"gold/#", 90_000)
DUST = RetentionClass("dust", b"+/dust", 1_000)
BOTH = ClassMap((GOLD, DUST))
MANY = 1 << 40


def opened(engine: MemoryEngine, classes: ClassMap = BOTH, layout: str = "skipstream") -> Store:
    store = Store.open(engine, StoreOptions(layout, (0,), epoch_bits=4, classes=classes), 5, 1000)
    store.check()
    return store


def put(engine: MemoryEngine, store: Store, position: int, *topics: bytes) -> None:
    ops: list[Op] = []
    for offset, topic in enumerate(topics):
        store.append(ops, store.key_of(topic), position + offset, encode_message(1, 0, b"p", topic, b"\0"))
    store.flush(ops)
    engine.write([*store.take_growth(), *ops])


def generations(store: Store) -> list[tuple[int, str, int, int | None]]:
    return [(info.id, info.klass, info.since, info.until) for info in store.generations()]


# ------------------------------------------------------------------ the map


@pytest.mark.parametrize(
    ("topic", "klass"),
    [
        (b"gold/a", "gold"),
        (b"gold", "gold"),
        (b"gold/dust", "gold"),
        (b"a/dust", "dust"),
        (b"a/b/dust", "default"),
        (b"$x/dust", "default"),
    ],
)
def test_a_topic_is_in_the_first_class_whose_filter_matches(topic: bytes, klass: str) -> None:
    # Property: the order of the list decides, by the rules of MQTT; what no filter matches is in the default class.
    assert BOTH.class_of(topic) == klass
    assert NO_CLASSES.class_of(topic) == "default"


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([("Gold", b"a", 1)], "the retention class 'Gold' has no valid name"),
        ([("x" * 33, b"a", 1)], "has no valid name"),
        ([("default", b"a", 1)], "no retention class can have the name 'default'"),
        ([("a", b"a", 1), ("a", b"b", 1)], "two retention classes have the name 'a'"),
        ([(f"c{n}", b"a", 1) for n in range(CLASSES_MAX + 1)], "there are 9 retention classes, at most 8"),
        ([("a", b"a/#/b", 1)], "'a' has no valid topic filter"),
        ([("a", b"", 1)], "'a' has no valid topic filter"),
        ([("a", b"$share/g/a", 1)], "begins with \\$share"),
        ([("a", b"a", 0)], "has the period 0 ms"),
    ],
)
def test_what_cannot_be_a_map_is_one_sentence(classes: list[tuple[str, bytes, int]], said: str) -> None:
    # Property: each fault is named before anything is made of it.
    with pytest.raises(ClassMapInvalid, match=said):
        ClassMap(tuple(RetentionClass(*each) for each in classes))


def test_the_row_of_the_map_is_that_of_the_format_page() -> None:
    # Property: golden bytes; no classes, no row.
    row = "9301" + "91" + "93" + "a4" + b"gold".hex() + "c406" + b"gold/#".hex() + "ce00015f90" + "07"
    assert ClassMap((GOLD,)).encode(7) == bytes.fromhex(row)
    assert ClassMap.decode(BOTH.encode(9)) == (BOTH, 9)
    assert NO_CLASSES.encode(9) is None and ClassMap.decode(None) == (NO_CLASSES, 0)


FILTERS = [b"/".join(levels) for n in (1, 2, 3) for levels in product((b"a", b"b", b"+", b"$x", b"#"), repeat=n) if b"#" not in levels[:-1]]
TOPICS = [b"/".join(levels) for n in (1, 2, 3, 4) for levels in product((b"a", b"b", b"c", b"$x"), repeat=n)]


def test_what_is_said_of_two_filters_is_what_their_topics_say() -> None:
    # Property: overlap and covers agree with matching, topic by topic, on all small filters.
    found = {one: frozenset(topic for topic in TOPICS if matches(one, topic)) for one in FILTERS}
    for one, other in product(FILTERS, repeat=2):
        assert overlap(one, other) == bool(found[one] & found[other]), (one, other)
        assert covers(one, other) == (found[other] <= found[one]), (one, other)


@pytest.mark.parametrize("seed", range(10))
def test_a_class_that_cannot_hold_a_filter_holds_none_of_its_topics(seed: int) -> None:
    # Property: may_hold is never false for a class in which a topic of the filter is; a class of another map may hold anything.
    rng = random.Random(seed)
    classes = ClassMap(tuple(RetentionClass(name, rng.choice(FILTERS), 1) for name in ("a", "b", "c")))
    told = 0
    for topic_filter in rng.sample(FILTERS, 60):
        held = {classes.class_of(topic) for topic in TOPICS if matches(topic_filter, topic)}
        may = {name for name in classes.names if classes.may_hold(name, topic_filter)}
        assert held <= may and classes.may_hold("former", topic_filter)
        told += len(classes.names) - len(may)
    assert told > 0, "else it says nothing"


def test_who_reads_one_class_is_not_told_that_another_is_gone() -> None:
    # Property: a dropped generation is told to whom it can have held something for; from before the map, to everybody.
    engine = MemoryEngine()
    store = opened(engine, NO_CLASSES)
    store.change(StoreOptions(classes=BOTH))
    engine.write(store.roll(10, 1, 1))
    engine.write(store.roll(20, 1, 1))
    engine.write([op for info in store.generations() if info.until for op in store.drop(info.id)])
    for _ in range(2):
        told = {
            topic: [row.generation for row in store.dropped_between(0, 99, topic)]
            for topic in (b"#", b"gold/+", b"x", b"gold/dust", b"+/dust")
        }
        assert told == {b"#": [1, 2, 3, 4], b"gold/+": [1, 3], b"x": [1, 2], b"gold/dust": [1, 3], b"+/dust": [1, 3, 4]}
        reader = Reader(store, Tail(1 << 62, 1), waits=False)
        for topic_filter, gone in told.items():
            polled = reader.poll(Poll(topic_filter, Place(0), 9, 1 << 20), 99)
            assert polled is not None and [one.generation for one in polled.gone] == gone
        store = opened(engine)


def test_rows_of_generations_with_a_class_are_those_of_the_format_page() -> None:
    # Property: golden bytes; those of the default class are what they were before there were classes.
    info = GenerationInfo(GenerationId(1), "skipstream", LayoutOptions((1,)), 1, None, 3, 4, None, "gold", 90_000)
    key, value = info.encode()
    head = "aa" + b"skipstream".hex() + "9101" + "01" + "c0" + "03" + "04" + "c0"
    assert value.hex() == "02" + "9a" + head + "c0" + "a4" + b"gold".hex() + "ce00015f90"
    assert GenerationInfo.decode(key, value) == info
    fields = GenerationInfo(GenerationId(1), "wildcard_optimized", LayoutOptions((1,), 8, 9, 1), 1, 2, 3, 4, 5, "gold", 7)
    assert GenerationInfo.decode(*fields.encode()) == fields
    assert GenerationInfo(GenerationId(1), "skipstream", LayoutOptions((1,)), 1, None, 3, 4, None).encode()[1].hex() == "01" + "97" + head


def test_a_store_without_classes_has_no_row_of_them() -> None:
    # Property: whoever uses no classes has the same bytes as before there were any.
    engine = MemoryEngine()
    store = opened(engine, NO_CLASSES)
    put(engine, store, 1, b"gold/a")
    engine.write(store.roll(10, 1, 1))
    assert engine.get(HOME_FAMILY, CLASSES_ROW) is None
    assert {engine.get(HOME_FAMILY, row_key(n))[:1] for n in (1, 2)} == {b"\x01"}  # type: ignore[index]


# ------------------------------------------------------------------ generations of classes


def test_an_empty_store_begins_with_one_generation_of_each_class() -> None:
    # Property: nothing has to be rolled in a new store.
    engine = MemoryEngine()
    store = opened(engine)
    assert generations(store) == [(1, "default", 0, None), (2, "gold", 0, None), (3, "dust", 0, None)]
    assert not store.map_changed
    assert generations(opened(engine.crash(power=False))) == generations(store)


def test_a_class_rolls_by_itself() -> None:
    # Property: the others go on as they are; ids grow over all of them, and each row joins without gap.
    engine = MemoryEngine()
    store = opened(engine)
    put(engine, store, 1, b"x", b"gold/x", b"x/dust")
    key = store.key_of(b"x")
    engine.write(store.roll(10, 1, 1, "gold"))
    store.check()
    assert generations(store) == [(1, "default", 0, None), (2, "gold", 0, 10), (3, "dust", 0, None), (4, "gold", 10, None)]
    assert store.key_of(b"x") == key and store.key_of(b"gold/x").generation == 4
    with pytest.raises(LookupError, match="class silver has no current generation"):
        store.roll(20, 1, 1, "silver")


def test_another_map_waits_for_a_roll_of_all() -> None:
    # Property: until then topics are in the class they were in; then everything from before has a lower id than everything after, whatever
    # class it is in, so a topic that changes its class is read in order.
    engine = MemoryEngine()
    store = opened(engine, NO_CLASSES)
    put(engine, store, 1, b"gold/x")
    store = opened(engine.crash(power=False), BOTH)
    engine = store.engine  # type: ignore[assignment]
    assert store.map_changed and store.class_of(b"gold/x") == "default"
    put(engine, store, 5, b"gold/x")
    assert generations(store) == [(1, "default", 0, None)]
    engine.write(store.roll(10, 1, 1))
    put(engine, store, 11, b"gold/x")
    assert not store.map_changed and store.class_of(b"gold/x") == "gold"
    assert generations(store) == [(1, "default", 0, 10), (2, "default", 10, None), (3, "gold", 10, None), (4, "dust", 10, None)]
    store.change(StoreOptions(classes=NO_CLASSES))
    engine.write(store.roll(20, 2, 2))
    put(engine, store, 21, b"gold/x")
    store.check()
    read: list[int] = []
    for generation, stream in store.streams(b"gold/x", 0):
        read += [position for position, _ in store.read(generation, stream, 0, 99, 9, MANY, MANY).messages]
    assert read == [1, 5, 11, 21]


def test_a_map_that_differs_in_periods_only_rolls_nothing() -> None:
    # Property: a period counts at once for what is there, and is known when the class has gone, even if it was changed while nobody ran.
    engine = MemoryEngine()
    store = opened(engine)
    engine.write(store.roll(10, 1, 1))
    longer = ClassMap((RetentionClass("gold", b"gold/#", 500_000), DUST))
    store = opened(engine, longer)
    assert not store.map_changed
    assert {store.period_ms(info, 7) for info in store.generations() if info.klass == "gold"} == {500_000}
    engine.write(store.take_growth())
    engine.sync()
    store = opened(engine.crash(power=True), ClassMap((DUST,)))
    engine = store.engine  # type: ignore[assignment]
    assert store.map_changed
    engine.write(store.roll(20, 2, 2))
    engine.sync()
    store = opened(engine.crash(power=True), ClassMap((DUST,)))
    assert {info.id: store.period_ms(info, 7) for info in store.generations() if info.klass == "gold"} == {2: 500_000, 5: 500_000}
    assert {store.period_ms(info, 7) for info in store.generations() if info.klass == "default"} == {7}
    with pytest.raises(KeyError):
        store._generations.current("gold")


def test_a_class_that_comes_back_has_the_period_of_the_map_again() -> None:
    # Property: what is left of its former life goes by what is said now.
    engine = MemoryEngine()
    store = opened(engine)
    for position, classes in ((10, NO_CLASSES), (20, ClassMap((RetentionClass("gold", b"x", 3),)))):
        store.change(StoreOptions(classes=classes))
        engine.write(store.roll(position, 1, 1))
        store.check()
    assert [store.period_ms(info, 7) for info in store.generations() if info.klass == "gold"] == [3, 3]


def test_a_roll_that_was_not_committed_leaves_the_old_map() -> None:
    # Property: the map and the generations made for it are in one record.
    engine = MemoryEngine()
    store = opened(engine, NO_CLASSES)
    engine.sync()
    store.change(StoreOptions(classes=BOTH))
    while store.create_next(of_all=True):
        pass
    engine.write(store.roll(10, 1, 1))
    engine = engine.crash(power=True)
    assert engine.families() == [0, 1, 2, 3, 4]
    store = opened(engine, BOTH)
    assert store.map_changed and generations(store) == [(1, "default", 0, None)] and engine.families() == [0, 1]


def test_families_for_a_roll_of_all_are_made_one_at_a_time() -> None:
    # Property: each call makes one, the last says that there are no more, and the roll makes none.
    engine = MemoryEngine()
    store = opened(engine, NO_CLASSES)
    store.change(StoreOptions(classes=BOTH))
    counts = []
    more = True
    while more:
        more = store.create_next(of_all=True)
        counts.append(len(engine.families()))
    assert counts == [3, 4, 5] and not store.create_next()
    engine.write(store.roll(10, 1, 1))
    assert len(engine.families()) == 5
    store.check()


def test_a_current_generation_without_a_row_stops_the_start() -> None:
    # Property: as for the only one there was: writing on into a new one would hide a loss.
    engine = MemoryEngine()
    opened(engine)
    engine.write([(HOME_FAMILY, row_key(2), None)])
    with pytest.raises(StoreFailed, match="current generation of class gold is missing"):
        opened(engine)
    engine = MemoryEngine()
    opened(engine)
    engine.drop_family(2)
    with pytest.raises(StoreFailed, match="family of the current generation 2 is missing"):
        opened(engine)


def test_what_a_class_held_at_a_position_is_found_by_the_class() -> None:
    # Property: a position alone names a generation of each class.
    engine = MemoryEngine()
    store = opened(engine)
    engine.write(store.roll(10, 1, 1, "gold") + store.drop(2))
    assert [store.generation_of(5, klass) for klass in ("default", "dust")] == [1, 3]
    assert store.generation_of(10, "gold") == 4
    with pytest.raises(GenerationDropped, match="generation 2 "):
        store.generation_of(5, "gold")
    with pytest.raises(LookupError, match="silver had no generation at position 5"):
        store.generation_of(5, "silver")


def test_a_dropped_generation_is_remembered_with_its_class() -> None:
    # Property: who did not read that class has lost nothing, and can be told so.
    engine = MemoryEngine()
    store = opened(engine)
    engine.write(store.roll(10, 1, 2000, "gold") + store.drop(2, 9000))
    assert [(row.klass, row.since, row.until, row.created_wall_ms, row.sealed_wall_ms) for row in store.dropped_between(0, 9)] == [
        ("gold", 0, 10, 1000, 2000)
    ]


def test_the_cut_off_is_that_of_the_class_that_is_behind() -> None:
    # Property: nobody who follows several classes is told to read beyond what one of them has settled; what was sealed is not put off.
    engine = MemoryEngine()
    store = opened(engine, BOTH, "wildcard_optimized")
    put(engine, store, 100, b"gold/x")
    assert store.cutoff(b"#", 100) == 95 and store.wants_tick(100, 200)
    engine.write(store.roll(100_000, 1, 1, "gold"))
    store.change(StoreOptions("skipstream", classes=BOTH))
    engine.write(store.roll(100_016, 1, 1, "default"))
    engine.write(store.roll(100_017, 1, 1, "dust"))
    put(engine, store, 100_020, b"gold/x")
    assert store.cutoff(b"#", 100_020) == 100_015
    assert not store.wants_tick(100_020, 100_021) and store.wants_tick(100_020, 100_040)


def test_a_reading_by_time_finds_what_only_one_class_still_has() -> None:
    # Property: marks of a class go with it, and those of another are still right for what that one holds.
    engine = MemoryEngine()
    store = opened(engine)
    for n in range(1, 6):
        ops: list[Op] = []
        store.note_time(ops, n * 100, n * 1000)
        engine.write(ops)
        put(engine, store, n * 100, b"x", b"gold/x")
        if n == 3:
            engine.write(store.roll(350, 1, 1, "default"))
    engine.write(store.drop(1))
    assert store.position_at(2000) == 99, "gold has messages of that time"
    assert store.position_at(4000) == 299
    assert store.position_at(0) == 0


@pytest.mark.needs("interpreted")
def test_idle_work_goes_in_turn_over_the_classes() -> None:
    # Property: a class with work without end does not keep the others from theirs.
    asked: list[int] = []

    class Busy(Generations):
        def _idle_work(self, generation: int, upto: int) -> bool:
            asked.append(generation)
            return True

    engine = MemoryEngine()
    opened(engine)
    table = Busy.open(engine, "skipstream", LayoutOptions(), classes=BOTH)
    for _ in range(6):
        assert table.idle_work(1)
    assert asked == [1, 2, 3, 1, 2, 3]


def test_how_much_a_generation_has_taken_is_known_over_a_restart() -> None:
    # Property: counted, also over a restart; a new generation begins with nothing.
    engine = MemoryEngine()
    store = opened(engine)
    put(engine, store, 1, b"gold/x", b"gold/y")
    size = store.bytes_put[2]
    assert size > 0 and [store.bytes_put[n] for n in (1, 2, 3)] == [0, size, 0]
    engine.write(store.roll(10, 1, 1, "dust"))
    assert [store.bytes_put[n] for n in (1, 2, 4)] == [0, size, 0]
    again = opened(engine.crash(power=False))
    assert [again.bytes_put[n] for n in (1, 2, 4)] == [0, size, 0]


def test_how_much_is_in_a_generation_that_nobody_counted_is_estimated_at_the_start() -> None:
    # Property: a store of a program that wrote no counts is sealed by size as well, and what comes is added.
    engine = MemoryEngine()
    store = opened(engine)
    put(engine, store, 1, b"gold/x", b"gold/y")
    engine.write([(2, bytes(7) + b"\x04", None)])
    engine = engine.crash(power=False)
    again = opened(engine)
    estimated = again.bytes_put[2]
    assert estimated == engine.family_bytes(2) > 0 == again.bytes_put[1]
    put(engine, again, 11, b"gold/x")
    assert estimated < again.bytes_put[2] < estimated + 100
