"""Small files of bridges that must survive a power cut: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes | None) -> None:
    """None: there is no such file any more.  Blocks until it is on disk.  Raises OSError."""
    if data is None:
        path.unlink(missing_ok=True)
    else:
        beside = path.with_name(f"{path.name}.{os.getpid()}.part")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
