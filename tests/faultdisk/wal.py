"""Finds where in RocksDB's write-ahead log a message's bytes lie.

Reads the published log format (blocks of 32 KiB, each fragment with a header of
checksum, length and type; types 5 to 8 carry a log number too) and nothing of what
is inside a write batch.  A record whose last fragment ends at byte n is on disk when
the file is on disk up to n.  Checksums are not verified: this reads the files of
a process that has just written them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 32768
HEADER = 7
RECYCLABLE_HEADER = 11
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class WalRecord:
    """One logical record: its bytes, and where in the file it begins and ends."""

    data: bytes
    begin: int
    end: int


def records(log: bytes) -> Iterator[WalRecord]:
    """The whole records of a log file, up to the first that was not completely written."""
    parts: list[bytes] = []
    begin = at = 0
    while at + HEADER <= len(log):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        length = int.from_bytes(log[at + 4 : at + 6], "little")
        kind = log[at + 6]
        if kind == 0 and length == 0:
            return  # preallocated, not written
        recyclable = 5 <= kind <= 8
        header = RECYCLABLE_HEADER if recyclable else HEADER
        start, end = at + header, at + header + length
        if end > len(log):
            return
        kind = kind - 4 if recyclable else kind
        if kind in (FULL, FIRST):
            parts, begin = [], at
        if kind in (FULL, FIRST, MIDDLE, LAST):
            parts.append(log[start:end])
        if kind in (FULL, LAST):
            yield WalRecord(b"".join(parts), begin, end)
            parts = []
        at = end
