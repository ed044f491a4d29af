"""The broker's own token: whoever can read its file may read and write everything through the reader."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from actors.datadir import sync_directory

OWN = "pipeline.token"


def own_token(data_dir: Path) -> str:
    """The broker's own, made when it is not there yet; kept for ever. Raises OSError."""
    path = data_dir / OWN
    while True:
        try:
            token = path.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            token = ""
        if token:
            return token
        _make(path)


def _make(path: Path) -> None:
    """Whoever reads it finds it whole: it is linked to its name when it is on disk, and never put in the place of another."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        if path.exists() and not path.read_text(encoding="ascii", errors="replace").strip():
            # A power cut of an older system, or somebody's editor: an empty one opens nothing.
            os.replace(beside, path)
        else:
            os.link(beside, path)
    except FileExistsError:
        pass  # Somebody else was faster; theirs counts.
    finally:
        beside.unlink(missing_ok=True)
    sync_directory(path.parent)
