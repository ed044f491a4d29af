"""The bytes of a shard's replicated log on disk: segments, in them batches, in them entries.  Pure; docs/formats.md has the page.

A segment begins with a head that says whose it is.  A batch is what one write brings: a head, entries each with a checksum of its own, an
end mark.  A batch whose first index is not behind the last one replaces everything from there on.  So a truncation and what comes in its
place are one batch, and a crash leaves all of it or nothing.

What a crash may leave is a batch that the file ends in, or one whose last bytes, and all behind them, are still zero (`Torn`).  Everything
else that does not fit was stored and has changed since (`Damaged`): it may have been acknowledged, and is never cut off silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from isal.isal_zlib import crc32

from shards.replication.entry import Entry, Kind

SEGMENT_VERSION = 1
SEGMENT_MARK = b"HOLDFLOG"
BATCH_MARK = b"HFB\x01"
END_MARK = b"\xff\xfeHFBE\xfe\xff"
"""No byte of it is zero, so a page that was never written cannot be taken for it."""
BATCH_BYTES_MAX = (1 << 31) - (1 << 16)
"""Of one batch with all that is around its entries: an offset in a segment has 32 bits.  More is the caller's mistake."""

_SEGMENT = Struct("<8sHHIQQQQI")
_BATCH = Struct("<4sIIIQQQQQ")
_ENTRY = Struct("<IIQQB3x")
_BODY_OF_ENTRY = Struct("<IQQB3x")
SEGMENT_HEAD_BYTES = _SEGMENT.size
BATCH_HEAD_BYTES = _BATCH.size
ENTRY_HEAD_BYTES = _ENTRY.size
END_BYTES = len(END_MARK)
_CRC_BYTES = 4
_RESET = 1
_KINDS = frozenset(int(kind) for kind in Kind)


class Torn(Exception):
    """A batch that a crash has interrupted.  Nothing of it was acknowledged."""


class Damaged(Exception):
    """What was stored is not what lies there.  offset: in the file; what: the finding, no sentence."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"offset {offset}: {what}")
        self.offset, self.what = offset, what


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """incarnation: of the site.  number: of the segment, from 1.  reset: the log begins with it, whatever lies in segments before it; then
    base_index and base_epoch are of the entry before its first, and before_batch is the number of the batch before its first."""

    shard: int
    incarnation: int
    number: int
    reset: bool = False
    base_index: int = 0
    base_epoch: int = 0
    before_batch: int = 0

    def pack(self) -> bytes:
        flags = _RESET if self.reset else 0
        ids = (SEGMENT_MARK, SEGMENT_VERSION, flags | self.shard << 8, self.incarnation, self.number)
        head = _SEGMENT.pack(*ids, self.base_index, self.base_epoch, self.before_batch, 0)[:-_CRC_BYTES]
        return head + crc32(head).to_bytes(_CRC_BYTES, "little")

    @property
    def seed(self) -> int:
        """The checksum of the head: goes into every other one of the segment, so that no batch of another segment is taken for its own."""
        return int.from_bytes(self.pack()[-_CRC_BYTES:], "little")


def unpack_segment_head(data: bytes) -> SegmentHead:
    """Raises Damaged."""
    if len(data) < SEGMENT_HEAD_BYTES:
        raise Damaged(0, f"the file has {len(data)} bytes, wanted the {SEGMENT_HEAD_BYTES} of its head")
    mark, version, both, incarnation, number, index, epoch, batch, crc = _SEGMENT.unpack_from(data)
    if mark != SEGMENT_MARK:
        raise Damaged(0, "it does not begin as a segment of a log does")
    if crc != crc32(data[: SEGMENT_HEAD_BYTES - _CRC_BYTES]):
        raise Damaged(0, "the head of the segment does not fit its checksum")
    if version != SEGMENT_VERSION:
        raise Damaged(0, f"segment version {version}; this program reads version {SEGMENT_VERSION}")
    return SegmentHead(both >> 8, incarnation, number, bool(both & _RESET), index, epoch, batch)


@dataclass(frozen=True, slots=True)
class Batch:
    """number: of the batch, from 1 over all segments.  synced: the last batch that a sync had covered when this one was written.
    before_epoch: of the entry before `first`.  offsets: of the entries, from its own beginning.  sizes: of their payloads."""

    number: int
    synced: int
    first: int
    before_epoch: int
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    epochs: tuple[int, ...]
    bytes: int


def pack_batch(entries: Sequence[Entry], number: int, synced: int, before_epoch: int, seed: int) -> tuple[Batch, list[bytes]]:
    """The pieces to be written, in order: payloads are not copied."""
    pieces: list[bytes] = [b""]
    offsets: list[int] = []
    at = BATCH_HEAD_BYTES
    pack = _BODY_OF_ENTRY.pack
    for entry in entries:
        body = pack(len(entry.payload), entry.index, entry.epoch, entry.kind)
        pieces += (crc32(entry.payload, crc32(body, seed)).to_bytes(4, "little"), body, entry.payload)
        offsets.append(at)
        at += ENTRY_HEAD_BYTES + len(entry.payload)
    pieces.append(END_MARK)
    at += END_BYTES
    assert at <= BATCH_BYTES_MAX, f"{len(entries)} entries in a batch of {at} bytes, wanted at most {BATCH_BYTES_MAX}"
    first = entries[0].index
    pieces[0] = _batch_head(len(entries), at, number, synced, first, before_epoch, seed)
    sizes = tuple([len(entry.payload) for entry in entries])
    return Batch(number, synced, first, before_epoch, tuple(offsets), sizes, tuple([entry.epoch for entry in entries]), at), pieces


def unpack_batch(data: memoryview, at: int, seed: int) -> Batch:
    """The batch at this offset of a segment that has this many bytes.  Raises Torn or Damaged."""
    room = len(data) - at
    if room < BATCH_HEAD_BYTES or not any(data[at : at + BATCH_HEAD_BYTES]):
        if room >= BATCH_HEAD_BYTES and any(data[at:]):
            raise Damaged(at, "zeros where a batch begins, and something behind them")
        raise Torn
    mark, crc, count, reserved, size, number, synced, first, before_epoch = _BATCH.unpack_from(data, at)
    if mark != BATCH_MARK or crc != crc32(_BATCH.pack(mark, 0, count, reserved, size, number, synced, first, before_epoch), seed):
        raise Damaged(at, "the head of the batch does not fit its checksum")
    if size > room or not any(data[at + size - END_BYTES : at + size]):
        if size <= room and any(data[at + size :]):
            raise Damaged(at + size - END_BYTES, "zeros where a batch ends, and something behind them")
        raise Torn
    if bytes(data[at + size - END_BYTES : at + size]) != END_MARK:
        raise Damaged(at + size - END_BYTES, f"batch {number} has no end mark")
    offsets, sizes, epochs = [], [], []
    place, end = at + BATCH_HEAD_BYTES, at + size - END_BYTES
    for index in range(first, first + count):
        entry_bytes = _check_entry(data, place, end, index, seed)
        offsets.append(place - at)
        sizes.append(entry_bytes - ENTRY_HEAD_BYTES)
        epochs.append(_ENTRY.unpack_from(data, place)[3])
        place += entry_bytes
    if place != end or not count:
        raise Damaged(place, f"batch {number} has {size} bytes, its {count} entries take {place - at + END_BYTES}")
    return Batch(number, synced, first, before_epoch, tuple(offsets), tuple(sizes), tuple(epochs), size)


def unpack_entry(data: bytes | memoryview, at: int, index: int, seed: int) -> Entry:
    """The entry whose head begins there.  Raises Damaged."""
    entry_bytes = _check_entry(memoryview(data), at, len(data), index, seed)
    _, _, _, epoch, kind = _ENTRY.unpack_from(data, at)
    return Entry(index, epoch, Kind(kind), bytes(data[at + ENTRY_HEAD_BYTES : at + entry_bytes]))


def _check_entry(data: memoryview, at: int, end: int, wanted: int, seed: int) -> int:
    """How many bytes it takes."""
    if end - at < ENTRY_HEAD_BYTES:
        raise Damaged(at, f"entry {wanted} has no room for its head")
    crc, size, index, _, kind = _ENTRY.unpack_from(data, at)
    assert isinstance(size, int)
    if size > end - at - ENTRY_HEAD_BYTES or crc != crc32(data[at + _CRC_BYTES : at + ENTRY_HEAD_BYTES + size], seed):
        raise Damaged(at, f"entry {wanted} does not fit its checksum")
    if index != wanted:
        raise Damaged(at, f"entry {index} where {wanted} was wanted")
    if kind not in _KINDS:
        raise Damaged(at, f"entry {index} is of the kind {kind}, which this program does not know")
    return ENTRY_HEAD_BYTES + size


def _batch_head(count: int, size: int, number: int, synced: int, first: int, before_epoch: int, seed: int) -> bytes:
    crc = crc32(_BATCH.pack(BATCH_MARK, 0, count, 0, size, number, synced, first, before_epoch), seed)
    return _BATCH.pack(BATCH_MARK, crc, count, 0, size, number, synced, first, before_epoch)
