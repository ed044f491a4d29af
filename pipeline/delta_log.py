"""Checksums of the log of an archive's Delta table, so that a bit that flipped there is found.

    <root>/_holdfast/00000000000000000007.json.sha256    of <root>/_delta_log/00000000000000000007.json, as `sha256sum -c` reads it there

A log says which files there are, and that can be compared with the manifest; of its times, statistics and schema nothing else knows.
Files of a log never change once they are there, apart from `_last_checkpoint`, which only says where readers may begin and has none.

Holds: a checksum is written once, after its file is on disk, and the archive acknowledges nothing before.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pipeline.manifest import DIRECTORY, sync_directory, write_new

LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"\d{20}\.json")
_CHECKPOINT: Final = re.compile(r"\d{20}\.checkpoint[\w.-]*\.parquet")
_SUFFIX: Final = ".sha256"


def note(root: Path) -> None:
    """Write the checksums that are not there yet: of what was just committed, or by a run that died right after it. OSError."""
    noted = set(os.listdir(root / DIRECTORY))
    new = [path for path in _files(root) if path.name + _SUFFIX not in noted]
    for path in new:
        with open(path, "rb") as file:
            data = file.read()
            os.fsync(file.fileno())
        write_new(root / DIRECTORY / (path.name + _SUFFIX), _line(path.name, data))
    if new:
        sync_directory(root / LOG)
        sync_directory(root / DIRECTORY)


def problems(root: Path) -> Iterator[str]:
    """One sentence for each file of the log that is not what it was."""
    for path in _files(root):
        try:
            kept = (root / DIRECTORY / (path.name + _SUFFIX)).read_bytes()
        except FileNotFoundError:
            # Anybody who reads a table may make a checkpoint of it.
            if _COMMIT.fullmatch(path.name):
                yield f"{path} has no checksum in {DIRECTORY}: the next run writes it"
            continue
        if kept != _line(path.name, path.read_bytes()):
            yield f"{path} or its checksum in {DIRECTORY} was changed"


def _files(root: Path) -> list[Path]:
    names = os.listdir(root / LOG)
    return [root / LOG / name for name in sorted(names) if _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)]


def _line(name: str, data: bytes) -> bytes:
    return f"{hashlib.sha256(data).hexdigest()}  ../{LOG}/{name}\n".encode()
