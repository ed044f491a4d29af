"""The settings in force in a run: those of its start, and after a reload one versioned snapshot in the run directory.

    settings.json    {version, config}: all settings; absent until something was changed while the broker runs
    NAME.settings    the version that process NAME has taken

Written by whoever reloads (actors.reload), under its lock; read by every process when it starts, and by the controller, which tells
those that run (actors.controller). So it matters to nobody who of them dies when: what a process missed it reads when it is back.

Always holds: versions only grow within a run; a process that has written NAME.settings, and every later one of that name, has that version
or a newer one. The topology that Ray starts actors with keeps the configuration of the start of the run, so nobody uses that without
asking here.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.topology import Topology, write_whole
from config.load import from_json
from config.schema import Config

NAME = "settings.json"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """version 0: as at the start of the run."""

    version: int
    config: str
    """The whole configuration as `config.dump` writes it."""


def read_snapshot(topology: Topology) -> Snapshot:
    try:
        fields = json.loads((topology.run_dir / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Snapshot(0, topology.config_json)
    return Snapshot(**fields)


def write_snapshot(run_dir: Path, snapshot: Snapshot) -> None:
    write_whole(run_dir / NAME, json.dumps(asdict(snapshot)))


def settings_in_force(topology: Topology) -> Config:
    return from_json(read_snapshot(topology).config)


@contextmanager
def alone(run_dir: Path) -> Iterator[None]:
    """Whoever makes another version of anything that is in force: two at a time would make one version of two things."""
    descriptor = os.open(run_dir / "reload.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def confirm(run_dir: Path, name: str, version: int) -> None:
    """This process has taken this version."""
    write_whole(run_dir / f"{name}.settings", str(version))


def taken(run_dir: Path, name: str) -> int:
    """The version that a process has taken; -1: it has not started yet."""
    try:
        return int((run_dir / f"{name}.settings").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return -1


class Watched:
    """The snapshot for whoever looks often: the file is read only when it is another one."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._seen: tuple[int, int] | None = None
        self.snapshot = Snapshot(0, topology.config_json)

    def changed(self) -> bool:
        """Whether there is a newer one than at the last look; it is in `snapshot` then."""
        try:
            found = (self._topology.run_dir / NAME).stat()
        except OSError:
            return False
        seen = (found.st_ino, found.st_mtime_ns)
        if seen == self._seen:
            return False
        before, self._seen = self.snapshot.version, seen
        self.snapshot = read_snapshot(self._topology)
        return self.snapshot.version > before
