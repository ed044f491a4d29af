"""What the shard core sees of stored messages: a sequence of generations for each retention class, written at its end, read by streams.

The store turns topics into keys and messages into ops, and reads streams back. It submits nothing: ops go into the caller's
record, which commits them. It knows no session, route or watermark: ``upto`` comes from the caller, who never passes more
than what is committed.

Always holds:
1. a message put at a position p is in the generation of its topic's class with since <= p < until;
2. a key of a generation that was sealed is refused, so nothing is ever written to one; and a topic changes its class only by a roll of
   all, so a key that is taken is of the class in which its topic is;
3. ops that ``take_growth`` has given out are written in a record no later than the messages that need them, or given back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shards.counting import Counting, Counts, Mark, counts_in, marks_in
from shards.dropped import Dropped
from shards.engine import Engine, Op, StoreDamaged, StoreFull, index_of
from shards.generations import DEFAULT_CLASS, GenerationDamaged, GenerationDropped, GenerationId, GenerationInfo, Generations
from shards.layouts.port import Layout, Read, Stream, TopicKey
from shards.layouts.registry import DERIVING
from shards.options import StoreOptions

if TYPE_CHECKING:
    from shards.bulk import Columns

__all__ = [
    "Counts",
    "Dropped",
    "GenerationDamaged",
    "GenerationDropped",
    "GenerationId",
    "GenerationInfo",
    "Mark",
    "Read",
    "StaleKey",
    "Store",
    "Stream",
    "TopicKey",
]

Put = Callable[[list[Op], TopicKey, int, bytes], None]
"""layouts.port.Layout.put."""
_RANGE_CHUNK_COUNT = 256
_RANGE_CHUNK_BYTES = 1 << 20
_NO_LIMIT = 1 << 62
_MESSAGES_PER_SLICE = 250
"""What a slice is for at the most: entries of eleven levels, sorted, written, and folded three times."""
# Behind the rows of the learned structure, before every static key (docs/formats.md, "Time marks").
TIME_MARK = bytes(7) + b"\x01"
TIME_MARKS_END = bytes(7) + b"\x02"


class StaleKey(ValueError):
    """A topic key from before the last roll: the caller's cache was not cleared."""


class Store:
    def __init__(self, engine: Engine, generations: Generations, salvage: bool = False, derives: bool = True) -> None:
        """salvage: a read that meets damage raises GenerationDamaged, and a sealed generation is not read again; else StoreDamaged.
        derives: there is idle work; not where all that is written goes to other copies."""
        self._salvage = salvage
        self._derives = self._idles = derives
        self.damage_met: dict[str, int] = {}
        """What could not be read and was gone on without: sentence -> how often."""
        self._engine = engine
        self._generations = generations
        self._given_back = generations.take_unsaved()
        self.rolls = 0
        """Grows by every roll of any class."""
        self._layouts: dict[int, Layout] = {}
        """The generations that are written to, one for each class."""
        self.bytes_put: dict[int, int] = {}
        """How many bytes of messages each current generation has taken, with what was flushed. Where nobody has counted: what the engine
        estimated at the start, and those since."""
        self.counting = Counting(engine)
        self.main = 0
        """The current generation of the default class; 0: this one only reads."""
        self._last = -1
        """The newest position that was appended."""
        self._to_current()

    @classmethod
    def open(
        cls, engine: Engine, options: StoreOptions, age_ms: int = 0, wall_ms: int = 0, salvage: bool = False, derives: bool = True
    ) -> Store:
        """The age and wall clock are noted in the first generations of an empty store."""
        generations = Generations.open(engine, options.layout, options.of_layout, age_ms, wall_ms, options.classes)
        return cls(engine, generations, salvage, derives)

    @property
    def engine(self) -> Engine:
        return self._engine

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        """To be cached per topic until ``rolls`` changes. A new topic leaves growth to be taken."""
        return self._by_class[self._generations.classes.class_of(topic)].key_of(topic)

    def append(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        """Add the ops that store this message (messages.encode_message) at this position."""
        put, count = self.writing_to(key.generation)
        put(ops, key, position, value)
        count(value)
        self.appended(position)

    def writing_to(self, generation: int) -> tuple[Put, Callable[[bytes], None]]:
        """What ``append`` does, for who has many messages of one generation: (takes ops, key, position and value; then takes the value).
        ``appended`` comes behind them. Raises StaleKey."""
        try:
            return self._puts[generation]
        except KeyError:
            raise StaleKey(f"key of generation {generation}, the current one is {self._said()}") from None

    def append_all(self, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        """As ``append`` of each, in the order of positions; all keys are of one generation, and there is at least one. Raises StaleKey."""
        generation = keys[0].generation
        layout = self._layouts.get(generation)
        if layout is None:
            raise StaleKey(f"keys of generation {generation}, the current one is {self._said()}")
        layout.put_all(ops, keys, positions, values)
        self._counts[generation].extend(values)
        self.appended(positions[-1])

    def appended(self, position: int) -> None:
        """The last message is at this position."""
        self._last = position

    def flush(self, ops: list[Op]) -> bool:
        """Add what ``append`` has held back, and the counts. To be called once for each record with messages, after the last of them.
        True: there were some."""
        for flush in self._flushes:
            flush(ops)
        put = self.counting.flush(ops, self._last)
        for generation, size in put:
            self.bytes_put[generation] += size
        return bool(put)

    def take_growth(self) -> list[Op]:
        """What must be in the same record as the messages whose keys were made since the last call, or in an earlier one."""
        growth = self._growths[0]()
        for take in self._growths[1:]:
            growth = growth + take()
        if self._given_back:
            growth = self._given_back + growth
            self._given_back = []
        return growth

    def give_back(self, ops: Sequence[Op]) -> None:
        """Growth, or the ops of a roll, that were in a record that was refused: they come again with the next ``take_growth``."""
        self._given_back.extend(ops)

    def take_back(self, position: int) -> None:
        """The messages from here on, of a record that was refused, do not come again. All before it are written, none is in the making."""
        self.counting.recount()
        for layout in self._layouts.values():
            layout.take_back(position)

    def note_time(self, ops: list[Op], position: int, wall_ms: int) -> None:
        """A mark in each current generation: messages from ``position`` on were published at ``wall_ms`` or later.

        Sparse: the caller decides how often. It says where a reading by time begins, for people; it orders nothing.
        """
        for generation in self._layouts:
            ops.append((generation, TIME_MARK + position.to_bytes(8, "big"), wall_ms.to_bytes(8, "big")))

    # ---- reading

    def counts(self, generation: int) -> Counts | None:
        """How much a generation holds by what is written, of which the newest may not be committed; None: nobody has counted.
        Raises GenerationDropped."""
        self._generations.info(generation)
        try:
            return counts_in(self._engine, generation)
        except StoreDamaged as error:
            raise self._met(generation, error) from error

    def marks(self, generation: int, after: int, upto: int) -> list[Mark]:
        """How much of a generation lies below some positions in after < position <= upto, ascending, about one for 1,024 messages. Raises
        GenerationDropped."""
        self._generations.info(generation)
        try:
            return list(marks_in(self._engine, generation, after, upto))
        except StoreDamaged as error:
            raise self._met(generation, error) from error

    def position_at(self, wall_ms: int) -> int:
        """A position after which everything published at ``wall_ms`` or later comes, and little that is older.

        Where the wall clock was set back, times repeat: then more comes than was asked for, never less.
        """
        infos = self._generations.infos()
        # A class may be kept long after the marks of another have gone, so each is asked for itself.
        return min(self._position_in([info for info in infos if info.klass == klass], wall_ms) for klass in {info.klass for info in infos})

    def _position_in(self, infos: list[GenerationInfo], wall_ms: int) -> int:
        reached: int | None = None
        for info in infos:
            start = TIME_MARK
            while marks := self._engine.scan(info.id, start, TIME_MARKS_END, 1000):
                for key, value in marks:
                    if int.from_bytes(value, "big") >= wall_ms:
                        return info.since if reached is None else reached
                    reached = int.from_bytes(key[8:], "big") - 1
                start = marks[-1][0] + b"\x00"
        return infos[-1].since if reached is None else reached

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
        """layouts.port.Layout.cutoff, of the current generations; what is in those before them is not put off."""
        for since, cutoff in self._cutoffs:
            upto = min(upto, max(since - 1, cutoff(topic_filter, upto)))
        return upto

    def wants_tick(self, last: int, now: int) -> bool:
        """layouts.port.Layout.wants_tick, of the current generations."""
        wanted = False
        for layout in self._layouts.values():
            # All are asked: the first time, after an opening, each takes note of where it is.
            wanted = layout.wants_tick(last, now) or wanted
        return wanted

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
                return read._replace(ended=True)
        return read

    def bulk(self, generation: int, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """layouts.port.Layout.bulk. Raises GenerationDropped."""
        try:
            return self._generations.layout(generation).bulk(stream, after, upto, rows_max, bytes_max)
        except StoreDamaged as error:
            raise self._met(generation, error) from error

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
                    read = layout.read(stream, place, upto, _RANGE_CHUNK_COUNT, _RANGE_CHUNK_BYTES, _NO_LIMIT)
                    place, done = read.place, read.done
                    found += read.messages
            except StoreDamaged as error:
                raise self._met(generation, error) from error
        if len(streams) > 1:
            found.sort()
        return found

    def moves(self) -> dict[tuple[str, str], int]:
        """What all reads have done, by (layout, kind of move); never falls."""
        return self._generations.moves()

    # ---- generations

    def generations(self) -> list[GenerationInfo]:
        return self._generations.infos()

    @property
    def lost_at_open(self) -> tuple[int, ...]:
        return self._generations.lost_at_open

    def generation_of(self, position: int, klass: str = DEFAULT_CLASS) -> GenerationId:
        return self._generations.generation_of(position, klass)

    def currents(self) -> list[GenerationInfo]:
        """The generations that are written to, one for each class, the default first."""
        return self._generations.currents()

    def edges(self) -> list[tuple[int, int]]:
        """(generation, edges of its learned structure) of those that are written to: what was learned and not yet taken is in it."""
        return [(generation, layout.structure.edges) for generation, layout in self._layouts.items()]

    def class_of(self, topic: bytes) -> str:
        """By the map in force."""
        return self._generations.classes.class_of(topic)

    def period_ms(self, info: GenerationInfo, default_ms: int) -> int:
        """How long this generation is kept when it is sealed; default_ms: the period of the default class."""
        return self._generations.period_ms(info, default_ms)

    @property
    def map_changed(self) -> bool:
        """Another map of classes is wanted than the one in force: all classes have to be rolled."""
        return self._generations.map_changed

    def change(self, options: StoreOptions) -> None:
        """The configuration was changed: the next roll begins a generation of this kind; of all classes, under this map. The periods
        count at once. Raises UnknownLayout."""
        self._generations.change(options.layout, options.of_layout, options.classes)
        self._given_back += self._generations.take_unsaved()

    def create_next(self, of_all: bool = False) -> bool:
        """Make one family for the next roll, or one of those for a roll of all classes; blocks for some syncs, so it wants an idle moment.
        True: there is another one to make."""
        return self._generations.create_next(of_all)

    def roll(self, position: int, age_ms: int, wall_ms: int, klass: str | None = None) -> list[Op]:
        """Begin a new generation of this class at ``position``, or of all classes: then the map that is wanted comes into force.

        The ops belong in the record of that position. Cached keys are void.
        """
        ops = self.take_growth()
        self.flush(ops)
        ops += self._generations.roll(position, age_ms, wall_ms, klass)
        self._to_current()
        return ops

    def drop(self, generation: int, wall_ms: int = 0, reason: str = "period") -> list[Op]:
        """Forget a sealed generation; its space comes back with ``erase``, after the record with these ops is committed.

        reason: as in shards.dropped.Dropped, which is what ``dropped_between`` tells of it from now on.
        """
        return self._generations.drop(generation, wall_ms, reason)

    def dropped_between(self, after: int, upto: int, topic_filter: bytes | None = None) -> list[Dropped]:
        """The generations that are gone, or cannot be read, and may have held a message that matches (None: any) at a position p with
        after < p <= upto; by number. First comes generation 0 when ``after`` is below what is remembered: it stands for everything that
        is remembered no more."""
        return self._generations.dropped_between(after, upto, topic_filter)

    def erase_index(self, generation: int) -> bool:
        """In an idle moment before that of ``erase``, as it takes as long: its index alone. False: there is none."""
        if not self._engine.has_family(index_of(generation)):
            return False
        self._engine.drop_family(index_of(generation))
        return True

    def erase(self, generation: int) -> None:
        self._generations.erase(generation)

    def work(self, upto: int, stored: int) -> bool:
        """Idle work for who may never be idle: a slice, and more of them for so many messages that were stored since the last call.
        True: there may be more to do."""
        return all(self.idle_work(upto) for _ in range(1 + stored // _MESSAGES_PER_SLICE))

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
            self._idles = error.generation not in self._layouts
            self._met(error.generation, StoreDamaged(str(error)))
            return False

    def misplaced(self, info: GenerationInfo) -> bool:
        """Its index stays in memory, as nothing is derived here, and the next one has another: the sooner that comes, the better. Such a
        generation is of a backup of one site, with which several have begun."""
        return not self._derives and info.layout in DERIVING and self._generations.next_layout not in DERIVING

    def check(self) -> None:
        self._generations.check()
        assert list(self._layouts) == list(self._puts) == list(self.bytes_put) == [info.id for info in self.currents()]
        assert list(self._by_class) == [info.klass for info in self.currents()]

    def _met(self, generation: int, error: StoreDamaged) -> GenerationDamaged:
        if not self._salvage:
            raise error
        sentence = f"generation {generation}: {error}"
        self.damage_met[sentence] = self.damage_met.get(sentence, 0) + 1
        # What is read of the current one next may well be there: only this read is given up.
        if generation not in self._layouts:
            self._generations.give_up(generation, str(error))
        return GenerationDamaged(generation, str(error))

    def _to_current(self) -> None:
        opening = not self._layouts
        infos = self._generations.currents()
        self._layouts = {info.id: self._generations.layout(info.id) for info in infos}
        self._counts = self.counting.follow(self._layouts)
        for info in infos if opening else ():
            known = self.counting.bytes_in(info.id)
            self.bytes_put[info.id] = self._engine.family_bytes(info.id) if known is None else known
        self.bytes_put = {info.id: self.bytes_put.get(info.id, 0) for info in infos}
        self._by_class = {info.klass: self._layouts[info.id] for info in infos}
        self.main = infos[0].id if infos else 0
        self._puts = {generation: (layout.put, self._counts[generation].append) for generation, layout in self._layouts.items()}
        self._flushes = [layout.flush for layout in self._layouts.values()]
        self._cutoffs = [(info.since, self._layouts[info.id].cutoff) for info in infos]
        self._growths = [layout.take_growth for layout in self._layouts.values()]
        self.one_class = len(infos) == 1
        self.rolls += 1

    def _said(self) -> str:
        return " or ".join(f"{info.id} ({info.klass})" if not self.one_class else f"{info.id}" for info in self.currents())
