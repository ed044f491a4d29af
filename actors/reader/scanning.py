"""Blocks out of a view: what one SCAN sends, stream by stream, in the order of positions within each.

Knows neither sockets nor locks. A block is passed on before the next is begun, so a scan holds one of them, however much it reads.

Always holds: rows are those of `after < position <= upto` that a filter matches, each once; every bound of a block is kept, save that
a first value is never too large.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from holdfast_spark.protocol import BLOCK_BYTES_MAX, BLOCK_ROWS_MAX
from shards.bulk import Columns, columns_of, in_columns
from shards.layouts.port import Stream, read_of
from shards.lts import Leaf

SILENT_S = 5.0
"""After this a block is passed on as it is, be it empty: who waits for it learns that the scan goes on."""
_MERGED_ROWS = 1024
_NO_LIMIT = 1 << 62
_CLIENT_AT = 16


class Readable(Protocol):
    """What a scan needs of a store."""

    def streams_in(self, generation: int, topic_filter: bytes) -> list[Stream]: ...

    def leaves(self, generation: int) -> list[Leaf]: ...

    def bulk(self, generation: int, stream: Stream, after: int, upto: int, rows_max: int, bytes_max: int) -> Columns: ...


@dataclass(frozen=True, slots=True)
class Scan:
    """filters: none at all for everything, also what begins with `$`. clients: only what these have published; None: whoever did."""

    generation: int
    after: int
    upto: int
    filters: tuple[bytes, ...]
    clients: frozenset[bytes] | None = None


@dataclass(slots=True)
class Rows:
    """The content of one block."""

    runs: list[tuple[int, int]] = field(default_factory=list)
    positions: list[bytes] = field(default_factory=list)
    lengths: list[bytes] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, stream: int, columns: Columns, size: int) -> None:
        count = columns.rows
        if self.runs and self.runs[-1][0] == stream:
            self.runs[-1] = (stream, self.runs[-1][1] + count)
        else:
            self.runs.append((stream, count))
        self.positions.append(columns.positions)
        self.lengths.append(columns.lengths)
        self.pieces += columns.pieces
        self.rows += count
        self.bytes += size


def blocks(
    store: Readable,
    scan: Scan,
    bytes_max: int = BLOCK_BYTES_MAX,
    rows_max: int = BLOCK_ROWS_MAX,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Rows]:
    """None of them is empty, but for those that only say that it goes on."""
    rows = Rows()
    passed_on = clock()
    for static, wanted in streams_of(store, scan):
        stream = int.from_bytes(static, "big")
        place, done = scan.after, False
        while not done:
            left = rows_max - rows.rows, bytes_max - rows.bytes
            if left[0] <= 0 or left[1] <= 0:
                yield rows
                rows, left, passed_on = Rows(), (rows_max, bytes_max), clock()
            columns = _read(store, scan, wanted, place, *left)
            place, done = columns.place, columns.done
            if scan.clients is not None and columns.rows:
                columns = _published_by(scan.clients, columns)
            if columns.rows:
                size = columns.value_bytes
                if rows.rows and rows.bytes + size > bytes_max:
                    yield rows
                    rows, passed_on = Rows(), clock()
                rows.add(stream, columns, size)
            if clock() - passed_on > SILENT_S:
                yield rows
                rows, passed_on = Rows(), clock()
    if rows.rows:
        yield rows


def streams_of(store: Readable, scan: Scan) -> Iterator[tuple[bytes, list[Stream]]]:
    """By static key; several where several filters want different parts of a stream, one where one of them wants all of it."""
    if not scan.filters:
        yield from ((leaf.static, [Stream(leaf.static)]) for leaf in store.leaves(scan.generation))
        return
    found: dict[bytes, dict[Stream, None]] = {}
    for topic_filter in scan.filters:
        for stream in store.streams_in(scan.generation, topic_filter):
            found.setdefault(stream.static, {})[stream] = None
    for static in sorted(found):
        wanted = list(found[static])
        whole = [stream for stream in wanted if not stream.constraints and not stream.literals]
        yield static, whole or wanted


def _read(store: Readable, scan: Scan, wanted: Sequence[Stream], place: int, rows_max: int, bytes_max: int) -> Columns:
    if len(wanted) == 1:
        return store.bulk(scan.generation, wanted[0], place, scan.upto, rows_max, bytes_max)
    parts = [store.bulk(scan.generation, stream, place, scan.upto, min(rows_max, _MERGED_ROWS), bytes_max) for stream in wanted]
    # Behind the first place that a part was broken off at, the others may have what that one has not given yet.
    upto = min((part.place for part in parts if not part.done), default=scan.upto)
    merged = heapq.merge(*(_pairs(part) for part in parts), key=lambda pair: pair[0])
    found: dict[int, bytes] = {}
    size = 0
    for position, value in merged:
        if position > upto or len(found) == rows_max or (found and size + len(value) > bytes_max):
            break
        if position not in found:
            found[position] = value
            size += len(value)
    else:
        return columns_of(read_of(list(found.items()), upto, all(part.done for part in parts)))
    place = upto if position > upto else next(reversed(found))
    return columns_of(read_of(list(found.items()), place, place == scan.upto))


def _pairs(columns: Columns) -> Iterator[tuple[int, bytes]]:
    return zip(np.frombuffer(columns.positions, "<u8").tolist(), columns.values, strict=True)


def _published_by(clients: frozenset[bytes], columns: Columns) -> Columns:
    """Stored messages name their publisher behind a header (docs/formats.md, "Stored message")."""
    values = columns.values
    keep = [value[_CLIENT_AT : _CLIENT_AT + int.from_bytes(value[12:14], "little")] in clients for value in values]
    if all(keep):
        return columns
    positions = np.frombuffer(columns.positions, "<u8")[np.array(keep)]
    return in_columns(positions, [value for value, kept in zip(values, keep, strict=True) if kept], columns.place, columns.done)
