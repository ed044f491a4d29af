"""The port to one generation's layout: the only code that knows the keys of its family.

A layout turns (topic, position, message) into ops, and reads the messages of a stream back in position order. Which
generation is written, what a position is, records, sessions: all of that is above it. All layouts pass one contract suite
against a brute-force model (tests/contracts/test_layout.py), over every engine.

Always holds, in every layout:
1. a place is a message position; nothing of the layout's own batching or indexing shows in it;
2. ``read`` changes nothing and is repeatable: the same arguments give the same messages, before and after later writes,
   a seal, a restart, on another replica. With a smaller ``count_max`` they give a prefix;
3. a topic is in one stream for the life of the generation, so its messages come in the order of their positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from shards.engine import Op
from shards.lts import DEFAULT_THRESHOLDS, TopicStructure

if TYPE_CHECKING:
    from shards.bulk import Columns


@dataclass(slots=True)
class TopicKey:
    """Where a topic's messages go in one generation. Made once per topic by ``key_of`` and cached by the caller until the
    generation is rolled. ``data``, ``indexes`` and ``number`` are the layout's own."""

    generation: int
    static: bytes
    data: bytes
    indexes: tuple[bytes, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """The part of a stream that a filter asks for. Hashable: equal streams may share one read.

    constraints: (varying level, counted from 1; hash of the wanted value), for the index.
    literals: (level of the topic, counted from 0; wanted value), to tell real matches from equal hashes.
    Both empty: every message of the stream matches.
    """

    static: bytes
    constraints: tuple[tuple[int, bytes], ...] = ()
    literals: tuple[tuple[int, bytes], ...] = ()


class Read(NamedTuple):
    """What a bounded read found.

    positions, values: of each message its position, and what is stored of it; by position.
    place: everything of the stream up to here has been examined; the next read goes on after it.
    done: there is nothing more up to ``upto``; then place == upto.
    ended: done, and the generation is sealed at or below ``upto``: nothing will ever follow. Set by the store, not by a layout.
    """

    positions: list[int]
    values: list[bytes]
    place: int
    done: bool
    ended: bool = False

    @property
    def messages(self) -> list[tuple[int, bytes]]:
        """For whoever takes them one by one."""
        return list(zip(self.positions, self.values, strict=True))


ReadStream = Callable[[bytes, int, int, int, int], Read]
"""Messages of a whole stream, whatever their varying levels are, by static key, after, upto, count_max and bytes_max: for who makes
something of them, such as an index."""


def read_of(messages: Sequence[tuple[int, bytes]], place: int, done: bool) -> Read:
    """What was read message by message."""
    return Read([position for position, _ in messages], [value for _, value in messages], place, done)


@dataclass(frozen=True, slots=True)
class LayoutOptions:
    """What a generation keeps of the configuration for its whole life. thresholds: lts.DEFAULT_THRESHOLDS says what they mean.

    The others are for bit-field keys (layouts.wildcard_optimized): bits of the hash of a varying level, in whole bytes; bits of a
    position that are the offset in its epoch, 64 for a single epoch without end; bytes of a static key that are in the keys.
    """

    thresholds: tuple[int | None, ...] = DEFAULT_THRESHOLDS
    bits_per_topic_level: int = 64
    epoch_bits: int = 20
    topic_index_bytes: int = 4


class Layout(Protocol):
    """One open generation."""

    @property
    def structure(self) -> TopicStructure:
        """What it has learned, to look at."""

    @property
    def moves(self) -> dict[str, int]:
        """What its reads have done since it was opened, by kind: for metrics, so each layout has kinds of its own."""

    def key_of(self, topic: bytes) -> TopicKey:
        """The topic's key. May learn: then ``take_growth`` has ops for the record that holds the topic's first message."""

    def take_growth(self) -> list[Op]:
        """Ops that make durable what was learned since the last call. Repeating them changes nothing."""

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        """Append the ops that store the message, now or at the next ``flush``. Positions are unique and grow."""

    def put_all(self, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        """``put`` of each of these, for who has many at once."""

    def flush(self, ops: list[Op]) -> None:
        """Append the ops of what ``put`` has held back: the record with the messages put since the last call ends here.

        Nothing is held over from one record to the next, so a record has all of its messages or is not there.
        """

    def take_back(self, position: int) -> None:
        """What was put at this position and behind it is not stored, and does not come again: its record was refused."""

    def streams(self, topic_filter: bytes) -> list[Stream]:
        """The streams that can hold matching topics, sorted by static key."""

    def stream_of(self, static: bytes, topic_filter: bytes) -> Stream:
        """The one of ``streams(topic_filter)`` with this static key. Raises lts.StructureMismatch when there is none."""

    def read(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        """Matching messages with after < position <= upto, in position order.

        At most ``count_max``; together at most ``bytes_max`` bytes, except that a first message is never too large; and at most
        about ``examine_max`` keys are looked at. Bounds must be >= 1; then place > after, or done.
        """

    def bulk(self, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """The messages that ``read`` gives, for many of them at once: whole streams cost no tuple and no number per message.

        At most ``rows_max``; ``bytes_max``, place and done are as with ``read``, but where it breaks off is an affair of its own.
        """

    def cutoff(self, topic_filter: bytes, upto: int) -> int:
        """How far whoever follows this filter should read when everything up to ``upto`` is committed: ``upto``, or less where a
        layout reads cheaply only what is behind the head. Not always beyond a place that was reached before.

        For cost and never for safety: ``read`` gives the same with any bounds. Only what has never been told may be put off; what
        is read again is read in its own bounds.
        """

    def wants_tick(self, last: int, now: int) -> bool:
        """Whether messages wait behind the cut-off at ``last``, the newest position given out, and would not at ``now``: then an
        idle shard commits a record at ``now`` with nothing in it. Once is enough until something is put."""

    def seal(self) -> None:
        """Nothing more will be put, as far as is known: idle work may now make reading as cheap as it gets. A crash may lose the
        roll that said so; then the generation is opened anew and goes on."""

    def idle_work(self, upto: int) -> bool:
        """Write one slice, of about 2 ms at most, of what is derived from messages with position <= ``upto``, all of them
        committed. True when something was done, so that there may be more.

        Derived data is local: it goes straight to the engine, in no record, is never sent to a replica, and what a crash takes
        of it is made anew from the messages. It shows in no read but by its cost. After StoreFull the layout is as before.
        """

    def faults(self, upto: int) -> Iterator[str]:
        """Reads all that is derived of messages with position <= ``upto``, and the messages; one sentence for each part of it that does not
        say what they say. Nothing where nothing is derived. For commands, as it takes as long as there are messages."""

    def mended(self, upto: int) -> Iterator[list[Op]]:
        """What makes anew whatever ``faults`` has something to say about: each list is to be written as one record, in order, and the
        layout opened anew after the last. Wherever that breaks off, reads find no less than before. For commands that have the store to
        themselves. Raises StoreFailed when messages, or rows of the index, cannot be read at all."""

    def seen_again(self) -> Layout:
        """For who reads beside the one that writes, when there may be more in the family than before: this layout, with what it has
        learned, and without whatever else it remembers of the family."""

    def inherit_into(self, family: int, options: LayoutOptions) -> Layout:
        """A layout of the same kind for the next generation, in an empty family, that has learned what is worth keeping.
        Its growth is in its ``take_growth``."""
