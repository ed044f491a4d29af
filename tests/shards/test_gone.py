"""What a reader is told of generations that are gone (shards/reading.py): nothing is passed over without a word, nothing twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mqtt.topics import matches
from shards.classes import ClassMap, RetentionClass
from shards.engine import Op
from shards.engine_memory import MemoryEngine
from shards.frames import Gone, Place, Poll, Polled, RangeRead, ReadRange, Segment
from shards.messages import encode_message, topic_of
from shards.options import StoreOptions
from shards.reading import STREAMS_PER_POLL, Reader
from shards.store import Store
from shards.tail import Tail

NO_TAIL = Tail(1 << 62, 1)
WALL_MS = 1000
"""Between one roll and the next."""


@dataclass
class Log:
    """A store that is written at once, and a reader of it that keeps no tail. stored: (position, topic, generation)."""

    options: StoreOptions = field(default_factory=StoreOptions)
    salvage: bool = False

    def __post_init__(self) -> None:
        self.engine = MemoryEngine()
        self.last = 0
        self.rolls = 1
        self.stored: list[tuple[int, bytes, int]] = []
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.engine, self.options, 0, WALL_MS, self.salvage)
        self.reader = Reader(self.store, NO_TAIL, waits=False)

    def publish(self, *topics: bytes) -> None:
        ops: list[Op] = []
        for topic in topics:
            self.last += 1
            key = self.store.key_of(topic)
            self.store.append(ops, key, self.last, encode_message(1, 0, b"p", topic, b"\0"))
            self.stored.append((self.last, topic, key.generation))
        self.store.flush(ops)
        self.engine.write([*self.store.take_growth(), *ops])

    def roll(self, klass: str | None = None) -> None:
        self.last += 1
        self.rolls += 1
        self.engine.write(self.store.roll(self.last, 0, self.rolls * WALL_MS, klass))

    def drop(self, generation: int, reason: str = "period") -> None:
        self.engine.write(self.store.drop(generation, 99, reason))
        self.store.erase(generation)

    def poll(self, place: Place, count: int = 1000, topic_filter: bytes = b"#", renew_ms: int = 1 << 40) -> Polled:
        polled = self.reader.poll(Poll(topic_filter, place, count, 1 << 20, renew_ms), self.last)
        assert polled is not None
        return polled

    def range(self, segment: Segment, topic_filter: bytes = b"#") -> RangeRead:
        return self.reader.range(ReadRange(topic_filter, segment.streams, segment.after, segment.upto, segment.merged), self.last)


def three() -> Log:
    """Generations 1 to 3; positions 1 to 3, 5 to 7 and 9 to 11 are messages, 4 and 8 are rolls."""
    log = Log()
    for _ in range(2):
        log.publish(b"a", b"b", b"a")
        log.roll()
    log.publish(b"a", b"b", b"a")
    return log


def positions(polled: Polled) -> list[int]:
    return sorted(position for segment in polled.segments for position in segment.positions)


def test_a_poll_that_moves_over_a_dropped_generation_tells_of_it() -> None:
    """Its class, what of it is behind the place, when it was published, and why it went; the next poll says nothing."""
    log = three()
    log.drop(1)
    polled = log.poll(Place(1))
    assert polled.gone == [Gone(1, "default", 1, 3, 1000, 2000, "period")]
    assert positions(polled) == [5, 6, 7, 9, 10, 11] and polled.place == Place(11) and polled.at_head
    assert not log.poll(polled.place).gone


@pytest.mark.parametrize("cut", [3, 4, 7])
def test_who_has_read_all_of_it_is_told_nothing(cut: int) -> None:
    """From the last position of the generation on."""
    log = three()
    log.drop(1)
    assert not log.poll(Place(cut)).gone


def test_what_went_because_everybody_had_read_it_is_nobodys_loss() -> None:
    """The old place of a subscription for which nothing came, at the beginning and in the middle of a sweep."""
    log = three()
    in_it = log.poll(Place(0), 1).place
    log.drop(1, "read")
    for place in (Place(0), in_it):
        polled = log.poll(place)
        assert not polled.gone and positions(polled) == [5, 6, 7, 9, 10, 11]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_in_a_sweep_of_many_polls_it_is_told_once(count: int) -> None:
    """By the poll that moves over it, with what comes after it or with nothing."""
    log = three()
    log.drop(2)
    place, told, got = Place(0), list[Gone](), list[int]()
    while place.cut < log.last:
        polled = log.poll(place, count)
        place = polled.place
        told += polled.gone
        got += positions(polled)
    assert told == [Gone(2, "default", 4 - 1, 7, 2000, 3000, "period")]
    assert sorted(got) == [1, 2, 3, 9, 10, 11]


def test_a_generation_that_goes_while_a_sweep_is_in_it_is_told() -> None:
    """Some of it was read; what was not is somewhere behind the cut."""
    log = three()
    first = log.poll(Place(0), 1)
    assert positions(first) == [1] and not first.gone and first.place.generation == 1
    log.drop(1)
    second = log.poll(first.place)
    assert second.gone == [Gone(1, "default", 0, 3, 1000, 2000, "period")] and positions(second) == [5, 6, 7, 9, 10, 11]


def test_a_generation_that_goes_behind_a_sweep_is_nobodys_loss() -> None:
    """It was read: also when the streams are matched anew, by another process."""
    log = three()
    first = log.poll(Place(0), 4)
    assert positions(first)[:3] == [1, 2, 3] and first.place.generation == 2
    log.drop(1)
    assert not log.poll(first.place).gone
    log.open()
    assert not log.poll(first.place).gone


def test_a_sweep_that_stood_in_it_is_told_by_another_process() -> None:
    """Nobody knows any more whether a stream of it was left, so it is said."""
    log = three()
    first = log.poll(Place(0), 1)
    log.drop(1)
    log.open()
    assert [one.generation for one in log.poll(first.place).gone] == [1]


def test_more_streams_than_one_poll_looks_at_are_told_once() -> None:
    """All of them are in one generation that goes."""
    log = Log(StoreOptions(thresholds=(None,)))
    log.publish(*[b"t%d" % n for n in range(STREAMS_PER_POLL * 2 + 10)])
    log.roll()
    log.publish(b"t0")
    first = log.poll(Place(0), 1)
    log.drop(1)
    told, got, place = list[Gone](), list[int](), first.place
    for _ in range(4):
        polled = log.poll(place)
        told += polled.gone
        got += positions(polled)
        place = polled.place
    assert [one.generation for one in told] == [1] and got == [log.last]


def test_only_what_is_there_is_told_between_the_places() -> None:
    """A place in the middle of the generation, and a horizon in the middle of it."""
    log = three()
    log.drop(2)
    assert log.poll(Place(5, 6)).gone == [Gone(2, "default", 5, 6, 2000, 3000, "period")]
    assert log.poll(Place(6)).gone == [Gone(2, "default", 6, 7, 2000, 3000, "period")]


def test_what_is_not_remembered_singly_any_more_is_told_as_a_whole() -> None:
    """Generation 0 stands for it, also for a sweep that stood in one of them."""
    log = Log()
    log.publish(b"a")
    log.publish(b"b")
    first = log.poll(Place(0), 1)
    for _ in range(1003):
        log.roll()
        log.drop(log.store.generations()[0].id)
    log.publish(b"a")
    log.open()
    polled = log.poll(Place(0))
    assert polled.gone[0] == Gone(0, "", 0, log.store.dropped_between(-1, 1)[0].until - 1, 0, 0, "")
    assert [one.generation for one in polled.gone[1:]] == list(range(4, 1004))
    assert positions(polled) == [log.last]
    assert log.poll(first.place).gone == [Gone(0, "", 0, 2, 0, 0, "")]


def test_every_class_is_told_for_itself() -> None:
    """Positions of classes overlap; what is in another class is read."""
    log = Log(StoreOptions(classes=ClassMap((RetentionClass("short", b"s/#", 1),))))
    log.publish(b"s/1", b"a")
    log.roll("short")
    log.publish(b"s/1", b"a")
    (gone,) = [info.id for info in log.store.generations() if info.klass == "short" and info.until is not None]
    log.drop(gone)
    polled = log.poll(Place(0))
    assert [(one.generation, one.klass) for one in polled.gone] == [(gone, "short")]
    assert [topic_of(value) for segment in polled.segments for value in segment.values].count(b"a") == 2
    assert positions(polled) == [2, 4, 5]


# ---------------------------------------------------------------------------------------------- damage


def test_what_was_given_up_is_told_as_damaged() -> None:
    """It is there, and nobody can read it."""
    log = three()
    log.store._generations.give_up(2, "a broken block")
    polled = log.poll(Place(0))
    assert polled.gone == [Gone(2, "default", 3, 7, 2000, 3000, "damaged")] and positions(polled) == [1, 2, 3, 9, 10, 11]


def test_what_was_lost_at_the_opening_is_told_as_damaged() -> None:
    """Its row is there and its messages are not."""
    log = three()
    log.engine.drop_family(1)
    log.open()
    assert log.store.lost_at_open == (1,)
    assert log.poll(Place(0)).gone == [Gone(1, "default", 0, 3, 1000, 2000, "damaged")]


# ---------------------------------------------------------------------------------------------- ranges


def test_of_a_range_in_position_order_what_is_before_and_behind_is_read() -> None:
    """And the generation that is missing is named."""
    log = three()
    streams = [reference for segment in log.poll(Place(0)).segments for reference in segment.streams]
    for gone, before, behind in ((1, [], [5, 6, 7, 9, 10, 11]), (2, [1, 2, 3], [9, 10, 11]), (3, [1, 2, 3, 5, 6, 7], [])):
        log = three()
        log.roll()
        log.drop(gone)
        read = log.range(Segment(streams, 0, 11, True, [], []))
        assert (read.lost, read.positions[: read.before], read.positions[read.before :]) == (True, before, behind)
        assert [one.generation for one in read.gone] == [gone] and len(read.values) == len(read.positions)


def test_of_a_range_in_stream_order_what_is_before_and_behind_is_read() -> None:
    """In the order of its streams; between two gaps nobody knows the numbers."""
    log = three()
    log.roll()
    (whole,) = log.poll(Place(0)).segments
    assert not whole.merged and len(whole.streams) == 6
    log.drop(2)
    read = log.range(whole)
    wanted = [position for position in whole.positions if not 4 <= position <= 7]
    assert read.positions == wanted and read.before == 3 and [one.generation for one in read.gone] == [2]
    log.drop(1)
    assert (log.range(whole).positions, log.range(whole).before) == (wanted[3:], 0)
    log.drop(3)
    assert log.range(whole)[:4] == (True, [], [], 0) and [one.generation for one in log.range(whole).gone] == [1, 2, 3]


# ---------------------------------------------------------------------------------------------- always


@pytest.mark.parametrize("seed", range(60))
def test_no_message_is_passed_over_without_a_word(seed: int) -> None:
    """Whatever goes while it is read, in steps of any size, over restarts and by lists of streams of any age: a message is got once, or
    is in a gap that was told; and a gap is told once."""
    dice = random.Random(seed)
    log = Log(StoreOptions(classes=ClassMap((RetentionClass("short", b"s/#", 1),))) if seed % 2 else StoreOptions())
    topics = [b"a", b"b/1", b"b/2", b"c/1", b"s/1", b"s/2"]
    wanted = dice.choice([b"#", b"#", b"b/+", b"s/#"])
    place, got, told = Place(0), list[int](), list[Gone]()
    swept: list[tuple[int, int, int]] = []
    for _ in range(dice.randrange(20, 80)):
        what = dice.random()
        sealed = [info.id for info in log.store.generations() if info.until is not None]
        if what < 0.35:
            log.publish(*dice.choices(topics, k=dice.randrange(1, 6)))
        elif what < 0.5:
            log.roll(dice.choice([None, *[info.klass for info in log.store.currents()]]))
        elif what < 0.65 and sealed:
            log.drop(dice.choice(sealed))
        elif what < 0.7:
            log.open()
        else:
            polled = log.poll(place, dice.choice([1, 2, 5]), wanted, dice.choice([0, 1 << 40]))
            got += positions(polled)
            told += polled.gone
            swept += [(one.generation, place.cut, polled.place.horizon or polled.place.cut) for one in polled.gone]
            place = polled.place
    while place.cut < log.last:
        polled = log.poll(place, 3, wanted)
        got += positions(polled)
        told += polled.gone
        swept += [(one.generation, place.cut, polled.place.horizon or polled.place.cut) for one in polled.gone]
        place = polled.place
    assert len(set(got)) == len(got) and len(set(swept)) == len(swept)
    spans = [(one.generation, one.after, one.upto) for one in told]
    for position, topic, generation in log.stored:
        if matches(wanted, topic) and position not in got:
            assert any(g == generation and after < position <= upto for g, after, upto in spans), (position, generation, spans)
    alive = {info.id for info in log.store.generations()}
    assert not alive & {one.generation for one in told}
