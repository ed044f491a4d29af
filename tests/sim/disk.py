"""The disk of one shard: what is written lives in the process, then in the page cache, then on the disk.

The engine is the shipped in-memory twin, which knows page cache and disk; here are the faults and the time a sync takes.

    kill     the process is gone, the page cache stays
    power    what was not synced is gone, except some of the first of it
    EIO      a sync fails, once; the process ends itself, and the page cache may have lost what it could not write
    full     a write is refused; the process ends itself, as its shell does

It also watches: which of the messages of our clients are written, which of them are synced, and which were lost again.
"""

from __future__ import annotations

from typing import Protocol

from mqtt.body import strip_properties
from shards.engine import Op, StoreFailed, StoreFull
from shards.engine_memory import MemoryEngine
from shards.messages import header
from tests.sim.world import World


class Watcher(Protocol):
    """Hears what becomes of stored messages, by their payload."""

    def written(self, shard: int, position: int, payload: bytes) -> None: ...

    def synced(self, payload: bytes) -> None: ...

    def forgotten(self, shard: int, position: int, payload: bytes) -> None: ...


class Disk:
    """Outlives the processes that use it.  room: 0 enough, 1 low, 2 very low, 3 none: a write is refused."""

    def __init__(self, world: World, shard: int, watcher: Watcher, sync_us: tuple[int, int]) -> None:
        self.engine = MemoryEngine()
        self.room = 0
        self.failed = False
        """A sync has failed."""
        self.low_until_us = -1
        """Until when its shard may know of too little room."""
        self.sync_us = sync_us
        self._world = world
        self._shard = shard
        self._watcher = watcher
        self._unsynced: list[list[tuple[int, bytes]]] = []
        """The messages of every write that is in the page cache only."""

    # ------------------------------------------------------------------ for the process

    def write(self, ops: list[Op], stored: list[tuple[int, bytes]]) -> None:
        """stored: position and value of every message in it; how a layout puts them into rows is its own."""
        if self.room >= 3:
            raise StoreFull("write: No space left on device")
        self._align()
        self.engine.write(ops)
        messages: list[tuple[int, bytes]] = []
        for position, value in stored:
            payload = strip_properties(header(value)[4])
            messages.append((position, payload))
            self._watcher.written(self._shard, position, payload)
        self._unsynced.append(messages)

    def sync_begin(self) -> int:
        """What a sync that begins now covers."""
        self._align()
        return self.engine.sync_begin()

    def sync_end(self, covered: int) -> None:
        """It has ended; raises when it failed."""
        self._align()
        try:
            self.engine.sync_end(covered)
        except StoreFailed:
            self.failed = True
            raise
        count = self.engine.unsynced_writes
        for messages in self._unsynced[: len(self._unsynced) - count]:
            for _, payload in messages:
                self._watcher.synced(payload)
        del self._unsynced[: len(self._unsynced) - count]

    def sync_time_us(self) -> int:
        low, high = self.sync_us
        # Now and then a disk thinks of something else first.
        return self._world.between(low, high) * (40 if self._world.happens(0.01) else 1)

    # ------------------------------------------------------------------ faults

    def heal(self) -> None:
        """It has room, and the next sync works."""
        self.room = 0
        self.engine.fail_no_more()

    def fail_next_sync(self) -> None:
        self.engine.fail_next_sync()

    def after_kill(self) -> None:
        self._align()
        self.failed = False
        self.engine = self.engine.crash(power=False)

    def after_power_cut(self) -> None:
        """Also what is left after a sync that failed: nobody knows which pages were written."""
        self._align()
        self.failed = False
        survivors = self._world.between(0, len(self._unsynced))
        self.engine = self.engine.crash(power=True, survivors=survivors)
        for messages in self._unsynced[:survivors]:
            for _, payload in messages:
                self._watcher.synced(payload)
        for messages in self._unsynced[survivors:]:
            for position, payload in messages:
                self._watcher.forgotten(self._shard, position, payload)
        self._unsynced.clear()

    # ------------------------------------------------------------------ within

    def _align(self) -> None:
        """A store writes by itself as well, when it is opened and in idle moments: such writes have no message of ours."""
        while len(self._unsynced) < self.engine.unsynced_writes:
            self._unsynced.append([])
