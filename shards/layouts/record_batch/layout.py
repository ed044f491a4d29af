"""Messages in position order, one by one or in batches; varying levels are indexed later, in sorted pages.

Of a stream with varying levels each message is a value of its own, and its index entries are written when there are many of
them (paged_index). Of a stream without, those of a record are batches (values) as long as there are enough of them (batched.held).
Formats: docs/formats.md, "Generation, layout record_batch".

A place is a message position, never a batch: batches lie under the position of their last message, so a seek to the next
position lands in the batch that has it, and a batch is cut wherever ``after`` and ``upto`` say.

Holds:
1. nothing is held back from one record to the next: after ``flush`` every message put is in ops;
2. a stream's values follow each other in position: all messages of one are below all of the next;
3. every checksum is checked at every read, and a value of an unknown kind is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast
from zlib import crc32

from shards.bulk import NO_LIMIT, Columns, columns_of
from shards.engine import Engine, Op, StoreDamaged
from shards.layouts.batched.batch import cut
from shards.layouts.batched.columns import ColumnScanner
from shards.layouts.batched.held import Held
from shards.layouts.batched.scanning import UNKNOWN, LiteralStream, Scanner
from shards.layouts.joining import Limits, Moves, joined
from shards.layouts.learned import Learned, hash_of, load_structure
from shards.layouts.paged_index.index import Bounds, PagedIndex
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey
from shards.layouts.record_batch.singles import Singles
from shards.layouts.record_batch.values import (
    KEY_BYTES,
    PRIME,
    SINGLE,
    Checked,
    encode_batch,
    encode_single,
    messages_of,
    pack_position,
    pack_single,
    pack_tail,
)
from shards.lts import TopicStructure

BOUNDS = Bounds()


class RecordBatch(Learned):
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure, empty: bool, bounds: Bounds, beside: bool = False) -> None:
        """beside: for who reads beside the one that writes."""
        super().__init__(family, structure)
        self._engine = engine
        self._bounds = bounds
        self._uncounted = Moves()
        self._scanner = Scanner(engine, family, Checked(), self._uncounted)
        self._columns = ColumnScanner(engine, family, Checked())
        self._singles = Singles(engine, family)
        self._index = PagedIndex(engine, family, self._singles.read, None if beside else () if empty else structure.leaves(), bounds)
        self._rows: dict[bytes, bytearray] = {}
        self._literal: dict[bytes, LiteralStream] = {}
        self._held = Held(bounds.sampled_records)
        self._busy = self._held.busy
        self._before = 0 if empty else UNKNOWN

    @classmethod
    def open(cls, engine: Engine, family: int, options: LayoutOptions, bounds: Bounds = BOUNDS) -> RecordBatch:
        """Load the learned structure; indexes are loaded when they are needed, or in idle moments."""
        structure = load_structure(engine, family, options)
        return cls(engine, family, structure, len(structure) == 0, bounds)

    def seen_again(self) -> RecordBatch:
        """The index that was loaded is that of the messages of then, and its pages may have been folded."""
        return RecordBatch(self._engine, self._family, self._structure, False, self._bounds, beside=True)

    def inherit_into(self, family: int, options: LayoutOptions) -> RecordBatch:
        return RecordBatch(self._engine, family, self._structure.inherit(options.thresholds), True, self._bounds)

    @property
    def moves(self) -> dict[str, int]:
        """It counts none."""
        return {}

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        leaf, varying = self._structure.learn(topic)
        static = leaf.static
        if varying and static not in self._rows:
            self._rows[static] = self._index.of(static, leaf.levels).entries.rows
        return TopicKey(self._family, static, b"".join([hash_of(value) for value in varying]), number=crc32(static))

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        family, static, hashes, begun = self._family, key.static, key.data, key.number
        if hashes:
            at = pack_position(position)
            rows = self._rows[static]
            rows += at
            rows += hashes
            ops.append((family, static + at, pack_single(SINGLE, crc32(value, begun ^ position % PRIME)) + value))
            return
        held = self._busy.get(static)
        if held is None:
            ops.append((family, static + pack_tail(position, SINGLE, crc32(value, begun ^ position % PRIME)), value))
        else:
            held[0].append(position)
            held[1].append(value)

    def flush(self, ops: list[Op]) -> None:
        self._index.noted(len(ops))
        for part in self._held.ended(ops, self._family, KEY_BYTES, self._is_literal):
            self._put_held(ops, *part)

    def _is_literal(self, static: bytes) -> bool:
        return self._literal_stream(static) is not None

    def _put_held(self, ops: list[Op], static: bytes, positions: list[int], messages: list[bytes]) -> None:
        for at, stop in cut(positions, messages):
            if stop - at == 1:
                ops.append((self._family, *encode_single(static, positions[at], messages[at])))
            else:
                ops.append((self._family, *encode_batch(static, positions[at:stop], messages[at:stop])))
                stream = self._literal_stream(static)
                assert stream is not None
                stream.batched = max(stream.batched, positions[stop - 1])

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

    def read(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        assert count_max > 0 and bytes_max > 0 and examine_max > 0, (count_max, bytes_max, examine_max)
        if after >= upto:
            return Read([], [], after, True)
        if stream.constraints:
            return self._join(stream, after, upto, count_max, bytes_max, examine_max)
        literal = self._literal_stream(stream.static)
        if literal is None:
            return self._singles.read(stream.static, after, upto, min(count_max, examine_max), bytes_max)
        return self._scanner.read(stream.static, literal, after, upto, count_max, bytes_max, examine_max)

    def bulk(self, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        assert rows_max > 0 and bytes_max > 0, (rows_max, bytes_max)
        if after >= upto or stream.constraints:
            return columns_of(self.read(stream, after, upto, rows_max, bytes_max, NO_LIMIT))
        literal = self._literal_stream(stream.static)
        if literal is None:
            return self._singles.bulk(stream.static, after, upto, rows_max, bytes_max)
        return self._columns.read(stream.static, literal, after, upto, rows_max, bytes_max)

    def _join(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        static = stream.static
        levels = self._structure.leaf(static).levels
        self._index.load(static, levels)
        common = self._index.common(stream, levels, after, upto, self._uncounted)

        def fetch(positions: list[int]) -> list[tuple[int, bytes]]:
            keys = [static + pack_position(position) for position in positions]
            values = self._engine.get_many(self._family, keys)
            if None in values:
                missing = positions[values.index(None)]
                raise StoreDamaged(f"generation {self._family}: index names {missing} in {static.hex()}, its message is missing")
            return messages_of(static, zip(keys, cast("list[bytes]", values), strict=True))

        return joined(common, fetch, stream, upto, Limits(count_max, bytes_max, examine_max), self._uncounted)

    def _literal_stream(self, static: bytes) -> LiteralStream | None:
        """What is known of a stream without varying levels; None for one with."""
        found = self._literal.get(static)
        if found is None and None not in self._structure.leaf(static).levels:
            found = self._literal[static] = LiteralStream(self._before)
        return found
