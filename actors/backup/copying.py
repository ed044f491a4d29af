"""Bytes from one file to another: summed up on the way, on the disk when it returns, at a bounded pace.

Beside a broker it must not be felt. What is written goes to the disk in small steps: a large flush at once is what the sync of a shard's
log would have to wait for. And it does not stay in the page cache, which is for those who are served.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from actors.backup.manifest import BackupError

_AT_ONCE = 1 << 20
_SYNC_EVERY_BYTES = 8 << 20
_TAIL_BYTES = 16 << 10
"""At the end of a data file lie its properties, with the number and the session of the process that made it."""

Progress = Callable[[int], None]
"""Told of bytes that are done."""


class Pace:
    """bytes_per_s: on average, at most; 0: as fast as it goes."""

    def __init__(
        self, bytes_per_s: int = 0, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._now = now
        self._sleep = sleep
        self._due = now()

    def wait_for(self, size: int) -> None:
        """So many bytes were copied."""
        if self._bytes_per_s:
            # What was not used is not saved up.
            self._due = max(self._due, self._now() - 1.0) + size / self._bytes_per_s
            late = self._due - self._now()
            if late > 0:
                self._sleep(late)


def copy(descriptor: int, size: int, target: Path, pace: Pace, progress: Progress) -> str:
    """The first so many bytes of an open file, into a new one. Returns their SHA-256; raises BackupError when there are fewer."""
    found = hashlib.sha256()
    buffer = memoryview(bytearray(_AT_ONCE))
    out = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        at = synced = 0
        while at < size:
            count = os.preadv(descriptor, [buffer[: min(_AT_ONCE, size - at)]], at)
            if not count:
                raise BackupError(f"{target.name} has {at} bytes, and {size} are wanted")
            taken = buffer[:count]
            found.update(taken)
            at += count
            while taken:
                taken = taken[os.write(out, taken) :]
            if at - synced >= _SYNC_EVERY_BYTES:
                _settle(out, synced, at)
                synced = at
            progress(count)
            pace.wait_for(count)
        os.fsync(out)
        _settle(out, synced, at)
    finally:
        os.close(out)
    return found.hexdigest()


def sum_of(file: Path, progress: Progress) -> tuple[int, str]:
    """How many bytes it has, and their SHA-256."""
    found = hashlib.sha256()
    size = 0
    with open(file, "rb", buffering=0) as data:
        while piece := data.read(_AT_ONCE):
            found.update(piece)
            size += len(piece)
            progress(len(piece))
    return size, found.hexdigest()


def same_end(descriptor: int, size: int, file: Path) -> bool:
    """Whether a data file of this size is the very one that was copied to ``file``."""
    try:
        with open(file, "rb", buffering=0) as known:
            if os.fstat(known.fileno()).st_size != size:
                return False
            at = max(0, size - _TAIL_BYTES)
            return os.pread(known.fileno(), _TAIL_BYTES, at) == os.pread(descriptor, size - at, at)
    except OSError:
        return False


def _settle(out: int, synced: int, at: int) -> None:
    os.fdatasync(out)
    os.posix_fadvise(out, synced, at - synced, os.POSIX_FADV_DONTNEED)
