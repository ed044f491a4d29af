"""The newest stored messages of a shard in RAM, in position order: what live subscribers read without touching the disk.

Bounded in bytes; what falls off is still in the store.  Entries are appended before their record is committed; every reader
passes the watermark and sees nothing above it.

Holds after every call (see check): positions grow strictly; every stored message with a position above `floor` is here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import compress

StreamRef = tuple[int, bytes]
"""Which stream a message is of: generation and static key."""


class Tail:
    __slots__ = ("_held", "_summed", "bytes_max", "floor", "positions", "streams", "topics", "values")

    def __init__(self, floor: int, bytes_max: int) -> None:
        self.floor = floor
        self.positions: list[int] = []
        self.values: list[bytes] = []
        self.topics: list[bytes] = []
        self.streams: list[StreamRef] = []
        self.bytes_max = bytes_max
        self._held = 0
        """Of the values up to `_summed`: summing up many at once is a third of the price."""
        self._summed = 0

    def append(self, position: int, topic: bytes, value: bytes, stream: StreamRef) -> None:
        self.positions.append(position)
        self.values.append(value)
        self.topics.append(topic)
        self.streams.append(stream)

    def extend(self, positions: Sequence[int], topics: Iterable[bytes], values: Sequence[bytes], streams: Iterable[StreamRef]) -> None:
        """Append all of these."""
        self.positions += positions
        self.values += values
        self.topics += topics
        self.streams += streams

    def trim(self, watermark: int) -> None:
        """Give back what is over the bound, oldest first, never what is not committed.  Once per tick, not per message."""
        if self.held_bytes <= self.bytes_max:
            return
        limit = bisect_right(self.positions, watermark)
        count = 0
        held = self._held
        low = self.bytes_max * 3 // 4
        values = self.values
        while count < limit and held > low:
            held -= len(values[count])
            count += 1
        if count:
            self.floor = self.positions[count - 1]
            del self.positions[:count], self.values[:count], self.topics[:count], self.streams[:count]
            self._held = held
            self._summed -= count

    def index_after(self, position: int) -> int:
        """Index of the first entry with a greater position."""
        return bisect_right(self.positions, position)

    def streams_between(self, start: int, end: int) -> tuple[list[StreamRef], list[int]]:
        """Of the entries from index `start` on and before `end`: their different streams, and in their order which of these each is of."""
        streams = self.streams[start:end]
        different = dict.fromkeys(streams)
        if len(different) == 1:
            return list(different), [0] * len(streams)
        index_of = {stream: index for index, stream in enumerate(different)}
        return list(different), [index_of[stream] for stream in streams]

    def of_topics(self, topics: AbstractSet[bytes], start: int, end: int) -> list[int]:
        """Of the entries from index `start` on and before `end`: the indexes of those that are of one of these topics."""
        return list(compress(range(start, end), map(topics.__contains__, self.topics[start:end]))) if topics else []

    @property
    def held_bytes(self) -> int:
        if self._summed < len(self.values):
            self._held += sum(map(len, self.values[self._summed :]))
            self._summed = len(self.values)
        return self._held

    def check(self) -> None:
        assert all(a < b for a, b in zip(self.positions, self.positions[1:], strict=False))
        assert not self.positions or self.positions[0] > self.floor
        assert self.held_bytes == sum(len(value) for value in self.values)
