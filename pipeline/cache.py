"""Files that a session makes once and finds again: the launcher of Java, the zip for executors, in a directory of the user's own.

`$XDG_CACHE_HOME/holdfast`, or `~/.cache/holdfast`. Where that cannot be had, or somebody else could write there, a temporary directory
takes its place, and goes with this process. What lies there is run, so it is believed only when it is ours and says what we would write.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path


def kept(name: str, content: bytes, *, executable: bool = False) -> Path:
    """The file of this name below the directory, with this content; written whole, or not at all."""
    found = _keep(_of_the_user(), name, content, executable)
    return found if found is not None else _keep_here(name, content, executable)


def _keep_here(name: str, content: bytes, executable: bool) -> Path:
    directory = _of_this_process()
    path = _keep(directory, name, content, executable)
    if path is None:
        raise OSError(f"{directory} takes no {'program' if executable else 'file'}: set TMPDIR to a directory that does")
    return path


def _keep(directory: Path | None, name: str, content: bytes, executable: bool) -> Path | None:
    """None: not there. A directory mounted without the right to run programs is no place for one."""
    if directory is None:
        return None
    path = directory / name
    try:
        if not (_ours(path) and path.read_bytes() == content):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, whole = tempfile.mkstemp(dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o700 if executable else 0o600)
            os.replace(whole, path)
        return path if not executable or os.access(path, os.X_OK) else None
    except OSError:
        return None


def _ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _of_the_user() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        directory = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "holdfast"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.lstat()
    except (OSError, RuntimeError):
        # RuntimeError: nobody knows where our home is.
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
    return directory if private else None


@cache
def _of_this_process() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="holdfast-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
