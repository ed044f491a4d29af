"""The store of one shard as whoever only reads sees it, while its owner writes: in bulk, by generations, never above the cut.

A RocksDB secondary shows the files, and a store over it reads them. The view keeps both new enough: `catch_up` with what a cut of the
shard says (shards.cuts) follows the log, and opens the secondary anew when that is not enough, as after every flush and every roll.
It changes nothing, and it knows neither connections nor leases nor who may read what: that is for the reader.

Over a copy of several sites `follow` is asked instead: the shard that told its cut may be led elsewhere, and positions are the same
everywhere while the operations of an engine are not. So a copy shows a cut when its applied row (shards.replication.applying) has come to
it, which is one write with what it applied. A checkpoint that is installed is another directory in the place of the one that is open.

Generations go meanwhile. One that was dropped is read as before, through the files that are open, until the next `catch_up`, and then
raises GenerationDropped. What must not go is held by a lease.

For several threads: a call is one page at most, and one call at a time is under way.

Always holds, when `catch_up` has returned: everything up to the watermark of that cut is seen, with all of the structure that it was
learned in. What is above it may be seen in part, so nobody reads above a cut.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import RLock
from typing import TYPE_CHECKING

from shards.counting import Counts, Mark
from shards.engine import HOME_FAMILY, StoreFailed
from shards.engine_secondary import SecondaryEngine
from shards.generations import Generations
from shards.lts import Leaf
from shards.replication.applying import applied_in
from shards.rows import META, unpack_row
from shards.steady import WALL_ROW, WallRow
from shards.store import Dropped, GenerationInfo, Read, Store, Stream

if TYPE_CHECKING:
    from shards.bulk import Columns

_NO_LIMIT = 1 << 62


class StoreBehind(StoreFailed):
    """A copy has not come to a cut yet: ask again in a moment."""


class StoreView:
    """Life cycle: opened -> caught up with, as often as somebody wants -> closed. Where opening anew has failed everything raises
    StoreFailed, until a `catch_up` succeeds."""

    def __init__(self, path: str, scratch: str) -> None:
        """path: the directory of the shard's store. scratch: one of this view's own. Raises StoreFailed."""
        self._path = path
        self._scratch = scratch
        self._lock = RLock()
        self._seen: tuple[SecondaryEngine, Generations, Store] | None = None
        self._lost: set[int] = set()
        self._directory = -1
        """Open, so that no other directory can have its number meanwhile."""
        self.opened = 0
        """How often the secondary was opened."""
        self._open()

    # ---- keeping it new

    def catch_up(self, sequence: int, written: Sequence[tuple[int, int]] = ()) -> None:
        """See everything that the shard had written when it gave its cut: sequence and written are those of the cut.

        Raises StoreFailed when the files do not show it, though they were opened anew.
        """
        with self._lock:
            self._see(lambda engine: engine.latest_sequence() >= sequence, anew=True)
            engine, generations, _ = self._now()
            if engine.latest_sequence() < sequence:
                raise StoreFailed(f"{self._path} shows what was written up to {engine.latest_sequence()}, and {sequence} is wanted")
            _forget_what_grew(generations, written)

    def follow(self, position: int, written: Sequence[tuple[int, int]] = (), anew: bool = False) -> None:
        """See everything up to this position, over a copy of several sites: position and written are those of the cut. anew: open it anew
        if it is not seen; otherwise only where the files have changed.

        Raises StoreBehind when the copy has not come so far, StoreFailed when its files cannot be followed.
        """
        with self._lock:
            if self._replaced():
                self._open()
            self._see(lambda engine: applied_in(engine).position >= position, anew)
            if self._replaced():
                # While it was looked at: of two stores, and so of none.
                self._open()
            engine, generations, _ = self._now()
            if (found := applied_in(engine).position) < position:
                raise StoreBehind(f"this copy has come to position {found}, and {position} is committed")
            _forget_what_grew(generations, written)

    def refresh(self, generation: int) -> None:
        """What the generation has learned is loaded again when it is next asked for."""
        with self._lock:
            self._now()[1].unload(generation)

    def latest_sequence(self) -> int:
        with self._lock:
            return self._now()[0].latest_sequence()

    def close(self) -> None:
        with self._lock:
            if self._seen is not None:
                engine, _, _ = self._seen
                self._seen = None
                engine.close()
            if self._directory >= 0:
                os.close(self._directory)
                self._directory = -1

    # ---- what there is

    def generations(self) -> list[GenerationInfo]:
        """Those that can be read, by number."""
        with self._lock:
            return self._now()[2].generations()

    @property
    def lost(self) -> tuple[int, ...]:
        """Generations whose row is there and whose messages are not."""
        with self._lock:
            return self._now()[2].lost_at_open

    def dropped_between(self, after: int, upto: int, topic_filter: bytes | None = None) -> list[Dropped]:
        """As shards.store.Store.dropped_between."""
        with self._lock:
            return self._now()[2].dropped_between(after, upto, topic_filter)

    def period_ms(self, info: GenerationInfo, default_ms: int) -> int:
        """How long this generation is kept once it is sealed; default_ms: the period of the default class."""
        with self._lock:
            return self._now()[1].period_ms(info, default_ms)

    def leaves(self, generation: int) -> list[Leaf]:
        """All streams of a generation, as learned. Raises GenerationDropped."""
        with self._lock:
            return self._now()[1].layout(generation).structure.leaves()

    def streams_in(self, generation: int, topic_filter: bytes) -> list[Stream]:
        """Where messages of the generation that match the filter can be, by static key. Raises GenerationDropped."""
        with self._lock:
            return self._now()[2].streams_in(generation, topic_filter)

    def home(self, key: bytes) -> bytes | None:
        """A row of the home family."""
        with self._lock:
            return self._now()[0].get(HOME_FAMILY, key)

    @property
    def position(self) -> int:
        """The highest position of the records seen; -1 before the first. It may be above every cut."""
        row = self.home(META + b"position")
        return int(unpack_row(row)[0]) if row else -1

    @property
    def wall(self) -> WallRow:
        """By how much the wall clock differed from the time that messages carry, and since when."""
        value = self.home(WALL_ROW)
        return WallRow.decode(value) if value else WallRow(0)

    def position_at(self, steady_ms: int) -> int:
        """A position before which nothing was published at this time, or later (shards.store.Store.position_at)."""
        with self._lock:
            return self._now()[2].position_at(steady_ms)

    def counts(self, generation: int) -> Counts | None:
        """As shards.store.Store.counts; it may count what is above the cut."""
        with self._lock:
            return self._now()[2].counts(generation)

    def marks(self, generation: int, after: int, upto: int) -> list[Mark]:
        """As shards.store.Store.marks."""
        with self._lock:
            return self._now()[2].marks(generation, after, upto)

    # ---- messages

    def bulk(self, generation: int, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """Messages of a stream with after < position <= upto; ``upto`` is below the cut. As layouts.port.Layout.bulk. Raises
        GenerationDropped, and StoreDamaged for what cannot be read."""
        with self._lock:
            return self._now()[2].bulk(generation, stream, after, upto, rows_max, bytes_max)

    def read(self, generation: int, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int) -> Read:
        """The same, message by message."""
        with self._lock:
            return self._now()[2].read(generation, stream, after, upto, count_max, bytes_max, _NO_LIMIT)

    # ---- within

    def _now(self) -> tuple[SecondaryEngine, Generations, Store]:
        if self._seen is None:
            raise StoreFailed(f"{self._path} is not open for reading at the moment")
        return self._seen

    def _see(self, shows: Callable[[SecondaryEngine], bool], anew: bool) -> None:
        """Follow the files, if what is wanted does not show yet; anew: open them anew where that does not do."""
        opened = self.opened
        if self._seen is None:
            self._open()
        engine, before, _ = self._now()
        if not shows(engine):
            try:
                engine.catch_up()
                self._look(engine, before)
            except StoreFailed:
                # Outdated; or whatever it was may be there again when it is opened anew.
                self._open()
        engine, _, store = self._now()
        if self.opened == opened and ((anew and not shows(engine)) or set(store.lost_at_open) - self._lost):
            self._open()

    def _replaced(self) -> bool:
        """Whether another directory has taken the place of the one that is open."""
        if self._seen is None:
            return False
        try:
            now, then = os.stat(self._path), os.fstat(self._directory)
        except OSError as error:
            raise StoreFailed(f"look for {self._path}: {error}") from error
        return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)

    def _look(self, engine: SecondaryEngine, before: Generations | None) -> None:
        generations = Generations.view(engine, before)
        self._seen = engine, generations, Store(engine, generations)

    def _open(self) -> None:
        self.close()
        self.opened += 1
        try:
            self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreFailed(f"open {self._path}: {error}") from error
        engine = SecondaryEngine(self._path, self._scratch)
        try:
            self._look(engine, None)
        except BaseException:
            engine.close()
            raise
        # A family may be made between the list of families and the reading of the rows; one that is still missing then is lost.
        lost = set(self._now()[2].lost_at_open)
        if lost - self._lost:
            self._lost = lost
            self._open()
        self._lost &= lost


def _forget_what_grew(generations: Generations, written: Sequence[tuple[int, int]]) -> None:
    """What a generation has learned is loaded again when there is more of it than was loaded."""
    for generation, edges in written:
        known = generations.edges(generation)
        if known is not None and known < edges:
            generations.unload(generation)
