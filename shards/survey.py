"""What is in the store of one shard, for people: generations, streams, rows, messages, faults, and what retention would take.

Only reads, and only through the ports of engine and store, so it works in every layout. It may take long: it is for commands,
never for a loop that serves others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shards.classes import ClassMap
from shards.clock import AgeMark
from shards.draft import Draft
from shards.dropped import DROPPED_ROW
from shards.engine import HOME_FAMILY, Engine, StoreFailed
from shards.generations import ROW_PREFIX, GenerationInfo, Generations
from shards.lts import Leaf
from shards.messages import UnknownMessageFormat, check_message, topic_of
from shards.rows import (
    APPLIED,
    BUNDLE,
    CONNECTION,
    DELIVERY,
    ENDED,
    GROUP,
    INCOMING,
    LEASE,
    LOSS,
    MEMBER,
    MEMBERSHIP,
    META,
    OUTBOX,
    OUTCOME,
    OWNER,
    PLACE,
    PROGRESS,
    RANGE,
    REFUSED_SENDER,
    RETAINED,
    ROUTE,
    SESSION,
    SLOT,
    SUBSCRIPTION,
    TIMER,
    TO_COPY,
    WORK,
    WRITER,
    LossRow,
    SubscriptionRow,
    client_key,
    split_client_key,
    successor,
    unpack_as,
    unpack_place,
    unpack_row,
)  # fmt: skip
from shards.steady import WALL_ROW, WallRow
from shards.store import Store, Stream

AGE_ROW = META + b"age"
"""The shard's newest age mark (docs/formats.md)."""

KINDS = {
    CONNECTION: "connections", SESSION: "sessions", ENDED: "ended sessions", INCOMING: "incoming QoS 2 ids", SUBSCRIPTION: "subscriptions",
    PLACE: "places", RANGE: "ranges", PROGRESS: "progress", LOSS: "losses", WORK: "routes to remove",
    TO_COPY: "retained messages to be copied", TIMER: "timers", SLOT: "answers of links", REFUSED_SENDER: "refused senders",
    OWNER: "owner", META: "meta", ROUTE: "routes",
    RETAINED: "retained messages", GROUP: "groups", MEMBER: "members of groups", MEMBERSHIP: "memberships", DELIVERY: "deliveries",
    OUTCOME: "outcomes of deliveries", BUNDLE: "bundles",
    APPLIED: "applied", OUTBOX: "outbox", LEASE: "leases", WRITER: "writers", ROW_PREFIX: "generations", DROPPED_ROW: "dropped generations",
}  # fmt: skip
_CHUNK = 1000
_BYTES = 4 << 20
_ALL = b"\xff" * 64
_NO_LIMIT = 1 << 62


class Message(NamedTuple):
    """One stored message. value: shards.messages."""

    generation: int
    position: int
    value: bytes


class Unread(NamedTuple):
    """A subscription that has not read all of a generation of some shard. place: what it has read for certain."""

    client: bytes
    filter: bytes
    shard: int
    place: int


class Survey:
    """One shard's store, seen through an engine that the caller opened and closes."""

    def __init__(self, shard: int, engine: Engine) -> None:
        """Raises StoreFailed when there is nothing that a broker has made."""
        self.shard = shard
        self._engine = engine
        self._rows = Draft(engine)
        self._generations = Generations.view(engine)
        self._store = Store(engine, self._generations)

    @property
    def generations(self) -> list[GenerationInfo]:
        return self._store.generations()

    @property
    def lost(self) -> tuple[int, ...]:
        """Generations whose row is there and whose messages are not."""
        return self._store.lost_at_open

    @property
    def classes(self) -> ClassMap:
        """The retention classes that messages are put into."""
        return self._generations.classes

    def period_ms(self, info: GenerationInfo, default_ms: int) -> int:
        """How long a generation is kept once it is sealed; default_ms: by the configuration, for the default class."""
        return self._store.period_ms(info, default_ms)

    @property
    def position(self) -> int:
        """The highest position of the records written; -1 before the first."""
        row = self._engine.get(HOME_FAMILY, META + b"position")
        return int(unpack_row(row)[0]) if row else -1

    @property
    def age(self) -> AgeMark | None:
        value = self._engine.get(HOME_FAMILY, AGE_ROW)
        return AgeMark.decode(value) if value else None

    @property
    def wall(self) -> WallRow:
        """By how much the wall clock differed from the time that messages carry, and since when."""
        value = self._engine.get(HOME_FAMILY, WALL_ROW)
        return WallRow.decode(value) if value else WallRow(0)

    # ---- rows of the home

    def rows(self) -> dict[str, int]:
        """How many rows of each kind there are; a kind that this program does not know is named by its byte."""
        counts: dict[str, int] = {}
        for key, _ in self._home(b"", _ALL):
            name = KINDS.get(key[:1], f"unknown kind {key[:1].hex()}")
            counts[name] = counts.get(name, 0) + 1
        return counts

    def unread(self) -> Iterator[Unread]:
        """How far each subscription at home here has read, shard by shard."""
        places: dict[bytes, int] = {}
        for key, value in self._home(PLACE, successor(PLACE)):
            places[key[1:]] = unpack_place(value).cut
        for key, value in self._home(SUBSCRIPTION, successor(SUBSCRIPTION)):
            client, _ = split_client_key(key)
            row = unpack_as(SubscriptionRow, value)
            for shard, start in row.starts:
                yield Unread(client, row.filter, shard, places.get(key[1:] + bytes((shard,)), start))

    def losses(self, client: bytes | None = None) -> Iterator[tuple[bytes, LossRow]]:
        """(client, loss) of the sessions at home here, or of one client."""
        prefix = LOSS if client is None else client_key(LOSS, client)
        for key, value in self._home(prefix, successor(prefix)):
            yield split_client_key(key)[0], unpack_as(LossRow, value)

    # ---- messages

    def streams(self, topic_filter: bytes) -> list[tuple[int, Stream]]:
        """(generation, stream) that a subscription to the filter reads."""
        return [(generation, stream) for generation, stream in self._store.streams(topic_filter, -1)]

    def leaves(self, generation: int) -> list[Leaf]:
        """All streams of a generation, as learned."""
        return self._generations.layout(generation).structure.leaves()

    def pattern(self, generation: int, static: bytes) -> bytes:
        """What the topics of a stream have in common, with + where they vary."""
        return _pattern(self._generations.layout(generation).structure.leaf(static))

    def messages(self, topic_filter: bytes, after: int = -1, limit: int = _NO_LIMIT) -> Iterator[Message]:
        """What matches and comes after a position: generation by generation, by stream and position within."""
        upto = self.position
        left = limit
        for generation, stream in self._store.streams(topic_filter, after):
            place, done = after, False
            while not done and left > 0:
                read = self._store.read(generation, stream, place, upto, min(_CHUNK, left), _BYTES, _NO_LIMIT)
                for position, value in read.messages:
                    yield Message(generation, position, value)
                left -= len(read.values)
                place, done = read.place, read.done

    def position_at(self, wall_ms: int) -> int:
        """A position behind which everything published at this wall-clock time or later comes."""
        return self._store.position_at(self.wall.earliest_steady_ms(wall_ms))

    def count(self, generation: int, topic_filter: bytes, after: int, limit: int) -> tuple[int, int]:
        """(messages, bytes) of one generation that match and come after a position; counts up to `limit` messages."""
        upto = self.position
        count = total = 0
        for at, stream in self._store.streams(topic_filter, after):
            place, done = after, at != generation
            while not done and count < limit:
                read = self._store.read(generation, stream, place, upto, min(_CHUNK, limit - count), _BYTES, _NO_LIMIT)
                count += len(read.values)
                total += sum(map(len, read.values))
                place, done = read.place, read.done
        return count, total

    # ---- faults

    def faults(self) -> Iterator[str]:
        """Reads everything; one sentence for each thing that is not as it must be."""
        for generation in self.lost:
            yield f"generation {generation} has a row and no messages: they are lost"
        written = [info.klass for info in self.generations if info.until is None]
        for klass in sorted({*written, *self.classes.names}):
            wanted = 1 if klass in self.classes.names else 0
            if written.count(klass) != wanted:
                yield f"retention class {klass} has {written.count(klass)} current generations and should have {wanted}"
        for key, value in self._home(b"", _ALL):
            if key[:1] not in KINDS:
                yield f"home row {key[:24].hex()} is of no known kind"
            elif key[:1] in _VERSIONED:
                try:
                    unpack_row(value)
                except (ValueError, TypeError, IndexError) as error:
                    yield f"home row {key[:24].hex()} cannot be read: {error}"
        for info in self.generations:
            yield from self._faults_of(info)

    def _faults_of(self, info: GenerationInfo) -> Iterator[str]:
        where = f"generation {info.id}"
        try:
            layout = self._generations.layout(info.id)
        except (StoreFailed, ValueError) as error:
            yield f"{where} cannot be opened: {error}"
            return
        upto = self.position if info.until is None else min(self.position, info.until)
        for fault in layout.faults(upto):
            yield f"{where}, {fault}"
        for leaf in self.leaves(info.id):
            stream = Stream(leaf.static)
            place, done = -1, False
            while not done:
                try:
                    read = layout.read(stream, place, upto, _CHUNK, _BYTES, _NO_LIMIT)
                except (StoreFailed, ValueError) as error:
                    yield f"{where}, stream {stream.static.hex()} cannot be read after position {place}: {error}"
                    break
                place, done = read.place, read.done
                for position, value in read.messages:
                    fault = self._fault_of(info, leaf, position, value)
                    if fault:
                        yield f"{where}, position {position}: {fault}"

    @staticmethod
    def _fault_of(info: GenerationInfo, leaf: Leaf, position: int, value: bytes) -> str:
        if position < info.since or (info.until is not None and position >= info.until):
            return f"it is outside {info.since} to {info.until}"
        try:
            check_message(value)
        except UnknownMessageFormat as error:
            return str(error)
        levels = topic_of(value).split(b"/")
        if len(levels) != len(leaf.levels) or any(own not in (None, level) for own, level in zip(leaf.levels, levels, strict=True)):
            return f"topic {topic_of(value).decode(errors='replace')} lies in the stream of {_pattern(leaf).decode(errors='replace')}"
        return ""

    def _home(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        while rows := self._rows.scan_range(start, end, _CHUNK):
            yield from rows
            start = rows[-1][0] + b"\x00"


def _pattern(leaf: Leaf) -> bytes:
    return b"/".join(b"+" if level is None else level for level in leaf.levels)


_VERSIONED = (CONNECTION, SESSION, SUBSCRIPTION, PLACE, RANGE, PROGRESS, LOSS, TO_COPY, WORK, ROUTE, OWNER, LEASE)
