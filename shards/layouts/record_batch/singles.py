"""Reads of a whole stream with varying levels, whose messages are single values."""

from __future__ import annotations

import numpy as np

from shards.bulk import Columns, gathered, positions_in, scanned_columns
from shards.engine import Engine
from shards.layouts.learned import scanned
from shards.layouts.port import Read
from shards.layouts.record_batch.values import (
    POSITION_AT,
    SINGLE,
    SINGLE_HEADER_BYTES,
    check,
    damaged,
    messages_of,
    pack_position,
    unknown,
)

_KEY_BYTES = 16
_HEADER = np.dtype([("kind", "u1"), ("crc", "<u4")])
assert _HEADER.itemsize == SINGLE_HEADER_BYTES


class Singles:
    """Those of one generation."""

    def __init__(self, engine: Engine, family: int) -> None:
        self._engine = engine
        self._family = family

    def read(self, static: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        """All messages with after < position <= upto, whatever their varying levels are."""
        found = self._engine.scan(self._family, *_bounds(static, after, upto), limit, bytes_max)
        messages = messages_of(static, found)
        positions, values = [position for position, _ in messages], [value for _, value in messages]
        total = sum(map(len, values)) + SINGLE_HEADER_BYTES * len(values)
        return scanned(positions, values, total, upto, limit, bytes_max)

    def bulk(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """The same in columns."""
        keys, stored = gathered(self._engine.columns(self._family, *_bounds(static, after, upto), rows_max, bytes_max))
        positions = positions_in(keys, _KEY_BYTES, POSITION_AT)
        headers = b"".join([value[:SINGLE_HEADER_BYTES] for value in stored])
        if len(headers) != SINGLE_HEADER_BYTES * len(stored):
            raise damaged(*next((key, value) for key, value in zip(keys, stored, strict=True) if len(value) < SINGLE_HEADER_BYTES))
        head = np.frombuffer(headers, _HEADER)
        other = np.flatnonzero(head["kind"] != SINGLE)
        if len(other):
            raise unknown(keys[other[0]], stored[other[0]][:1])
        values = [value[SINGLE_HEADER_BYTES:] for value in stored]
        check(static, positions, values, head["crc"], keys)
        return scanned_columns(positions, values, upto, rows_max, bytes_max, SINGLE_HEADER_BYTES)


def _bounds(static: bytes, after: int, upto: int) -> tuple[bytes, bytes]:
    return static + pack_position(after + 1), static + pack_position(upto + 1)
