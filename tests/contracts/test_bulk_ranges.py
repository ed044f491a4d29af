"""Ranges of positions, read in bulk while the store goes on: what every unit of a scan and every retry of one counts on.

RANGES_EXAMPLES: how many histories for each property; few by default, many in the gate of the pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.classes import ClassMap, RetentionClass
from shards.engine import Op
from shards.engine_memory import MemoryEngine
from shards.generations import GenerationDropped
from shards.messages import encode_message, topic_of
from shards.options import StoreOptions
from shards.store import Store, Stream, TopicKey
from tests.contracts.campaign import bounds
from tests.shards.topic_model import matches

EXAMPLES = int(os.environ.get("RANGES_EXAMPLES") or 10)
LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")
FILTERS = (b"#", b"busy", b"plant/+/temp", b"plant/3/+", b"plant/+/load", b"site/#")
CLASSES = ClassMap((RetentionClass("short", b"site/#", 1),))
MANY = 1 << 30

Step = tuple[str, int]
Block = dict[tuple[int, bytes], tuple[bytes, bytes]]
"""(generation, stream) -> positions and values, as they are."""

histories = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
steps = st.lists(
    st.tuples(st.sampled_from(("publish", "publish", "publish", "roll", "drop", "fold", "reopen")), st.integers(0, 120)),
    min_size=1,
    max_size=12,
)
pages = st.tuples(st.sampled_from((1, 3, 50, MANY)), st.sampled_from((1, 200, 5000, MANY)))


class Range(NamedTuple):
    after: int
    upto: int


@dataclass
class Shard:
    """A store in memory, and which messages it has taken."""

    layout: str
    engine: MemoryEngine = field(default_factory=MemoryEngine)
    last: int = 0
    messages: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(position, generation, value)."""
    gone: set[int] = field(default_factory=set)
    keys: dict[bytes, TopicKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = self._opened()

    def take(self, steps: list[Step]) -> None:
        does: dict[str, Callable[[int], None]] = {
            "publish": self.publish,
            "roll": self.roll,
            "drop": self.drop,
            "fold": self.fold,
            "reopen": self.reopen,
        }
        for what, number in steps:
            does[what](number)

    def publish(self, number: int) -> None:
        ops: list[Op] = []
        for n in range(number + 1):
            self.last += 1 + (number + n) % 3
            chosen = crc32(b"%d" % self.last)
            topic = (b"busy", b"plant/%d/temp", b"plant/%d/load", b"site/%d")[0 if number % 2 else chosen % 4]
            topic = topic % (chosen >> 8 & 15) if b"%" in topic else topic
            if topic not in self.keys:
                self.keys[topic] = self.store.key_of(topic)
            value = encode_message(1, self.last, b"p", topic, b"x" * (chosen >> 12 & 63))
            self.store.append(ops, self.keys[topic], self.last, value)
            self.messages.append((self.last, self.keys[topic].generation, value))
        self.store.flush(ops)
        self.engine.write(self.store.take_growth() + ops)

    def roll(self, number: int) -> None:
        self.last += 1
        growth = self.store.take_growth()
        self.engine.write(growth + self.store.roll(self.last, 0, 0, (None, "default", "short")[number % 3]))
        self.keys = {}

    def drop(self, number: int) -> None:
        sealed = [int(info.id) for info in self.store.generations() if info.until is not None]
        if sealed:
            generation = sealed[number % len(sealed)]
            self.engine.write(self.store.drop(generation))
            self.store.erase(generation)
            self.gone.add(generation)

    def fold(self, number: int) -> None:
        for _ in range(number):
            self.store.idle_work(self.last)

    def reopen(self, number: int) -> None:
        self.engine = self.engine.crash(power=False)
        self.store = self._opened()
        self.keys = {}

    def read(self, topic_filter: bytes, range_: Range, page: tuple[int, int]) -> Block:
        """As units of a scan: generation by generation, stream by stream."""
        found: Block = {}
        for info in self.store.generations():
            for stream in self.store.streams_in(info.id, topic_filter):
                positions, values = self.stream(info.id, stream, range_, page)
                if positions:
                    found[info.id, stream.static] = positions, values
        return found

    def stream(self, generation: int, stream: Stream, range_: Range, page: tuple[int, int]) -> tuple[bytes, bytes]:
        positions, values, place, done = b"", b"", range_.after, False
        while not done:
            columns = self.store.bulk(generation, stream, place, range_.upto, *page)
            assert len(columns.positions) == 8 * len(columns.values)
            positions += columns.positions
            # With their lengths, so that no other cut gives the same bytes.
            values += b"".join(len(value).to_bytes(4, "little") + value for value in columns.values)
            place, done = columns.place, columns.done
        return positions, values

    def wanted(self, topic_filter: bytes, range_: Range) -> list[int]:
        return [
            position
            for position, generation, value in self.messages
            if range_.after < position <= range_.upto and generation not in self.gone and matches(topic_filter, topic_of(value))
        ]

    def _opened(self) -> Store:
        return Store.open(self.engine, StoreOptions(self.layout, (100, 3), epoch_bits=6, classes=CLASSES))


def positions_of(block: Block) -> list[int]:
    return sorted(position for positions, _ in block.values() for position in memoryview(positions).cast("Q"))


def joined(*blocks: Block) -> Block:
    found: Block = {}
    for block in blocks:
        for where, (positions, values) in block.items():
            before = found.get(where, (b"", b""))
            found[where] = before[0] + positions, before[1] + values
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@histories
@given(st.data(), steps, steps, st.sampled_from(FILTERS), st.booleans())
def test_a_range_read_twice_is_the_same_bytes(
    layout: str, data: st.DataObject, before: list[Step], between: list[Step], topic_filter: bytes, small: bool
) -> None:
    # Property: [a, b) again, after records, rolls, folds, drops and restarts, in other pages: the same bytes, stream by stream, of each
    # generation that is still there; one that was dropped raises and is never read in part. All of it is what was published.
    with bounds(small):
        shard = Shard(layout)
        shard.take(before)
        after, upto = sorted(data.draw(st.tuples(st.integers(-1, shard.last), st.integers(-1, shard.last))))
        range_ = Range(after, upto)
        first = shard.read(topic_filter, range_, data.draw(pages))
        assert positions_of(first) == shard.wanted(topic_filter, range_)
        shard.take(between)
        page = data.draw(pages)
        again = shard.read(topic_filter, range_, page)
        assert again == {where: block for where, block in first.items() if where[0] not in shard.gone}
        for generation, static in first:
            if generation in shard.gone:
                with pytest.raises(GenerationDropped):
                    shard.stream(generation, Stream(static), range_, page)


@pytest.mark.parametrize("layout", LAYOUTS)
@histories
@given(st.data(), steps, steps, st.sampled_from(FILTERS), st.booleans())
def test_two_ranges_that_meet_are_one(
    layout: str, data: st.DataObject, before: list[Step], between: list[Step], topic_filter: bytes, small: bool
) -> None:
    # Property: [a, b) and later [b, c), one after the other, are [a, c): per stream in order, nothing twice and nothing missing, but for
    # what was dropped between the two.
    with bounds(small):
        shard = Shard(layout)
        shard.take(before)
        a, b, c = sorted(data.draw(st.tuples(*[st.integers(-1, shard.last)] * 3)))
        whole = shard.read(topic_filter, Range(a, c), data.draw(pages))
        first = shard.read(topic_filter, Range(a, b), data.draw(pages))
        shard.take(between)
        second = shard.read(topic_filter, Range(b, c), data.draw(pages))
        there = {where: block for where, block in first.items() if where[0] not in shard.gone}
        assert joined(there, second) == {where: block for where, block in whole.items() if where[0] not in shard.gone}
        later = shard.read(topic_filter, Range(a, c), data.draw(pages))
        assert later == joined(there, second)
        assert positions_of(later) == shard.wanted(topic_filter, Range(a, c))
