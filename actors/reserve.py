"""The reserve: a file that only takes room, so that a broker whose disk has filled up can be started and drained.

Opening a store writes: what its log holds is put into data files. On a disk without any room that fails, so the launcher gives
the reserve back at the start when little is free, and makes it again when there is room. It never is larger than the stores, as
opening less takes less, but for a least size; nor than a hundredth of what is free when it is made.

Always holds: the file is allocated, not sparse; making it leaves so much free that shards do not call the disk low.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog

RESERVE_NAME = "reserve"
GIVEN_BACK_BELOW_BYTES = 64 << 20
"""Free bytes below which shards commit nothing (actors.shard)."""
LEFT_FREE_BYTES = 512 << 20
"""Twice what shards call low."""
LEAST_BYTES = 16 << 20
STEP_BYTES = 64 << 20
"""Made at once; the launcher watches others meanwhile."""
TEND_EVERY_S = 10.0

log = structlog.get_logger(__name__)


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def give_back(directory: Path, free: Callable[[Path], int] = free_bytes) -> int:
    """Remove the reserve when there is too little room to start; returns how many bytes that gave, 0 when it was not needed or there."""
    file = directory / RESERVE_NAME
    try:
        size = file.stat().st_size
        if free(directory) >= GIVEN_BACK_BELOW_BYTES:
            return 0
        file.unlink()
    except FileNotFoundError:
        return 0
    return size


class Reserve:
    """Kept by the launcher while it runs. most: bytes, 0 for none. stores: the directory above those of the shards."""

    def __init__(self, directory: Path, stores: Path, most: int, free: Callable[[Path], int] = free_bytes) -> None:
        self._file = directory / RESERVE_NAME
        self._stores = stores
        self._most = most
        self._free = free
        self._tended = -TEND_EVERY_S
        self._told = ""

    def tend(self) -> None:
        """Look every so often whether it is as large as it should be. Never raises: a broker without a reserve works."""
        now = time.monotonic()
        if now - self._tended >= TEND_EVERY_S:
            self._tended = now
            try:
                self.look()
            except OSError as error:
                self._tell("reserve.not_made", reason=error.strerror or str(error))

    def look(self) -> None:
        """Make it, let it grow by one step, or remove it."""
        have = self._file.stat().st_size if self._file.exists() else 0
        if self._most == 0:
            self._file.unlink(missing_ok=True)
            return
        free = self._free(self._file.parent)
        wanted = min(self._most, max(LEAST_BYTES, stored_bytes(self._stores)), (free + have) // 100)
        more = min(wanted - have, STEP_BYTES)
        if more <= 0 or (have and more < LEAST_BYTES):
            return
        if free - more < LEFT_FREE_BYTES:
            self._tell("reserve.not_made", free_bytes=free, reason="too little room; a full disk cannot be started on")
            return
        self._grow(have, more)
        self._told = ""
        log.warning("reserve.made", bytes=have + more, free_bytes=free - more, file=str(self._file))

    def _grow(self, have: int, more: int) -> None:
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, have, more)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, have)
            raise
        finally:
            os.close(descriptor)

    def _tell(self, event: str, **story: object) -> None:
        """Once for each cause."""
        told = f"{event} {story['reason']}"
        if told != self._told:
            self._told = told
            log.warning(event, file=str(self._file), **story)


def stored_bytes(stores: Path) -> int:
    """What all files below take on the disk."""
    total = 0
    for parent, _, names in os.walk(stores):
        for name in names:
            # They come and go meanwhile.
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total
