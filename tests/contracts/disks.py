"""The disk below a history: an engine that is killed or loses its power, and what the next one finds.

In memory the shipped twin undoes writes. On RocksDB a copy of the directory is what a killed process leaves in the page cache; for a
power cut the log of the copy is cut somewhere behind what was synced, also in the middle of a write. Data files count as synced: RocksDB
syncs a file before it names it.

Always holds: what a crash leaves is a prefix of the writes that has all that was synced.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Protocol

from shards.engine import Engine
from shards.engine_memory import MemoryEngine
from shards.engine_rocks import RocksEngine, RocksOptions


def rocks_engine(path: Path) -> RocksEngine:
    """One in which no file comes by itself, so that its directory can be copied while it lives."""
    return RocksEngine(str(path), RocksOptions(write_buffer_bytes=64 << 20, compacts=False))


def copy_of_living(source: Path, target: Path) -> None:
    """What a process that is killed now leaves behind. RocksDB deletes, a little later, what opening has made needless: a copy is taken
    again when files went meanwhile."""
    while True:
        before = sorted(os.listdir(source))
        try:
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))
            if sorted(os.listdir(source)) == before:
                return
        except shutil.Error:
            pass
        shutil.rmtree(target)


class Disk(Protocol):
    """Outlives the processes that use it."""

    @property
    def engine(self) -> Engine:
        """That of the process that lives now."""

    def sync(self) -> None: ...

    def refuse_next_write(self) -> bool:
        """The next write finds the disk full; False: that cannot be played here."""

    def kill(self) -> None:
        """The process is gone, the page cache stays."""

    def cut_power(self, rng: random.Random) -> None:
        """What was not synced is gone, except, sometimes, some of the first of it."""

    def close(self) -> None: ...


class MemoryDisk:
    def __init__(self) -> None:
        self.engine = MemoryEngine()

    def sync(self) -> None:
        self.engine.sync()

    def refuse_next_write(self) -> bool:
        self.engine.fail_next_write()
        return True

    def kill(self) -> None:
        self.engine = self.engine.crash(power=False)

    def cut_power(self, rng: random.Random) -> None:
        self.engine = self.engine.crash(True, rng.choice((0, 0, rng.randint(0, self.engine.unsynced_writes))))

    def close(self) -> None:
        self.engine.close()


class RocksDisk:
    """A directory for each process, numbered; only that of the living one is there."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0
        self._synced: tuple[str, int] = ("", 0)
        """The newest log, and how much of it was synced."""
        self.engine = rocks_engine(self._path)
        self.sync()

    @property
    def _path(self) -> Path:
        return self._directory / str(self._number)

    def sync(self) -> None:
        log = _newest_log(self._path)
        size = os.path.getsize(log)
        self.engine.sync()
        self._synced = log.name, size

    def refuse_next_write(self) -> bool:
        return False

    def kill(self) -> None:
        self._go_on_from(self._copy())

    def cut_power(self, rng: random.Random) -> None:
        copy = self._copy()
        log = _newest_log(copy)
        name, size = self._synced
        kept = size if log.name == name else 0
        os.truncate(log, rng.choice((kept, kept, rng.randint(kept, os.path.getsize(log)))))
        self._go_on_from(copy)

    def close(self) -> None:
        self.engine.close()
        shutil.rmtree(self._path)

    def _copy(self) -> Path:
        path = self._directory / str(self._number + 1)
        copy_of_living(self._path, path)
        return path

    def _go_on_from(self, copy: Path) -> None:
        self.close()
        self._number += 1
        self.engine = rocks_engine(copy)
        # What opening wrote and made of the logs, RocksDB has synced; nothing of ours is in the new log yet.
        self._synced = _newest_log(copy).name, 0


def _newest_log(directory: Path) -> Path:
    return max(directory.glob("*.log"))


def make(on_disk: bool, directory: Path) -> Disk:
    return RocksDisk(directory) if on_disk else MemoryDisk()
