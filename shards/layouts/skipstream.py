"""Data keys in position order, plus one index key per varying level; wildcard reads intersect sorted index lists.

Keys of a family (docs/formats.md, "Generation, layout skipstream"), all big-endian so that they sort by position:

    static[8] | 0 u16 | position u64                        -> stored message
    static[8] | level u16 | H8(level's value) | position u64 -> empty            level: varying levels, from 1
    0[8] | edge kind | parent state[8] | level's bytes      -> child state[8]    the learned topic structure

A position is unique in a shard, so the varying levels need not be in the data key. A stream without constraint is one range
scan. With constraints, the positions that all wanted index lists have in common are looked up in the data keys, and the real
topic is compared, as two values may share a hash. No static key begins with eight zero bytes (lts.RESERVED_PREFIX).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from struct import Struct

from shards.bulk import NO_LIMIT, Columns, columns_of, packed_columns, position_list
from shards.engine import Cursor, Engine, Op, StoreDamaged
from shards.layouts.learned import growth_ops, has, hash_of, load_structure, scanned, stream_of, streams_of
from shards.layouts.port import LayoutOptions, Read, Stream, TopicKey, read_of
from shards.lts import TopicStructure
from shards.messages import topic_of

_DATA = b"\x00\x00"
_POSITION = Struct(">Q")
_pack_position = _POSITION.pack
_unpack_position = _POSITION.unpack_from
_pack_level = Struct(">H").pack

_DATA_POSITION_AT = 10
_DATA_KEY_BYTES = 18
_INDEX_POSITION_AT = 18

_FETCH_FIRST = 8
_FETCH_MAX = 128


@dataclass(slots=True)
class Moves:
    """seek: jumps to a place, next: steps from one key to its neighbour. hit, hash_collision: messages that the wanted index lists name,
    and that match, or only share hashes. miss: positions that one list has and another has not. end_of_stream: reads that found the end."""

    seek: int = 0
    next: int = 0
    hash_collision: int = 0
    hit: int = 0
    miss: int = 0
    end_of_stream: int = 0


class SkipStream:
    """One generation in this layout."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure) -> None:
        self._moves = Moves()
        self._engine = engine
        self._family = family
        self._structure = structure
        self._index_keys: list[bytes] = []
        """Of the messages of this record."""
        self._data_prefixes: dict[bytes, bytes] = {}
        """By static key."""

    @classmethod
    def open(cls, engine: Engine, family: int, options: LayoutOptions) -> SkipStream:
        """Load the learned structure; an empty family gives an empty one."""
        return cls(engine, family, load_structure(engine, family, options))

    def seen_again(self) -> SkipStream:
        """Nothing is remembered."""
        return self

    def inherit_into(self, family: int, options: LayoutOptions) -> SkipStream:
        return SkipStream(self._engine, family, self._structure.inherit(options.thresholds))

    @property
    def structure(self) -> TopicStructure:
        return self._structure

    @property
    def moves(self) -> dict[str, int]:
        return asdict(self._moves)

    # ---- writing

    def key_of(self, topic: bytes) -> TopicKey:
        leaf, varying = self._structure.learn(topic)
        static = leaf.static
        # One for all topics of a stream: of very many topics each thing that is a topic's own costs a look into memory.
        data = self._data_prefixes.get(static)
        if data is None:
            data = self._data_prefixes[static] = static + _DATA
        if not varying:
            return TopicKey(self._family, static, data, ())
        indexes = tuple([static + _pack_level(level) + hash_of(value) for level, value in enumerate(varying, 1)])
        return TopicKey(self._family, static, data, indexes)

    def take_growth(self) -> list[Op]:
        return growth_ops(self._structure, self._family)

    def put(self, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        family, _, data, indexes, _ = key
        at = _pack_position(position)
        ops.append((family, data + at, value))
        for prefix in indexes:
            self._index_keys.append(prefix + at)

    def flush(self, ops: list[Op]) -> None:
        """RocksDB puts a key into its memory table from where it put the one before, so keys in their order cost half as much
        (docs/performance.md): those of the messages have it by themselves, if no others come in between."""
        if self._index_keys:
            keys, self._index_keys = sorted(self._index_keys), []
            family = self._family
            ops += [(family, key, b"") for key in keys]

    def seal(self) -> None:
        assert not self._index_keys, "sealed in the middle of a record"

    def idle_work(self, upto: int) -> bool:
        """The index is written with its messages, so nothing is left to be done."""
        return False

    # ---- reading

    def streams(self, topic_filter: bytes) -> list[Stream]:
        return streams_of(self._structure, topic_filter)

    def stream_of(self, static: bytes, topic_filter: bytes) -> Stream:
        return stream_of(self._structure, static, topic_filter)

    def cutoff(self, topic_filter: bytes, upto: int) -> int:
        """The head is read as cheaply as the rest."""
        return upto

    def wants_tick(self, last: int, now: int) -> bool:
        return False

    def read(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        assert count_max > 0 and bytes_max > 0 and examine_max > 0, (count_max, bytes_max, examine_max)
        if after >= upto:
            return Read([], [], after, True)
        if not stream.constraints:
            read = self._scan(stream.static + _DATA, after, upto, min(count_max, examine_max), bytes_max)
        else:
            read = self._join(stream, after, upto, count_max, bytes_max, examine_max)
        self._moves.end_of_stream += read.done
        return read

    def bulk(self, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        assert rows_max > 0 and bytes_max > 0, (rows_max, bytes_max)
        if after >= upto or stream.constraints:
            return columns_of(self.read(stream, after, upto, rows_max, bytes_max, NO_LIMIT))
        prefix = stream.static + _DATA
        low, high = prefix + _pack_position(after + 1), prefix + _pack_position(upto + 1)
        found = self._engine.columns(self._family, low, high, rows_max, bytes_max)
        return packed_columns(found, _DATA_KEY_BYTES, _DATA_POSITION_AT, upto, rows_max, bytes_max)

    def _scan(self, prefix: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        low, high = prefix + _pack_position(after + 1), prefix + _pack_position(upto + 1)
        keys, values = self._engine.keys_and_values(self._family, low, high, limit, bytes_max)
        self._moves.seek += 1
        self._moves.next += len(keys)
        return scanned(position_list(keys, _DATA_KEY_BYTES, _DATA_POSITION_AT), values, upto, limit, bytes_max)

    def _join(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        moves = self._moves
        join = _Join(self._engine, self._family, stream, after, upto, moves)
        data = stream.static + _DATA
        messages: list[tuple[int, bytes]] = []
        total = 0
        place = after
        fetch = _FETCH_FIRST
        while True:
            positions, place, exhausted = join.next(min(fetch, count_max - len(messages)), examine_max)
            values = self._engine.get_many(self._family, [data + _pack_position(position) for position in positions])
            join.examined += len(positions)
            for position, value in zip(positions, values, strict=True):
                if value is None:
                    raise StoreDamaged(
                        f"generation {self._family}: index names {position} in {stream.static.hex()}, its message is missing"
                    )
                if not has(topic_of(value), stream.literals):
                    moves.hash_collision += 1
                    continue
                moves.hit += 1
                if messages and total + len(value) > bytes_max:
                    return read_of(messages, position - 1, False)
                messages.append((position, value))
                total += len(value)
            if exhausted:
                return read_of(messages, upto, True)
            if len(messages) >= count_max or total >= bytes_max or join.examined >= examine_max:
                return read_of(messages, place, False)
            average = total // len(messages) + 1 if messages else 1
            fetch = max(1, min(2 * fetch, _FETCH_MAX, (bytes_max - total) // average))


class _Join:
    """The positions that the wanted index lists have in common, in order, each handed out once.

    One list is simply scanned. Several are leapt through: whoever is behind moves forward to the foremost.
    ``place`` is always such that every common position up to it has been handed out.
    """

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
            low, high = _pack_position(after + 1), _pack_position(upto + 1)
            self._cursors = [engine.cursor(family, prefix + low, prefix + high) for prefix in self._prefixes]
        self._at = [-1] * len(self._cursors)

    def next(self, count: int, examine_max: int) -> tuple[list[int], int, bool]:
        """Up to ``count`` further positions, the place reached, and whether there are no more.

        Looks at no more than about ``examine_max`` keys since the join began, but always far enough to move the place.
        """
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

    def _scan(self, count: int) -> tuple[list[int], int, bool]:
        prefix = self._prefixes[0]
        low, high = prefix + _pack_position(self._place + 1), prefix + _pack_position(self._upto + 1)
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
            cursor.seek(self._prefixes[turn] + _pack_position(target))
            self._moves.seek += 1
            self.examined += 1
            if not cursor.valid():
                return None
            at = _unpack_position(cursor.key(), _INDEX_POSITION_AT)[0]
        self._at[turn] = at
        return at
