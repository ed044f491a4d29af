"""What the shard core sees of stored messages: one sequence of generations, written at its end, read by streams.

The store turns topics into keys and messages into ops, and reads streams back. It submits nothing: ops go into the caller's
record, which commits them. It knows no session, route or watermark: ``upto`` comes from the caller, who never passes more
than what is committed.

Always holds:
1. a message put at a position p is in the generation with since <= p < until;
2. a key made before a roll is refused after it, so nothing is ever written to a sealed generation;
3. ops that ``take_growth`` has given out are written in a record no later than the messages that need them, or given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shards.dropped import Dropped
from shards.engine import Engine, Op, StoreDamaged, StoreFull
from shards.generations import GenerationDamaged, GenerationDropped, GenerationId, GenerationInfo, Generations
from shards.layouts.port import Layout, LayoutOptions, Read, Stream, TopicKey
from shards.lts import DEFAULT_THRESHOLDS

__all__ = [
    "Dropped",
    "GenerationDamaged",
    "GenerationDropped",
    "GenerationId",
    "GenerationInfo",
    "Read",
    "StaleKey",
    "Store",
    "StoreOptions",
    "Stream",
    "TopicKey",
]

_RANGE_CHUNK_COUNT = 256
_RANGE_CHUNK_BYTES = 1 << 20
_NO_LIMIT = 1 << 62
# Behind the rows of the learned structure, before every static key (docs/formats.md, "Time marks").
_TIME_MARK = bytes(7) + b"\x01"
_TIME_MARKS_END = bytes(7) + b"\x02"


class StaleKey(ValueError):
    """A topic key from before the last roll: the caller's cache was not cleared."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """For generations made from now on. layout: a name of shards.layouts; thresholds: of the learned topic structure; the others as in
    layouts.port.LayoutOptions, for wildcard_optimized only."""

    layout: str = "auto"
    thresholds: tuple[int | None, ...] = DEFAULT_THRESHOLDS
    bits_per_topic_level: int = 64
    epoch_bits: int = 20
    topic_index_bytes: int = 4

    @property
    def of_layout(self) -> LayoutOptions:
        return LayoutOptions(self.thresholds, self.bits_per_topic_level, self.epoch_bits, self.topic_index_bytes)


class Store:
    def __init__(self, engine: Engine, generations: Generations, salvage: bool = False) -> None:
        """salvage: a read that meets damage raises GenerationDamaged, and a sealed generation is not read again; else StoreDamaged."""
        self._salvage = salvage
        self._idles = True
        self.damage_met: dict[str, int] = {}
        """What could not be read and was gone on without: sentence -> how often."""
        self._engine = engine
        self._generations = generations
        self._given_back: list[Op] = []
        self._to_current()

    @classmethod
    def open(cls, engine: Engine, options: StoreOptions, age_ms: int = 0, wall_ms: int = 0, salvage: bool = False) -> Store:
        """The age and wall clock are noted in generation 1 of an empty store."""
        return cls(engine, Generations.open(engine, options.layout, options.of_layout, age_ms, wall_ms), salvage)

    @property
    def engine(self) -> Engine:
        return self._engine

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        """To be cached per topic until ``current_generation`` changes. A new topic leaves growth to be taken."""
        return self._layout.key_of(topic)

    def append(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        """Add the ops that store this message (messages.encode_message) at this position."""
        if key[0] != self.current_generation:
            raise StaleKey(f"key of generation {key[0]}, the current one is {self.current_generation}")
        self._put(ops, key, position, value)

    def flush(self, ops: list[Op]) -> None:
        """Add what ``append`` has held back. To be called once for each record with messages, after the last of them."""
        self._layout.flush(ops)

    def take_growth(self) -> list[Op]:
        """What must be in the same record as the messages whose keys were made since the last call, or in an earlier one."""
        growth = self._layout.take_growth()
        if self._given_back:
            growth = self._given_back + growth
            self._given_back = []
        return growth

    def give_back(self, ops: Sequence[Op]) -> None:
        """Growth, or the ops of a roll, that were in a record that was refused: they come again with the next ``take_growth``."""
        self._given_back.extend(ops)

    def note_time(self, ops: list[Op], position: int, wall_ms: int) -> None:
        """A mark in the current generation: messages from ``position`` on were published at ``wall_ms`` or later.

        Sparse: the caller decides how often. It says where a reading by time begins, for people; it orders nothing.
        """
        ops.append((self.current_generation, _TIME_MARK + position.to_bytes(8, "big"), wall_ms.to_bytes(8, "big")))

    # ---- reading

    def position_at(self, wall_ms: int) -> int:
        """A position after which everything published at ``wall_ms`` or later comes, and little that is older.

        Where the wall clock was set back, times repeat: then more comes than was asked for, never less.
        """
        reached: int | None = None
        for info in self._generations.infos():
            start = _TIME_MARK
            while marks := self._engine.scan(info.id, start, _TIME_MARKS_END, 1000):
                for key, value in marks:
                    if int.from_bytes(value, "big") >= wall_ms:
                        return info.since if reached is None else reached
                    reached = int.from_bytes(key[8:], "big") - 1
                start = marks[-1][0] + b"\x00"
        return self._generations.current.since if reached is None else reached

    def streams(self, topic_filter: bytes, after: int) -> list[tuple[GenerationId, Stream]]:
        """Where messages that match the filter and come after ``after`` can be, by (generation, static key)."""
        found: list[tuple[GenerationId, Stream]] = []
        for info in self._generations.infos():
            # Not `after + 1`: only a place at or beyond `until` proves that the roll is committed.
            if info.until is None or info.until > after:
                try:
                    found.extend((info.id, stream) for stream in self._generations.layout(info.id).streams(topic_filter))
                except StoreDamaged as error:
                    self._met(info.id, error)
        return found

    def streams_in(self, generation: int, topic_filter: bytes) -> list[Stream]:
        """Where messages of one generation that match the filter can be. Raises GenerationDropped."""
        try:
            return self._generations.layout(generation).streams(topic_filter)
        except StoreDamaged as error:
            raise self._met(generation, error) from error

    def stream_of(self, generation: int, static: bytes, topic_filter: bytes) -> Stream:
        """The stream of a stored place. Raises GenerationDropped, or lts.StructureMismatch when the filter does not fit it."""
        return self._generations.layout(generation).stream_of(static, topic_filter)

    def cutoff(self, topic_filter: bytes, upto: int) -> int:
        """layouts.port.Layout.cutoff, of the current generation; what is in those before it is not put off."""
        since = self._generations.current.since
        return min(upto, max(since - 1, self._layout.cutoff(topic_filter, upto)))

    def wants_tick(self, last: int, now: int) -> bool:
        """layouts.port.Layout.wants_tick, of the current generation."""
        return self._layout.wants_tick(last, now)

    def read(self, generation: int, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        """layouts.port.Layout.read; and ``ended`` when all of a generation sealed at or below ``upto`` has been read."""
        try:
            read = self._generations.layout(generation).read(stream, after, upto, count_max, bytes_max, examine_max)
        except StoreDamaged as error:
            raise self._met(generation, error) from error
        if read.done:
            until = self._generations.info(generation).until
            # A roll that is not committed may be lost, and the generation go on: so `until` itself must be within `upto`.
            if until is not None and upto >= until:
                return Read(read.messages, read.place, True, True)
        return read

    def read_range(self, topic_filter: bytes, streams: Sequence[tuple[int, bytes]], after: int, upto: int) -> list[tuple[int, bytes]]:
        """All messages of these (generation, static key) with after < position <= upto that match, merged by position.

        For reading again what was read before: the caller knows that it fits into memory.
        """
        found: list[tuple[int, bytes]] = []
        for generation, static in streams:
            try:
                layout = self._generations.layout(generation)
                stream = layout.stream_of(static, topic_filter)
                place, done = after, False
                while not done:
                    messages, place, done, _ = layout.read(stream, place, upto, _RANGE_CHUNK_COUNT, _RANGE_CHUNK_BYTES, _NO_LIMIT)
                    found.extend(messages)
            except StoreDamaged as error:
                raise self._met(generation, error) from error
        if len(streams) > 1:
            found.sort()
        return found

    # ---- generations

    def generations(self) -> list[GenerationInfo]:
        return self._generations.infos()

    @property
    def lost_at_open(self) -> tuple[int, ...]:
        return self._generations.lost_at_open

    def generation_of(self, position: int) -> GenerationId:
        return self._generations.generation_of(position)

    def change(self, options: StoreOptions) -> None:
        """The configuration was changed: the next roll begins a generation of this kind. Raises UnknownLayout."""
        self._generations.change(options.layout, options.of_layout)

    def create_next(self) -> None:
        """Prepare for the next roll; blocks for some syncs, so it wants an idle moment."""
        self._generations.create_next()

    def roll(self, position: int, age_ms: int, wall_ms: int) -> list[Op]:
        """Begin a new generation at ``position``: the ops belong in the record of that position. Cached keys are void."""
        ops = self.take_growth()
        self.flush(ops)
        ops += self._generations.roll(position, age_ms, wall_ms)
        self._to_current()
        return ops

    def drop(self, generation: int, wall_ms: int = 0, reason: str = "period") -> list[Op]:
        """Forget a sealed generation; its space comes back with ``erase``, after the record with these ops is committed.

        reason: as in shards.dropped.Dropped, which is what ``dropped_between`` tells of it from now on.
        """
        return self._generations.drop(generation, wall_ms, reason)

    def dropped_between(self, after: int, upto: int) -> list[Dropped]:
        """The generations that are gone, or cannot be read, and may have held a position p with after < p <= upto; by number. First
        comes generation 0 when ``after`` is below what is remembered: it stands for everything that is remembered no more."""
        return self._generations.dropped_between(after, upto)

    def erase(self, generation: int) -> None:
        self._generations.erase(generation)

    def idle_work(self, upto: int) -> bool:
        """layouts.port.Layout.idle_work, for the generations that are open: at most one slice. True: there may be more to do.

        On a full disk it does nothing: what is derived can wait, and the next record meets the full disk by itself.
        """
        try:
            return self._idles and self._generations.idle_work(upto)
        except StoreFull:
            return False
        except GenerationDamaged as error:
            if not self._salvage:
                raise StoreDamaged(str(error)) from error
            # In the current generation it would fail every time: then what is derived stays as it is until the next start.
            self._idles = error.generation != self.current_generation
            self._met(error.generation, StoreDamaged(str(error)))
            return False

    def check(self) -> None:
        self._generations.check()

    def _met(self, generation: int, error: StoreDamaged) -> GenerationDamaged:
        if not self._salvage:
            raise error
        sentence = f"generation {generation}: {error}"
        self.damage_met[sentence] = self.damage_met.get(sentence, 0) + 1
        # What is read of the current one next may well be there: only this read is given up.
        if generation != self.current_generation:
            self._generations.give_up(generation, str(error))
        return GenerationDamaged(generation, str(error))

    def _to_current(self) -> None:
        self.current_generation = self._generations.current.id
        self._layout: Layout = self._generations.layout(self.current_generation)
        self._put = self._layout.put
