"""A gateway counts the turns of its loop where the launcher can see it: three numbers in a mapped file.

A beat is one store into memory, so the loop can afford it; reading needs no answer from a loop that may be stuck.  It says which thread
beats, since how long that one has waited for a processor, the kernel knows: on a busy machine a heart may be still and not stuck.
Whether and when a still heart is ended is decided in actors.launcher.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

_FORMAT = struct.Struct("<QQQ")
_COUNT = struct.Struct("<Q")
_COUNT_AT = 16


@dataclass(frozen=True, slots=True)
class Beat:
    pid: int
    thread: int
    count: int


class Heartbeat:
    """The beating side. One per process, made by the thread that beats; a new process puts a new file in the place of the old one."""

    def __init__(self, path: Path) -> None:
        self._count = 0
        beside = path.with_name(f"{path.name}.{os.getpid()}.part")
        beside.write_bytes(_FORMAT.pack(os.getpid(), threading.get_native_id(), 0))
        with open(beside, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _FORMAT.size)
        os.replace(beside, path)

    def beat(self) -> None:
        self._count += 1
        _COUNT.pack_into(self._map, _COUNT_AT, self._count)

    def close(self) -> None:
        self._map.close()


def read_beat(path: Path) -> Beat | None:
    """The last beat, or None while no gateway has begun to count."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return Beat(*_FORMAT.unpack(data)) if len(data) == _FORMAT.size else None
