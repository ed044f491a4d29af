"""The generations of one shard: which there are, what each is, from which position to which it reaches.

A generation is one family of the engine (same number) in one layout. Messages are written to the newest only; an old one
goes as a whole. The table is a row per generation in family 0 (docs/formats.md, "Generation rows"). When to roll or drop is
decided above; so is what clock the positions and ages come from.

Life of a generation: family made ahead of time (create_next) -> current, by the record of a roll -> sealed, by the record of
the next roll -> row erased, by the record of a drop -> family erased (erase), after that record is committed.
A crash anywhere between leaves at most families without a row: open drops them.

Always holds (see check):
1. ids grow by one; 1 was the first; a hole is a generation that was dropped;
2. until(g) == since(g + 1), and only the current one has no until;
3. every row has its family, for a family is made before its row is written and erased after the row's erasure is on disk;
4. reading a generation that was dropped raises: it is never silently empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NewType

import msgpack

from shards.dropped import DROPPED_REMEMBERED_MAX, Dropped, DroppedRows
from shards.engine import HOME_FAMILY, Engine, Op, StoreDamaged, StoreFailed
from shards.layouts import WITH_BIT_FIELDS, layout_named, open_layout
from shards.layouts.port import Layout, LayoutOptions

__all__ = [
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

DEFAULT_CLASS = "default"
ROW_PREFIX = b"g"
ROW_VERSION = 1
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
    """One row. Messages have since <= position < until; until None: current. Ages as in clock.AgeClock, wall for people."""

    id: GenerationId
    layout: str
    options: LayoutOptions
    since: int
    until: int | None
    created_age_ms: int
    created_wall_ms: int
    sealed_age_ms: int | None

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
        if self.layout in WITH_BIT_FIELDS:
            row += ((options.bits_per_topic_level, options.epoch_bits, options.topic_index_bytes),)
        return row_key(self.id), bytes((ROW_VERSION,)) + bytes(msgpack.packb(row))

    @staticmethod
    def decode(key: bytes, value: bytes) -> GenerationInfo:
        if value[:1] != bytes((ROW_VERSION,)):
            raise StoreFailed(f"generation row {key.hex()} of version {value[:1].hex()} found, {ROW_VERSION} is what this program reads")
        layout, thresholds, since, until, created_age_ms, created_wall_ms, sealed_age_ms, *more = msgpack.unpackb(value[1:])
        return GenerationInfo(
            GenerationId(int.from_bytes(key[1:], "big")),
            layout,
            LayoutOptions(tuple(thresholds), *(more[0] if more else ())),
            since,
            until,
            created_age_ms,
            created_wall_ms,
            sealed_age_ms,
        )


def row_key(generation: int) -> bytes:
    return ROW_PREFIX + generation.to_bytes(4, "big")


class Generations:
    def __init__(self, engine: Engine, layout: str, options: LayoutOptions) -> None:
        """``layout`` and ``options`` are for generations made from now on; those there are keep their own."""
        self._engine = engine
        self._layout_name = layout_named(layout)
        self._options = options
        self._open: dict[int, Layout] = {}
        self._working: list[int] = []
        self._prepared: int | None = None
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

    @classmethod
    def open(cls, engine: Engine, layout: str, options: LayoutOptions, age_ms: int = 0, wall_ms: int = 0) -> Generations:
        """Read the table, drop families without a row, make generation 1 in an empty store.

        What it writes is unsynced; the sync that precedes the first watermark covers it.
        """
        self = cls(engine, layout, options)
        for orphan in sorted(set(engine.families()) - {HOME_FAMILY, *self._infos}):
            engine.drop_family(orphan)
        for info in self._unreadable.values():
            if info.until is None:
                raise StoreFailed(f"the family of the current generation {info.id} is missing")
        if not self._infos:
            self._first(age_ms, wall_ms)
        return self

    @classmethod
    def view(cls, engine: Engine) -> Generations:
        """The table as it is, for whoever only reads: nothing is written, and no family is dropped."""
        self = cls(engine, "auto", LayoutOptions())
        if not self._infos:
            raise StoreFailed("no generation was found: no broker has started on this store yet")
        return self

    @property
    def current(self) -> GenerationInfo:
        return self._infos[max(self._infos)]

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
            found = self._open[generation] = open_layout(info.layout, self._engine, info.id, info.options)
            if info.until is not None:
                self._seal(info.id)
        return found

    def generation_of(self, position: int) -> GenerationId:
        """The generation that holds, or would hold, this position."""
        for info in reversed(self.infos()):
            if info.since <= position:
                if info.until is not None and position >= info.until:
                    raise GenerationDropped(info.id + 1)
                return info.id
        raise GenerationDropped(min(self._infos) - 1)

    # ---- changing

    def change(self, layout: str, options: LayoutOptions) -> None:
        """What generations are made of from now on; the current one stays as it is until the next roll."""
        self._layout_name = layout_named(layout)
        self._options = options

    def create_next(self) -> None:
        """Make the family of the next generation, for an idle moment: it blocks for a few syncs. No effect when it is there."""
        if self._prepared is None:
            following = self.current.id + 1
            self._engine.create_family(following)
            self._prepared = following

    def roll(self, position: int, age_ms: int, wall_ms: int) -> list[Op]:
        """Seal the current generation at ``position`` and go on in the next. The ops belong in the record of that position.

        From now on keys come from the new one; the record must be submitted before any other that holds messages of it.
        """
        old = self.current
        if position <= old.since:
            raise ValueError(f"roll at {position}, generation {old.id} began at {old.since}")
        self.create_next()
        assert self._prepared is not None
        sealed = replace(old, until=position, sealed_age_ms=age_ms)
        fresh = GenerationInfo(GenerationId(self._prepared), self._layout_name, self._options, position, None, age_ms, wall_ms, None)
        last_growth = self.layout(old.id).take_growth()
        layout = self._successor(old, fresh)
        self._infos[old.id] = sealed
        self._infos[fresh.id] = fresh
        self._open[fresh.id] = layout
        self._prepared = None
        self._seal(old.id)
        return [*last_growth, _put(sealed), _put(fresh), *layout.take_growth()]

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

    def dropped_between(self, after: int, upto: int) -> list[Dropped]:
        """The generations that are gone, or cannot be read, and may have held a position p with after < p <= upto; by number. First
        comes generation 0 when ``after`` is below what is remembered: it stands for everything that is remembered no more."""
        damaged = [self._epitaph(info, 0, "damaged") for info in self._unreadable.values()]
        found = [row for row in damaged if row.since <= upto and after < row.until - 1 and after < upto]
        return sorted([*self._dropped.between(after, upto), *found])

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
        """One slice of idle work in one of the open generations: the current one first, then sealed ones that have not said
        that they have no more. Raises GenerationDamaged."""
        if self._idle_work(self.current.id, upto):
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
        for older, newer in pairwise(infos):
            assert older.until is not None and older.since < older.until
            if older.id + 1 == newer.id:
                assert older.until == newer.since, (older, newer)
            else:
                assert older.until <= newer.since, (older, newer)
        assert infos[-1].until is None
        assert set(self._working) <= set(self._open) <= set(self._infos)
        families = set(self._engine.families())
        assert {HOME_FAMILY, *self._infos, *self._dropping} <= families

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
        return Dropped(info.id, DEFAULT_CLASS, info.since, info.until, info.created_wall_ms, sealed_wall_ms, wall_ms, reason)

    def _forget(self, generation: int) -> None:
        del self._infos[generation]
        self._open.pop(generation, None)
        if generation in self._working:
            self._working.remove(generation)

    def _first(self, age_ms: int, wall_ms: int) -> None:
        self._engine.create_family(1)
        info = GenerationInfo(GenerationId(1), self._layout_name, self._options, 0, None, age_ms, wall_ms, None)
        self._engine.write([_put(info)])
        self._infos[info.id] = info

    def _seal(self, generation: int) -> None:
        self._open[generation].seal()
        self._working.append(generation)

    def _successor(self, old: GenerationInfo, fresh: GenerationInfo) -> Layout:
        if old.layout == fresh.layout:
            return self.layout(old.id).inherit_into(fresh.id, fresh.options)
        return open_layout(fresh.layout, self._engine, fresh.id, fresh.options)


def _put(info: GenerationInfo) -> Op:
    key, value = info.encode()
    return HOME_FAMILY, key, value
