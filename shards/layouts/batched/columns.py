"""Reads of a whole stream in columns: what scanning reads message by message, for many messages at once.

What a batch has is taken as it lies there. Checksums are checked where there are some, and the same damage raises the same way. Nothing is
kept from one read to the next but what the layout knows of the stream, so a batch of which a read had only a part is opened again by
the next.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shards.bulk import Columns, Positions, gathered
from shards.engine import Engine
from shards.layouts.batched.batch import MESSAGES_MAX, Batch
from shards.layouts.batched.scanning import STREAM_END, Form, LiteralStream, pack_position

_Lengths = npt.NDArray[np.uint32]


class ColumnScanner:
    """All bulk reads of one generation of streams without varying levels."""

    def __init__(self, engine: Engine, family: int, form: Form) -> None:
        self._engine = engine
        self._family = family
        self._form = form

    def read(self, static: bytes, stream: LiteralStream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns:
        """As layouts.port.Layout.bulk. after < upto."""
        filled = _Filled(after, upto, rows_max, bytes_max)
        prefix = self._form.prefix(static)
        end = prefix + pack_position(upto + 1)
        while not filled.full and filled.place < upto:
            likely = int((rows_max - filled.rows) / (stream.density or MESSAGES_MAX)) + 1
            left = filled.bytes_left
            keys, stored = gathered(self._engine.columns(self._family, prefix + pack_position(filled.place + 1), end, likely, left))
            before = filled.rows
            self._take(static, keys, stored, filled)
            if filled.full:
                break
            if keys:
                stream.density = max(1.0, (filled.rows - before) / len(keys))
            if len(keys) < likely and sum(map(len, stored)) < left:
                # Everything below the bound is read; a batch may reach over it.
                if stream.may_reach_over(upto):
                    self._over(stream, prefix, filled)
                break
        return filled.columns()

    def _take(self, static: bytes, keys: list[bytes], stored: list[bytes], filled: _Filled) -> None:
        form = self._form
        at = 0
        # Between two that are none lie single messages.
        for index in [*form.batches(keys), len(keys)]:
            if at < index and not filled.full:
                filled.take(form.position_column(static, keys[at:index], stored[at:index]), stored[at:index])
            if filled.full or index == len(keys):
                return
            filled.batch(form.opened(keys[index], stored[index]))
            at = index + 1

    def _over(self, stream: LiteralStream, prefix: bytes, filled: _Filled) -> None:
        """Take what the value behind the bound has below it."""
        found = self._engine.scan(self._family, prefix + pack_position(filled.upto + 1), prefix + STREAM_END, 1)
        if not found:
            stream.before = min(stream.before, filled.upto)
        elif self._form.batches([found[0][0]]):
            filled.batch(self._form.opened(*found[0]))


class _Filled:
    """What a read has so far. place: everything up to here has been taken.  full: a bound is reached."""

    __slots__ = ("_lengths", "_pieces", "_positions", "_rows_max", "bytes_left", "full", "place", "rows", "upto")

    def __init__(self, after: int, upto: int, rows_max: int, bytes_max: int) -> None:
        self._pieces: list[bytes] = []
        self._lengths: list[_Lengths] = []
        self._positions: list[Positions] = []
        self._rows_max = rows_max
        self.rows = 0
        self.bytes_left = bytes_max
        self.place = after
        self.upto = upto
        self.full = False

    def take(self, positions: Positions, values: list[bytes]) -> None:
        """Messages that follow each other, as many as fit; there is at least one."""
        lengths = np.fromiter(map(len, values), np.uint32, len(values))
        fitting = self._fitting(lengths)
        self._add(positions[:fitting], lengths[:fitting], b"".join(values[:fitting]))
        self.full = self.full or fitting < len(values)

    def batch(self, batch: Batch) -> None:
        """Its messages behind the place and up to the bound, as many as fit."""
        start, stop = batch.index_after(self.place), batch.index_after(self.upto)
        if start >= stop:
            return
        begin = batch.begin(start)
        lengths = np.diff(np.asarray(batch.ends[start:stop]), prepend=np.uint32(begin))
        fitting = self._fitting(lengths)
        positions = np.asarray(batch.offsets[start : start + fitting]).astype(np.uint64) + np.uint64(batch.first)
        self._add(positions, lengths[:fitting], batch.value[begin : batch.begin(start + fitting)])
        self.full = self.full or fitting < stop - start

    def _fitting(self, lengths: _Lengths) -> int:
        """How many of these; a first message is never too large."""
        fitting = min(len(lengths), self._rows_max - self.rows)
        ends = np.cumsum(lengths, dtype=np.int64)
        if fitting and int(ends[fitting - 1]) > self.bytes_left:
            fitting = min(fitting, int(np.searchsorted(ends, self.bytes_left, "right")))
        return fitting if fitting or self.rows else 1

    def _add(self, positions: Positions, lengths: _Lengths, piece: bytes) -> None:
        if len(positions):
            self._positions.append(positions)
            self._lengths.append(lengths)
            self._pieces.append(piece)
            self.rows += len(positions)
            self.place = int(positions[-1])
            self.bytes_left -= len(piece)
        self.full = self.bytes_left <= 0 or self.rows >= self._rows_max

    def columns(self) -> Columns:
        positions = np.concatenate(self._positions) if self._positions else np.empty(0, np.uint64)
        lengths = np.concatenate(self._lengths) if self._lengths else np.empty(0, np.uint32)
        place = self.place if self.full else self.upto
        return Columns(positions.tobytes(), lengths.tobytes(), self._pieces, place, place == self.upto)
