"""Following: entries of a leader are compared, kept or taken, and acknowledged when they are on the own disk.

Life cycle of an epoch: its first Append is heard -> promised -> compared -> acknowledged, again and again -> a newer epoch is heard of.

Always holds (see check):
1. nothing is answered in an epoch before its promise is on the disk;
2. what is acknowledged was compared with the log of the leader of that epoch, and is on the disk;
3. only what differs is cut off, together with the writing of what comes in its place, and never what is applied.
"""

from __future__ import annotations

from shards.engine import StoreFull
from shards.replication.configuration import Rid
from shards.replication.entry import Entry
from shards.replication.messages import Ack, Append, Nak
from shards.replication.own import Own


class Following:
    __slots__ = ("_acked", "_compared", "_owes", "_owes_nak", "_own", "heard_ms", "leader")

    def __init__(self, own: Own) -> None:
        self._own = own
        self.leader: Rid | None = None
        self.heard_ms = own.now_ms
        self._compared = 0
        self._acked = 0
        self._owes = False
        self._owes_nak: int | None = None

    def begin(self) -> None:
        """Another epoch than the one before: nothing is compared yet."""
        self.leader, self._compared, self._acked, self._owes, self._owes_nak = None, 0, 0, False, None

    def take(self, source: Rid, message: Append) -> None:
        """An Append of the epoch that is promised."""
        own, log = self._own, self._own.writing.log
        self.leader, self.heard_ms = source, own.now_ms
        before, entries = self._kept(message)
        if before > log.last or (before >= log.first and log.epoch_at(before) != message.before_epoch):
            self._owes_nak = min(log.last, message.before - 1)
            return
        try:
            self._write(entries)
        except StoreFull:
            # Not acknowledged; the leader puts this replica out of the isr when it lasts.
            return
        self._compared = max(self._compared, message.before + len(message.entries))
        own.commit_upto(min(message.commit, self._compared))
        self._owes = True

    def settle(self) -> None:
        """After every event: what can be answered now is."""
        own, writing = self._own, self._own.writing
        if self.leader is None or writing.stable_epoch != writing.log.promised:
            return
        if self._owes_nak is not None:
            own.send(self.leader, Nak(writing.stable_epoch, self._owes_nak))
            self._owes_nak = None
        upto = min(self._compared, writing.stable)
        if upto > self._acked or (self._owes and upto == self._compared):
            own.send(self.leader, Ack(writing.stable_epoch, upto))
            self._acked, self._owes = upto, False

    def installed(self, index: int) -> None:
        """A checkpoint of this leader holds everything up to here."""
        self._compared = max(self._compared, index)
        self._owes = True

    def check(self) -> None:
        assert self._acked <= self._compared, (self._acked, self._compared)

    def _kept(self, message: Append) -> tuple[int, tuple[Entry, ...]]:
        """Without what lies before the own log: that is applied here, and so is committed and the same."""
        trimmed = self._own.writing.log.first - 1
        if message.before >= trimmed:
            return message.before, message.entries
        entries = message.entries[trimmed - message.before :]
        return (trimmed if entries else min(trimmed, message.before + len(message.entries))), entries

    def _write(self, entries: tuple[Entry, ...]) -> None:
        log = self._own.writing.log
        for place, entry in enumerate(entries):
            if entry.index > log.last or log.epoch_at(entry.index) != entry.epoch:
                applied = self._own.applied.index
                assert entry.index > applied, f"told to replace entry {entry.index} by one of epoch {entry.epoch}, and {applied} is applied"
                self._own.writing.append(entries[place:])
                return
