"""Starts processes on a watched disk and says, while they run, what shall fail.

``FaultDisk`` owns one directory beside the watched one: the log, the control
block that every watched process maps, and second names of the RocksDB logs.  It
does not start anything: it gives the environment to start with.  Reading the log
is left to ``trace``.

The order of the fields is the order of ``struct control`` in faultdisk.h.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.faultdisk.build import library
from tests.faultdisk.trace import Op, Trace, read

MAGIC = 0x31434446
CONTROL = struct.Struct("<Iii16sii16sIQQQiiii64sQ")
SUFFIX_BYTES_MAX, PATTERN_BYTES_MAX = 15, 63
_FAIL_SYNCS, _SYNC_ERRNO, _SYNC_SUFFIX, _FULL, _WRITE_ERRNO, _WRITE_SUFFIX, _DELAY, _FAILED = 4, 8, 12, 28, 32, 36, 52, 56
_DEATH_IN, _DEATH_OP, _DEATH_AFTER, _DEATH_NAME, _DEATHS = 80, 84, 88, 96, 160
DEADLY = (Op.WRITE, Op.FSYNC, Op.RENAME, Op.LINK, Op.UNLINK)
"""Calls at which a process can be ended; FSYNC is fdatasync as well."""


@dataclass(frozen=True, slots=True)
class Spoiled:
    """How often the library did what it was told to, since the control block was made."""

    syncs_failed: int
    writes_failed: int
    syncs_delayed: int


class FaultDisk:
    """One watched directory with its log and its control block.

    ``beside`` must be outside of ``root`` and on the same file system.  Nothing fails until a method says so.
    """

    def __init__(self, root: Path, beside: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root.resolve()
        self.kept = beside / "kept"
        self.kept.mkdir(parents=True, exist_ok=True)
        self.log = beside / "faultdisk.log"
        self.log.touch()
        self.control = beside / "faultdisk.control"
        self.control.write_bytes(CONTROL.pack(MAGIC, 0, errno.EIO, b"", 0, errno.ENOSPC, b"", 0, 0, 0, 0, *(0, 0, 0, 0, b"", 0)))
        descriptor = os.open(self.control, os.O_RDWR)
        self._shared = mmap.mmap(descriptor, CONTROL.size)
        os.close(descriptor)

    def environment(self, *, sockets: str = "", keep_logs: bool = False) -> dict[str, str]:
        """What to add to a process's environment; ``sockets`` is "1" for all or a list of local ports."""
        added = {
            "LD_PRELOAD": str(library()),
            "FAULTDISK_ROOT": str(self.root),
            "FAULTDISK_LOG": str(self.log),
            "FAULTDISK_CONTROL": str(self.control),
        }
        if sockets:
            added["FAULTDISK_LOG_SOCKETS"] = sockets
        if keep_logs:
            added["FAULTDISK_KEEP"] = str(self.kept)
        return added

    def fail_syncs(self, count: int, *, suffix: str = "", error: int = errno.EIO) -> None:
        """The next ``count`` syncs of files named ``*suffix`` fail (below 0: every one, until called with 0)."""
        self._suffix(_SYNC_SUFFIX, suffix)
        self._int(_SYNC_ERRNO, error)
        self._int(_FAIL_SYNCS, count)

    def fill(self, *, suffix: str = "", error: int = errno.ENOSPC) -> None:
        """From now on every write to files named ``*suffix`` fails, as on a full disk."""
        self._suffix(_WRITE_SUFFIX, suffix)
        self._int(_WRITE_ERRNO, error)
        self._int(_FULL, 1)

    def free(self) -> None:
        """There is space again."""
        self._int(_FULL, 0)

    def delay_syncs(self, delay_us: int) -> None:
        """Each sync takes so much longer; 0 lifts it, also for those under way (within 10 ms)."""
        struct.pack_into("<I", self._shared, _DELAY, delay_us)

    def end_at(self, op: Op, pattern: str, *, after: bool, times: int = 1) -> None:
        """Whoever makes the ``times``-th such call from now on is ended with SIGKILL, before it happens or when it has: once.

        ``pattern``: as a shell has it, of the path below the root (``*`` is also slashes); of a rename it is the new name."""
        if op not in DEADLY:
            raise ValueError(f"nobody is ended at {op.name.lower()}; wanted one of {', '.join(each.name.lower() for each in DEADLY)}")
        if len(pattern.encode()) > PATTERN_BYTES_MAX:
            raise ValueError(f"pattern {pattern!r} is longer than {PATTERN_BYTES_MAX} bytes")
        self.end_nowhere()
        struct.pack_into("<ii", self._shared, _DEATH_OP, op, after)
        struct.pack_into("<64s", self._shared, _DEATH_NAME, pattern.encode())
        self._int(_DEATH_IN, times)

    def end_nowhere(self) -> None:
        self._int(_DEATH_IN, 0)

    def deaths(self) -> int:
        """How many processes were ended so."""
        (count,) = struct.unpack_from("<Q", self._shared, _DEATHS)
        return int(count)

    def spoiled(self) -> Spoiled:
        return Spoiled(*struct.unpack_from("<QQQ", self._shared, _FAILED))

    def trace(self) -> Trace:
        """Everything logged so far."""
        return read(self.log)

    def _int(self, at: int, value: int) -> None:
        struct.pack_into("<i", self._shared, at, value)

    def _suffix(self, at: int, suffix: str) -> None:
        if len(suffix.encode()) > SUFFIX_BYTES_MAX:
            raise ValueError(f"suffix {suffix!r} is longer than {SUFFIX_BYTES_MAX} bytes")
        struct.pack_into("<16s", self._shared, at, suffix.encode())
