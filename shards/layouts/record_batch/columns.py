"""Reads of a whole stream in columns: what scanning reads message by message, for many messages at once.

Checksums are checked as they are there, and the same damage raises the same way. Nothing is kept from one read to the next but what the
layout knows of the stream, so a batch of which a read had only a part is opened again by the next.
"""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

import numpy as np
import numpy.typing as npt

from shards.bulk import Columns, Positions, gathered, in_columns, positions_in, scanned_columns
from shards.engine import Engine
from shards.layouts.record_batch.scanning import LiteralStream
from shards.layouts.record_batch.values import (
    BATCH,
    BATCH_MESSAGES_MAX,
    KEY_BYTES,
    KIND_AT,
    POSITION_AT,
    PRIME,
    SINGLE,
    SINGLE_HEADER_BYTES,
    batch_header_bytes,
    damaged,
    open_batch,
    pack_position,
    unknown,
)

_VARYING_KEY_BYTES = 16
_STREAM_END = b"\xff" * 9
_HEADER = np.dtype([("kind", "u1"), ("crc", "<u4")])
_TAIL = np.dtype([("static", "S8"), ("position", ">u8"), ("kind", "u1"), ("crc", ">u4")])
assert _HEADER.itemsize == SINGLE_HEADER_BYTES and _TAIL.itemsize == KEY_BYTES

_Checksums = npt.NDArray[np.uint32]


class ColumnScanner:
    """All bulk reads of one generation."""

    def __init__(self, engine: Engine, family: int) -> None:
        self._engine = engine
        self._family = family

    def singles(self, static: bytes, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """A stream that has no batches."""
        low, high = static + pack_position(after + 1), static + pack_position(upto + 1)
        keys, stored = gathered(self._engine.columns(self._family, low, high, rows_max, bytes_max))
        positions = positions_in(keys, _VARYING_KEY_BYTES, POSITION_AT)
        headers = b"".join([value[:SINGLE_HEADER_BYTES] for value in stored])
        if len(headers) != SINGLE_HEADER_BYTES * len(stored):
            raise damaged(*next((key, value) for key, value in zip(keys, stored, strict=True) if len(value) < SINGLE_HEADER_BYTES))
        head = np.frombuffer(headers, _HEADER)
        other = np.flatnonzero(head["kind"] != SINGLE)
        if len(other):
            raise unknown(keys[other[0]], stored[other[0]][:1])
        values = [value[SINGLE_HEADER_BYTES:] for value in stored]
        _check(static, positions, values, head["crc"], keys)
        return scanned_columns(positions, values, upto, rows_max, bytes_max, SINGLE_HEADER_BYTES)

    def mixed(self, static: bytes, stream: LiteralStream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """A stream that may have batches."""
        filled = _Filled(after, upto, rows_max, bytes_max)
        end = static + pack_position(upto + 1)
        while not filled.full and filled.place < upto:
            likely = int((rows_max - len(filled.values)) / (stream.density or BATCH_MESSAGES_MAX)) + 1
            left = filled.bytes_left
            keys, stored = gathered(self._engine.columns(self._family, static + pack_position(filled.place + 1), end, likely, left))
            before = len(filled.values)
            self._take(static, keys, stored, filled)
            if filled.full:
                break
            if keys:
                stream.density = max(1.0, (len(filled.values) - before) / len(keys))
            if len(keys) < likely and sum(map(len, stored)) < left:
                # Everything below the bound is read; a batch may reach over it.
                if max(stream.batched, stream.before) > upto:
                    self._over(static, stream, filled)
                break
        return filled.columns()

    def _take(self, static: bytes, keys: list[bytes], stored: list[bytes], filled: _Filled) -> None:
        if any(len(key) != KEY_BYTES for key in keys):
            raise damaged(*next((key, value) for key, value in zip(keys, stored, strict=True) if len(key) != KEY_BYTES))
        tails = np.frombuffer(b"".join(keys), _TAIL)
        kinds = tails["kind"]
        positions = tails["position"].astype(np.uint64)
        others = np.flatnonzero(kinds != SINGLE).tolist()
        # Between two that are none lie single messages.
        for begin, end in pairwise([-1, *others, len(keys)]):
            if begin >= 0:
                if kinds[begin] != BATCH:
                    raise unknown(keys[begin], keys[begin][KIND_AT : KIND_AT + 1])
                filled.batch(keys[begin], stored[begin])
            if begin + 1 < end and not filled.full:
                between = slice(begin + 1, end)
                _check(static, positions[between], stored[between], tails["crc"][between], keys[between])
                filled.take(positions[between], stored[between])
            if filled.full:
                return

    def _over(self, static: bytes, stream: LiteralStream, filled: _Filled) -> None:
        """Take what the value behind the bound has below it."""
        found = self._engine.scan(self._family, static + pack_position(filled.upto + 1), static + _STREAM_END, 1)
        if not found:
            stream.before = min(stream.before, filled.upto)
        elif found[0][0][KIND_AT] == BATCH:
            filled.batch(*found[0])


def _check(static: bytes, positions: Positions, values: list[bytes], crcs: _Checksums, keys: list[bytes]) -> None:
    begun = (positions % np.uint64(PRIME) ^ np.uint64(crc32(static))).tolist()
    wrong = np.flatnonzero(np.fromiter(map(crc32, values, begun), np.uint32, len(values)) != crcs)
    if len(wrong):
        raise damaged(keys[wrong[0]], values[wrong[0]])


class _Filled:
    """What a read has so far. place: everything up to here has been taken.  full: a bound is reached."""

    __slots__ = ("_positions", "_rows_max", "bytes_left", "full", "place", "upto", "values")

    def __init__(self, after: int, upto: int, rows_max: int, bytes_max: int) -> None:
        self.values: list[bytes] = []
        self._positions: list[Positions] = []
        self._rows_max = rows_max
        self.bytes_left = bytes_max
        self.place = after
        self.upto = upto
        self.full = False

    def take(self, positions: Positions, values: list[bytes]) -> None:
        """Messages that follow each other, as many as fit; there is at least one."""
        fitting = min(len(values), self._rows_max - len(self.values))
        ends = np.cumsum(np.fromiter(map(len, values), np.int64, len(values)))
        if fitting and int(ends[fitting - 1]) > self.bytes_left:
            fitting = min(fitting, int(np.searchsorted(ends, self.bytes_left, "right")))
            if not fitting and not self.values:
                fitting = 1
        if fitting:
            self.values += values[:fitting]
            self._positions.append(positions[:fitting])
            self.place = int(positions[fitting - 1])
            self.bytes_left -= int(ends[fitting - 1])
        self.full = fitting < len(values) or self.bytes_left <= 0 or len(self.values) >= self._rows_max

    def batch(self, key: bytes, value: bytes) -> None:
        """Its messages behind the place and up to the bound, as many as fit."""
        batch = open_batch(key, value)
        start, stop = batch.index_after(self.place), batch.index_after(self.upto)
        if start >= stop:
            return
        ends = batch.ends[start:stop].tolist()
        begins = [batch.ends[start - 1] if start else batch_header_bytes(len(batch.offsets)), *ends]
        positions = np.asarray(batch.offsets[start:stop]).astype(np.uint64) + np.uint64(batch.first)
        self.take(positions, [value[begin:end] for begin, end in zip(begins, ends, strict=False)])

    def columns(self) -> Columns:
        positions = np.concatenate(self._positions) if self._positions else np.empty(0, np.uint64)
        place = self.place if self.full else self.upto
        return in_columns(positions, self.values, place, place == self.upto)
