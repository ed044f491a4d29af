"""How the command line turns what was typed into the one name a place has."""

from __future__ import annotations

import os
from pathlib import Path


def data_path(data_dir: str) -> Path:
    """A data directory: absolute, no symbolic link in it, so that every command means the same one."""
    return Path(os.path.realpath(os.path.expanduser(data_dir)))
