"""Data keys in position order, plus one index key per varying level; wildcard reads intersect sorted index lists.

Keys of a family (docs/formats.md, "Generation, layout skipstream"), all big-endian so that they sort by position:

    static[8] | 0 u16 | position u64                        -> stored message       (by_position)
    static[8] | level u16 | H8(level's value) | position u64 -> empty            level: varying levels, from 1
    0[8] | edge kind | parent state[8] | level's bytes      -> child state[8]    the learned topic structure

A stream without constraint is one range scan. With constraints, the positions that all wanted index lists have in common are looked
up in the data keys (joining). No static key begins with eight zero bytes (lts.RESERVED_PREFIX).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import numpy as np

from shards.bulk import NO_LIMIT
from shards.engine import Cursor, Engine, Op, StoreFailed
from shards.layouts.by_position import DATA, ByPosition, pack_position
from shards.layouts.checking import AT_ONCE, AT_ONCE_BYTES_MAX, Sum, difference, sums_of_messages
from shards.layouts.joining import Limits, Moves, joined
from shards.layouts.learned import hash_of, level_hashes, load_structure
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey
from shards.lts import TopicStructure

_unpack_position = Struct(">Q").unpack_from
_pack_level = Struct(">H").pack
_INDEX_POSITION_AT = 18
_INDEX_KEY = np.dtype([("stream and level", "S10"), ("hash", ">u8"), ("position", ">u8")])


class SkipStream(ByPosition):
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure) -> None:
        super().__init__(engine, family, structure)
        self._index_keys: list[bytes] = []
        """Of the messages of this record."""

    @classmethod
    def open(cls, engine: Engine, family: int, options: LayoutOptions) -> SkipStream:
        """Load the learned structure; an empty family gives an empty one."""
        return cls(engine, family, load_structure(engine, family, options))

    def seen_again(self) -> SkipStream:
        """Nothing is remembered."""
        return self

    def inherit_into(self, family: int, options: LayoutOptions) -> SkipStream:
        return SkipStream(self._engine, family, self._structure.inherit(options.thresholds))

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        leaf, varying = self._structure.learn(topic)
        static = leaf.static
        data = self._messages.prefix(static)
        if not varying:
            return TopicKey(self._family, static, data)
        indexes = tuple([static + _pack_level(level) + hash_of(value) for level, value in enumerate(varying, 1)])
        return TopicKey(self._family, static, data, indexes)

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        at = pack_position(position)
        ops.append((self._family, key.data + at, value))
        for prefix in key.indexes:
            self._index_keys.append(prefix + at)

    def flush(self, ops: list[Op]) -> None:
        """RocksDB puts a key into its memory table from where it put the one before, so keys in their order cost half as much
        (docs/performance.md): those of the messages have it by themselves, if no others come in between."""
        if self._index_keys:
            keys, self._index_keys = sorted(self._index_keys), []
            family = self._family
            ops += [(family, key, b"") for key in keys]

    def take_back(self, position: int) -> None:
        """Nothing is kept of it."""

    def seal(self) -> None:
        assert not self._index_keys, "sealed in the middle of a record"

    def idle_work(self, upto: int) -> bool:
        """The index is written with its messages, so nothing is left to be done."""
        return False

    def faults(self, upto: int) -> Iterator[str]:
        for static, depths in self._indexed():
            where = f"index of stream {static.hex()}"
            try:
                differences = self._differences(static, depths, upto)
            except (StoreFailed, ValueError) as error:
                yield f"{where} cannot be compared with its messages: {error}"
                continue
            for level, wrong in differences.items():
                yield f"{where}, level {level}: {wrong}"

    def mended(self, upto: int) -> Iterator[list[Op]]:
        for static, depths in self._indexed():
            for level in self._differences(static, depths, upto):
                yield from self._added(static, level, depths[level - 1], upto)
                yield from self._taken_away(static, level, depths[level - 1], upto)

    def _indexed(self) -> Iterator[tuple[bytes, list[int]]]:
        """Streams with varying levels, and at which depths of their topics these are."""
        for leaf in self._structure.leaves():
            depths = [depth for depth, level in enumerate(leaf.levels) if level is None]
            if depths:
                yield leaf.static, depths

    def _differences(self, static: bytes, depths: list[int], upto: int) -> dict[int, str]:
        """By level, of those where the index does not say what the messages say."""
        wanted = sums_of_messages(self._messages.scan, static, depths, -1, upto)
        found = [self._sum_of_index(static, level, upto) for level in range(1, len(depths) + 1)]
        both = [difference(*each) for each in zip(found, wanted, strict=True)]
        return {level: wrong for level, wrong in enumerate(both, 1) if wrong}

    def _sum_of_index(self, static: bytes, level: int, upto: int) -> Sum:
        total = Sum()
        for keys, _, _ in self._engine.columns(self._family, static + _pack_level(level), static + _pack_level(level + 1), NO_LIMIT):
            rows = np.frombuffer(b"".join(keys), _INDEX_KEY)
            hashes, positions = rows["hash"].astype(np.uint64), rows["position"].astype(np.uint64)
            told = positions <= np.uint64(max(0, upto))
            total = total.plus(hashes[told], positions[told])
        return total

    def _added(self, static: bytes, level: int, depth: int, upto: int) -> Iterator[list[Op]]:
        """The entries that the messages have; most of them are there."""
        place, done = -1, False
        while not done:
            read = self._messages.scan(static, place, upto, AT_ONCE, AT_ONCE_BYTES_MAX)
            yield [(self._family, self._index_key(static, level, depth, *each), b"") for each in read.messages]
            place, done = read.place, read.done

    def _taken_away(self, static: bytes, level: int, depth: int, upto: int) -> Iterator[list[Op]]:
        """The entries that no message has."""
        prefix = static + DATA
        for keys, _, _ in self._engine.columns(self._family, static + _pack_level(level), static + _pack_level(level + 1), NO_LIMIT):
            positions = [_unpack_position(key, _INDEX_POSITION_AT)[0] for key in keys]
            values = self._engine.get_many(self._family, [prefix + pack_position(position) for position in positions])
            yield [
                (self._family, key, None)
                for key, position, value in zip(keys, positions, values, strict=True)
                if position <= upto and (value is None or key != self._index_key(static, level, depth, position, value))
            ]

    @staticmethod
    def _index_key(static: bytes, level: int, depth: int, position: int, message: bytes) -> bytes:
        return static + _pack_level(level) + level_hashes(message, (depth,))[0] + pack_position(position)

    # ---- reading

    def matching(self, stream: Stream, after: int, upto: int, limits: Limits) -> Read:
        join = _Join(self._engine, self._family, stream, after, upto, self._moves)
        return joined(join, lambda positions: self._messages.at(stream.static, positions), stream, upto, limits, self._moves)


class _Join:
    """joining.Common over index keys: one list is simply scanned, several are leapt through: whoever is behind moves forward to the
    foremost. ``place`` is always such that every common position up to it has been handed out."""

    __slots__ = ("_at", "_cursors", "_engine", "_family", "_moves", "_place", "_prefixes", "_upto", "examined")

    def __init__(self, engine: Engine, family: int, stream: Stream, after: int, upto: int, moves: Moves) -> None:
        self._moves = moves
        self._engine = engine
        self._family = family
        self._prefixes = [stream.static + _pack_level(level) + hashed for level, hashed in stream.constraints]
        self._place = after
        self._upto = upto
        self.examined = 0
        self._cursors: list[Cursor] = []
        if len(self._prefixes) > 1:
            low, high = pack_position(after + 1), pack_position(upto + 1)
            self._cursors = [engine.cursor(family, prefix + low, prefix + high) for prefix in self._prefixes]
        self._at = [-1] * len(self._cursors)

    def next(self, count: int, examine_max: int) -> tuple[list[int], int, bool]:
        """joining.Common.next."""
        if not self._cursors:
            return self._scan(min(count, max(1, examine_max - self.examined)))
        found: list[int] = []
        before = self._place
        candidate = before + 1
        agreed = turn = 0
        while len(found) < count:
            at = self._forward(turn, candidate)
            if at is None:
                return found, self._upto, True
            if at == candidate:
                agreed += 1
            else:
                self._moves.miss += agreed > 0
                agreed = 1
            candidate = at
            turn = (turn + 1) % len(self._cursors)
            if agreed == len(self._cursors):
                found.append(candidate)
                self._place = candidate
                candidate += 1
                agreed = 0
            elif candidate - 1 > self._place:
                self._place = candidate - 1
            if self.examined >= examine_max and self._place > before:
                break
        return found, self._place, False

    def fetched(self, count: int) -> None:
        self.examined += count

    def _scan(self, count: int) -> tuple[list[int], int, bool]:
        prefix = self._prefixes[0]
        low, high = prefix + pack_position(self._place + 1), prefix + pack_position(self._upto + 1)
        found = [_unpack_position(key, _INDEX_POSITION_AT)[0] for key, _ in self._engine.scan(self._family, low, high, count)]
        self.examined += len(found)
        self._moves.seek += 1
        self._moves.next += len(found)
        if len(found) < count:
            return found, self._upto, True
        self._place = found[-1]
        return found, self._place, False

    def _forward(self, turn: int, target: int) -> int | None:
        """The first position >= ``target`` in this list, None when there is none."""
        at = self._at[turn]
        if at >= target:
            return at
        cursor = self._cursors[turn]
        if at >= 0:
            # The neighbour is often the one, and a step costs a fifth of a seek.
            cursor.next()
            self._moves.next += 1
            self.examined += 1
            if not cursor.valid():
                return None
            at = _unpack_position(cursor.key(), _INDEX_POSITION_AT)[0]
        if at < target:
            cursor.seek(self._prefixes[turn] + pack_position(target))
            self._moves.seek += 1
            self.examined += 1
            if not cursor.valid():
                return None
            at = _unpack_position(cursor.key(), _INDEX_POSITION_AT)[0]
        self._at[turn] = at
        return at
