"""What a store should hold, as a plain list; and readers whose places outlive the process.

The model knows messages by position and generation, and drops by the position of their record: a power cut takes both back, by position.

    Poller   follows a filter through shards.reading.Reader, as a session does: from the tail, in sweeps, with ranges that it can have again
    Walker   follows each stream of a filter by itself, `next` after `next`
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from shards.frames import Place, Poll, ReadRange, Segment
from shards.messages import topic_of
from shards.reading import Reader
from shards.store import Read, Store
from tests.shards.topic_model import matches

MANY = 1 << 40
Told = tuple[int, bytes]
"""(position, value). Every value is another one."""


class Message(NamedTuple):
    position: int
    topic: bytes
    value: bytes
    generation: int


class Model:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.drops: list[tuple[int, int]] = []
        """(position of the record, generation)."""
        self.spared: set[bytes] = set()
        """Values that a reader may miss: of generations of which a drop was at least begun."""
        self._known: dict[tuple[bytes, bytes], bool] = {}

    def drop(self, position: int, generation: int) -> None:
        self.drops.append((position, generation))
        self.spared.update(message.value for message in self.messages if message.generation == generation)

    def forget_above(self, last: int) -> int:
        """A restart found no record after this one. How many messages were."""
        kept = bisect_right(self.messages, last, key=lambda message: message.position)
        forgotten = len(self.messages) - kept
        del self.messages[kept:]
        self.drops = [drop for drop in self.drops if drop[0] <= last]
        return forgotten

    def lost(self, rng: random.Random) -> list[tuple[int, int]]:
        """(position, generation) of some messages that went with their generation."""
        gone = self.gone
        if not gone or rng.random() < 0.8:
            return []
        some = rng.sample(self.messages, min(20, len(self.messages)))
        return [(message.position, message.generation) for message in some if message.generation in gone]

    @property
    def gone(self) -> set[int]:
        return {generation for _, generation in self.drops}

    def expected(self, topic_filter: bytes, after: int, upto: int) -> list[Told]:
        gone, known = self.gone, self._known
        found: list[Told] = []
        for position, topic, value, generation in self.messages:
            if after < position <= upto and generation not in gone:
                hit = known.get((topic_filter, topic))
                if hit is None:
                    hit = known[topic_filter, topic] = matches(topic_filter, topic)
                if hit:
                    found.append((position, value))
        return found

    def at(self, position: int) -> Message:
        index = bisect_right(self.messages, position, key=lambda message: message.position) - 1
        assert index >= 0 and self.messages[index].position == position, f"nothing was put at {position}"
        return self.messages[index]

    def check_told(self, told: list[Told], topic_filter: bytes, after: int, upto: int) -> None:
        """Whoever went from `after` to `upto` was told all that is kept, each once."""
        wanted = self.expected(topic_filter, after, upto)
        kept = {value for _, value in wanted}
        found = sorted(each for each in told if each[1] in kept and each[0] <= upto)
        must = [each for each in wanted if each[1] not in self.spared]
        have = [each for each in found if each[1] not in self.spared]
        assert have == must, difference(topic_filter, have, must)
        assert len({value for _, value in told}) == len(told), f"{topic_filter!r}: something was told twice"


def difference(topic_filter: bytes, found: list[Told], expected: list[Told]) -> str:
    positions, wanted = [position for position, _ in found], [position for position, _ in expected]
    missing, more = sorted(set(wanted) - set(positions)), sorted(set(positions) - set(wanted))
    return f"{topic_filter!r}: missing {missing[:5]} of {len(wanted)}, too many {more[:5]} of {len(positions)}"


@dataclass(slots=True, eq=False)
class Poller:
    """Its place is a row in the store: a crash takes it back to the last one that is there, and what it was told since does not count."""

    filter: bytes
    since: int
    reader: Reader
    place: Place
    told: list[Told] = field(default_factory=list)
    saves: list[tuple[Place, int]] = field(default_factory=list)

    def save(self) -> int:
        """The number of what was saved, to be put into a row."""
        self.saves.append((self.place, len(self.told)))
        return len(self.saves) - 1

    def restore(self, save: int | None) -> None:
        self.place, count = self.saves[save] if save is not None else (Place(self.since), 0)
        del self.told[count:]

    def poll(self, model: Model, watermark: int, rng: random.Random) -> list[Segment]:
        """One poll; the segments of it are ranges that may be asked for again."""
        count, size = rng.choice((1, 7, 100, MANY)), rng.choice((200, 20_000, MANY))
        polled = self.reader.poll(Poll(self.filter, self.place, count, size, rng.choice((0, 30_000))), watermark)
        if polled is None:
            return []
        for segment in polled.segments:
            for told in zip(segment.positions, segment.values, strict=True):
                message = model.at(told[0])
                assert told[0] <= watermark, f"{told[0]} is told, {watermark} is committed"
                assert message.value == told[1] and matches(self.filter, message.topic)
                assert segment.after < told[0] <= segment.upto
                self.told.append(told)
        if polled.at_head:
            assert polled.place == Place(watermark)
        self.place = polled.place
        return polled.segments

    def check(self, model: Model) -> None:
        order: dict[bytes, int] = {}
        for position, value in self.told:
            topic = topic_of(value)
            assert order.get(topic, -1) < position, f"{self.filter!r}: {topic!r} came out of order at {position}"
            order[topic] = position
        if not self.place.horizon:
            model.check_told(self.told, self.filter, self.since, self.place.cut)


@dataclass(slots=True, eq=False)
class Walker:
    """Its places are kept outside of the store: what was committed once is there for ever, so nothing takes them back."""

    filter: bytes
    places: dict[tuple[int, bytes], int] = field(default_factory=dict)
    ended: set[tuple[int, bytes]] = field(default_factory=set)
    told: list[Told] = field(default_factory=list)

    def walk(self, store: Store, watermark: int, rng: random.Random) -> None:
        """`next` in some of the streams."""
        for generation, stream in store.streams(self.filter, 0):
            if rng.random() < 0.5:
                self.next(store, generation, stream.static, watermark, rng.choice((1, 4, 100)))

    def next(self, store: Store, generation: int, static: bytes, watermark: int, count: int) -> Read | None:
        """None: it has ended."""
        where = generation, static
        after = self.places.get(where, -1)
        read = store.read(generation, store.stream_of(generation, static, self.filter), after, watermark, count, MANY, MANY)
        assert read.done or read.place > after, "a read comes on, or there is no more"
        if where in self.ended:
            assert not read.messages, "nothing comes after the end of a stream"
            return None
        assert all(after < position <= watermark for position, _ in read.messages)
        self.told += read.messages
        self.places[where] = read.place
        if read.ended:
            self.ended.add(where)
            return None
        return None if read.done else read

    def finish(self, store: Store, model: Model, watermark: int) -> None:
        for generation, stream in store.streams(self.filter, 0):
            while self.next(store, generation, stream.static, watermark, 1000) is not None:
                pass
        model.check_told(self.told, self.filter, -1, watermark)


class Call(NamedTuple):
    """A read and what it gave: it gives the same for ever, until the generation is dropped."""

    generation: int
    static: bytes
    filter: bytes
    after: int
    upto: int
    messages: list[Told]


class Range(NamedTuple):
    """A segment that was told."""

    filter: bytes
    segment: Segment

    @property
    def ask(self) -> ReadRange:
        _, (streams, after, upto, merged, *_) = self
        return ReadRange(self.filter, streams, after, upto, merged)
