"""The engines behind one way to crash and reopen them, for the contract suites.

HOLDFAST_BACKEND adds one that an installed package offers (shards/backends.py): a directory of files that a copy reproduces.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from actors.chaos.disk import ExposedEngine
from shards.backends import open_backend
from shards.engine import Engine
from shards.engine_memory import MemoryEngine
from tests.contracts.disks import copy_of_living, rocks_engine

ENGINES = ("memory", "rocksdb", *os.environ.get("HOLDFAST_BACKEND", "").split())


class Harness(Protocol):
    @property
    def engine(self) -> Engine: ...

    def kill(self) -> Engine:
        """The process is killed: return the engine that a restart opens. Nothing written is lost."""

    def close(self) -> None: ...


class MemoryHarness:
    def __init__(self) -> None:
        self.engine = MemoryEngine()

    def kill(self) -> MemoryEngine:
        self.engine = self.engine.crash(power=False)
        return self.engine

    def power_cut(self, survivors: int = 0) -> MemoryEngine:
        self.engine = self.engine.crash(power=True, survivors=survivors)
        return self.engine

    def close(self) -> None:
        self.engine.close()


class NoFaults:
    def delay_s(self) -> float:
        return 0.0

    def full(self) -> bool:
        return False


class ExposedHarness:
    """What a broker that may be broken on purpose has around its engine, while nothing is broken."""

    def __init__(self) -> None:
        self._inner = MemoryHarness()
        self.engine: Engine = ExposedEngine(self._inner.engine, NoFaults())

    def kill(self) -> Engine:
        self.engine = ExposedEngine(self._inner.kill(), NoFaults())
        return self.engine

    def close(self) -> None:
        self.engine.close()


class StoredHarness:
    """A kill is a copy of the directory taken while the engine lives: exactly what a killed process leaves in the page cache."""

    def __init__(self, backend: str, directory: Path) -> None:
        self._backend = backend
        self._directory = directory
        self._generation = 0
        self.engine = _opened(backend, directory / "0")

    def kill(self) -> Engine:
        old = self._directory / str(self._generation)
        self._generation += 1
        new = self._directory / str(self._generation)
        copy_of_living(old, new)
        self.engine.close()
        self.engine = _opened(self._backend, new)
        return self.engine

    def close(self) -> None:
        self.engine.close()


def _opened(backend: str, path: Path) -> Engine:
    """RocksDB without compactions, as a copy taken while files come and go is nothing that a killed process leaves."""
    return rocks_engine(path) if backend == "rocksdb" else open_backend(backend, str(path))


def make(kind: str, directory: Path) -> Harness:
    if kind == "exposed":
        return ExposedHarness()
    return MemoryHarness() if kind == "memory" else StoredHarness(kind, directory)
