"""A file that a command changes: the whole of it at once, for its owner alone, and by one command at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Whole and durable, with the owner that it had."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            if path.exists():
                found = path.stat()
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(descriptor, found.st_uid, found.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o640)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Of two who change a file at once the second changes what the first has made."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)
