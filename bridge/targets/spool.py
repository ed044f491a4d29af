"""What a target has accepted and not yet put where it belongs: frames in one file, each of them synced before it counts.

    MAGIC, then frames: length and CRC-32 of its body (4 bytes each, big endian), body = a line of JSON (Head), then data

Holds: frames are whole and in order up to the end, a torn one at the end is cut off when the file is opened; `begin_again` replaces the
file as a whole, with a first frame that says what was accepted before.  Blocking: who calls does so in a thread.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

MAGIC: Final = b"holdfast spool 1\n"
_LENGTHS: Final = struct.Struct(">II")
BODY_BYTES_MAX: Final = 2**31 - 1


class Head(NamedTuple):
    """Of a frame: what is accepted with it, how many rows its data are, the number of the first, and when it came (wall clock)."""

    epoch: str
    number: int
    rows: int
    first: int
    at_ms: int


class Broken(Exception):
    """The file is none of ours."""


class Spool:
    def __init__(self, path: Path) -> None:
        """Open, or make.  Raises OSError, Broken."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            self._recover()
        except BaseException:
            os.close(self._file)
            raise

    def _recover(self) -> None:
        self.last: Head | None = None
        """Of the last frame."""
        self.first = 0
        """The number of its first row."""
        self.oldest_ms = 0
        """When its first row came; 0: it has none."""
        self.rows = 0
        self.bytes = 0
        """Of the data of its rows."""
        end = 0
        start = os.pread(self._file, len(MAGIC), 0)
        if start == MAGIC:
            end = len(MAGIC)
            for head, data, after in self._frames():
                self._count(head, len(data))
                end = after
        elif not MAGIC.startswith(start):
            raise Broken(f"{self._path} is no spool of Holdfast")
        os.ftruncate(self._file, end)
        if not end:
            os.pwrite(self._file, MAGIC, 0)
            end = len(MAGIC)
        self._end = end
        os.fsync(self._file)
        sync_directory(self._path.parent)

    def append(self, head: Head, data: bytes) -> None:
        """Durable when it returns."""
        self._append(self._file, head, data)
        os.fdatasync(self._file)
        self._count(head, len(data))

    def frames(self) -> Iterator[tuple[Head, bytes]]:
        for head, data, _ in self._frames():
            yield head, data

    def begin_again(self, now_ms: int) -> None:
        """An empty one in the place of this, which knows what was accepted.  Durable when it returns."""
        assert self.last is not None
        beside = self._path.with_name(f"{self._path.name}.new")
        file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        last = self.last._replace(rows=0, first=0, at_ms=now_ms)
        try:
            os.pwrite(file, MAGIC, 0)
            old, self._end = self._end, len(MAGIC)
            try:
                self._append(file, last, b"")
                os.fsync(file)
                os.rename(beside, self._path)
            except OSError:
                self._end = old
                raise
        except OSError:
            os.close(file)
            raise
        os.close(self._file)
        self._file = file
        self.last, self.oldest_ms, self.rows, self.bytes = last, 0, 0, 0
        sync_directory(self._path.parent)

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _append(self, file: int, head: Head, data: bytes) -> None:
        body = json.dumps(head, separators=(",", ":")).encode() + b"\n" + data
        assert len(body) <= BODY_BYTES_MAX, "batches are bounded by the settings of a bridge"
        frame = _LENGTHS.pack(len(body), zlib.crc32(body)) + body
        written = 0
        while written < len(frame):
            written += os.pwrite(file, frame[written:], self._end + written)
        self._end += len(frame)

    def _count(self, head: Head, size: int) -> None:
        self.last = head
        if head.rows:
            self.first = self.first if self.rows else head.first
            self.oldest_ms = self.oldest_ms or head.at_ms
            self.rows += head.rows
            self.bytes += size

    def _frames(self) -> Iterator[tuple[Head, bytes, int]]:
        """Up to the first that is not whole; one at a time in memory."""
        at, size = len(MAGIC), os.fstat(self._file).st_size
        while at + _LENGTHS.size <= size:
            length, crc = _LENGTHS.unpack(os.pread(self._file, _LENGTHS.size, at))
            after = at + _LENGTHS.size + length
            if after > size:
                return
            body = os.pread(self._file, length, at + _LENGTHS.size)
            if len(body) != length or zlib.crc32(body) != crc:
                return
            line, _, data = body.partition(b"\n")
            yield Head(*json.loads(line)), data, after
            at = after


def sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
