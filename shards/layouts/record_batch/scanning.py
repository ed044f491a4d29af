"""Reads of a whole stream: single values and batches, in position order.

A batch of which a reader took only a part is kept for its next read, checked as it is: values never change, so it is never wrong.
"""

from __future__ import annotations

from collections import OrderedDict
from zlib import crc32

from shards.engine import Engine
from shards.layouts.learned import scanned
from shards.layouts.port import Read, read_of
from shards.layouts.record_batch.values import (
    BATCH,
    KEY_BYTES,
    KIND_AT,
    POSITION_AT,
    PRIME,
    SINGLE,
    SINGLE_HEADER_BYTES,
    Batch,
    damaged,
    messages_of,
    open_batch,
    pack_position,
    unknown,
    unpack_tail,
)

BATCHES_HELD_MAX = 32
"""Batches of which a reader has not had all: 2 MiB at most."""

_VALUES_FIRST = 8
_STREAM_END = b"\xff" * 9

UNKNOWN = 1 << 64


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


class Scanner:
    """All reads of one generation that ask for whole streams."""

    def __init__(self, engine: Engine, family: int) -> None:
        self._engine = engine
        self._family = family
        self._partly_read: OrderedDict[bytes, Batch] = OrderedDict()

    def singles(self, static: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        """A stream that has no batches."""
        found = self._engine.scan(self._family, static + pack_position(after + 1), static + pack_position(upto + 1), limit, bytes_max)
        messages = messages_of(static, found)
        positions, values = [position for position, _ in messages], [value for _, value in messages]
        total = sum(map(len, values)) + SINGLE_HEADER_BYTES * len(values)
        return scanned(positions, values, total, upto, limit, bytes_max)

    def mixed(self, static: bytes, stream: LiteralStream, after: int, upto: int, count_max: int, bytes_max: int, examine_max: int) -> Read:
        """A stream that may have batches."""
        taken = _Taken(after, upto, count_max, bytes_max)
        batch = self._partly_read.get(static)
        if batch is not None and batch.first <= after + 1 <= batch.last:
            self._take(static, batch, taken)
            if batch.last >= upto and not taken.full:
                return read_of(taken.messages, upto, True)
        examined = 0
        end = static + pack_position(upto + 1)
        while not taken.full and taken.place < upto:
            wanted = count_max - len(taken.messages)
            likely = int(wanted / stream.density) + 1 if stream.density else _VALUES_FIRST
            limit = max(1, min(wanted, likely, examine_max - examined))
            left = taken.bytes_left
            found = self._engine.scan(self._family, static + pack_position(taken.place + 1), end, limit, left)
            held = self._values(static, found, taken)
            if held:
                stream.density = held
            if taken.full:
                break
            if len(found) < limit and sum([len(value) for _, value in found]) < left:
                # Everything below the bound is read; a batch may reach over it.
                if max(stream.batched, stream.before) > upto:
                    self._over(static, stream, taken)
                break
            examined += len(found)
            if examined >= examine_max:
                taken.full = True
        return read_of(taken.messages, taken.place, taken.place == upto) if taken.full else read_of(taken.messages, upto, True)

    def _values(self, static: bytes, found: list[tuple[bytes, bytes]], taken: _Taken) -> float:
        """Take what fits; returns how many messages a value had, on average of those looked at."""
        seen = count = 0
        begun = crc32(static)
        singles: list[tuple[int, bytes]] = []
        for key, value in found:
            if len(key) != KEY_BYTES:
                raise damaged(key, value)
            position, kind, crc = unpack_tail(key, POSITION_AT)
            seen += 1
            if kind == SINGLE:
                if crc32(value, begun ^ position % PRIME) != crc:
                    raise damaged(key, value)
                count += 1
                singles.append((position, value))
                continue
            if kind == BATCH:
                taken.singles(singles)
                singles = []
                if taken.full:
                    break
                batch = open_batch(key, value)
                count += len(batch.offsets)
                self._take(static, batch, taken)
            else:
                raise unknown(key, key[KIND_AT : KIND_AT + 1])
            if taken.full:
                break
        taken.singles(singles)
        return count / seen if seen else 0.0

    def _over(self, static: bytes, stream: LiteralStream, taken: _Taken) -> None:
        """Take what the value behind the bound has below it."""
        found = self._engine.scan(self._family, static + pack_position(taken.upto + 1), static + _STREAM_END, 1)
        if not found:
            stream.before = min(stream.before, taken.upto)
            return
        key, value = found[0]
        if key[KIND_AT] == BATCH:
            batch = open_batch(key, value)
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

    __slots__ = ("bytes_left", "count_max", "full", "messages", "place", "upto")

    def __init__(self, after: int, upto: int, count_max: int, bytes_max: int) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self.place = after
        self.upto = upto
        self.count_max = count_max
        self.bytes_left = bytes_max
        self.full = False

    def singles(self, found: list[tuple[int, bytes]]) -> None:
        """Messages that follow each other, as many as fit."""
        if self.full or not found:
            return
        sizes = [len(message) for _, message in found]
        fitting = min(len(found), self.count_max - len(self.messages))
        total = sum(sizes[:fitting])
        while total > self.bytes_left and (fitting > 1 or (fitting == 1 and self.messages)):
            fitting -= 1
            total -= sizes[fitting]
        if fitting:
            self.messages += found[:fitting]
            self.place = found[fitting - 1][0]
            self.bytes_left -= total
        self.full = fitting < len(found) or self.bytes_left <= 0 or len(self.messages) >= self.count_max

    def batch(self, batch: Batch) -> None:
        """Its messages behind the place and up to the bound, as many as fit."""
        start = batch.index_after(self.place)
        end = min(batch.index_after(self.upto), start + self.count_max - len(self.messages))
        if start >= end:
            return
        size = batch.size(start, end)
        while size > self.bytes_left and (self.messages or end - start > 1):
            end -= 1
            if start == end:
                self.full = True
                return
            size = batch.size(start, end)
        found = batch.messages(start, end)
        self.messages += found
        self.place = found[-1][0]
        self.bytes_left -= size
        self.full = self.bytes_left <= 0 or len(self.messages) >= self.count_max or end < batch.index_after(self.upto)
