"""The storage of messages as a library: no Ray, no MQTT connection, no actor. docs/storage-library.md has examples.

A `MessageLog` is what one shard keeps of messages: append, the streams of a filter, iterators over them, subscriptions that
follow the head. It is synchronous and for one thread; a broker's shard uses the same store underneath with its own loop, syncs
in the background and homes of clients beside it, and the two never have one directory open at the same time.

Always holds:
1. what `append` has returned is on disk;
2. an iterator is a value: it may be kept, sent elsewhere and used again; the same iterator gives the same messages first, after
   later appends, a roll, a restart;
3. a generation that was dropped raises GenerationDropped; it is never silently empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import msgpack

from mqtt.body import strip_properties
from mqtt.topics import check_topic_filter, check_topic_name
from shards.backends import open_backend
from shards.clock import PositionClock
from shards.engine import HOME_FAMILY, Engine, Op, StoreFull
from shards.frames import Place, Poll
from shards.messages import encode_message, header
from shards.options import StoreOptions
from shards.reading import Reader
from shards.rows import META, pack_row, unpack_row
from shards.store import GenerationDropped, GenerationInfo, Store
from shards.tail import Tail

__all__ = ["GenerationDropped", "Iteration", "Message", "MessageLog", "StreamName", "Subscription", "open_log"]

BYTES_PER_READ = 4 << 20
_POSITION_ROW = META + b"position"
_NO_LIMIT = 1 << 62
_ITERATION_VERSION = 1


@dataclass(frozen=True, slots=True)
class Message:
    """publisher: who wrote it; order holds for one publisher and topic. published_at_ms: wall clock, for people.
    position: set by the log."""

    topic: bytes
    payload: bytes
    publisher: bytes = b""
    qos: int = 1
    published_at_ms: int = 0
    position: int = -1


class StreamName(NamedTuple):
    """A stream: topics that lie together in one generation. Read those of a lower generation to their end before those of a higher."""

    generation: int
    static: bytes


@dataclass(frozen=True, slots=True)
class Iteration:
    """A place in one stream: everything of it up to `position` that matches `filter` was given."""

    generation: int
    static: bytes
    filter: bytes
    position: int

    def encode(self) -> bytes:
        return bytes(msgpack.packb((_ITERATION_VERSION, self.generation, self.static, self.filter, self.position)))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises ValueError for bytes that `encode` of this program has not made."""
        try:
            version, generation, static, topic_filter, position = msgpack.unpackb(data)
        except (msgpack.UnpackException, TypeError, ValueError) as error:
            raise ValueError(f"these {len(data)} bytes are no iterator: {error}") from None
        if version != _ITERATION_VERSION:
            raise ValueError(f"an iterator of version {version} was found, {_ITERATION_VERSION} is what this program reads")
        return cls(generation, static, topic_filter, position)


class Batch(NamedTuple):
    """ended: the generation is sealed and all of it was given; there will never be more from this iterator."""

    iteration: Iteration
    messages: list[Message]
    ended: bool


class MessageLog:
    """Open one with `open_log`. Life cycle: open -> closed; a failed write or sync raises StoreFailed and ends it."""

    def __init__(self, engine: Engine, options: StoreOptions) -> None:
        self._engine = engine
        self._store = Store.open(engine, options)
        row = engine.get(HOME_FAMILY, _POSITION_ROW)
        last = max(unpack_row(row)[0] if row else 0, self._store.generations()[-1].since)
        # What was recovered may sit in the page cache only; nothing may be read that a power cut could take back.
        engine.sync()
        self._clock = PositionClock(last)
        # No tail is kept: with the floor out of reach every read goes to the store, up to the head: nothing here goes by a clock, so
        # nobody would move a cut-off on.
        self._reader = Reader(self._store, Tail(_NO_LIMIT, 1), waits=False)
        self.watermark = last
        if self._store.map_changed:
            self.roll()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._engine.close()

    # ---- writing

    def append(self, messages: Iterable[Message]) -> list[int]:
        """Store them in this order, all or none; their positions. On return they are on disk.

        Raises mqtt.reason.ProtocolError for what is no topic name, before anything is stored.
        """
        ops: list[Op] = []
        positions: list[int] = []
        store = self._store
        for topic, value in [_stored(message) for message in messages]:
            position = self._clock.take()
            store.append(ops, store.key_of(topic), position, value)
            positions.append(position)
        if positions:
            store.flush(ops)
            growth = store.take_growth()
            try:
                self._commit([*growth, *ops], positions[-1])
            except StoreFull:
                # The caller has them, and may never bring them again: only what was learned stays.
                store.give_back(growth)
                store.take_back(positions[0])
                raise
            store.work(self.watermark, len(positions))
        return positions

    def roll(self, age_ms: int = 0, wall_ms: int = 0) -> int:
        """Seal the current generation and begin the next, of each retention class where there are some; the highest number."""
        position = self._clock.take()
        self._commit(self._store.roll(position, age_ms, wall_ms), position)
        return self.generations()[-1].id

    def drop(self, generation: int) -> None:
        """Give the space of a sealed generation back. Raises ValueError for the current one, GenerationDropped when it is gone."""
        self._commit(self._store.drop(generation), self._clock.take())
        self._store.erase(generation)

    def _commit(self, ops: list[Op], position: int) -> None:
        self._engine.write([*ops, (HOME_FAMILY, _POSITION_ROW, pack_row((position,)))])
        self._engine.sync()
        self.watermark = position

    # ---- reading

    def generations(self) -> list[GenerationInfo]:
        return self._store.generations()

    def get_streams(self, topic_filter: bytes, after: int = -1) -> list[StreamName]:
        """The streams that can hold messages which match and come after a position, by generation."""
        wanted = check_topic_filter(topic_filter)
        return [StreamName(generation, stream.static) for generation, stream in self._store.streams(wanted, after)]

    def make_iterator(self, stream: StreamName, topic_filter: bytes, after: int = -1) -> Iteration:
        """From behind a position. Raises lts.StructureMismatch when the stream cannot hold what matches the filter."""
        wanted = check_topic_filter(topic_filter)
        self._store.stream_of(stream.generation, stream.static, wanted)
        return Iteration(stream.generation, stream.static, wanted, after)

    def next(self, iteration: Iteration, count: int) -> Batch:
        """Up to `count` further messages, fewer only at the head or the end."""
        found: list[Message] = []
        stream = self._store.stream_of(iteration.generation, iteration.static, iteration.filter)
        place, done, ended = iteration.position, False, False
        while not done and len(found) < count:
            read = self._store.read(iteration.generation, stream, place, self.watermark, count - len(found), BYTES_PER_READ, _NO_LIMIT)
            found += [_message(position, value) for position, value in read.messages]
            place, done, ended = read.place, read.done, read.ended
        return Batch(replace(iteration, position=place), found, ended)

    def subscribe(self, topic_filter: bytes, place: Place | int = -1) -> Subscription:
        """Everything that matches and comes after a position, over all streams and generations, also those still to come.

        -1: from the oldest message that is kept.
        """
        known_gone: frozenset[int] = frozenset()
        if place == -1:
            # Positions say nothing of which classes still have them: what is gone in between is not missed by who begins now.
            place = min(info.since for info in self.generations()) - 1
            known_gone = frozenset(row.generation for row in self._store.dropped_between(place, self.watermark))
        at = Place(place) if isinstance(place, int) else place
        return Subscription(self._reader, self, check_topic_filter(topic_filter), at, known_gone)


class Subscription:
    """Follows a filter. `place` has a constant size, whatever the number of streams; keep it, and go on from it another day.

    Messages of one topic come in order; those of different topics may come in another order than they were appended in.
    """

    def __init__(self, reader: Reader, log: MessageLog, topic_filter: bytes, place: Place, known_gone: frozenset[int]) -> None:
        self._reader = reader
        self._known_gone = known_gone
        self._log = log
        self.filter = topic_filter
        self.place = place

    def poll(self, count: int) -> list[Message]:
        """Up to `count` further messages; none when all that is stored has been given. Raises GenerationDropped when some that
        were not given yet are gone; whoever wants to go on without them subscribes anew."""
        at_head = False
        while not at_head:
            polled = self._reader.poll(Poll(self.filter, self.place, count, BYTES_PER_READ), self._log.watermark)
            assert polled is not None, "nothing is put off here"
            for gone in polled.gone:
                if gone.generation not in self._known_gone:
                    raise GenerationDropped(gone.generation)
            self.place, at_head = polled.place, polled.at_head
            found = [
                _message(position, value)
                for segment in polled.segments
                for position, value in zip(segment.positions, segment.values, strict=True)
            ]
            if found:
                return found
        return []

    def __iter__(self) -> Iterator[Message]:
        """All that is stored now."""
        while batch := self.poll(1000):
            yield from batch


def open_log(backend: str, path: str, options: StoreOptions | None = None) -> MessageLog:
    """backend: "rocksdb", "memory", or what an installed package offers under the entry point group `holdfast.backends`.

    Raises BackendUnknown, and StoreInUse when somebody has it open.
    """
    return MessageLog(open_backend(backend, path), options or StoreOptions())


def _message(position: int, value: bytes) -> Message:
    flags, published_at_ms, publisher, topic, body = header(value)
    return Message(topic, strip_properties(body), publisher, flags & 3, published_at_ms, position)


def _stored(message: Message) -> tuple[bytes, bytes]:
    """Its topic, and the value that is kept of it."""
    topic = check_topic_name(message.topic)
    return topic, encode_message(message.qos, message.published_at_ms, message.publisher, topic, b"\0" + message.payload)
