"""Catching up by checkpoint: for a copy that is behind where the log of its leader begins.

    leader    wanted -> making -> offered -> pulled, chunk by chunk -> what it holds is acknowledged, or nothing was pulled: erased
    learner   offered -> begun -> chunk written, the next one pulled, ... -> install -> installed: the log begins anew behind it

Always holds: one transfer at a time on each side; a chunk is written only where it belongs, and whole; what is half there is never opened:
it lies beside the data until the shell has synced it and renames it.
"""

from __future__ import annotations

from dataclasses import dataclass

from shards.replication.bounds import ACK_MS, RESEND_MS, TRANSFER_IDLE_MS
from shards.replication.configuration import Rid
from shards.replication.events import (
    BeginTransfer,
    CheckpointMade,
    EraseCheckpoint,
    Install,
    MakeCheckpoint,
    SendChunk,
    WriteChunk,
)
from shards.replication.messages import Chunk, Nak, Offer, Pull
from shards.replication.own import Own
from shards.replication.peers import Peer


class Offering:
    """The leader's side. `pinned`: the log is kept behind this entry."""

    __slots__ = ("_made", "_moved_ms", "_number", "_offered_ms", "_own", "_to")

    def __init__(self, own: Own) -> None:
        self._own = own
        self._to: Rid | None = None
        self._number = 0
        self._made: CheckpointMade | None = None
        self._moved_ms = 0
        self._offered_ms = 0

    @property
    def pinned(self) -> int | None:
        return None if self._to is None else self._own.applied.index if self._made is None else self._made.index

    def want(self, peer: Peer, epoch: int) -> None:
        """This copy cannot be served from the log. Somebody else may have its turn first; who does not answer has none."""
        own = self._own
        if self._to is None and own.now_ms - peer.heard_ms < ACK_MS:
            self._to, self._moved_ms, self._made = peer.rid, own.now_ms, None
            self._number += 1
            own.out.append(MakeCheckpoint(self._number))
        elif self._to == peer.rid and self._made is not None and own.now_ms - max(self._offered_ms, self._moved_ms) >= RESEND_MS:
            self._offer(epoch)

    def made(self, made: CheckpointMade, epoch: int) -> None:
        if self._to is None or made.number != self._number:
            self._own.out.append(EraseCheckpoint(made.number))
            return
        self._made = made
        self._offer(epoch)

    def pulled(self, source: Rid, pull: Pull) -> None:
        if source == self._to and self._made is not None and pull.number == self._number and pull.file < len(self._made.files):
            self._moved_ms = self._own.now_ms
            self._own.out.append(SendChunk(source, pull))

    def acked(self, source: Rid, upto: int) -> None:
        if source == self._to and self._made is not None and upto >= self._made.index:
            self.end()

    def tick(self) -> None:
        if self._to is not None and self._own.now_ms - self._moved_ms >= TRANSFER_IDLE_MS:
            self.end()

    def end(self) -> None:
        if self._made is not None:
            self._own.out.append(EraseCheckpoint(self._number))
        self._to, self._made = None, None

    def _offer(self, epoch: int) -> None:
        assert self._to is not None and self._made is not None
        self._offered_ms = self._own.now_ms
        self._own.send(self._to, Offer(epoch, self._number, self._made.index, self._made.epoch, self._made.files))


@dataclass(slots=True)
class _Transfer:
    source: Rid
    offer: Offer
    file: int = 0
    offset: int = 0
    writing: bool = False
    """A chunk, or the beginning, is being written: nothing is pulled meanwhile."""
    installing: bool = False
    asked_ms: int = 0
    moved_ms: int = 0


class Receiving:
    """The learner's side."""

    __slots__ = ("_own", "_transfer")

    def __init__(self, own: Own) -> None:
        self._own = own
        self._transfer: _Transfer | None = None

    @property
    def busy(self) -> bool:
        return self._transfer is not None

    def offered(self, source: Rid, offer: Offer) -> None:
        own = self._own
        if self._transfer is not None:
            return
        if offer.index <= own.applied.index:
            # The leader was led to believe that this log is shorter than it is. It offers again: it hears so when the promise is on disk.
            if own.writing.stable_epoch == offer.epoch:
                own.send(source, Nak(offer.epoch, own.writing.log.last))
            return
        self._transfer = _Transfer(source, offer, asked_ms=own.now_ms, moved_ms=own.now_ms)
        own.out.append(BeginTransfer(offer.files))
        self._next()

    def arrived(self, source: Rid, chunk: Chunk) -> None:
        one = self._transfer
        if one is None or one.writing or source != one.source or chunk.number != one.offer.number or chunk.epoch != one.offer.epoch:
            return
        if (chunk.file, chunk.offset) != (one.file, one.offset) or not chunk.whole or not chunk.data:
            return
        if one.offset + len(chunk.data) > one.offer.files[one.file][1]:
            return
        one.writing = True
        one.offset += len(chunk.data)
        self._own.out.append(WriteChunk(chunk.file, chunk.offset, chunk.data))

    def written(self, file: int, end: int) -> None:
        one = self._transfer
        if one is not None and one.writing and (file, end) == (one.file, one.offset):
            one.writing, one.moved_ms = False, self._own.now_ms
            self._next()

    def tick(self) -> None:
        one, now_ms = self._transfer, self._own.now_ms
        if one is None or one.writing:
            return
        if now_ms - one.moved_ms >= TRANSFER_IDLE_MS:
            self._transfer = None
        elif now_ms - one.asked_ms >= RESEND_MS:
            self._pull(one)

    def end(self) -> None:
        """Another epoch: what is there is erased when the next one begins. One that is being installed is installed: it is committed."""
        if self._transfer is not None and not self._transfer.installing:
            self._transfer = None

    def failed(self) -> None:
        """Something of it did not work, or all of it has."""
        self._transfer = None

    def _next(self) -> None:
        """The next chunk, the next file, or the end."""
        one = self._transfer
        assert one is not None
        while one.file < len(one.offer.files) and one.offset >= one.offer.files[one.file][1]:
            one.file, one.offset = one.file + 1, 0
        if one.file < len(one.offer.files):
            self._pull(one)
        else:
            one.writing = one.installing = True
            self._own.out.append(Install(one.offer.index, one.offer.index_epoch))

    def _pull(self, one: _Transfer) -> None:
        one.asked_ms = self._own.now_ms
        self._own.send(one.source, Pull(one.offer.epoch, one.offer.number, one.file, one.offset))
