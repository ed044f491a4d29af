"""What an executor does for the archive: reads units of the store, writes their rows as Parquet files by hour, reads the files back.

The scan is handed in, and so is the directory; which units there are, and what becomes of the files, the driver decides
(pipeline/archive.py). Nothing but small reports leaves: one for each file and one for each unit.

Holds always:

1. a file holds rows of one UTC hour of `ts`, unit after unit, each in the order of its scan: a *piece*, the rows of a unit in a file, is
   a run of rows;
2. a file that is reported is fsynced, was read back from the disk, and its report says what was read then;
3. no more than `open_files` files are open, and no more than `buffered_bytes` of rows wait to be written;
4. whatever goes wrong, nothing lies outside of the directory that was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal.isal_zlib import crc32

from holdfast_spark.client import Unit
from holdfast_spark.digest import MODULUS, row_hashes, sums, total

HOUR_US: Final = 3_600_000_000

_FEW_VALUES: Final = ["topic", "client_id", "stream", "generation", "shard", "content_type", "response_topic", "qos", "payload_format"]
"""Columns that are written with a dictionary. Payloads, offsets and times hardly repeat: looking for it costs more than it saves."""
_ENCODINGS: Final = {"offset": "DELTA_BINARY_PACKED", "ts": "DELTA_BINARY_PACKED", "message_id": "DELTA_BYTE_ARRAY"}
_BOUNDED: Final = ["topic", "client_id", "ts", "shard", "generation", "stream", "offset"]
"""Columns of which a row group says the least and the greatest value: what queries ask for."""


class Unlike(Exception):
    """What was read back is not what was written, or the scan gave something else than it said. The sentence is for people."""


def told(unit: Unit) -> str:
    """For a sentence."""
    return f"shard {unit.shard}, generation {unit.generation}, positions {unit.start} to {unit.stop - 1}"


@dataclass(slots=True)
class Piece:
    """Rows of one unit in one file."""

    unit: Unit
    rows: int
    first: int
    last: int
    digest: int
    ts_sum: int
    """Of the times in microseconds, modulo 2^64: times are not in the digest."""

    def row(self) -> list[int | str]:
        """For JSON; 64-bit numbers as text, since not every reader of JSON keeps them."""
        unit = self.unit
        sums = (f"{self.digest:016x}", f"{self.ts_sum:016x}")
        return [unit.shard, unit.generation, unit.start, unit.stop, self.rows, self.first, self.last, *sums]

    @classmethod
    def of(cls, row: list[Any]) -> Piece:
        shard, generation, start, stop, rows, first, last, digest, ts_sum = row
        return cls(Unit(shard, generation, start, stop), rows, first, last, int(digest, 16), int(ts_sum, 16))


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that is on the disk. ``hour``: hours since 1970; ``crc``: CRC-32 of all its bytes."""

    path: str
    hour: int
    rows: int
    bytes: int
    crc: int
    raw_bytes: int
    ts_first: int
    ts_last: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class ReadUnit:
    """What the scan of a unit gave."""

    unit: Unit
    rows: int
    digest: int
    ts_sum: int


@dataclass(frozen=True, slots=True)
class Limits:
    open_files: int = 32
    buffered_bytes: int = 192 << 20
    row_group_bytes: int = 64 << 20
    row_group_rows: int = 1 << 20
    file_raw_bytes: int = 768 << 20
    """A file of about 128 MB, where messages are what they mostly are."""


USUAL: Final = Limits()

Scan = Callable[[Unit], Iterable[pa.RecordBatch]]
"""The rows of a unit; raises unless all of them came."""


def write_units(
    units: Iterable[Unit], scan: Scan, directory: Path, schema: pa.Schema, limits: Limits = USUAL
) -> Iterator[WrittenFile | ReadUnit]:
    """Read the units one after the other and write what they hold. Reports come when files are done; with the last one, everything is."""
    hours = _Hours(directory, schema, limits)
    try:
        for unit in units:
            rows = digest = ts_sum = 0
            for batch in scan(unit):
                if batch.num_rows:
                    rows += batch.num_rows
                    part_digest, part_ts = hours.add(unit, batch)
                    digest, ts_sum = (digest + part_digest) % MODULUS, (ts_sum + part_ts) % MODULUS
            yield ReadUnit(unit, rows, digest, ts_sum)
            yield from hours.take_closed()
        hours.close()
        yield from hours.take_closed()
    finally:
        hours.abandon()


def read_back(path: Path, pieces: Iterable[Piece]) -> tuple[int, int, list[Piece]]:
    """Length and CRC-32 of a file, and its pieces: their rows as given, all else as found. Raises Unlike where they do not fit."""
    pieces = list(pieces)
    data = path.read_bytes()
    crc = crc32(data)
    try:
        hashes, times, offsets, shards, generations = _columns_of(data)
    except Exception as error:  # of a library whose errors for a damaged footer are of many kinds
        raise Unlike(f"the file {path} cannot be read as Parquet: {(str(error) or type(error).__name__).splitlines()[0]}") from None
    if len(hashes) != sum(piece.rows for piece in pieces):
        raise Unlike(f"the file {path} has {len(hashes)} rows; {sum(piece.rows for piece in pieces)} were written")
    found: list[Piece] = []
    first = 0
    for piece in pieces:
        beyond = first + piece.rows
        unit, inside = piece.unit, offsets[first:beyond]
        lowest, highest = int(inside.min()), int(inside.max())
        if not (unit.start <= lowest and highest < unit.stop and (shards[first:beyond] == unit.shard).all()):
            raise Unlike(f"the file {path} has rows from {lowest} to {highest} where {told(unit)} was written")
        if not (generations[first:beyond] == unit.generation).all():
            raise Unlike(f"the file {path} has rows of another generation where {told(unit)} was written")
        ts_sum = int(np.add.reduce(times[first:beyond].view(np.uint64)))
        found.append(Piece(unit, piece.rows, lowest, highest, total(hashes[first:beyond]), ts_sum))
        first = beyond
    return len(data), crc, found


def _columns_of(data: bytes) -> tuple[Any, Any, Any, Any, Any]:
    hashes, times, offsets, shards, generations = [], [], [], [], []
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        # The identity is made of columns that are read anyway, and its bytes are under the checksums of the page and of the file.
        columns = [name for name in file.schema_arrow.names if name != "message_id"]
        for batch in file.iter_batches(batch_size=8192, use_threads=False, columns=columns):
            hashes.append(row_hashes(batch))
            times.append(_times(batch))
            offsets.append(batch.column("offset").to_numpy())
            shards.append(batch.column("shard").to_numpy())
            generations.append(batch.column("generation").to_numpy())
    kinds = ((hashes, np.uint64), (times, np.int64), (offsets, np.int64), (shards, np.int32), (generations, np.int64))
    first, second, third, fourth, fifth = (np.concatenate(parts) if parts else np.empty(0, kind) for parts, kind in kinds)
    return first, second, third, fourth, fifth


def _times(batch: pa.RecordBatch) -> Any:
    """Microseconds since 1970, as i64."""
    return batch.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()


@dataclass(slots=True)
class _Open:
    """A file that is being written. created -> rows buffered and written -> closed (synced, read back, reported) or abandoned (deleted)."""

    hour: int
    path: Path
    writer: pq.ParquetWriter
    sink: pa.NativeFile
    pieces: list[Piece] = field(default_factory=list)
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    raw_bytes: int = 0
    rows: int = 0
    ts_first: int = 0
    ts_last: int = 0


class _Hours:
    """The open files, by hour; the one that was used longest ago first."""

    def __init__(self, directory: Path, schema: pa.Schema, limits: Limits) -> None:
        self._directory = directory
        self._schema = schema
        self._limits = limits
        self._open: dict[int, _Open] = {}
        self._closed: list[WrittenFile] = []
        self._buffered = 0

    def add(self, unit: Unit, batch: pa.RecordBatch) -> tuple[int, int]:
        """Digest and sum of times of the batch, which goes to the files of its hours."""
        hashes, times = row_hashes(batch), _times(batch)
        hours = times // HOUR_US
        offsets = batch.column("offset").to_numpy()
        if (hours == hours[0]).all():
            self._put(unit, int(hours[0]), batch, [total(hashes)], times, offsets)
        else:
            order = np.argsort(hours, kind="stable")
            hours, times, offsets = hours[order], times[order], offsets[order]
            firsts = np.flatnonzero(np.diff(hours, prepend=hours[0] - 1))
            digests = sums(hashes[order], firsts)
            for first, beyond, digest in zip(firsts.tolist(), [*firsts[1:].tolist(), len(hours)], digests, strict=True):
                # Copied out, since a slice of a few rows would keep the whole batch in memory for as long as it waits.
                rows = batch.take(pa.array(order[first:beyond]))
                self._put(unit, int(hours[first]), rows, [digest], times[first:beyond], offsets[first:beyond])
        return total(hashes), int(np.add.reduce(times.view(np.uint64)))

    def _put(self, unit: Unit, hour: int, rows: pa.RecordBatch, digest: list[int], times: Any, offsets: Any) -> None:
        file = self._file(hour)
        ts_sum = int(np.add.reduce(times.view(np.uint64)))
        first, last = int(offsets.min()), int(offsets.max())
        if file.pieces and file.pieces[-1].unit == unit:
            piece = file.pieces[-1]
            piece.rows += rows.num_rows
            piece.first, piece.last = min(piece.first, first), max(piece.last, last)
            piece.digest = (piece.digest + digest[0]) % MODULUS
            piece.ts_sum = (piece.ts_sum + ts_sum) % MODULUS
        else:
            file.pieces.append(Piece(unit, rows.num_rows, first, last, digest[0], ts_sum))
        ts_first, ts_last = int(times.min()), int(times.max())
        file.ts_first = min(file.ts_first, ts_first) if file.rows else ts_first
        file.ts_last = max(file.ts_last, ts_last) if file.rows else ts_last
        file.rows += rows.num_rows
        size = rows.nbytes
        file.waiting.append(rows)
        file.waiting_bytes += size
        file.waiting_rows += rows.num_rows
        file.raw_bytes += size
        self._buffered += size
        if file.waiting_bytes >= self._limits.row_group_bytes or file.waiting_rows >= self._limits.row_group_rows:
            self._write(file)
        if file.raw_bytes >= self._limits.file_raw_bytes:
            self._close(file)
        while self._buffered > self._limits.buffered_bytes:
            self._write(max(self._open.values(), key=lambda other: other.waiting_bytes))

    def _file(self, hour: int) -> _Open:
        file = self._open.pop(hour, None)
        if file is None:
            while len(self._open) >= self._limits.open_files:
                self._close(next(iter(self._open.values())))
            path = self._directory / f"{hour}-{uuid4().hex}.parquet"
            sink = pa.OSFile(str(path), "wb")
            writer = pq.ParquetWriter(
                sink,
                self._schema,
                compression="zstd",
                compression_level=1,
                use_dictionary=_FEW_VALUES,
                write_page_checksum=True,
                column_encoding=_ENCODINGS,
                write_statistics=_BOUNDED,
                store_schema=False,
                version="2.6",
            )
            file = _Open(hour, path, writer, sink)
        self._open[hour] = file
        return file

    def _write(self, file: _Open) -> None:
        if file.waiting:
            file.writer.write_table(pa.Table.from_batches(file.waiting, self._schema), row_group_size=self._limits.row_group_rows)
        self._buffered -= file.waiting_bytes
        file.waiting, file.waiting_bytes, file.waiting_rows = [], 0, 0

    def _close(self, file: _Open) -> None:
        self._write(file)
        del self._open[file.hour]
        file.writer.close()
        file.sink.close()
        with open(file.path, "rb") as written:
            os.fsync(written.fileno())
            # What is read back shall come from the disk, not from the memory that it was written to.
            os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        length, crc, found = read_back(file.path, file.pieces)
        for was, now in zip(file.pieces, found, strict=True):
            if was != now:
                raise Unlike(f"the file {file.path} was read back, and differs from what was written: {now} instead of {was}")
        self._closed.append(
            WrittenFile(str(file.path), file.hour, file.rows, length, crc, file.raw_bytes, file.ts_first, file.ts_last, tuple(found))
        )

    def take_closed(self) -> list[WrittenFile]:
        closed, self._closed = self._closed, []
        return closed

    def close(self) -> None:
        for file in list(self._open.values()):
            self._close(file)

    def abandon(self) -> None:
        """After a failure: the files that are still open."""
        for file in self._open.values():
            for end in (file.writer.close, file.sink.close, file.path.unlink):
                try:
                    end()
                except (OSError, pa.ArrowException):
                    pass  # the disk may be full; the directory of the run goes as a whole later
            # Else it would close itself once more when it is collected.
            file.writer.is_open = False
        self._open.clear()
