"""Opens the replicated log of a shard, or makes the first one of a replica.  Whatever a crash has left is opened; damage is one sentence.

Always holds: what is in the log when it is open is on disk; a log that is missing is never taken for an empty one.
"""

from __future__ import annotations

import fcntl
import os

from shards.engine import StoreDamaged, StoreFailed, StoreInUse
from shards.replication.configuration import Rid
from shards.replication.log import LogLimits, ReplicatedLog
from shards.replication.log_format import SEGMENT_HEAD_BYTES, Damaged, SegmentHead
from shards.replication.log_recovery import Scanned, WhereDamaged, recover, scan
from shards.replication.log_segment import (
    PART,
    Segment,
    damaged,
    full_or_failed,
    read_file,
    segment_numbers,
    segment_path,
    sync_directory,
    unlink_segment,
)
from shards.replication.promise import Promise, read_promise, write_promise

LOCK_FILE = "LOCK"


def open_log(directory: str, shard: int, incarnation: int, *, new: Rid | None = None, limits: LogLimits | None = None) -> ReplicatedLog:
    """new: the replica has never had a log, and gets an empty one with this id.  What is there is durable when this returns.

    Raises StoreInUse, StoreDamaged (also when a log is missing), StoreFull, StoreFailed."""
    try:
        if new is not None:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            sync_directory(os.path.dirname(os.path.abspath(directory)))
        elif not os.path.isdir(directory):
            raise _missing(directory)
        lock = _lock(directory)
    except OSError as error:
        raise full_or_failed(error, directory) from error
    try:
        if new is not None:
            _make(directory, shard, incarnation, new)
        return _opened(directory, lock, shard, incarnation, limits or LogLimits())
    except OSError as error:
        os.close(lock)
        raise full_or_failed(error, directory) from error
    except BaseException:
        os.close(lock)
        raise


def _make(directory: str, shard: int, incarnation: int, rid: Rid) -> None:
    """The promise comes last: a log without one was never begun."""
    if read_promise(directory) is not None:
        raise StoreFailed(f"{directory}: a log is there already, and none is made over it")
    Segment.make(directory, SegmentHead(shard, incarnation, 1))
    write_promise(directory, Promise(0, rid, None))


def _opened(directory: str, lock: int, shard: int, incarnation: int, limits: LogLimits) -> ReplicatedLog:
    promise = read_promise(directory)
    for name in os.listdir(directory):
        if name.endswith(PART):
            os.unlink(os.path.join(directory, name))
    numbers = segment_numbers(directory)
    if not numbers or promise is None:
        raise _missing(directory)
    scanned = [_scanned(directory, number, shard, incarnation) for number in numbers]
    try:
        found = recover(scanned)
    except WhereDamaged as error:
        raise damaged(segment_path(directory, error.segment), error.offset, error.what) from None
    # From both ends inwards, so that a crash leaves no hole.
    for number in [each for each in numbers if each < found.kept[0].number]:
        unlink_segment(segment_path(directory, number))
    for number in [each for each in reversed(numbers) if each > found.kept[-1].number]:
        unlink_segment(segment_path(directory, number))
    segments = []
    for each in found.kept:
        path = segment_path(directory, each.number)
        kept = read_file(path)[: each.end] if found.anew(each) else None
        segments.append(Segment.opened(path, each.head, each.end, kept))
    log = ReplicatedLog(directory, lock, incarnation, promise, segments, found, limits)
    log.cut_bytes = sum(each.size - SEGMENT_HEAD_BYTES for each in scanned if each.number >= found.kept[0].number) - sum(
        each.bytes - SEGMENT_HEAD_BYTES for each in segments
    )
    return log


def _scanned(directory: str, number: int, shard: int, incarnation: int) -> Scanned:
    path = segment_path(directory, number)
    try:
        return scan(number, read_file(path), shard, incarnation)
    except Damaged as error:
        raise damaged(path, error.offset, error.what) from None


def _lock(directory: str) -> int:
    """The kernel lets go of it with the process, whatever ended that."""
    descriptor = os.open(os.path.join(directory, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreInUse(f"{directory}: another process has this log open") from None
    return descriptor


def _missing(directory: str) -> StoreDamaged:
    return StoreDamaged(
        f"the log of this replica is missing: {directory} has no segment or no promise. What was acknowledged was in it: move the "
        "directory of the shard away, and the replica is made anew from the others"
    )
