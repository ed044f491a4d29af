"""Records, and the seam behind which they become durable.

A record is all that one tick of a shard produced: messages, trie growth, home rows, answers to frames, as ops that any
replica applies without logic. ``Committer.submit`` takes records in the order of their positions; the listener learns how
far they are committed. One copy (``LocalCommitter``) and many copies stand behind the same port and pass one contract suite
(tests/contracts/test_committer.py).

``LocalCommitter`` is the pure core of the local form. It never touches the engine: its shell (actors, or the simulator)
carries the effects out, in order, and reports back. Group commit is adaptive: a record is written, unsynced, when it comes;
one sync is under way at a time; the next starts when it ends, if something was written since. No timer adds a wait.

Holds after every event (see check):
1. at most one sync is asked for or under way;
2. committed <= covered <= written; a finished sync commits exactly what had been written when it started;
3. while something is written but not committed, a sync is asked for or under way, or the committer has failed;
4. after a failed sync nothing more is committed, ever: nobody knows what that file holds.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Literal, Protocol, assert_never

from shards.engine import Op, StoreFailed

RECORD_VERSION = 1

_RECORD = Struct("<BBHIQI")
_OP = Struct("<IIi")
_DELETE = -1


class BadRecord(ValueError):
    """Bytes that are not a record of a known version, or are damaged."""


@dataclass(frozen=True, slots=True)
class Record:
    """One tick of a shard: applied whole or not at all. ``position`` is the highest one assigned in it."""

    position: int
    ops: Sequence[Op]

    def encode(self) -> bytes:
        """Versioned bytes with a checksum (docs/formats.md, "Record")."""
        parts: list[bytes] = []
        pack = _OP.pack
        for family, key, value in self.ops:
            if value is None:
                parts += (pack(family, len(key), _DELETE), key)
            else:
                parts += (pack(family, len(key), len(value)), key, value)
        body = b"".join(parts)
        crc = zlib.crc32(body, zlib.crc32(_RECORD.pack(RECORD_VERSION, 0, 0, len(self.ops), self.position, 0)))
        return _RECORD.pack(RECORD_VERSION, 0, 0, len(self.ops), self.position, crc) + body

    @staticmethod
    def decode(data: bytes) -> Record:
        if len(data) < _RECORD.size:
            raise BadRecord(f"record of {len(data)} bytes is shorter than its header of {_RECORD.size}")
        version, _, _, count, position, crc = _RECORD.unpack_from(data)
        if version != RECORD_VERSION:
            raise BadRecord(f"record version {version}; this program reads version {RECORD_VERSION}")
        wanted = zlib.crc32(memoryview(data)[_RECORD.size :], zlib.crc32(_RECORD.pack(*_RECORD.unpack_from(data)[:5], 0)))
        if wanted != crc:
            raise BadRecord(f"record at position {position}: checksum {crc:#010x}, computed {wanted:#010x}")
        ops: list[Op] = []
        at = _RECORD.size
        unpack, size = _OP.unpack_from, _OP.size
        for _ in range(count):
            family, key_bytes, value_bytes = unpack(data, at)
            at += size
            key = data[at : at + key_bytes]
            at += key_bytes
            if value_bytes == _DELETE:
                ops.append((family, key, None))
            else:
                ops.append((family, key, data[at : at + value_bytes]))
                at += value_bytes
        if at != len(data):
            raise BadRecord(f"record at position {position}: {len(data)} bytes, its {count} ops take {at}")
        return Record(position, ops)


class CommitListener(Protocol):
    """The shard core's side: what it learns about the records it submitted."""

    def committed(self, position: int) -> None:
        """Every accepted record up to ``position`` is durable. Positions only grow; one call may cover many records."""

    def refused(self, position: int, reason: str) -> None:
        """The record of exactly this position is not stored (the disk is full); earlier ones are not concerned.

        It may be submitted again, unchanged, as long as no later one was taken.
        """

    def failed(self, reason: str) -> None:
        """No more news will come, also about records already submitted: they may or may not survive. The process ends."""


class Committer(Protocol):
    """submit -> later, exactly one of: a ``committed`` that reaches it, ``refused`` with its position, ``failed``."""

    def submit(self, record: Record) -> None:
        """Take the next record; positions must grow. Raises StoreFailed once the committer has failed."""


# ---- the local form: events


@dataclass(frozen=True, slots=True)
class Opened:
    """The store is open; ``position`` is the highest position found in it. Comes once, before everything else."""

    position: int


@dataclass(frozen=True, slots=True)
class Submit:
    record: Record


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The last Write was refused by the engine and left nothing behind."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class SyncStarted:
    """The sync asked for begins now: it will cover every write carried out so far."""


@dataclass(frozen=True, slots=True)
class SyncDone:
    """The sync under way has ended well."""


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The sync under way has failed, or the engine broke in another way that leaves its content unknown."""

    reason: str


Event = Opened | Submit | WriteRefused | SyncStarted | SyncDone | SyncFailed


# ---- the local form: effects


@dataclass(frozen=True, slots=True)
class Write:
    """Write these ops to the engine now, unsynced; report WriteRefused if it says StoreFull, and nothing if it works.

    Carried out before the effects that follow it. In a crash it may be lost whole; nobody has been told yet.
    """

    record: Record


@dataclass(frozen=True, slots=True)
class StartSync:
    """Begin a sync when convenient (the end of this tick is), report SyncStarted at its beginning, then SyncDone or SyncFailed."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything up to ``position`` is on disk: tell the listener."""

    position: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The record of this position was not stored: tell the listener."""

    position: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Tell the listener, and end the process. Never sync this file again."""

    reason: str


Effect = Write | StartSync | Committed | Refused | Failed

SyncState = Literal["closed", "idle", "asked", "running", "failed"]


class LocalCommitter:
    """Life cycle: closed -Opened-> asked -> running -> idle <-> asked ... -> failed."""

    __slots__ = (
        "_committed",
        "_covered",
        "_state",
        "_taken",
        "_unsynced_records",
        "_unsynced_since_start",
        "_written",
        "_written_before",
        "reason",
    )

    def __init__(self) -> None:
        self._state: SyncState = "closed"
        self._taken = -1
        """The next record has a higher position."""
        self._written = -1
        self._written_before = -1
        self._covered = -1
        self._committed = -1
        self._unsynced_records = 0
        self._unsynced_since_start = 0
        self.reason = ""

    @property
    def state(self) -> SyncState:
        return self._state

    @property
    def committed(self) -> int:
        """The watermark; -1 before the sync that follows the opening has ended."""
        return self._committed

    @property
    def unsynced_records(self) -> int:
        """Records written and not committed."""
        return self._unsynced_records

    def handle(self, event: Event) -> list[Effect]:
        match event:
            case Submit(record):
                return self._submit(record)
            case SyncStarted():
                self._expect("asked", event)
                self._state = "running"
                self._covered = self._written
                self._unsynced_since_start = 0
                return []
            case SyncDone():
                return self._sync_done(event)
            case WriteRefused(position, reason):
                return self._write_refused(position, reason)
            case SyncFailed(reason):
                self._state = "failed"
                self.reason = reason
                return [Failed(reason)]
            case Opened(position):
                self._expect("closed", event)
                self._taken = self._written = self._written_before = position
                self._state = "asked"
                # What was recovered may sit in the page cache only: it becomes the watermark after a sync, not before.
                return [StartSync()]
            case _ as never:
                assert_never(never)

    def check(self) -> None:
        assert self._committed <= self._covered <= self._written <= self._taken
        assert self._unsynced_since_start <= self._unsynced_records
        if self._state == "idle":
            assert self._committed == self._written and self._unsynced_records == 0

    def _submit(self, record: Record) -> list[Effect]:
        if self._state == "failed":
            raise StoreFailed(f"record at position {record.position} submitted after the store failed: {self.reason}")
        assert self._state != "closed", f"record at position {record.position} submitted before the store was opened"
        assert record.position > self._taken, f"record at position {record.position} submitted after one at {self._taken}"
        self._written_before = self._written
        self._taken = self._written = record.position
        self._unsynced_records += 1
        self._unsynced_since_start += 1
        if self._state == "idle":
            self._state = "asked"
            return [Write(record), StartSync()]
        return [Write(record)]

    def _write_refused(self, position: int, reason: str) -> list[Effect]:
        if self._state == "failed":
            return []
        assert position == self._taken == self._written, f"write of {position} refused, the last one was {self._taken}"
        # Only this very record may come again under its position, in case the store kept a trace of the write.
        self._taken = position - 1
        self._written = self._written_before
        self._unsynced_records -= 1
        self._unsynced_since_start -= 1
        return [Refused(position, reason)]

    def _sync_done(self, event: SyncDone) -> list[Effect]:
        self._expect("running", event)
        effects: list[Effect] = []
        self._unsynced_records = self._unsynced_since_start
        if self._covered > self._committed:
            self._committed = self._covered
            effects.append(Committed(self._committed))
        if self._written > self._covered:
            self._state = "asked"
            effects.append(StartSync())
        else:
            self._state = "idle"
        return effects

    def _expect(self, state: SyncState, event: Event) -> None:
        assert self._state == state, f"{event} while {self._state}, expected {state}"
