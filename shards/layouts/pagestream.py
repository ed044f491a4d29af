"""Data keys in position order, and an index over the varying levels that is written later, in sorted pages.

Keys of a family (docs/formats.md, "Generation, layout pagestream"):

    static[8] | 0 u16 | position u64                        -> stored message       (by_position)
    static[8] | 0 u16 | last position u64 | 21              -> batch                (batched)
    0[7] 02 | ..., 0[7] 03 | ...                             -> the index, local and derived       (paged_index.pages)
    0[8] | edge kind | parent state[8] | level's bytes      -> child state[8]    the learned topic structure

A message of a stream with varying levels costs one key, whatever their number: its index entries are kept in RAM until there are many, and
what a crash takes of them is made anew from the messages. Of a stream without, the messages of a record are held until it ends, and are
batches where there are enough of them. So one device out of many is never paid for with the messages of others.

Holds:
1. nothing is held back from one record to the next: after ``flush`` every message put is in ops;
2. no read waits for an index. Where a stream's entries are not all there, a read with constraints goes by the pages that are, and then
   looks through the messages behind them.
"""

from __future__ import annotations

from collections import defaultdict

from shards.bulk import Columns
from shards.engine import Engine, Op
from shards.layouts.batched.batch import MESSAGES_MIN, cut, packed
from shards.layouts.batched.columns import ColumnScanner
from shards.layouts.batched.plain import BATCH_KIND, Plain
from shards.layouts.batched.scanning import UNKNOWN, LiteralStream, Scanner
from shards.layouts.by_position import ByPosition, pack_position
from shards.layouts.joining import Limits, joined, looked_through
from shards.layouts.learned import hash_of, load_structure
from shards.layouts.paged_index.index import Bounds, PagedIndex
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey
from shards.lts import TopicStructure

BOUNDS = Bounds()
_LOOK_BYTES_MAX = 1 << 20


class PageStream(ByPosition):
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure, empty: bool, bounds: Bounds, beside: bool = False) -> None:
        """beside: for who reads beside the one that writes."""
        super().__init__(engine, family, structure)
        self._bounds = bounds
        there = None if beside else () if empty else structure.leaves()
        self._index = PagedIndex(engine, family, self._messages.scan, there, bounds)
        self._heads: dict[bytes, tuple[bytes, bytearray]] = {}
        """By static key: what the data keys of a stream begin with, and where the index entries of its new messages go."""
        self._indexed = 0
        """Messages with index entries, of this record."""
        self._held: defaultdict[bytes, tuple[list[int], list[bytes]]] = defaultdict(_no_messages)
        """By static key, of this record: positions and messages of a stream without varying levels."""
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
        if static not in self._heads:
            rows = self._index.of(static, leaf.levels).entries.rows if varying else bytearray()
            self._heads[static] = self._messages.prefix(static), rows
        return TopicKey(self._family, static, b"".join([hash_of(value) for value in varying]))

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        static, hashes = key.static, key.data
        if not hashes:
            positions, messages = self._held[static]
            positions.append(position)
            messages.append(value)
            return
        at = pack_position(position)
        prefix, rows = self._heads[static]
        ops.append((self._family, prefix + at, value))
        rows += at
        rows += hashes
        self._indexed += 1

    def flush(self, ops: list[Op]) -> None:
        self._index.noted(self._indexed)
        self._indexed = 0
        if self._held:
            for static, (positions, messages) in self._held.items():
                self._put_held(ops, static, positions, messages)
            self._held.clear()

    def _put_held(self, ops: list[Op], static: bytes, positions: list[int], messages: list[bytes]) -> None:
        family, prefix = self._family, self._heads[static][0]
        if len(messages) < MESSAGES_MIN:
            ops += [(family, prefix + pack_position(position), message) for position, message in zip(positions, messages, strict=True)]
            return
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
        assert not self._held, "sealed in the middle of a record"
        self._index.seal()

    def idle_work(self, upto: int) -> bool:
        return self._index.idle_work(upto)

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


def _no_messages() -> tuple[list[int], list[bytes]]:
    return [], []
