"""Reads of a whole stream: single values and batches, in position order.

A batch of which a reader took only a part is kept for its next read, checked as it is: values never change, so it is never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from struct import Struct
from typing import Final, Protocol

from shards.bulk import Positions
from shards.engine import Engine
from shards.layouts.batched.batch import Batch
from shards.layouts.joining import Moves
from shards.layouts.port import Read

BATCHES_HELD_MAX: Final = 32
"""Batches of which a reader has not had all: 2 MiB at most."""
GOES_ON_FROM: Final = 256
"""Who asks for so many messages of a stream that has batches most often goes on with what comes behind them."""

_VALUES_FIRST = 8
STREAM_END: Final = b"\xff" * 9

UNKNOWN: Final = 1 << 64

pack_position = Struct(">Q").pack


class Form(Protocol):
    """How a layout keeps the messages of a stream without varying levels: its keys, and what it checks. Raises StoreDamaged for what it
    does not know."""

    def prefix(self, static: bytes) -> bytes:
        """What all keys of a stream begin with; the position follows."""

    def batches(self, keys: Sequence[bytes]) -> list[int]:
        """Which of these keys are of batches, by index."""

    def opened(self, key: bytes, value: bytes) -> Batch:
        """The batch under a key that is of one."""

    def positions(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
        """Of single messages."""

    def position_column(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> Positions:
        """The same, for many."""


class LiteralStream:
    """What readers have to know of a stream without varying levels.

    batched: where the newest batch put ends.  before: of the batches that were there when the generation was opened none reaches
    beyond this position.  density: messages per value when last read, 0 at first.
    """

    __slots__ = ("batched", "before", "density")

    def __init__(self, before: int) -> None:
        self.batched = 0
        self.before = before
        self.density = 0.0

    def may_reach_over(self, upto: int) -> bool:
        """Whether a batch may have messages on both sides of this position."""
        return self.batched > upto or self.before > upto


class Scanner:
    """All reads of one generation that ask for whole streams without varying levels."""

    def __init__(self, engine: Engine, family: int, form: Form, moves: Moves) -> None:
        self._engine = engine
        self._family = family
        self._form = form
        self._moves = moves
        self._partly_read: OrderedDict[bytes, Batch] = OrderedDict()

    def read(self, static: bytes, stream: LiteralStream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        """As layouts.port.Layout.read. after < upto."""
        taken = _Taken(after, upto, count_max, bytes_max)
        batch = self._partly_read.get(static)
        if batch is not None and batch.first <= after + 1 <= batch.last:
            self._take(static, batch, taken)
            if batch.last >= upto and not taken.full:
                return Read(taken.positions, taken.values, upto, True)
        examined = 0
        prefix = self._form.prefix(static)
        end = prefix + pack_position(upto + 1)
        while not taken.full and taken.place < upto:
            wanted = count_max - len(taken.values)
            likely = round(wanted / stream.density) if stream.density else _VALUES_FIRST
            limit = max(1, min(wanted, likely, examine_max - examined))
            left = taken.bytes_left
            goes_on = stream.density > 1 and count_max >= GOES_ON_FROM
            start = prefix + pack_position(taken.place + 1)
            keys, values, size = self._engine.keys_and_values(self._family, start, end, limit, left, goes_on)
            self._moves.seek += 1
            self._values(static, stream, keys, values, taken)
            if taken.full:
                break
            if len(keys) < limit and size < left:
                # Everything below the bound is read; a batch may reach over it.
                if stream.may_reach_over(upto):
                    self._over(static, stream, prefix, taken)
                break
            examined += len(keys)
            if examined >= examine_max:
                taken.full = True
        self._moves.next += len(taken.values)
        place = taken.place if taken.full else upto
        return Read(taken.positions, taken.values, place, place == upto)

    def _values(self, static: bytes, stream: LiteralStream, keys: list[bytes], values: list[bytes], taken: _Taken) -> None:
        """Take what fits, and see how many messages a value has."""
        form = self._form
        of_batches = form.batches(keys)
        if not of_batches:
            if keys:
                taken.singles(form.positions(static, keys, values), values)
                stream.density = 1.0
            return
        count = at = 0
        for index in [*of_batches, len(keys)]:
            if at < index and not taken.full:
                taken.singles(form.positions(static, keys[at:index], values[at:index]), values[at:index])
                count += index - at
            if taken.full or index == len(keys):
                at = index
                break
            batch = form.opened(keys[index], values[index])
            self._take(static, batch, taken)
            count += batch.messages_count
            at = index + 1
            if taken.full:
                break
        stream.density = count / at if at else 1.0

    def _over(self, static: bytes, stream: LiteralStream, prefix: bytes, taken: _Taken) -> None:
        """Take what the value behind the bound has below it."""
        found = self._engine.scan(self._family, prefix + pack_position(taken.upto + 1), prefix + STREAM_END, 1)
        self._moves.seek += 1
        if not found:
            stream.before = min(stream.before, taken.upto)
            return
        key, value = found[0]
        if self._form.batches([key]):
            batch = self._form.opened(key, value)
            if batch.first <= taken.upto:
                self._take(static, batch, taken)

    def _take(self, static: bytes, batch: Batch, taken: _Taken) -> None:
        taken.batch(batch)
        partly_read = self._partly_read
        if taken.place >= batch.last:
            partly_read.pop(static, None)
            return
        partly_read[static] = batch
        partly_read.move_to_end(static)
        if len(partly_read) > BATCHES_HELD_MAX:
            partly_read.popitem(last=False)


class _Taken:
    """What a read has so far. place: everything up to here has been taken.  full: a bound is reached."""

    __slots__ = ("bytes_left", "count_max", "full", "place", "positions", "upto", "values")

    def __init__(self, after: int, upto: int, count_max: int, bytes_max: int) -> None:
        self.positions: list[int] = []
        self.values: list[bytes] = []
        self.place = after
        self.upto = upto
        self.count_max = count_max
        self.bytes_left = bytes_max
        self.full = False

    def singles(self, positions: list[int], values: list[bytes]) -> None:
        """Messages that follow each other, as many as fit; there is at least one."""
        sizes = list(map(len, values))
        fitting = min(len(values), self.count_max - len(self.values))
        total = sum(sizes[:fitting])
        while total > self.bytes_left and (fitting > 1 or (fitting == 1 and self.values)):
            fitting -= 1
            total -= sizes[fitting]
        if fitting:
            self.positions += positions[:fitting]
            self.values += values[:fitting]
            self.place = positions[fitting - 1]
            self.bytes_left -= total
        self.full = fitting < len(values) or self.bytes_left <= 0 or len(self.values) >= self.count_max

    def batch(self, batch: Batch) -> None:
        """Its messages behind the place and up to the bound, as many as fit."""
        start, below = batch.index_after(self.place), batch.index_after(self.upto)
        end = min(below, start + self.count_max - len(self.values))
        if start >= end:
            return
        size = batch.size(start, end)
        while size > self.bytes_left and (self.values or end - start > 1):
            end -= 1
            if start == end:
                self.full = True
                return
            size = batch.size(start, end)
        positions = batch.positions(start, end)
        self.positions += positions
        self.values += batch.messages(start, end)
        self.place = positions[-1]
        self.bytes_left -= size
        self.full = self.bytes_left <= 0 or len(self.values) >= self.count_max or end < below
