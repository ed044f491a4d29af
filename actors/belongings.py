"""Which processes belong to the broker of a data directory, so that it may count and end them.

Of a Ray of our own: everything. Of a Ray that was joined: our launcher's descendants, and the actors that have announced themselves. Not
the workers Ray is just starting for us: killed before they have registered, they keep their place in Ray's queue for a minute, and
nothing else starts; they look for their generation, do not find it, and give up by themselves.
"""

from __future__ import annotations

import os
from pathlib import Path

from actors.processes import DATA_MARK, RUN_MARK, ProcessId, alive, ancestors, descendants, marked
from actors.run import Run
from actors.topology import read_announcements


def belongings(data_dir: Path, run: Run | None, *, inside: bool = False) -> list[ProcessId]:
    """All living processes of a data directory but its launcher, those of killed runs included. Never the asker's own ancestors, so that
    he may end all that he is told; inside: he is one of them, and only wants to know."""
    spare = {run.launcher.pid} if inside and run is not None else set(ancestors())
    found: set[ProcessId] = set()
    if run is not None and run.launched():
        found.update(descendants(run.launcher.pid))
    bearing = marked(DATA_MARK, str(data_dir))
    found.update(_announced(run.run_dir, bearing) if run is not None and run.joined else bearing)
    return [process for process in found if process.pid not in spare]


def started_here(run_dir: Path, *, joined: bool) -> list[ProcessId]:
    """All living processes of the run this process launched."""
    bearing = marked(RUN_MARK, str(run_dir))
    return list({*descendants(os.getpid()), *(_announced(run_dir, bearing) if joined else bearing)})


def _announced(run_dir: Path, bearing: list[ProcessId]) -> list[ProcessId]:
    known = {each.process for each in read_announcements(run_dir)}
    return [process for process in bearing if (process in known or is_driver(process.pid)) and alive(process)]


def is_driver(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"actors.driver" in file.read().split(b"\0")
    except OSError:
        return False
