"""The generations of one shard: which there are, what each is, from which position to which it reaches.

A generation is one family of the engine (same number) in one layout. Messages are written to the newest of their class only; an old
one goes as a whole. The table is a row per generation in family 0 (docs/formats.md, "Generation rows"). When to roll or drop is
decided above; so is what clock the positions and ages come from.

Life of a generation: family made ahead of time (create_next) -> current, by the record of a roll -> sealed, by the record of
the next roll of its class -> row erased, by the record of a drop -> family erased (erase), after that record is committed.
A crash anywhere between leaves at most families without a row: open drops them.

Which topics are in which class is said by the map in force (`classes`), and another one comes into force by a roll of all classes at one
position. So every generation from before has a lower id than any that is written under it, and a topic that changes its class is still
read in the order of its messages when generations are read in the order of their ids.

Always holds (see check):
1. ids grow by one over all classes together; 1 was the first; a hole is a generation that was dropped;
2. each class of the map in force has exactly one current generation, the only one of it without `until`; others have none;
3. within a class `until` of one generation is `since` of the next, as long as the class is there and neither is dropped;
4. every row has its family, for a family is made before its row is written and erased after the row's erasure is on disk;
5. reading a generation that was dropped raises: it is never silently empty.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NewType

import msgpack

from shards import counting
from shards.classes import CLASSES_ROW, DEFAULT_CLASS, ClassMap
from shards.dropped import DROPPED_REMEMBERED_MAX, FORGOTTEN, Dropped, DroppedRows
from shards.engine import HOME_FAMILY, Engine, Op, StoreDamaged, StoreFailed
from shards.layouts.port import Layout, LayoutOptions
from shards.layouts.registry import WITH_BIT_FIELDS, layout_named, open_layout

__all__ = [
    "DEFAULT_CLASS",
    "DROPPED_REMEMBERED_MAX",
    "ROWS_END",
    "ROW_PREFIX",
    "Dropped",
    "GenerationDamaged",
    "GenerationDropped",
    "GenerationId",
    "GenerationInfo",
    "Generations",
    "row_key",
]

GenerationId = NewType("GenerationId", int)

ROW_PREFIX = b"g"
ROW_VERSION = 1
ROW_VERSION_WITH_CLASS = 2
ROWS_END = b"h"


class GenerationDropped(Exception):
    """This generation was there and is gone: whoever had not read it has lost what it held."""

    def __init__(self, generation: int) -> None:
        super().__init__(f"generation {generation} has been dropped")
        self.generation = generation


class GenerationDamaged(GenerationDropped):
    """This generation is there and cannot be read: it is treated as one that was dropped."""

    def __init__(self, generation: int, cause: str) -> None:
        Exception.__init__(self, f"generation {generation} cannot be read: {cause}")
        self.generation = generation


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """One row. Messages have since <= position < until; until None: current. Ages as in clock.AgeClock, wall for people.

    period_ms: of a class beside the default one, how long its generations are kept when the class is in the map no more; 0: the default.
    """

    id: GenerationId
    layout: str
    options: LayoutOptions
    since: int
    until: int | None
    created_age_ms: int
    created_wall_ms: int
    sealed_age_ms: int | None
    klass: str = DEFAULT_CLASS
    period_ms: int = 0

    def encode(self) -> tuple[bytes, bytes]:
        """(key, value) in family 0."""
        options = self.options
        row: tuple[object, ...] = (
            self.layout,
            options.thresholds,
            self.since,
            self.until,
            self.created_age_ms,
            self.created_wall_ms,
            self.sealed_age_ms,
        )
        key_options = (
            (options.bits_per_topic_level, options.epoch_bits, options.topic_index_bytes) if self.layout in WITH_BIT_FIELDS else None
        )
        version = ROW_VERSION
        if self.klass != DEFAULT_CLASS:
            # A program that knows no classes would keep it for the default period and write to it: the version stops it.
            version = ROW_VERSION_WITH_CLASS
            row += (key_options, self.klass, self.period_ms)
        elif key_options is not None:
            row += (key_options,)
        return row_key(self.id), bytes((version,)) + bytes(msgpack.packb(row))

    @staticmethod
    def decode(key: bytes, value: bytes) -> GenerationInfo:
        if value[0] not in (ROW_VERSION, ROW_VERSION_WITH_CLASS):
            raise StoreFailed(
                f"generation row {key.hex()} of version {value[:1].hex()} found, {ROW_VERSION_WITH_CLASS} is the newest this program reads"
            )
        layout, thresholds, since, until, created_age_ms, created_wall_ms, sealed_age_ms, *more = msgpack.unpackb(value[1:])
        return GenerationInfo(
            GenerationId(int.from_bytes(key[1:], "big")),
            layout,
            LayoutOptions(tuple(thresholds), *((more and more[0]) or ())),
            since,
            until,
            created_age_ms,
            created_wall_ms,
            sealed_age_ms,
            *more[1:],
        )


def row_key(generation: int) -> bytes:
    return ROW_PREFIX + generation.to_bytes(4, "big")


class Generations:
    def __init__(self, engine: Engine, layout: str, options: LayoutOptions, classes: ClassMap | None = None) -> None:
        """``layout`` and ``options`` are for generations made from now on; those there are keep their own. ``classes``: the map that is
        wanted, which comes into force with the next roll of all classes; None: the one in force."""
        self._engine = engine
        self.next_layout = layout_named(layout)
        self._options = options
        self._open: dict[int, Layout] = {}
        self._loaded: dict[int, Layout] = {}
        """What an earlier view had open, to be seen again."""
        self._moved: Counter[tuple[str, str]] = Counter()
        """Of layouts that are not open any more."""
        self._working: list[int] = []
        self._turn = 0
        self._prepared: list[int] = []
        self._dropping: set[int] = set()
        self._given_up: dict[int, str] = {}
        rows = [GenerationInfo.decode(*row) for row in engine.scan(HOME_FAMILY, ROW_PREFIX, ROWS_END, 1 << 32)]
        families = set(engine.families())
        self._infos: dict[int, GenerationInfo] = {info.id: info for info in rows if info.id in families}
        self._unreadable: dict[int, GenerationInfo] = {info.id: info for info in rows if info.id not in families}
        """Those whose rows are there and that cannot be read: lost at the opening, or given up since."""
        self.lost_at_open = tuple(self._unreadable)
        """Generations whose row was found but not their family: what is left of a damaged store. Treated as dropped, to be reported."""
        self._dropped = DroppedRows(engine, {info.id: info.since for info in rows})
        self._currents: dict[str, int] = {info.klass: info.id for info in self._infos.values() if info.until is None}
        self.classes, self._classes_since = ClassMap.decode(engine.get(HOME_FAMILY, CLASSES_ROW))
        """The map in force."""
        self._wanted = self.classes if classes is None else classes
        self._unsaved: list[Op] = []
        self._compare()

    @classmethod
    def open(
        cls, engine: Engine, layout: str, options: LayoutOptions, age_ms: int = 0, wall_ms: int = 0, classes: ClassMap | None = None
    ) -> Generations:
        """Read the table, drop families without a row, make the first generation of each class in an empty store.

        What it writes is unsynced; the sync that precedes the first watermark covers it.
        """
        self = cls(engine, layout, options, classes)
        for orphan in sorted(set(engine.families()) - {HOME_FAMILY, *self._infos}):
            engine.drop_family(orphan)
        for info in self._unreadable.values():
            if info.until is None:
                raise StoreFailed(f"the family of the current generation {info.id} is missing")
        if not self._infos:
            self._first(age_ms, wall_ms)
        elif missing := [klass for klass in self.classes.names if klass not in self._currents]:
            raise StoreFailed(f"the row of the current generation of class {missing[0]} is missing")
        return self

    @classmethod
    def view(cls, engine: Engine, before: Generations | None = None) -> Generations:
        """The table as it is, for whoever only reads: nothing is written, and no family is dropped.

        before: the view of the same engine until now. What is loaded of its generations is kept, but not of one that was sealed since, as
        it may have learned more before its end; and of each what it remembers beside its structure is forgotten.
        """
        self = cls(engine, "auto", LayoutOptions())
        if not self._infos:
            raise StoreFailed("no generation was found: no broker has started on this store yet")
        if before is not None:
            loaded, infos = before._loaded | before._open, before._infos
            self._loaded = {number: layout for number, layout in loaded.items() if self._infos.get(number) == infos[number]}
        return self

    def unload(self, generation: int) -> None:
        """Its structure is loaded again when it is next asked for."""
        self._loaded.pop(generation, None)
        self._open.pop(generation, None)

    def moves(self) -> dict[tuple[str, str], int]:
        """What all reads have done, by (layout, kind); never falls."""
        moved = self._moved.copy()
        for generation, layout in self._open.items():
            name = self._infos[generation].layout
            moved.update({(name, kind): count for kind, count in layout.moves.items()})
        return dict(moved)

    def edges(self, generation: int) -> int | None:
        """How much structure is loaded of a generation (lts.TopicStructure.edges); None: nothing is."""
        layout = self._open.get(generation) or self._loaded.get(generation)
        return None if layout is None else layout.structure.edges

    def current(self, klass: str = DEFAULT_CLASS) -> GenerationInfo:
        """The one that messages of this class are written to."""
        return self._infos[self._currents[klass]]

    def currents(self) -> list[GenerationInfo]:
        """Of each class in force, the default first."""
        return [self._infos[self._currents[klass]] for klass in self.classes.names if klass in self._currents]

    def period_ms(self, info: GenerationInfo, default_ms: int) -> int:
        """How long this generation is kept when it is sealed; default_ms: the period of the default class."""
        if info.klass == DEFAULT_CLASS:
            return default_ms
        period_ms = self._period_ms(info.klass)
        return info.period_ms if period_ms is None else period_ms

    def infos(self) -> list[GenerationInfo]:
        return [self._infos[generation] for generation in sorted(self._infos)]

    def info(self, generation: int) -> GenerationInfo:
        found = self._infos.get(generation)
        if found is None:
            if generation in self._given_up:
                raise GenerationDamaged(generation, self._given_up[generation])
            if 0 < generation <= max(self._infos):
                raise GenerationDropped(generation)
            raise LookupError(f"generation {generation} has never been: the newest is {max(self._infos)}")
        return found

    def layout(self, generation: int) -> Layout:
        """The open layout. A sealed one is loaded when first asked for."""
        found = self._open.get(generation)
        if found is None:
            info = self.info(generation)
            loaded = self._loaded.pop(generation, None)
            found = open_layout(info.layout, self._engine, info.id, info.options) if loaded is None else loaded.seen_again()
            self._open[generation] = found
            if info.until is not None:
                self._seal(info.id)
        return found

    def generation_of(self, position: int, klass: str = DEFAULT_CLASS) -> GenerationId:
        """The generation of a class that holds, or would hold, this position. LookupError: the class had none then."""
        for info in self._infos.values():
            if info.klass == klass and info.since <= position and (info.until is None or position < info.until):
                return info.id
        gone = self.dropped_between(position - 1, position)
        for row in gone:
            if row.klass == klass:
                raise GenerationDropped(row.generation)
        if gone and gone[0].generation == FORGOTTEN:
            raise GenerationDropped(FORGOTTEN)
        raise LookupError(f"class {klass} had no generation at position {position}")

    # ---- changing

    def change(self, layout: str, options: LayoutOptions, classes: ClassMap | None = None) -> None:
        """What generations are made of from now on, and into which classes topics go after the next roll of all classes; the current
        ones stay as they are until then. Periods count at once."""
        self.next_layout = layout_named(layout)
        self._options = options
        if classes is not None:
            self._wanted = classes
            self._compare()

    def create_next(self, of_all: bool = False) -> bool:
        """Make one family for the next roll, for an idle moment: it blocks for a few syncs. of_all: for a roll of all classes, which takes
        several. No effect when they are there. True: there is another one to make."""
        return self._prepare(len(self._wanted.names) if of_all else 1)

    def roll(self, position: int, age_ms: int, wall_ms: int, klass: str | None = None) -> list[Op]:
        """Seal the current generation of a class at ``position`` and go on in the next. The ops belong in the record of that position.

        None: of all classes, and the map that is wanted comes into force. From now on keys come from the new ones; the record must be
        submitted before any other that holds messages of them.
        """
        olds = {each.klass: each for each in self.currents() if klass is None or each.klass == klass}
        if not olds:
            raise LookupError(f"class {klass} has no current generation, only {', '.join(self._currents)} have")
        for old in olds.values():
            if position <= old.since:
                raise ValueError(f"roll at {position}, generation {old.id} began at {old.since}")
        names = self._wanted.names if klass is None else (klass,)
        while self._prepare(len(names)):
            pass
        ops = [op for old in olds.values() for op in self.layout(old.id).take_growth()]
        began: list[tuple[GenerationInfo, Layout]] = []
        for number, name in zip(self._prepared, names, strict=False):
            fresh = self._fresh(number, name, position, age_ms, wall_ms)
            began.append((fresh, self._successor(olds.get(name), fresh)))
        del self._prepared[: len(names)]
        for old in olds.values():
            ops.append(self._put(replace(old, until=position, sealed_age_ms=age_ms)))
            del self._currents[old.klass]
            if old.klass not in names:
                ops += self._leave(old.klass)
        for fresh, layout in began:
            ops.append(self._put(fresh))
            ops.append(counting.begun(fresh.id))
            self._open[fresh.id] = layout
            self._currents[fresh.klass] = fresh.id
        for old in olds.values():
            self._seal(old.id)
        if klass is None and self._wanted != self.classes:
            self.classes, self._classes_since, self.map_changed = self._wanted, position, False
            ops.append((HOME_FAMILY, CLASSES_ROW, self.classes.encode(position)))
        return ops + [op for _, layout in began for op in layout.take_growth()]

    def take_unsaved(self) -> list[Op]:
        """What a change of periods alone has to write, in any record."""
        ops, self._unsaved = self._unsaved, []
        return ops

    def drop(self, generation: int, wall_ms: int = 0, reason: str = "period") -> list[Op]:
        """Forget a sealed generation: reading it raises from now on. The ops belong in a record; ``erase`` when it is committed.

        What is said of it later (``dropped_between``) is in them.
        """
        info = self.info(generation)
        if info.until is None:
            raise ValueError(f"generation {generation} is the current one and cannot be dropped")
        remembered = self._dropped.put(self._epitaph(info, wall_ms, reason))
        self._forget(generation)
        self._dropping.add(generation)
        return [(HOME_FAMILY, row_key(generation), None), *remembered]

    def dropped_between(self, after: int, upto: int, topic_filter: bytes | None = None) -> list[Dropped]:
        """The generations that are gone, or cannot be read, and may have held a message that matches (None: any) at a position p with
        after < p <= upto; by number. First comes generation 0 when ``after`` is below what is remembered: it stands for everything that
        is remembered no more.

        A class says which topics a generation can have held only under the map in force: those from before it may have held anything.
        """
        damaged = [self._epitaph(info, 0, "damaged") for info in self._unreadable.values()]
        found = [row for row in damaged if row.since <= upto and after < row.until - 1 and after < upto]
        rows = sorted([*self._dropped.between(after, upto), *found])
        if topic_filter is None:
            return rows
        since, may_hold = self._classes_since, self.classes.may_hold
        return [row for row in rows if row.generation == FORGOTTEN or row.since < since or may_hold(row.klass, topic_filter)]

    def give_up(self, generation: int, cause: str) -> None:
        """Read a sealed generation no more, as something in it is damaged. Its row and its family stay as they are: what becomes of
        them is decided at the next opening."""
        if self.info(generation).until is None:
            raise ValueError(f"generation {generation} is the current one and cannot be given up")
        self._unreadable[generation] = self.info(generation)
        self._forget(generation)
        self._given_up[generation] = cause

    def erase(self, generation: int) -> None:
        """Give the space of a dropped generation back; its drop must be committed. For an idle moment: it blocks."""
        self._dropping.remove(generation)
        self._engine.drop_family(generation)

    def idle_work(self, upto: int) -> bool:
        """One slice of idle work in one of the open generations: the current ones first, in turn, then sealed ones that have not said
        that they have no more. Raises GenerationDamaged."""
        currents = tuple(self._currents.values())
        if len(currents) > 1:
            first = self._turn % len(currents)
            currents = currents[first:] + currents[:first]
        for number, generation in enumerate(currents, 1):
            if self._idle_work(generation, upto):
                self._turn += number
                return True
        for generation in self._working[::-1]:
            if self._idle_work(generation, upto):
                return True
            until = self._infos[generation].until
            if until is not None and upto >= until:
                self._working.remove(generation)
        return False

    def check(self) -> None:
        infos = self.infos()
        assert self._currents == {info.klass: info.id for info in infos if info.until is None}
        assert sorted(self._currents) == sorted(self.classes.names), (self._currents, self.classes)
        assert infos[-1].until is None, "a new generation is that of some class, and the next of that class has a higher id"
        for klass in {info.klass for info in infos}:
            for older, newer in pairwise([info for info in infos if info.klass == klass]):
                assert older.until is not None and older.since < older.until <= newer.since, (older, newer)
                if older.until < newer.since and not set(range(older.id, newer.id)) - set(self._infos):
                    # Nothing is gone between them: the class was, and was sealed by a roll of all.
                    assert klass != DEFAULT_CLASS, (older, newer)
                    assert older.until in {info.since for info in infos if info.klass == DEFAULT_CLASS}, (older, newer)
        assert set(self._working) <= set(self._open) <= set(self._infos)
        assert not set(self._infos) & set(self._unreadable)
        families = set(self._engine.families())
        assert {HOME_FAMILY, *self._infos, *self._dropping, *self._prepared} <= families

    # ---- within

    def _idle_work(self, generation: int, upto: int) -> bool:
        try:
            return self.layout(generation).idle_work(upto)
        except StoreDamaged as error:
            raise GenerationDamaged(generation, str(error)) from error

    def _epitaph(self, info: GenerationInfo, wall_ms: int, reason: str) -> Dropped:
        assert info.until is not None
        # A generation begins when another is sealed; the age of that is in the row, but not what the clock on the wall said.
        followers = [other.created_wall_ms for other in (*self._infos.values(), *self._unreadable.values()) if other.since == info.until]
        sealed_wall_ms = max(followers, default=0) or self._dropped.created_at(info.until)
        return Dropped(info.id, info.klass, info.since, info.until, info.created_wall_ms, sealed_wall_ms, wall_ms, reason)

    def _forget(self, generation: int) -> None:
        info = self._infos.pop(generation)
        layout = self._open.pop(generation, None)
        if layout is not None:
            self._moved.update({(info.layout, kind): count for kind, count in layout.moves.items()})
        if generation in self._working:
            self._working.remove(generation)

    def _first(self, age_ms: int, wall_ms: int) -> None:
        self.classes = self._wanted
        self.map_changed = False
        ops: list[Op] = []
        for number, name in enumerate(self.classes.names, 1):
            self._engine.create_family(number)
            ops.append(self._put(self._fresh(number, name, 0, age_ms, wall_ms)))
            ops.append(counting.begun(number))
            self._currents[name] = number
        if self.classes.classes:
            ops.append((HOME_FAMILY, CLASSES_ROW, self.classes.encode(0)))
        self._engine.write(ops)

    def _prepare(self, count: int) -> bool:
        if len(self._prepared) < count:
            following = (self._prepared[-1] if self._prepared else max(self._infos)) + 1
            self._engine.create_family(following)
            self._prepared.append(following)
        return len(self._prepared) < count

    def _fresh(self, number: int, klass: str, since: int, age_ms: int, wall_ms: int) -> GenerationInfo:
        period_ms = self._period_ms(klass) or 0
        return GenerationInfo(
            GenerationId(number), self.next_layout, self._options, since, None, age_ms, wall_ms, None, klass, period_ms
        )  # fmt: skip

    def _period_ms(self, klass: str) -> int | None:
        """As it is set for a class now, or as it was, until the roll that takes the class away. None: the default, or one that is gone."""
        wanted = self._wanted.period_ms(klass)
        return self.classes.period_ms(klass) if wanted is None else wanted

    def _put(self, info: GenerationInfo) -> Op:
        self._infos[info.id] = info
        key, value = info.encode()
        return HOME_FAMILY, key, value

    def _leave(self, klass: str) -> list[Op]:
        """The class goes out of force, and its generations keep the period that it had last."""
        period_ms = self.classes.period_ms(klass)
        assert period_ms is not None, f"class {klass} is not in the map in force"
        of_it = [info for info in self._infos.values() if info.klass == klass and info.period_ms != period_ms]
        return [self._put(replace(info, period_ms=period_ms)) for info in of_it]

    def _compare(self) -> None:
        self.map_changed = not self._wanted.sorts_as(self.classes)
        """Another map is wanted than the one in force: the next roll of all classes brings it."""
        # Periods say nothing of where a message is: they need no roll, only to be known when their class has gone.
        if not self.map_changed and self._wanted != self.classes:
            self.classes = self._wanted
            self._unsaved = [(HOME_FAMILY, CLASSES_ROW, self.classes.encode(self._classes_since))]

    def _seal(self, generation: int) -> None:
        self._open[generation].seal()
        self._working.append(generation)

    def _successor(self, old: GenerationInfo | None, fresh: GenerationInfo) -> Layout:
        if old is not None and old.layout == fresh.layout:
            return self.layout(old.id).inherit_into(fresh.id, fresh.options)
        return open_layout(fresh.layout, self._engine, fresh.id, fresh.options)
