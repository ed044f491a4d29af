"""The disk of one copy: a log that forgets what was not synced, and a data engine that does."""

from __future__ import annotations

import random
from collections.abc import Sequence

from shards.engine import StoreFailed, StoreFull
from shards.engine_memory import MemoryEngine
from shards.replication.configuration import NEVER_FORCED
from shards.replication.entry import Entry


class MemoryLog:
    """Life cycle: made empty or from a crash of its forerunner -> used -> crashed. Keeps shards.replication.ports.Log."""

    def __init__(self) -> None:
        self._before = (0, 0)
        self._entries: list[Entry] = []
        self._promised = 0
        self._incarnation = NEVER_FORCED
        self._undo: list[tuple[int, list[Entry], int, int]] = []
        """(last entry left as it was, what was behind it, promise and incarnation before), one for each write that is not synced."""
        self._writes = 0
        self._synced = 0
        self.full = False
        """The next append finds no room."""
        self.broken = False
        """The next sync fails."""
        self.syncing = False

    # ---- the port

    @property
    def first(self) -> int:
        return self._before[0] + 1

    @property
    def last(self) -> int:
        return self._before[0] + len(self._entries)

    @property
    def promised(self) -> int:
        return self._promised

    @property
    def incarnation(self) -> int:
        return self._incarnation

    def epoch_at(self, index: int) -> int | None:
        if index == self._before[0]:
            return self._before[1]
        return self._entries[index - self.first].epoch if self.first <= index <= self.last else None

    def read(self, first: int, entries_max: int, bytes_max: int) -> list[Entry]:
        assert first >= self.first, f"entry {first} is asked for, the log begins at {self.first}"
        found: list[Entry] = []
        total = 0
        for entry in self._entries[first - self.first : first - self.first + entries_max]:
            found.append(entry)
            total += len(entry.payload)
            if total >= bytes_max:
                break
        return found

    def promise(self, epoch: int, incarnation: int = NEVER_FORCED) -> None:
        assert epoch >= self._promised, f"epoch {epoch} promised after {self._promised}"
        self._write(self.last, [])
        self._promised, self._incarnation = epoch, max(incarnation, self._incarnation)

    def append(self, entries: Sequence[Entry]) -> None:
        if self.full:
            self.full = False
            raise StoreFull("append: No space left on device")
        first = entries[0].index
        assert self.first <= first <= self.last + 1, f"entry {first} after {self.last}"
        assert [entry.index for entry in entries] == list(range(first, first + len(entries))), "indexes have gaps"
        kept = first - self.first
        self._write(first - 1, self._entries[kept:])
        self._entries[kept:] = entries

    def trim(self, index: int) -> None:
        assert index <= self.last
        epoch = self.epoch_at(index)
        assert epoch is not None
        del self._entries[: index + 1 - self.first]
        self._before = (index, epoch)

    def reset(self, index: int, epoch: int) -> None:
        assert not self.syncing, "the log is begun anew while it is synced"
        self._entries, self._before = [], (index, epoch)
        self._undo = []
        self._synced = self._writes

    def sync(self) -> None:
        self.sync_end(self.sync_begin())

    # ---- the disk's side

    def sync_begin(self) -> int:
        self.syncing = True
        return self._writes

    def sync_end(self, covered: int) -> None:
        self.syncing = False
        if self.broken:
            raise StoreFailed("sync: Input/output error")
        if covered > self._synced:
            del self._undo[: covered - self._synced]
            self._synced = covered

    @property
    def unsynced(self) -> int:
        return len(self._undo)

    @property
    def stable_promise(self) -> int:
        """What a power cut would leave of the promise."""
        return self._undo[0][2] if self._undo else self._promised

    def stable(self) -> list[Entry]:
        """What a power cut would leave now."""
        entries = list(self._entries)
        for left, behind, _, _ in reversed(self._undo):
            entries[max(0, left + 1 - self.first) :] = behind
        return entries

    def crash(self, power: bool, survivors: int = 0) -> None:
        """What a restart finds: after a power cut what was synced and the first `survivors` of the other writes, else all."""
        if power:
            for left, behind, promised, incarnation in reversed(self._undo[survivors:]):
                self._entries[max(0, left + 1 - self.first) :] = behind
                self._promised, self._incarnation = promised, incarnation
            del self._undo[survivors:]
        # What survived is in the page cache, or on the disk by luck: in any case nobody has synced it.
        self._writes, self._synced = len(self._undo), 0
        self.full = self.broken = self.syncing = False

    def _write(self, left: int, behind: list[Entry]) -> None:
        self._undo.append((left, list(behind), self._promised, self._incarnation))
        self._writes += 1


class Disk:
    """Of one copy, with its number on its site: outlives its processes. `half`: files of a checkpoint that are not installed."""

    def __init__(self, copy: int = 1) -> None:
        self.copy = copy
        self.log = MemoryLog()
        self.engine = MemoryEngine()
        self.half: dict[int, bytearray] = {}
        self.checkpoints: dict[int, list[bytes]] = {}

    def crash(self, power: bool, rng: random.Random, kept: int | None = None) -> None:
        """kept: so many writes that were not synced are on the disk all the same; None: as chance will have it."""

        def survivors(unsynced: int) -> int:
            return rng.choice((0, 0, rng.randint(0, unsynced))) if kept is None else min(kept, unsynced)

        self.log.crash(power, survivors(self.log.unsynced))
        self.engine = self.engine.crash(power, survivors(self.engine.unsynced_writes))
        self.checkpoints = {}
