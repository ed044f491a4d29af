"""The messages of one generation under keys in the order of their positions: what skipstream and pagestream have in common.

    static[8] | 0 u16 | position u64  -> stored message

A position is unique in a shard, so the varying levels need not be in the key. What wants them has an index beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from shards.bulk import Columns, packed_columns, position_list
from shards.engine import Engine, StoreDamaged
from shards.layouts.learned import scanned
from shards.layouts.port import Read

_DATA = b"\x00\x00"
pack_position = Struct(">Q").pack

_POSITION_AT = 10
_KEY_BYTES = 18


@dataclass(slots=True)
class Moves:
    """seek: jumps to a place, next: steps from one key to its neighbour. hit, hash_collision: messages that the index names for all wanted
    levels, and that match, or only share hashes. miss: positions that one level's index has and another's has not. end_of_stream: reads
    that found the end."""

    seek: int = 0
    next: int = 0
    hash_collision: int = 0
    hit: int = 0
    miss: int = 0
    end_of_stream: int = 0


class ByPosition:
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
            found = self._prefixes[static] = static + _DATA
        return found

    def scan(self, static: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        """All messages of a stream, whatever their varying levels are, with after < position <= upto."""
        prefix = static + _DATA
        low, high = prefix + pack_position(after + 1), prefix + pack_position(upto + 1)
        keys, values = self._engine.keys_and_values(self._family, low, high, limit, bytes_max)
        self._moves.seek += 1
        self._moves.next += len(keys)
        return scanned(position_list(keys, _KEY_BYTES, _POSITION_AT), values, upto, limit, bytes_max)

    def bulk(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """The same in columns."""
        prefix = static + _DATA
        low, high = prefix + pack_position(after + 1), prefix + pack_position(upto + 1)
        found = self._engine.columns(self._family, low, high, rows_max, bytes_max)
        return packed_columns(found, _KEY_BYTES, _POSITION_AT, upto, rows_max, bytes_max)

    def at(self, static: bytes, positions: list[int]) -> list[tuple[int, bytes]]:
        """The messages at these positions, which an index names. Raises StoreDamaged when one is missing."""
        prefix = static + _DATA
        found: list[tuple[int, bytes]] = []
        values = self._engine.get_many(self._family, [prefix + pack_position(position) for position in positions])
        for position, value in zip(positions, values, strict=True):
            if value is None:
                raise StoreDamaged(f"generation {self._family}: index names {position} in {static.hex()}, its message is missing")
            found.append((position, value))
        return found
