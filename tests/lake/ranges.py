"""Ranges of positions, read while the broker writes, rolls, folds and drops: the same range gives the same rows, whenever it is read.

What was read is remembered as a checksum for each unit, over its rows and not over how they were cut into blocks, and read again later: at
once, after the generation was sealed, after it was folded, until it is dropped. Then the answer has to say so.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from holdfast_spark.client import Client, Unit
from holdfast_spark.protocol import Refused
from tests.gates.gate import GateFailed

FILTERS = ["#"]
LOST = "LOST"
KEPT = 300
"""Units that are remembered; the oldest are read for the last time and forgotten."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a unit gave. ``streams``: for each, the rows as they came: positions, lengths and values."""

    streams: dict[int, tuple[bytes, bytes, bytes]]

    @property
    def count(self) -> int:
        return sum(len(positions) // 8 for positions, _, _ in self.streams.values())

    def digest(self) -> bytes:
        found = hashlib.blake2b(digest_size=16)
        # In the order in which the streams came: that is promised as well.
        for stream, columns in self.streams.items():
            found.update(stream.to_bytes(8, "big"))
            for column in columns:
                found.update(len(column).to_bytes(8, "big") + column)
        return found.digest()

    def __add__(self, other: Rows) -> Rows:
        """What is behind: stream by stream."""
        empty = (b"", b"", b"")
        names = [*self.streams, *(stream for stream in other.streams if stream not in self.streams)]
        joined = {}
        for stream in names:
            one, two = self.streams.get(stream, empty), other.streams.get(stream, empty)
            joined[stream] = (one[0] + two[0], one[1] + two[1], one[2] + two[2])
        return Rows(joined)

    def same(self, other: Rows) -> bool:
        return self.streams == other.streams


def read_unit(client: Client, store: str, unit: Unit) -> Rows:
    """Nothing of an empty range. Raises what the client raises; GateFailed for positions that do not grow or are outside the range."""
    streams: dict[int, tuple[bytearray, bytearray, bytearray]] = {}
    if unit.start == unit.stop:
        return Rows({})
    last = -1
    for block in client.scan(store, unit, FILTERS):
        at = value_at = 0
        lengths = memoryview(block.lengths).cast("B")
        for stream, count in block.runs:
            if stream != last and stream in streams:
                raise GateFailed(f"{unit}: stream {stream:x} comes twice, with others between")
            last = stream
            positions, sizes, values = streams.setdefault(stream, (bytearray(), bytearray(), bytearray()))
            here = bytes(lengths[4 * at : 4 * (at + count)])
            value_bytes = sum(int.from_bytes(here[n : n + 4], "little") for n in range(0, len(here), 4))
            positions += block.positions[8 * at : 8 * (at + count)]
            sizes += here
            values += block.values[value_at : value_at + value_bytes]
            at, value_at = at + count, value_at + value_bytes
    for stream, columns in streams.items():
        found = [int.from_bytes(columns[0][n : n + 8], "little") for n in range(0, len(columns[0]), 8)]
        if found != sorted(set(found)) or (found and not unit.start <= found[0] <= found[-1] < unit.stop):
            raise GateFailed(f"{unit}: positions of stream {stream:x} are {found[:3]} ... {found[-3:]}")
    return Rows({stream: (bytes(one), bytes(two), bytes(three)) for stream, (one, two, three) in streams.items()})


@dataclass(frozen=True, slots=True)
class Planned:
    unit: Unit
    sealed: bool


@dataclass(slots=True)
class Remembered:
    unit: Unit
    digest: bytes
    rows: int
    read_s: float
    was_sealed: bool


@dataclass(slots=True)
class Ranges:
    """Reads on and on. ``happened`` counts what was compared, and under which circumstances."""

    client: Client
    store: str
    chance: random.Random
    remembered: list[Remembered] = field(default_factory=list)
    happened: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    oldest_s: float = 0.0

    def turn(self) -> None:
        """One new range, read in one piece and in two; and some of those that were read before."""
        cuts = self.client.cuts()
        shard = self.chance.choice(sorted(cuts["shards"]))
        told = cuts["shards"][shard]
        # Where something lies: most of the positions before the oldest generation are gone.
        low, high = int(told["earliest"]), int(told["cut"])
        if high - low >= 3:
            self._new_range(int(shard), low, high)
        for _ in range(3):
            if self.remembered:
                self._again(self.chance.choice(self.remembered))
        while len(self.remembered) > KEPT:
            self._again(self.remembered[0])
            if len(self.remembered) > KEPT:
                del self.remembered[0]

    def _new_range(self, shard: int, low: int, high: int) -> None:
        # Half of them near the head, where things move.
        if self.chance.random() < 0.5:
            low = max(low, high - self.chance.choice([50, 1000, 10_000]))
        start, middle, stop = sorted(self.chance.sample(range(low, high + 1), 3))
        # Planned three times as well: who plans too little in one piece or in two is found, not only who reads too little.
        whole, first, second = self._planned(shard, start, stop), self._planned(shard, start, middle), self._planned(shard, middle, stop)
        for generation in sorted({*whole, *first, *second}):
            units = [each.get(generation, []) for each in (whole, first, second)]
            self._compare(Unit(shard, generation, start, stop), middle, *units)

    def _planned(self, shard: int, start: int, stop: int) -> dict[int, list[Planned]]:
        """By generation."""
        found: dict[int, list[Planned]] = {}
        for each in self.client.plan({shard: start}, {shard: stop}, FILTERS, None, [shard], 1_000_000)["units"]:
            unit = Unit(int(each["shard"]), int(each["generation"]), int(each["from"]), int(each["to"]))
            if not start <= unit.start < unit.stop <= stop:
                raise GateFailed(f"asked for {start} to {stop} of shard {shard}, planned {unit}")
            found.setdefault(unit.generation, []).append(Planned(unit, bool(each["sealed"])))
        return found

    def _compare(self, asked: Unit, middle: int, one: list[Planned], left: list[Planned], right: list[Planned]) -> None:
        try:
            parts = [read_unit(self.client, self.store, each.unit) for each in one]
            again = [read_unit(self.client, self.store, each.unit) for each in one]
            first, second = (sum((read_unit(self.client, self.store, each.unit) for each in half), Rows({})) for half in (left, right))
        except Refused as refused:
            if refused.code != LOST:
                raise
            self._must_be_gone(asked)
            self.happened["dropped while it was read"] += 1
            return
        whole = sum(parts, Rows({}))
        if [each.digest() for each in parts] != [each.digest() for each in again]:
            raise GateFailed(f"{asked}: {whole.count} rows, and other {sum(each.count for each in again)} when it was read again at once")
        if not (first + second).same(whole):
            if not (one and (left or right)):
                # One plan knows the generation, and the next does not.
                self._must_be_gone(asked)
                self.happened["dropped while it was planned"] += 1
                return
            raise GateFailed(f"{asked}: {whole.count} rows in one piece, {first.count} and {second.count} in two that meet at {middle}")
        self.rows += whole.count
        now = time.monotonic()
        for each, rows in zip(one, parts, strict=True):
            self.happened["in two pieces, sealed" if each.sealed else "in two pieces, being written"] += 1
            self.remembered.append(Remembered(each.unit, rows.digest(), rows.count, now, each.sealed))

    def _again(self, before: Remembered) -> None:
        age_s = time.monotonic() - before.read_s
        try:
            found = read_unit(self.client, self.store, before.unit)
        except Refused as refused:
            if refused.code != LOST:
                raise
            self._must_be_gone(before.unit)
            self.happened["again, and it was dropped"] += 1
            self.remembered.remove(before)
            return
        if found.digest() != before.digest:
            raise GateFailed(f"{before.unit}: {before.rows} rows, and other {found.count} after {age_s:.1f} s")
        self.oldest_s = max(self.oldest_s, age_s)
        self.happened["again, sealed before" if before.was_sealed else "again, was being written"] += 1

    def _must_be_gone(self, unit: Unit) -> None:
        """Who says LOST, or plans no more for it, must not list the generation any more."""
        shard = self.client.cuts()["shards"][str(unit.shard)]
        if unit.generation in [int(each["id"]) for each in shard["generations"]]:
            raise GateFailed(f"{unit} is LOST or in one plan only, and its generation is listed")
