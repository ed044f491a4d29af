"""A disk that is slow or full on purpose: what stands between a shard and its engine where `chaos.enabled`.

Slow: each sync takes so much longer, in the thread that syncs; what reads or writes without one does not wait for a disk.  Full: whatever
wants room is refused with StoreFull and leaves nothing behind, as the port has it; a sync of what was written before succeeds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from shards.engine import Engine, Op, StoreFull

TEXT = "no room, on purpose: holdfast chaos disk-full"


class DiskFaults(Protocol):
    """Asked from any thread."""

    def delay_s(self) -> float: ...

    def full(self) -> bool: ...


class ExposedEngine:
    """The engine port.  What is broken by nothing is the engine's own method."""

    def __init__(self, engine: Engine, faults: DiskFaults) -> None:
        self._engine = engine
        self._faults = faults
        self.families, self.has_family, self.drop_family = engine.families, engine.has_family, engine.drop_family
        self.get, self.get_many, self.scan = engine.get, engine.get_many, engine.scan
        self.keys_and_values, self.columns, self.cursor = engine.keys_and_values, engine.columns, engine.cursor
        self.latest_sequence, self.size_bytes, self.family_bytes = engine.latest_sequence, engine.size_bytes, engine.family_bytes
        self.close = engine.close

    def __getattr__(self, name: str) -> object:
        """What only some engines have, such as what they found broken."""
        return getattr(self._engine, name)

    def write(self, ops: Sequence[Op]) -> None:
        self._needs_room()
        self._engine.write(ops)

    def create_family(self, family: int) -> None:
        self._needs_room()
        self._engine.create_family(family)

    def checkpoint(self, path: str) -> None:
        self._needs_room()
        self._engine.checkpoint(path)

    def sync(self) -> None:
        delay_s = self._faults.delay_s()
        if delay_s:
            time.sleep(delay_s)
        self._engine.sync()

    def _needs_room(self) -> None:
        if self._faults.full():
            raise StoreFull(TEXT)


class LogHindrance:
    """The same for the log of a replica, which is what a shard of several sites syncs."""

    def __init__(self, faults: DiskFaults) -> None:
        self._faults = faults

    def before_write(self) -> None:
        if self._faults.full():
            raise StoreFull(TEXT)

    def before_sync(self) -> None:
        delay_s = self._faults.delay_s()
        if delay_s:
            time.sleep(delay_s)
