"""One file of a shard's replicated log: made whole, written at its end, synced, read at any place.

A segment has its name only when its head is on disk: it is made under another name and renamed.  When a log is opened, what no sync is
known to have covered is written anew in the same way, without what a crash has torn: after a failed fsync the page cache shows bytes that
are not on disk and that no later fsync brings there, and bytes written anew have no such past.

Raises the errors of the engine port: StoreFull, StoreDamaged, StoreFailed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from itertools import islice
from typing import Protocol

from shards.engine import StoreDamaged, StoreFailed, StoreFull
from shards.replication.entry import Entry
from shards.replication.log_format import (
    ENTRY_HEAD_BYTES,
    SEGMENT_HEAD_BYTES,
    Damaged,
    SegmentHead,
    unpack_entry,
)


class Hindrance(Protocol):
    def before_write(self) -> None:
        """Raises StoreFull: then nothing is written."""

    def before_sync(self) -> None:
        """Takes as long as it takes."""


hindrance: Hindrance | None = None
"""In the way of every segment of this process; None: nothing, which is the rule (actors.chaos.installing)."""
SUFFIX = ".seg"
PART = ".part"
"""Added to the name of a file that is not whole yet; what has it is removed at the next opening."""
WRITE_PIECES_MAX = 1024
"""Pieces that one system call takes (IOV_MAX)."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def segment_path(directory: str, number: int) -> str:
    return os.path.join(directory, f"{number:016d}{SUFFIX}")


def segment_numbers(directory: str) -> list[int]:
    names = [name.removesuffix(SUFFIX) for name in os.listdir(directory) if name.endswith(SUFFIX)]
    return sorted(int(name) for name in names if name.isdigit())


def damaged(path: str, offset: int, what: str) -> StoreDamaged:
    """What is wrong where, and what to do."""
    return StoreDamaged(
        f"the log of this replica is damaged: {path}, offset {offset}: {what}. It may have lost what was acknowledged, so it must not "
        "count as a copy: check the disk, move the directory of the shard away, and the replica is made anew from the others"
    )


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_file(path: str, pieces: list[bytes], mode: int = 0o600) -> int:
    """A file with this content under this name, or, if this fails, what was there before.  Durable on return, by its descriptor."""
    beside = path + PART
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            write_all(descriptor, pieces, 0)
            os.fsync(descriptor)
            os.replace(beside, path)
            sync_directory(os.path.dirname(path))
        except BaseException:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise full_or_failed(error, path) from error
    return descriptor


def write_all(descriptor: int, pieces: list[bytes], at: int) -> None:
    """One system call, as long as the pieces are few and the disk takes all of them."""
    rest = iter(pieces)
    while some := list(islice(rest, WRITE_PIECES_MAX)):
        wanted = sum(map(len, some))
        done = os.pwritev(descriptor, some, at)
        while done < wanted:
            done += os.pwrite(descriptor, b"".join(some)[done:], at + done)
        at += wanted


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise full_or_failed(error, path) from error


def unlink_segment(path: str) -> None:
    """Gone on disk when this returns."""
    try:
        os.unlink(path)
        sync_directory(os.path.dirname(path))
    except OSError as error:
        raise full_or_failed(error, path) from error


def full_or_failed(error: OSError, path: str) -> StoreFailed:
    kind = StoreFull if error.errno in _FULL else StoreFailed
    return kind(f"{path}: {error.strerror or error}")


class Segment:
    """made -> written and synced, many times -> followed by the next -> unlinked.  Its file is closed when nobody reads it any more.
    `bytes`: what is written, also unsynced."""

    __slots__ = ("_fd", "bytes", "head", "path", "seed")

    def __init__(self, path: str, head: SegmentHead, fd: int, size: int) -> None:
        self.path, self.head, self._fd, self.bytes = path, head, fd, size
        self.seed = head.seed

    def __del__(self) -> None:
        os.close(self._fd)

    @classmethod
    def make(cls, directory: str, head: SegmentHead) -> Segment:
        path = segment_path(directory, head.number)
        return cls(path, head, put_file(path, [head.pack()]), SEGMENT_HEAD_BYTES)

    @classmethod
    def opened(cls, path: str, head: SegmentHead, size: int, kept: bytes | None) -> Segment:
        """kept: what it shall hold, written anew; None: it is as it is."""
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC) if kept is None else put_file(path, [kept])
        except OSError as error:
            raise full_or_failed(error, path) from error
        return cls(path, head, descriptor, size)

    def write(self, pieces: list[bytes], size: int) -> None:
        """At its end, unsynced.  Raises StoreFull, and then nothing of it is there, or StoreFailed, and then nobody knows."""
        if hindrance is not None:
            hindrance.before_write()
        try:
            write_all(self._fd, pieces, self.bytes)
        except OSError as error:
            try:
                os.ftruncate(self._fd, self.bytes)
            except OSError as again:
                raise StoreFailed(f"{self.path}: {error.strerror}, and what was half written stays: {again.strerror}") from error
            raise full_or_failed(error, self.path) from error
        self.bytes += size

    def sync(self) -> None:
        """Raises StoreFailed: never to be tried again."""
        if hindrance is not None:
            hindrance.before_sync()
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise StoreFailed(f"{self.path}: {error.strerror}") from error

    def read(self, places: list[tuple[int, int, int]]) -> list[Entry]:
        """places: index, offset and payload bytes of entries that lie one behind the other.  Raises StoreDamaged."""
        begin, (_, offset, size) = places[0][1], places[-1]
        wanted = offset + ENTRY_HEAD_BYTES + size - begin
        try:
            data = os.pread(self._fd, wanted, begin)
        except OSError as error:
            raise full_or_failed(error, self.path) from error
        view = memoryview(data)
        try:
            if len(data) < wanted:
                raise Damaged(len(data), f"the file ends here, entry {places[-1][0]} goes further")
            return [unpack_entry(view, at - begin, index, self.seed) for index, at, _ in places]
        except Damaged as error:
            raise damaged(self.path, begin + error.offset, error.what) from None

    def unlink(self) -> None:
        """Gone on disk when this returns; who reads it reads on."""
        unlink_segment(self.path)
