"""One generation with its messages under keys in the order of their positions: what skipstream and pagestream have in common.

    static[8] | 0 u16 | position u64  -> stored message

A position is unique in a shard, so the varying levels need not be in the key. What wants them has an index beside it, which is what these
two differ in. A stream without constraint is one range scan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from struct import Struct

from shards.bulk import NO_LIMIT, Columns, columns_of, packed_columns, position_list
from shards.engine import Engine, StoreDamaged
from shards.layouts.joining import Limits, Moves
from shards.layouts.learned import Learned, scanned
from shards.layouts.port import Read, Stream
from shards.lts import TopicStructure

DATA = b"\x00\x00"
pack_position = Struct(">Q").pack

POSITION_AT = 10
KEY_BYTES = 18


class Messages:
    """Those of all streams, under their keys."""

    def __init__(self, engine: Engine, family: int, moves: Moves) -> None:
        self._engine = engine
        self._family = family
        self._moves = moves
        self._prefixes: dict[bytes, bytes] = {}
        """By static key: one for all topics of a stream. Of very many topics each thing that is a topic's own costs a look into memory."""

    def prefix(self, static: bytes) -> bytes:
        """Of the keys of a stream; the position follows."""
        found = self._prefixes.get(static)
        if found is None:
            found = self._prefixes[static] = static + DATA
        return found

    def scan(self, static: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        """All messages of a stream, whatever their varying levels are, with after < position <= upto."""
        keys, values, size = self._engine.keys_and_values(self._family, *_bounds(static, after, upto), limit, bytes_max)
        self._moves.seek += 1
        self._moves.next += len(keys)
        return scanned(position_list(keys, KEY_BYTES, POSITION_AT), values, size, upto, limit, bytes_max)

    def bulk(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """The same in columns."""
        found = self._engine.columns(self._family, *_bounds(static, after, upto), rows_max, bytes_max)
        return packed_columns(found, KEY_BYTES, POSITION_AT, upto, rows_max, bytes_max)

    def at(self, static: bytes, positions: list[int]) -> list[tuple[int, bytes]]:
        """The messages at these positions, which an index names. Raises StoreDamaged when one is missing."""
        prefix = static + DATA
        found: list[tuple[int, bytes]] = []
        values = self._engine.get_many(self._family, [prefix + pack_position(position) for position in positions])
        for position, value in zip(positions, values, strict=True):
            if value is None:
                raise StoreDamaged(f"generation {self._family}: index names {position} in {static.hex()}, its message is missing")
            found.append((position, value))
        return found


def _bounds(static: bytes, after: int, upto: int) -> tuple[bytes, bytes]:
    prefix = static + DATA
    return prefix + pack_position(after + 1), prefix + pack_position(upto + 1)


class ByPosition(Learned, ABC):
    """A layout but for its index; to be derived from."""

    def __init__(self, engine: Engine, family: int, structure: TopicStructure) -> None:
        super().__init__(family, structure)
        self._engine = engine
        self._moves = Moves()
        self._messages = Messages(engine, family, self._moves)

    @property
    def moves(self) -> dict[str, int]:
        return asdict(self._moves)

    def read(self, stream: Stream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        assert count_max > 0 and bytes_max > 0 and examine_max > 0, (count_max, bytes_max, examine_max)
        if after >= upto:
            return Read([], [], after, True)
        if not stream.constraints:
            read = self.whole(stream.static, after, upto, Limits(count_max, bytes_max, examine_max))
        else:
            read = self.matching(stream, after, upto, Limits(count_max, bytes_max, examine_max))
        self._moves.end_of_stream += read.done
        return read

    def bulk(self, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        assert rows_max > 0 and bytes_max > 0, (rows_max, bytes_max)
        if after >= upto or stream.constraints:
            return columns_of(self.read(stream, after, upto, rows_max, bytes_max, NO_LIMIT))
        return self.whole_columns(stream.static, after, upto, rows_max, bytes_max)

    def whole(self, static: bytes, after: int, upto: int, limits: Limits) -> Read:
        """A read without constraints. after < upto."""
        return self._messages.scan(static, after, upto, min(limits.count_max, limits.examine_max), limits.bytes_max)

    def whole_columns(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """The same in columns."""
        return self._messages.bulk(static, after, upto, rows_max, bytes_max)

    @abstractmethod
    def matching(self, stream: Stream, after: int, upto: int, limits: Limits) -> Read:
        """A read with constraints, by the index. after < upto."""
