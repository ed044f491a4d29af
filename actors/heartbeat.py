"""A gateway counts the turns of its loop where the launcher can see it: four numbers in a mapped file.

A beat is one store into memory, so the loop can afford it; reading needs no answer from a loop that may be stuck.  It says which thread
beats, since how long that one has waited for a processor, the kernel knows: on a busy machine a heart may be still and not stuck.
Nor is it stuck while its loop stands for a disk, as it may where a shard shares the process (actors.inlining): ended, it would only come
back to the same disk.
Whether and when a still heart is ended is decided in actors.launcher.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<QQQQ")
_NUMBER = struct.Struct("<Q")
_COUNT_AT = 16
_STANDS_AT = 24


@dataclass(frozen=True, slots=True)
class Beat:
    pid: int
    thread: int
    count: int
    stands: bool = False
    """Its loop waits for a disk at this moment."""


class Heartbeat:
    """The beating side. One per process, made by the thread that beats; a new process puts a new file in the place of the old one."""

    def __init__(self, path: Path) -> None:
        global _here
        self._count = 0
        beside = path.with_name(f"{path.name}.{os.getpid()}.part")
        beside.write_bytes(_FORMAT.pack(os.getpid(), threading.get_native_id(), 0, 0))
        with open(beside, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORMAT.size)
        os.replace(beside, path)
        _here = self

    def beat(self) -> None:
        self._count += 1
        _NUMBER.pack_into(self._map, _COUNT_AT, self._count)

    def stand(self, for_disk: bool) -> None:
        _NUMBER.pack_into(self._map, _STANDS_AT, for_disk)

    def close(self) -> None:
        global _here
        if _here is self:
            _here = None
        self._map.close()


_here: Heartbeat | None = None
"""That of this process."""


def standing_for_disk(stands: bool) -> None:
    """The loop of this process waits for a disk from now on, or does so no more."""
    if _here is not None:
        _here.stand(stands)


def read_beat(path: Path) -> Beat | None:
    """The last beat, or None while no gateway has begun to count."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) != _FORMAT.size:
        return None
    pid, thread, count, stands = _FORMAT.unpack(data)
    return Beat(pid, thread, count, bool(stands))
