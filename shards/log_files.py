"""The write-ahead logs of a RocksDB store, looked at from outside: which batches they hold, by sequence number.

RocksDB recovers the logs up to the first damage and says nothing of what lies behind it. Whoever knows the numbers that the
files hold can tell afterwards how much that was. What was flushed out of the logs is covered by one number in a file of ours.
Checksums are not looked at: RocksDB does that, and it is dear in Python.

A log is blocks of 32 KiB with records of 7 bytes of header (checksum 4, length 2 LE, kind 1) and payload; a batch is one record
of the kind 1, or the kinds 2, 3*, 4. It begins with its first sequence number (8 LE) and the number of its operations (4 LE).
Holds: after bytes that make no sense the walk goes on at the next block, where a record begins in any case.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from typing import NamedTuple

BLOCK_BYTES = 32768
HEADER_BYTES = 7
_BATCH_HEAD_BYTES = 12
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_JUMP_MAX = 1 << 32
"""Garbage looks like a batch now and then; its number is then far away from those before it."""


class Batch(NamedTuple):
    """One batch that is complete by its headers. offset: of its first record; first: its first sequence number, one for each operation."""

    file: str
    offset: int
    first: int
    ops: int

    @property
    def last(self) -> int:
        return self.first + self.ops - 1


REACHED = "reached"
"""Name of the file with the sequence number that the store had safely when it was last opened or closed."""


def note_reached(path: str, sequence: int) -> None:
    """For the next opening: less than this would be a loss. What cannot be written is left out; then less is noticed."""
    file = os.path.join(path, REACHED)
    with contextlib.suppress(OSError):
        with open(file + ".part", "w", encoding="ascii") as noted:
            noted.write(f"{sequence}\n")
            noted.flush()
            os.fsync(noted.fileno())
        os.replace(file + ".part", file)


def reached(path: str) -> int:
    try:
        with open(os.path.join(path, REACHED), encoding="ascii") as noted:
            return int(noted.read(32))
    except (OSError, ValueError):
        return 0


def log_names(path: str) -> list[str]:
    names = os.listdir(path) if os.path.isdir(path) else []
    return sorted((name for name in names if name.endswith(".log") and name[:-4].isdigit()), key=lambda name: int(name[:-4]))


def batches_behind(path: str, sequence: int) -> list[Batch]:
    """The batches in all logs of a directory that go beyond a sequence number, in the order of the files."""
    found: list[Batch] = []
    reached = 0
    for name in log_names(path):
        file = os.path.join(path, name)
        if os.path.getsize(file) == 0:
            continue
        with open(file, "rb") as log, mmap.mmap(log.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for batch in _batches(file, data):
                if reached and not reached < batch.first < reached + _JUMP_MAX:
                    continue
                reached = batch.last
                if batch.last > sequence:
                    found.append(batch)
    return found


def _batches(file: str, data: mmap.mmap) -> Iterator[Batch]:
    at, end = 0, len(data)
    begun, size, head = -1, 0, b""
    while at + HEADER_BYTES <= end:
        room = BLOCK_BYTES - at % BLOCK_BYTES
        if room < HEADER_BYTES:
            at += room
            continue
        kind = data[at + 6]
        length = data[at + 4] | data[at + 5] << 8
        if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or HEADER_BYTES + length > room:
            at += room
            begun = -1
            continue
        if kind in (_WHOLE, _FIRST):
            begun, size, head = at, 0, b""
        if begun >= 0:
            payload = at + HEADER_BYTES
            if at + HEADER_BYTES + length > end:
                return
            size += length
            if len(head) < _BATCH_HEAD_BYTES:
                head += data[payload : payload + min(length, _BATCH_HEAD_BYTES - len(head))]
            if kind in (_WHOLE, _LAST):
                count = int.from_bytes(head[8:12], "little")
                if len(head) == _BATCH_HEAD_BYTES and 0 < count <= size:
                    yield Batch(file, begun, int.from_bytes(head[:8], "little"), count)
                begun = -1
        at += HEADER_BYTES + length
