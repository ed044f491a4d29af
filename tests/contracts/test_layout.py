"""What every layout promises (shards/layouts/port.py), over every engine, against a plain list of messages."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

import pytest

from shards.engine import Op
from shards.layouts.port import Layout, LayoutOptions, Read, Stream, TopicKey
from shards.lts import StructureMismatch
from shards.messages import encode_message
from tests.contracts.engines import ENGINES, Harness, make
from tests.contracts.layouts import OPENERS, settle
from tests.shards.topic_model import any_filter, any_topic, matches

FAMILY = 3
MANY = 1 << 30
THRESHOLDS: tuple[tuple[int | None, ...], ...] = ((100, 10), (2, 1), (0,), (1, 0), (None,))


class Kept:
    """A layout, its engine, and the plain list of (position, topic, value) that it should hold."""

    def __init__(self, layout_name: str, harness: Harness, options: LayoutOptions) -> None:
        self.name = layout_name
        self.harness = harness
        self.options = options
        harness.engine.create_family(FAMILY)
        self.layout: Layout = self.open(FAMILY)
        self.messages: list[tuple[int, bytes, bytes]] = []
        self.keys: dict[bytes, TopicKey] = {}
        self.last = 0

    def open(self, family: int) -> Layout:
        return OPENERS[self.name](self.harness.engine, family, self.options)

    def publish(self, topics: list[bytes], rng: random.Random, body_bytes_max: int = 30) -> None:
        """One record."""
        ops: list[Op] = []
        for topic in topics:
            self.last += rng.choice((1, 1, 2, 1000))
            key = self.keys.get(topic)
            if key is None:
                key = self.keys[topic] = self.layout.key_of(topic)
            value = encode_message(1, self.last, b"publisher", topic, rng.randbytes(rng.randint(0, body_bytes_max)))
            self.layout.put(ops, key, self.last, value)
            self.messages.append((self.last, topic, value))
        self.layout.flush(ops)
        self.harness.engine.write(self.layout.take_growth() + ops)

    def reopen(self) -> None:
        self.harness.kill()
        self.layout = self.open(FAMILY)
        self.keys = {}

    def expected(self, topic_filter: bytes, after: int, upto: int) -> list[tuple[int, bytes]]:
        return [(position, value) for position, topic, value in self.messages if after < position <= upto and matches(topic_filter, topic)]

    def whole(self, stream: Stream, after: int, upto: int) -> list[tuple[int, bytes]]:
        read = self.layout.read(stream, after, upto, MANY, MANY, MANY)
        assert read.done and read.place == upto
        return read.messages


@pytest.fixture(params=[f"{layout}-{engine}" for layout in OPENERS for engine in ENGINES])
def parts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Harness]]:
    layout, engine = request.param.rsplit("-", 1)
    harness = make(engine, tmp_path)
    yield layout, harness
    harness.close()


def filled(parts: tuple[str, Harness], seed: int, thresholds: tuple[int | None, ...] | None = None) -> tuple[Kept, random.Random]:
    rng = random.Random(seed)
    kept = Kept(parts[0], parts[1], LayoutOptions(thresholds or rng.choice(THRESHOLDS)))
    topics = [any_topic(rng) for _ in range(40)]
    for _ in range(12):
        if rng.random() < 0.3:
            kept.publish([rng.choice(topics[:2]) for _ in range(rng.choice((30, 100)))], rng)
        else:
            kept.publish([rng.choice(topics) if rng.random() < 0.8 else any_topic(rng) for _ in range(rng.choice((1, 3, 25)))], rng)
        settle(kept.layout, rng.choice((kept.last, kept.last // 2)), rng.choice((0, 1, 9)))
    return kept, rng


def bounds(kept: Kept, rng: random.Random) -> tuple[int, int]:
    after = rng.choice((-1, 0, rng.randint(0, kept.last), kept.messages[-1][0]))
    return after, rng.choice((kept.last, kept.last + 5, rng.randint(after, kept.last + 1), after))


@pytest.mark.parametrize("seed", range(8))
def test_the_streams_of_a_filter_hold_exactly_what_matches(parts: tuple[str, Harness], seed: int) -> None:
    # Property: over all streams of a filter, each matching message comes once; within a stream in position order.
    kept, rng = filled(parts, seed)
    for _ in range(40):
        topic_filter = any_filter(rng)
        after, upto = bounds(kept, rng)
        found: list[tuple[int, bytes]] = []
        streams = kept.layout.streams(topic_filter)
        assert [stream.static for stream in streams] == sorted({stream.static for stream in streams})
        for stream in streams:
            assert kept.layout.stream_of(stream.static, topic_filter) == stream
            if after <= upto:
                messages = kept.whole(stream, after, upto)
                assert [position for position, _ in messages] == sorted({position for position, _ in messages})
                found += messages
        assert sorted(found) == kept.expected(topic_filter, after, upto), topic_filter


@pytest.mark.parametrize("seed", range(8))
def test_a_bounded_read_keeps_its_bounds_and_loses_nothing(parts: tuple[str, Harness], seed: int) -> None:
    # Property: reads with any bounds, one after the other, give the messages of one unbounded read; each keeps its
    # bounds, moves on, and has examined everything up to its place.
    kept, rng = filled(parts, seed)
    for _ in range(25):
        topic_filter = any_filter(rng)
        after, upto = bounds(kept, rng)
        for stream in kept.layout.streams(topic_filter):
            expected = kept.whole(stream, after, upto) if after <= upto else []
            positions = [position for position, _ in expected]
            found: list[tuple[int, bytes]] = []
            place, done = after, False
            while not done:
                count_max, bytes_max, examine_max = rng.choice((1, 2, 7, MANY)), rng.choice((1, 60, 200, MANY)), rng.choice((1, 2, 5, MANY))
                read = kept.layout.read(stream, place, upto, count_max, bytes_max, examine_max)
                assert len(read.messages) <= count_max
                assert len(read.messages) <= 1 or sum(len(value) for _, value in read.messages) <= bytes_max
                assert read.done or read.place > place
                found += read.messages
                place, done = read.place, read.done
                assert found == expected[: bisect_right(positions, place)], "everything up to the place, nothing beyond it"
            assert place == max(upto, after)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("examine_max", [1, 2, 3, 4, 7, 30, MANY])
def test_nothing_is_lost_where_a_search_over_several_levels_breaks_off(parts: tuple[str, Harness], examine_max: int, indexed: bool) -> None:
    # Property: with several constrained levels, wherever examine_max ends a read, the next one misses and repeats nothing.
    rng = random.Random(examine_max)
    kept = Kept(parts[0], parts[1], LayoutOptions((0,)))
    kept.publish([b"%d/%d/%d" % (rng.randrange(3), rng.randrange(3), rng.randrange(2)) for _ in range(400)], rng, 0)
    if indexed:
        settle(kept.layout, kept.last, 300)
    for topic_filter in (b"1/2/0", b"+/2/1", b"0/+/1", b"1/1/+", b"2/0/#", b"7/1/1"):
        (stream,) = kept.layout.streams(topic_filter)
        found: list[tuple[int, bytes]] = []
        place, done = -1, False
        while not done:
            read = kept.layout.read(stream, place, kept.last, rng.choice((1, 3, MANY)), MANY, examine_max)
            assert read.done or read.place > place
            found += read.messages
            place, done = read.place, read.done
            assert found == kept.expected(topic_filter, -1, place)


@pytest.mark.parametrize("seed", range(4))
def test_few_keys_are_examined_for_few_matches_wanted(parts: tuple[str, Harness], seed: int) -> None:
    # Property: the first message of a selective filter does not cost a scan: a small examine_max moves the place far.
    rng = random.Random(seed)
    kept = Kept(parts[0], parts[1], LayoutOptions((0,)))
    kept.publish([b"d/%d/t" % (n % 100) for n in range(600)], rng)
    (stream,) = kept.layout.streams(b"d/42/t")
    read = kept.layout.read(stream, -1, kept.last, 1, MANY, 50)
    assert len(read.messages) == 1
    total = 0
    place, done = -1, False
    while not done:
        read = kept.layout.read(stream, place, kept.last, 2, MANY, 50)
        total += len(read.messages)
        place, done = read.place, read.done
    assert total == 6


@pytest.mark.parametrize("seed", range(6))
def test_a_read_gives_the_same_again_after_anything(parts: tuple[str, Harness], seed: int) -> None:
    # Property: equal arguments give equal messages after later writes, growth, idle work, a seal and a restart; fewer asked, a prefix.
    kept, rng = filled(parts, seed)
    asked: list[tuple[bytes, bytes, int, int, int, Read]] = []
    for _ in range(20):
        topic_filter = any_filter(rng)
        for stream in kept.layout.streams(topic_filter)[:3]:
            after, count = rng.randint(-1, kept.last), rng.randint(1, 5)
            read = kept.layout.read(stream, after, kept.last, count, MANY, MANY)
            asked.append((topic_filter, stream.static, after, kept.last, count, read))
    for what in ("idle", "write", "idle", "restart", "write", "restart", "idle", "seal", "restart"):
        if what == "idle":
            settle(kept.layout, kept.last, rng.choice((3, 30)))
        elif what == "seal":
            kept.layout.seal()
            assert settle(kept.layout, kept.last, 10_000) < 10_000, "idle work comes to an end"
        elif what == "write":
            kept.publish([any_topic(rng) for _ in range(30)], rng)
        else:
            kept.reopen()
        for topic_filter, static, after, upto, count, before in asked:
            stream = kept.layout.stream_of(static, topic_filter)
            assert kept.layout.read(stream, after, upto, count, MANY, MANY).messages == before.messages
            fewer = rng.randint(1, count)
            assert kept.layout.read(stream, after, upto, fewer, MANY, MANY).messages == before.messages[:fewer]
            if kept.last > upto:
                assert kept.layout.read(stream, after, kept.last, count, MANY, MANY).messages[: len(before.messages)] == before.messages


@pytest.mark.parametrize("seed", range(4))
def test_a_topic_has_one_stream_for_ever(parts: tuple[str, Harness], seed: int) -> None:
    # Property: neither learning nor a restart moves a topic, and known topics cause no growth.
    kept, rng = filled(parts, seed, (2, 1))
    keys = dict(kept.keys)
    kept.publish([any_topic(rng) for _ in range(100)], rng)
    for topic, key in keys.items():
        assert kept.layout.key_of(topic) == key
    kept.reopen()
    for topic, key in keys.items():
        assert kept.layout.key_of(topic) == key
    assert kept.layout.take_growth() == []


def test_growth_written_twice_changes_nothing(parts: tuple[str, Harness]) -> None:
    # Property: growth of a refused record may be written again with a later one.
    kept = Kept(parts[0], parts[1], LayoutOptions((2, 1)))
    for n in range(10):
        kept.layout.key_of(b"a/%d/c" % n)
    growth = kept.layout.take_growth()
    assert growth and kept.layout.take_growth() == []
    kept.harness.engine.write(growth)
    kept.harness.engine.write(growth)
    keys = [kept.layout.key_of(b"a/%d/c" % n) for n in range(10)]
    kept.reopen()
    assert [kept.layout.key_of(b"a/%d/c" % n) for n in range(10)] == keys


def test_a_message_larger_than_the_byte_bound_comes_alone(parts: tuple[str, Harness]) -> None:
    # Property: bytes_max never blocks: the first message of a read is never too large, with and without constraints.
    rng = random.Random(1)
    kept = Kept(parts[0], parts[1], LayoutOptions((0,)))
    for size in (10, 5000, 10, 5000, 5000):
        kept.publish([b"a/b"], rng, 0)
        value = encode_message(1, 0, b"p", b"a/b", bytes(size))
        ops: list[Op] = []
        kept.last += 1
        kept.layout.put(ops, kept.keys[b"a/b"], kept.last, value)
        kept.layout.flush(ops)
        kept.harness.engine.write(ops)
        kept.messages.append((kept.last, b"a/b", value))
    for topic_filter in (b"a/b", b"#"):
        (stream,) = kept.layout.streams(topic_filter)
        place = -1
        found: list[tuple[int, bytes]] = []
        while len(found) < 10:
            read = kept.layout.read(stream, place, kept.last, MANY, 100, MANY)
            assert sum(len(value) for _, value in read.messages) <= 100 or len(read.messages) == 1
            found += read.messages
            place = read.place
        assert found == kept.expected(topic_filter, -1, kept.last)


def test_values_beyond_upto_are_invisible(parts: tuple[str, Harness]) -> None:
    # Property: what is written and not committed is not read, and `done` speaks only of what is up to `upto`.
    kept, _ = filled(parts, 5, (2, 1))
    middle = kept.messages[len(kept.messages) // 2][0]
    for stream in kept.layout.streams(b"#"):
        assert all(position <= middle for position, _ in kept.whole(stream, -1, middle))
        empty = kept.layout.read(stream, kept.last, kept.last, 1, 1, 1)
        assert empty == Read([], [], kept.last, True)


def test_a_filter_that_does_not_fit_a_stream_is_refused(parts: tuple[str, Harness]) -> None:
    # Property: a place of one filter cannot be read with another by mistake.
    kept = Kept(parts[0], parts[1], LayoutOptions((9,)))
    kept.publish([b"a/b", b"$a/b"], random.Random(1))
    wrong = {b"a/b": (b"a/c", b"a", b"a/b/+", b"$a/#"), b"$a/b": (b"+/b", b"#", b"a/b")}
    for topic, filters in wrong.items():
        for topic_filter in filters:
            with pytest.raises(StructureMismatch):
                kept.layout.stream_of(kept.keys[topic].static, topic_filter)
    with pytest.raises(StructureMismatch):
        kept.layout.stream_of(b"\x07" * 8, b"#")


@pytest.mark.parametrize("seed", range(4))
def test_the_next_generation_begins_with_what_varies(parts: tuple[str, Harness], seed: int) -> None:
    # Property: the heir's growth restores it, needs nothing more for topics that varied, and its messages are its own.
    kept, rng = filled(parts, seed, (2, 1))
    engine = kept.harness.engine
    engine.create_family(FAMILY + 1)
    heir = kept.layout.inherit_into(FAMILY + 1, kept.options)
    growth = heir.take_growth()
    assert all(op[0] == FAMILY + 1 for op in growth)
    engine.write(growth)
    varying = [stream for stream in kept.layout.streams(b"#") if stream.static in {s.static for s in heir.streams(b"#")}]
    assert varying, "these thresholds make some level vary"
    for stream in heir.streams(b"#"):
        assert heir.read(stream, -1, kept.last, MANY, MANY, MANY).messages == []
    again = kept.open(FAMILY + 1)
    assert again.streams(b"#") == heir.streams(b"#")
    topic = any_topic(rng)
    value = encode_message(0, 0, b"", topic, b"\0")
    ops: list[Op] = []
    heir.put(ops, heir.key_of(topic), kept.last + 1, value)
    heir.flush(ops)
    engine.write(heir.take_growth() + ops)
    found = [message for stream in heir.streams(topic) for message in heir.read(stream, -1, kept.last + 9, MANY, MANY, MANY).messages]
    assert found == [(kept.last + 1, value)]
    assert all(position <= kept.last for stream in kept.layout.streams(b"#") for position, _ in kept.whole(stream, -1, kept.last + 9))
