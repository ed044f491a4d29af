"""What a replica writes to its log, and how much of it is on the disk.

All writes go through here: promises, entries, truncations with what comes in their place. One sync is asked for or under way at a time and
covers what was written when it began; the next is asked for when it ends and something was written since (group commit without a timer).

Always holds (see check):
1. `stable` <= log.last, and the entries up to it are on the disk as they are in the log: what is replaced below lowers it at once;
2. `stable_epoch` <= log.promised;
3. what a restart finds counts as written and not as synced: it may be in the page cache only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from shards.replication.configuration import NEVER_FORCED
from shards.replication.entry import Entry
from shards.replication.events import Effect, StartSync
from shards.replication.ports import Log


class Writing:
    __slots__ = ("_covering", "_covering_epoch", "_dirty", "_state", "log", "stable", "stable_epoch")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.stable = 0
        self.stable_epoch = 0
        self._state: Literal["idle", "asked", "running", "failed"] = "idle"
        self._dirty = True
        self._covering = 0
        self._covering_epoch = 0

    def promise(self, epoch: int, incarnation: int = NEVER_FORCED) -> None:
        self.log.promise(epoch, incarnation)
        self._dirty = True

    def append(self, entries: Sequence[Entry]) -> None:
        """Behind the last, or in place of what is there from the first of them on. Raises StoreFull: then nothing was written."""
        self.log.append(entries)
        before = entries[0].index - 1
        self.stable = min(self.stable, before)
        self._covering = min(self._covering, before)
        self._dirty = True

    def reset(self, index: int, epoch: int) -> None:
        """The log begins anew behind a checkpoint; durable at once. Not while a sync runs."""
        assert not self.syncing, "the log is begun anew while it is synced"
        self.log.reset(index, epoch)
        self.stable = self._covering = index

    def wanted(self) -> list[Effect]:
        """The sync to ask for now, if any."""
        if self._state != "idle" or not self._dirty:
            return []
        self._state = "asked"
        return [StartSync()]

    def sync_started(self) -> None:
        assert self._state == "asked", f"a sync starts while {self._state}"
        self._state, self._dirty = "running", False
        self._covering, self._covering_epoch = self.log.last, self.log.promised

    def sync_done(self) -> None:
        assert self._state == "running", f"a sync ends while {self._state}"
        self._state = "idle"
        self.stable = max(self.stable, self._covering)
        self.stable_epoch = max(self.stable_epoch, self._covering_epoch)

    def broke(self) -> None:
        self._state = "failed"

    @property
    def syncing(self) -> bool:
        return self._state == "running"

    @property
    def failed(self) -> bool:
        return self._state == "failed"

    @property
    def idle(self) -> bool:
        """Everything written is on the disk."""
        return self._state == "idle" and not self._dirty

    def check(self) -> None:
        assert self.stable <= self.log.last, (self.stable, self.log.last)
        assert self.stable_epoch <= self.log.promised
