"""What the replication core asks of the world: a log of its own on disk, and a register that all replicas share.

The log is the write-ahead log of one replica. Writing to it does not wait; one thread of the shell syncs it. The register is
shards.replication.register; the shell asks it and hands the answers to the core as events. It keeps bytes under versions of its own: the
shell proposes a record on the version of the value in which it has read the record with new.ver - 1, and says CONFLICT when there is
another.

Always holds of a log:
1. a write is visible at once, and safe against a power cut after a `sync` that began after it;
2. what survives a crash is a prefix of the writes, in the order in which they were made; each whole or not at all. A truncation and the
   entries in its place are one write;
3. `promised` and `incarnation` never fall.

Always holds of a register: it is linearizable; after CONFLICT nothing was changed; after UNKNOWN the change was made, will be made at some
time, or never, and only a newer version says that it cannot come any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from shards.replication.configuration import NEVER_FORCED
from shards.replication.entry import Entry


class Log(Protocol):
    """Every write may raise shards.engine.StoreFull (nothing of it is there) or StoreFailed (nobody knows: the process ends)."""

    @property
    def first(self) -> int:
        """Index of the first entry that is kept; last + 1 when none is."""

    @property
    def last(self) -> int:
        """Index of the last entry; first - 1 when none is kept."""

    @property
    def promised(self) -> int:
        """The highest epoch promised; 0: none."""

    @property
    def incarnation(self) -> int:
        """Of the shard, to which the entries belong, if there are any."""

    def epoch_at(self, index: int) -> int | None:
        """Of an entry that is kept, and of the one before the first (0 in a new log); None: not known."""

    def read(self, first: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from `first` on, at least one when it is kept: at most so many, and none after the one with which their payloads
        reach `bytes_max`."""

    def promise(self, epoch: int, incarnation: int = NEVER_FORCED) -> None:
        """Nothing of a lower epoch is answered any more, and what comes belongs to this incarnation of the shard, or to the one of
        before, if that is greater. Grows."""

    def append(self, entries: Sequence[Entry]) -> None:
        """One write. The first index is at most last + 1; what was there from it on is replaced."""

    def trim(self, index: int) -> None:
        """Entries up to this one need not be kept. May keep some of them; need not be durable."""

    def reset(self, index: int, epoch: int) -> None:
        """Forget all entries; the next one follows (index, epoch), which is where a checkpoint that was installed ends. Durable on
        return; not while a sync runs."""

    def sync(self) -> None:
        """Return when everything written before the call is on disk. Blocks; only the one sync thread calls it. After StoreFailed nobody
        knows what is on disk: the process ends."""


class Outcome(Enum):
    """Of a compare-and-set."""

    DONE = "done"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


class RegisterAway(Exception):
    """The register did not answer: a read says nothing. One sentence."""
