"""Data keys in position order, and an index over the varying levels that is written later, in sorted pages.

Keys of a family (docs/formats.md, "Generation, layout pagestream"):

    static[8] | 0 u16 | position u64                        -> stored message       (by_position)
    static[8] | 0 u16 | last position u64 | 21              -> batch                (batched)
    0[7] 02 | ..., 0[7] 03 | ...                             -> the index, local and derived       (paged_index.pages)
    0[8] | edge kind | parent state[8] | level's bytes      -> child state[8]    the learned topic structure

A message of a stream with varying levels costs one key, whatever their number: its index entries are kept in RAM until there are many, and
what a crash takes of them is made anew from the messages. Of a stream without, those of a record are batches as long as there are enough
of them (batched.held). So one device out of many is never paid for with the messages of others.

Holds:
1. nothing is held back from one record to the next: after ``flush`` every message put is in ops;
2. no read waits for an index. Where a stream's entries are not all there, a read with constraints goes by the pages that are, and then
   looks through the messages behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import attrgetter
from struct import Struct

from shards.bulk import Columns
from shards.engine import Engine, Op
from shards.layouts.batched.batch import cut, packed
from shards.layouts.batched.columns import ColumnScanner
from shards.layouts.batched.held import Held
from shards.layouts.batched.plain import BATCH_KIND, Plain
from shards.layouts.batched.scanning import UNKNOWN, LiteralStream, Scanner
from shards.layouts.by_position import DATA, KEY_BYTES, ByPosition, pack_position
from shards.layouts.joining import Limits, joined, looked_through
from shards.layouts.learned import hash_of, load_structure
from shards.layouts.paged_index.index import Bounds, PagedIndex
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey
from shards.lts import TopicStructure

BOUNDS = Bounds()
_LOOK_BYTES_MAX = 1 << 20
_static_of, _hashes_of = attrgetter("static"), attrgetter("data")
_pack_behind_static = Struct(">HQ").pack
"""DATA, and a position."""


class PageStream(ByPosition):
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure, empty: bool, bounds: Bounds, beside: bool = False) -> None:
        """beside: for who reads beside the one that writes."""
        super().__init__(engine, family, structure)
        self._bounds = bounds
        there = None if beside else () if empty else structure.leaves()
        self._index = PagedIndex(engine, family, self._messages.scan, there, bounds)
        self._rows: dict[bytes, bytearray] = {}
        """By static key of a stream with varying levels: where the index entries of its new messages go."""
        self._indexed = 0
        """Messages with index entries, of this record."""
        self._held = Held(bounds.sampled_records)
        self._busy = self._held.busy
        self._literal: dict[bytes, LiteralStream | None] = {}
        self._before = 0 if empty else UNKNOWN
        self._scanner = Scanner(engine, family, Plain(), self._moves)
        self._columns = ColumnScanner(engine, family, Plain())

    @classmethod
    def open(cls, engine: Engine, family: int, options: LayoutOptions, bounds: Bounds = BOUNDS) -> PageStream:
        """Load the learned structure; indexes are loaded in idle moments."""
        structure = load_structure(engine, family, options)
        return cls(engine, family, structure, len(structure) == 0, bounds)

    def seen_again(self) -> PageStream:
        """The index that was loaded is that of the messages of then, and its pages may have been folded."""
        return PageStream(self._engine, self._family, self._structure, False, self._bounds, beside=True)

    def inherit_into(self, family: int, options: LayoutOptions) -> PageStream:
        return PageStream(self._engine, family, self._structure.inherit(options.thresholds), True, self._bounds)

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        leaf, varying = self._structure.learn(topic)
        static = leaf.static
        if varying and static not in self._rows:
            self._rows[static] = self._index.of(static, leaf.levels).entries.rows
        return TopicKey(self._family, static, b"".join([hash_of(value) for value in varying]))

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        static, hashes = key.static, key.data
        if hashes:
            rows = self._rows[static]
            rows += pack_position(position)
            rows += hashes
            self._indexed += 1
        else:
            held = self._busy.get(static)
            if held is not None:
                held[0].append(position)
                held[1].append(value)
                return
        # Nothing is looked up for it: of very many streams each lies elsewhere in memory.
        ops.append((self._family, static + _pack_behind_static(0, position), value))

    def put_all(self, ops: list[Op], keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]) -> None:
        """What a publisher sends at once is often of one stream."""
        statics = list(map(_static_of, keys))
        if statics.count(statics[0]) == len(statics):
            self._put_of_stream(ops, statics[0], keys, positions, values)
            return
        # What `put` does, without a call for each.
        family, busy, rows_of = self._family, self._busy, self._rows
        for static, key, position, value in zip(statics, keys, positions, values, strict=True):
            hashes = key.data
            if hashes:
                rows = rows_of[static]
                rows += pack_position(position)
                rows += hashes
                self._indexed += 1
            else:
                held = busy.get(static)
                if held is not None:
                    held[0].append(position)
                    held[1].append(value)
                    continue
            ops.append((family, static + _pack_behind_static(0, position), value))

    def _put_of_stream(
        self, ops: list[Op], static: bytes, keys: Sequence[TopicKey], positions: Sequence[int], values: Sequence[bytes]
    ) -> None:
        varies = bool(keys[0].data)
        held = None if varies else self._busy.get(static)
        if held is not None:
            held[0].extend(positions)
            held[1].extend(values)
            return
        ends = list(map(pack_position, positions))
        if varies:
            self._rows[static] += b"".join(chain.from_iterable(zip(ends, map(_hashes_of, keys), strict=True)))
            self._indexed += len(ends)
        prefix = self._messages.prefix(static)
        ops += zip(repeat(self._family), [prefix + end for end in ends], values, strict=False)

    def flush(self, ops: list[Op]) -> None:
        self._index.noted(self._indexed)
        self._indexed = 0
        for part in self._held.ended(ops, self._family, KEY_BYTES, self._is_literal):
            self._put_held(ops, *part)

    def _is_literal(self, static: bytes) -> bool:
        return self._literal_stream(static) is not None

    def _put_held(self, ops: list[Op], static: bytes, positions: list[int], messages: list[bytes]) -> None:
        family, prefix = self._family, static + DATA
        for at, stop in cut(positions, messages):
            last = positions[stop - 1]
            if stop - at == 1:
                ops.append((family, prefix + pack_position(last), messages[at]))
                continue
            ops.append((family, prefix + pack_position(last) + BATCH_KIND, packed(positions[at:stop], messages[at:stop])))
            stream = self._literal_stream(static)
            assert stream is not None
            stream.batched = max(stream.batched, last)

    def take_back(self, position: int) -> None:
        self._index.take_back(position)

    def seal(self) -> None:
        assert self._held.empty, "sealed in the middle of a record"
        self._index.seal()

    def idle_work(self, upto: int) -> bool:
        return self._index.idle_work(upto)

    def faults(self, upto: int) -> Iterator[str]:
        return self._index.faults(self._structure.leaves())

    def mended(self, upto: int) -> Iterator[list[Op]]:
        return self._index.mended(self._structure.leaves())

    # ---- reading

    def whole(self, static: bytes, after: int, upto: int, limits: Limits) -> Read:
        stream = self._literal_stream(static)
        if stream is None:
            return super().whole(static, after, upto, limits)
        return self._scanner.read(static, stream, after, upto, *limits)

    def whole_columns(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        stream = self._literal_stream(static)
        if stream is None:
            return super().whole_columns(static, after, upto, rows_max, bytes_max)
        return self._columns.read(static, stream, after, upto, rows_max, bytes_max)

    def _literal_stream(self, static: bytes) -> LiteralStream | None:
        """What is known of a stream without varying levels; None for one with."""
        if static not in self._literal:
            varies = None in self._structure.leaf(static).levels
            self._literal[static] = None if varies else LiteralStream(self._before)
        return self._literal[static]

    def matching(self, stream: Stream, after: int, upto: int, limits: Limits) -> Read:
        """By the index as far as it reaches, and behind that message by message."""
        static = stream.static
        levels = self._structure.leaf(static).levels
        reaches = self._index.reaches(static, levels)
        end = upto if reaches is None else min(upto, reaches)
        read = Read([], [], after, False)
        if after < end:
            common = self._index.common(stream, levels, after, end, self._moves)
            read = joined(common, lambda positions: self._messages.at(static, positions), stream, end, limits, self._moves)
            if not read.done or end == upto:
                return read

        def scan(place: int, count_max: int) -> Read:
            return self._messages.scan(static, place, upto, count_max, _LOOK_BYTES_MAX)

        return looked_through(scan, stream, upto, read, limits)
