"""Logs for the tests of the replicated log: small segments, so that few entries make many files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shards.replication.configuration import Rid
from shards.replication.entry import Entry, Kind
from shards.replication.log import LogLimits, ReplicatedLog
from shards.replication.log_opening import open_log
from shards.replication.ports import Log

SHARD, INCARNATION, RID = 3, 2, Rid("site/1")
SMALL = LogLimits(segment_bytes=400)


@contextmanager
def quick() -> Iterator[Path]:
    """A directory in memory where there is one: for tests that sync thousands of times and never lose power."""
    path = Path(tempfile.mkdtemp(prefix="holdfast-log-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def entry(index: int, epoch: int = 1, payload: bytes | None = None) -> Entry:
    return Entry(index, epoch, Kind.RECORD, b"entry %d of epoch %d" % (index, epoch) if payload is None else payload)


def run(first: int, last: int, epoch: int = 1) -> list[Entry]:
    return [entry(index, epoch) for index in range(first, last + 1)]


def make(path: Path, limits: LogLimits = SMALL) -> ReplicatedLog:
    return open_log(str(path), SHARD, INCARNATION, new=RID, limits=limits)


def again(path: Path, limits: LogLimits = SMALL) -> ReplicatedLog:
    return open_log(str(path), SHARD, INCARNATION, limits=limits)


def put(log: ReplicatedLog, entries: list[Entry]) -> None:
    """Written and synced."""
    seen: Log = log
    seen.append(entries)
    seen.sync()


def held(log: ReplicatedLog) -> list[Entry]:
    """All that is in it."""
    log.check()
    return log.read(log.first, 1 << 30, 1 << 60) if log.first <= log.last else []


def found(path: Path) -> tuple[int, int | None, list[Entry]]:
    """What a process that starts now finds: the first index, the epoch before it, the entries."""
    log = again(path)
    try:
        return log.first, log.epoch_at(log.first - 1), held(log)
    finally:
        log.close()


def segments(path: Path) -> list[Path]:
    return sorted(path.glob("*.seg"))


def copied(path: Path, to: Path) -> Path:
    """As a crash would leave it now."""
    if to.exists():
        shutil.rmtree(to)
    shutil.copytree(path, to)
    return to
