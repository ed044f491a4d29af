"""How much each generation holds: rows that are written with the messages they count, and marks of it along the way.

    0[7] 04                    -> rows u64, bytes u64     messages of the generation, and bytes of their values
    0[7] 05 | position u64     -> rows u64, bytes u64     those below this position, whenever the rows pass a multiple of 1,024

In the family of the generation, behind the time marks and before every static key, so no layout reads them. Every record that stores
messages has the row of each generation it writes to, so a crash leaves no message that is not counted, and no count without its message.

A generation begins with a row of zeros. One without a row was begun by a program that did not count: when it holds messages nobody knows
how many, and no row is begun for it.

Holds after every call: what is known of a generation is its row as of everything submitted. A record that is refused is submitted again,
with its rows; whoever throws one away says so (Store.take_back).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from shards.engine import Engine, Op, StoreDamaged

MARK_ROWS = 1024
_ROW = bytes(7) + b"\x04"
_MARK = bytes(7) + b"\x05"
_MESSAGES = bytes(6) + b"\x01"
"""Behind all rows of generations and layouts, before every message."""
_ALL = b"\xff" * 64
_CHUNK = 4096
_pair = Struct(">QQ")


class Counts(NamedTuple):
    """bytes: of the values of the messages, as they are stored (shards.messages)."""

    rows: int
    bytes: int


class Mark(NamedTuple):
    """Below this position the generation holds so many messages."""

    position: int
    rows: int
    bytes: int


def begun(generation: int) -> Op:
    """For the record that begins a generation."""
    return generation, _ROW, _pair.pack(0, 0)


def counts_in(engine: Engine, generation: int) -> Counts | None:
    """What the row says that is written; None: nobody has counted."""
    value = engine.get(generation, _ROW)
    return None if value is None else Counts(*_pair.unpack(value))


def marks_in(engine: Engine, generation: int, after: int, upto: int) -> Iterator[Mark]:
    """Those at after < position <= upto."""
    start, end = _MARK + max(after + 1, 0).to_bytes(8, "big"), _MARK + max(upto + 1, 0).to_bytes(8, "big")
    while rows := engine.scan(generation, start, end, _CHUNK):
        for key, value in rows:
            yield Mark(int.from_bytes(key[8:], "big"), *_pair.unpack(value))
        start = rows[-1][0] + b"\x00"


class _Tally:
    """Of one generation that is written to. values: those that were put and are not in a row yet."""

    __slots__ = ("bytes", "known", "rows", "values", "void")

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self.known = True
        self.void = False
        """There may be a row that cannot be read any more: it is to go."""
        self.values: list[bytes] = []


class Counting:
    """Of the generations that are written to."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._tallies: dict[int, _Tally] = {}
        self.stored = 0
        """Messages since the start."""
        self.stored_bytes = 0
        self.payload_bytes = 0
        """Of those messages, without topics and properties; added by who stores them."""

    def follow(self, generations: Iterable[int]) -> dict[int, list[bytes]]:
        """These are written to from now on. For each: where the value of every message is to be put."""
        tallies = self._tallies
        self._tallies = {generation: tallies.get(generation) or self._load(generation) for generation in generations}
        return {generation: tally.values for generation, tally in self._tallies.items()}

    def bytes_in(self, generation: int) -> int | None:
        """As of everything submitted."""
        tally = self._tallies[generation]
        return tally.bytes if tally.known else None

    def flush(self, ops: list[Op], last: int) -> list[tuple[int, int]]:
        """Add the rows of what was put since the last call; (generation, bytes) of that. last: the highest position at which it was."""
        put: list[tuple[int, int]] = []
        for generation, tally in self._tallies.items():
            values = tally.values
            if not values:
                continue
            rows, size = len(values), sum(map(len, values))
            values.clear()
            put.append((generation, size))
            self.stored += rows
            self.stored_bytes += size
            if tally.known:
                passed = tally.rows // MARK_ROWS
                tally.rows += rows
                tally.bytes += size
                row = _pair.pack(tally.rows, tally.bytes)
                ops.append((generation, _ROW, row))
                if tally.rows // MARK_ROWS != passed:
                    ops.append((generation, _MARK + (last + 1).to_bytes(8, "big"), row))
            elif tally.void:
                tally.void = False
                ops.append((generation, _ROW, None))
        return put

    def recount(self) -> None:
        """A record was refused and does not come again: what is there is what the engine has."""
        for generation, tally in self._tallies.items():
            if tally.known:
                tally.rows, tally.bytes = counts_in(self._engine, generation) or (0, 0)

    def _load(self, generation: int) -> _Tally:
        tally = _Tally()
        try:
            found = counts_in(self._engine, generation)
            if found is not None:
                tally.rows, tally.bytes = found
            elif self._engine.scan(generation, _MESSAGES, _ALL, 1):
                tally.known = False
        except StoreDamaged:
            # A shard opens whatever was damaged. What is not known to be right is not told.
            tally.known, tally.void = False, True
        return tally
