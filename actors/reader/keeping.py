"""Whether the reader is wanted: by the configuration, or by a file in the run directory that whoever needs it writes.

    reader.wanted    there is work for a reader: written, and written again, by who has it; taken away by the reader when it was idle
                     for `pipeline.idle_stop`, counted from its last connection or the last writing, whichever is later

Always holds: a reader is ended only when the file is gone, so whoever writes it, and then finds a reader that listens, has that long.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from actors.reader.options import When

WANTED = "reader.wanted"


def want(run_dir: Path) -> None:
    path = run_dir / WANTED
    path.touch(mode=0o600)
    os.utime(path)


def is_wanted(run_dir: Path, when: When) -> bool:
    return when == "always" or (when == "on demand" and (run_dir / WANTED).exists())


def let_go(run_dir: Path, idle_s: float, idle_stop_s: float) -> bool:
    """Take the file away if nobody needs the reader any more. True: that was done."""
    path = run_dir / WANTED
    try:
        # A clock that was set may end it early or keep it long; then somebody asks again, or it goes later.
        asked_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    if min(idle_s, asked_s) <= idle_stop_s:
        return False
    path.unlink(missing_ok=True)
    return True
