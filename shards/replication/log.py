"""The replicated log of one shard on one replica: it is the write-ahead log, so an entry is durable when its log is synced.

Segment files in a directory of their own (docs/formats.md, "Replicated log").  To append is one write, on the loop; other entries in the
place of a suffix are one write as well.  `sync` is one fdatasync, in one thread (actors.syncing); it covers all writes that were made when
it began.  What else blocks on the disk waits for it: a promise is put into its file, the next segment is made before it is needed, segments
that were trimmed are unlinked.  Reading is for any thread: what `locate` found stays readable whatever is trimmed meanwhile.

Always holds:
1. a write is visible at once, and durable when a sync that began after it has ended;
2. after a crash the log is as after one of its writes, and none that a sync has covered comes after that one;
3. after a failed sync, or a write of which nobody knows what it left, nothing is written any more: the process ends;
4. a segment is unlinked only when everything that comes behind it is on disk.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

from shards.engine import StoreFailed, StoreFull
from shards.replication.configuration import NEVER_FORCED, Configuration, Rid
from shards.replication.entry import PAYLOAD_BYTES_MAX, Entry
from shards.replication.log_format import SegmentHead, pack_batch
from shards.replication.log_index import LogIndex
from shards.replication.log_recovery import Recovered
from shards.replication.log_segment import Segment
from shards.replication.promise import Promise, write_promise

NEXT_SEGMENT_AT = 0.5
"""So full is a segment when the next one is made."""
SEGMENT_BYTES_MAX = 1 << 30
"""A segment grows to this only when no next one could be made.  With a batch behind it an offset still has 32 bits."""


@dataclass(frozen=True, slots=True)
class LogLimits:
    """segment_bytes: a segment with so many is followed by another.  How much is kept is for whoever trims (shards.replication.bounds)."""

    segment_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class Located:
    """Entries that lie together in one segment: index, offset, bytes of the payload."""

    segment: Segment
    places: list[tuple[int, int, int]]

    def read(self) -> list[Entry]:
        """In any thread.  Raises StoreDamaged."""
        return self.segment.read(self.places)


@dataclass(eq=False, slots=True)
class Pin:
    """No entry from this one on is trimmed until it is let go.  Who is served moves it on."""

    index: int
    _pins: set[Pin] = field(repr=False)

    def let_go(self) -> None:
        self._pins.discard(self)


class ReplicatedLog:
    """Made by log_opening.open_log.  All but `sync` and `Located.read` is for one thread."""

    def __init__(
        self, directory: str, lock: int, incarnation: int, promise: Promise, segments: list[Segment], found: Recovered, limits: LogLimits
    ) -> None:
        self._directory, self._lock, self._incarnation, self._limits = directory, lock, incarnation, limits
        self._segments = {segment.head.number: segment for segment in segments}
        self._current = segments[-1]
        self._index = found.index
        self._batches = self._synced = found.batches
        self._promise = self._promise_on_disk = replace(promise, epoch=max(promise.epoch, found.index.last_epoch))
        self._pins: set[Pin] = set()
        self._disk = threading.Lock()
        """Held by a sync, and by who begins the log anew, so that these never meet on the disk."""
        self._turn = threading.Lock()
        """Held for a moment, never over anything that waits, for the three below."""
        self._unsynced: list[Segment] = []
        self._unlinked: list[Segment] = []
        self._next: Segment | None = None
        self.cut_bytes = 0
        """What a crash had left of batches that no sync had covered, cut off at the opening."""
        self.failed = ""
        """Why nothing is written any more."""

    # ---- what is there

    @property
    def first(self) -> int:
        """The first entry; one more than the last when there is none."""
        return self._index.first

    @property
    def last(self) -> int:
        return self._index.last

    @property
    def last_epoch(self) -> int:
        return self._index.last_epoch

    @property
    def bytes(self) -> int:
        """On disk, also of entries that were replaced since."""
        return sum(segment.bytes for segment in self._segments.values())

    @property
    def promised(self) -> int:
        return self._promise.epoch

    @property
    def incarnation(self) -> int:
        return self._promise.incarnation

    @property
    def rid(self) -> Rid:
        """Of this replica: made together with the directory."""
        return self._promise.rid

    @property
    def configuration(self) -> Configuration | None:
        """The last one that was remembered."""
        return self._promise.configuration

    def epoch_at(self, index: int) -> int | None:
        """None: it is not in the log.  Of the entry before the first it is known."""
        return self._index.epoch_at(index)

    def locate(self, first: int, entries_max: int, bytes_max: int) -> list[Located]:
        """Entries from `first` on, in pieces of one segment each; none after the one with which their payloads reach `bytes_max`."""
        found: list[Located] = []
        if first < self.first:
            return found
        for index in range(first, min(first + entries_max, self.last + 1)):
            number, offset, size = self._index.place(index)
            if not found or found[-1].segment.head.number != number:
                found.append(Located(self._segments[number], []))
            found[-1].places.append((index, offset, size))
            bytes_max -= size
            if bytes_max <= 0:
                break
        return found

    def read(self, first: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """At once, for what was just written.  Raises StoreDamaged."""
        return [entry for located in self.locate(first, entries_max, bytes_max) for entry in located.read()]

    def pin(self, index: int) -> Pin:
        """For a replica that reads from there on."""
        pin = Pin(index, self._pins)
        self._pins.add(pin)
        return pin

    # ---- writes

    def append(self, entries: Sequence[Entry]) -> None:
        """One write; what was there from the first index on is replaced.  Raises StoreFull: nothing of it is there; StoreFailed."""
        self._may_write()
        first = self._fits(entries)
        before = self._index.epoch_at(first - 1)
        assert before is not None
        assert before <= entries[0].epoch, f"entry {first} of epoch {entries[0].epoch} behind one of {before}"
        segment = self._segment_to_write()
        batch, pieces = pack_batch(entries, self._batches + 1, self._synced, before, segment.seed)
        at = segment.bytes
        try:
            segment.write(pieces, batch.bytes)
        except StoreFull:
            raise
        except StoreFailed as error:
            self.failed = str(error)
            raise
        self._index.put(first, before, segment.head.number, [at + offset for offset in batch.offsets], batch.sizes, batch.epochs)
        with self._turn:
            self._batches = batch.number
            if segment not in self._unsynced:
                self._unsynced.append(segment)

    def promise(self, epoch: int, incarnation: int = NEVER_FORCED) -> None:
        """Nothing of a lower epoch, or incarnation, is answered any more, from the next sync on."""
        self._may_write()
        assert epoch >= self._promise.epoch, f"epoch {epoch} promised after {self._promise.epoch}"
        self._promise = replace(self._promise, epoch=epoch, incarnation=max(incarnation, self._promise.incarnation))

    def remember(self, configuration: Configuration) -> None:
        """Beside the promise, for the day on which the register is lost; on disk with the next sync."""
        self._promise = replace(self._promise, configuration=configuration)

    def trim(self, index: int) -> None:
        """Entries up to this one need not be kept.  Whole segments go; pins hold them."""
        self._may_write()
        through = min([index, *(pin.index - 1 for pin in self._pins)])
        gone: list[Segment] = []
        for number in sorted(self._segments):
            segment = self._segments[number]
            if segment is self._current or (last := self._index.last_in(number)) > through:
                break
            self._index.drop_through(last)
            del self._segments[number]
            gone.append(segment)
        with self._turn:
            self._unlinked += gone

    def reset(self, index: int, epoch: int) -> None:
        """The log goes on behind this entry, which a checkpoint has, and what it held is dropped.  Blocks until that and what was
        promised is on disk, also for a sync that is under way.  Raises StoreFull: nothing has changed; StoreFailed."""
        with self._disk:
            self._may_write()
            self._reset(index, epoch)

    def _reset(self, index: int, epoch: int) -> None:
        now = self._current.head
        head = SegmentHead(now.shard, self._incarnation, now.number + 1, True, index, epoch, self._batches)
        try:
            self._write_promise(self._promise)
            made = Segment.make(self._directory, head)
            # Nothing of it counts from here on, so a crash between these leaves what the next opening drops.
            for segment in [*self._unlinked, *(self._segments[number] for number in sorted(self._segments))]:
                segment.unlink()
        except StoreFull:
            raise
        except StoreFailed as error:
            self.failed = str(error)
            raise
        self._segments = {head.number: made}
        self._current, self._next = made, None
        self._index = LogIndex(index, epoch)
        self._unsynced, self._unlinked = [], []

    # ---- durability

    def sync(self) -> None:
        """What was written and promised before the call is on disk.  Blocks; for one thread.  Raises StoreFailed: end the process."""
        with self._disk:
            self._may_write()
            self._sync()

    def _sync(self) -> None:
        with self._turn:
            unsynced, self._unsynced = self._unsynced, []
            unlinked, self._unlinked = self._unlinked, []
            batches, promise = self._batches, self._promise
            current = self._current
            wanted = self._next is None and current.bytes >= self._limits.segment_bytes * NEXT_SEGMENT_AT
        try:
            for segment in unsynced:
                segment.sync()
            self._write_promise(promise)
            self._synced = batches
            for segment in unlinked:
                segment.unlink()
            if wanted:
                # Without room the present segment grows on; it is tried again with the next sync.
                with suppress(StoreFull):
                    self._next = self._make_next(current)
        except StoreFailed as error:
            self.failed = str(error)
            # Also of a promise for which there was no room: what was written counts on it.
            raise StoreFailed(str(error)) from error

    def close(self) -> None:
        """Not while a sync is under way.  What no sync has covered may be lost."""
        os.close(self._lock)

    def check(self) -> None:
        self._index.check()
        numbers = sorted(self._segments)
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), numbers
        assert self._current is self._segments[numbers[-1]]
        assert self._synced <= self._batches

    # ---- within

    def _write_promise(self, promise: Promise) -> None:
        if promise != self._promise_on_disk:
            write_promise(self._directory, promise)
            self._promise_on_disk = promise

    def _may_write(self) -> None:
        if self.failed:
            raise StoreFailed(f"the log of this replica has failed before: {self.failed}")

    def _fits(self, entries: Sequence[Entry]) -> int:
        first = entries[0].index
        assert self.first <= first <= self.last + 1, f"entry {first} for a log from {self.first} to {self.last}"
        for one, other in pairwise(entries):
            assert other.index == one.index + 1, f"entry {other.index} behind {one.index}"
            assert other.epoch >= one.epoch, f"entry {other.index} of epoch {other.epoch} behind one of {one.epoch}"
        assert all(len(entry.payload) <= PAYLOAD_BYTES_MAX for entry in entries), f"an entry of more than {PAYLOAD_BYTES_MAX} bytes"
        return first

    def _segment_to_write(self) -> Segment:
        """The next one when the present one is full, and the next is there: it is made by a sync, off the loop."""
        if self._current.bytes < self._limits.segment_bytes or self._next is None:
            if self._current.bytes > SEGMENT_BYTES_MAX:
                raise StoreFull(f"{self._current.path} has {self._current.bytes} bytes, and there was no room to begin another one")
            return self._current
        self._current, self._next = self._next, None
        self._segments[self._current.head.number] = self._current
        return self._current

    def _make_next(self, current: Segment) -> Segment:
        return Segment.make(self._directory, SegmentHead(current.head.shard, self._incarnation, current.head.number + 1))
