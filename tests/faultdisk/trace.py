"""Reads the log of the interposed library into events.

Knows the record of faultdisk.h and nothing of what a storage engine does with
files.  Events come in the order in which they were logged, which is within one
process the order in which the calls returned.  ``begin_ns`` and ``end_ns`` are on
CLOCK_MONOTONIC, shared by all processes of the machine: an event A happened
before an event B if ``A.end_ns <= B.begin_ns``.

A record cut short at the end (the writer was killed within its write) is left
out: its call had not returned, so nobody can have relied on it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NewType

FileId = NewType("FileId", int)
"""The inode number of a file, or the socket inode of a socket."""

RECORD = struct.Struct("<IHHIIqqQqqqQQ16s")
MAGIC = 0x31524446


class Op(IntEnum):
    NAME = 1
    OPEN = 2
    WRITE = 3
    FSYNC = 4
    FDATASYNC = 5
    SYNC_FILE_RANGE = 6
    SYNCFS = 7
    RENAME = 8
    UNLINK = 9
    TRUNCATE = 10
    CLOSE = 11
    SEND = 12
    ALLOCATE = 13
    RESET = 14
    LINK = 15
    UNSENT = 16


class Flag(IntFlag):
    CREATED = 1
    TRUNCATED = 2
    APPEND = 4
    SYNCED = 8
    DIRECTORY = 16
    INJECTED = 32
    LAST = 64


@dataclass(frozen=True, slots=True)
class Event:
    """One call that was made, with what it returned (``result`` below 0 is minus errno).

    ``length`` is: of a write or a send, the bytes asked for; of a sync, the size of the file when the sync began; of an
    open, the size then; of a truncate, the new size.  ``path`` is the file's name at this moment, relative to the watched directory;
    of a socket it is ``tcp:LOCAL>PEER`` with the two ports.
    """

    op: Op
    flags: Flag
    pid: int
    tid: int
    begin_ns: int
    end_ns: int
    file: FileId
    offset: int
    length: int
    result: int
    other: FileId
    prefix: bytes
    path: str

    @property
    def ok(self) -> bool:
        return self.result >= 0

    @property
    def is_sync(self) -> bool:
        """A call after which, when it returned 0, this file's earlier writes are on disk.

        sync_file_range is not one: it writes neither the size nor the drive's cache.
        """
        return self.op in (Op.FSYNC, Op.FDATASYNC) and Flag.DIRECTORY not in self.flags


@dataclass(frozen=True, slots=True)
class Trace:
    """All events of a log, in logged order."""

    events: tuple[Event, ...] = field(default=())

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def of(self, *ops: Op, suffix: str = "") -> list[Event]:
        """The events of these kinds on files whose name ends with ``suffix``."""
        return [event for event in self.events if event.op in ops and event.path.endswith(suffix)]

    def syncs(self, suffix: str = "") -> list[Event]:
        return [event for event in self.events if event.is_sync and event.path.endswith(suffix)]


def read(log: Path) -> Trace:
    """Every whole event in ``log``."""
    return Trace(tuple(events(log.read_bytes())))


def events(data: bytes) -> list[Event]:
    """A send is logged before it happens, and again when it did not send everything; here it is one event with its result."""
    found: list[Event] = []
    sends: dict[FileId, int] = {}
    for event in _as_logged(data):
        if event.op is Op.SEND:
            sends[event.file] = len(found)
        if event.op is Op.UNSENT:
            at = sends[event.file]
            found[at] = replace(found[at], result=event.result)
        else:
            found.append(event)
    return found


def _as_logged(data: bytes) -> Iterator[Event]:
    names: dict[FileId, str] = {}
    at = 0
    while at + RECORD.size <= len(data):
        magic, op, flags, pid, tid, begin, end, file, offset, length, result, other, _, prefix = RECORD.unpack_from(data, at)
        if magic != MAGIC:
            raise ValueError(f"byte {at} of the log: found {magic:#x} where a record begins with {MAGIC:#x}")
        at += RECORD.size
        if op == Op.NAME:
            text = data[at : at + length]
            if len(text) < length:
                return
            names[FileId(file)] = text.decode()
            at += -(-length // RECORD.size) * RECORD.size
            continue
        path = names.get(FileId(file), "")
        taken = min(len(prefix), length if op in (Op.WRITE, Op.SEND) else 0)
        yield Event(Op(op), Flag(flags), pid, tid, begin, end, FileId(file), offset, length, result, FileId(other), prefix[:taken], path)


def reset_record(now_ns: int, pid: int) -> bytes:
    """The record that says: what lies on disk now is durable, whatever was logged before."""
    return RECORD.pack(MAGIC, Op.RESET, 0, pid, pid, now_ns, now_ns, 0, 0, 0, 0, 0, 0, b"")
