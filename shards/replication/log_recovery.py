"""What the segments of a replicated log hold when it is opened: read in their order, what a crash has torn told from what is damaged.

Several batches may be on their way to the disk when the power goes, in two segments even, and each may be there or not.  Every batch says
up to which one a sync had ended when it was written.  So where a batch is torn or missing and a later one says that it was on disk,
something was lost that may have been acknowledged: that is damage, and refused.  Otherwise no sync had covered it: the log ends before
it, and what lies behind is dropped.  Damage that looks like nothing a crash leaves is refused wherever it lies.

That the first segments are missing is not seen here, since trimming leaves a log in the same way: whoever applies the log knows where it
has to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from shards.replication.log_format import SEGMENT_HEAD_BYTES, Batch, Damaged, SegmentHead, Torn, unpack_batch, unpack_segment_head
from shards.replication.log_index import LogIndex


@dataclass(slots=True)
class Scanned:
    """One segment as it lies on disk: batches with their offsets, up to `end`.  What is behind it is torn."""

    number: int
    head: SegmentHead
    size: int
    batches: list[tuple[int, Batch]] = field(default_factory=list)
    end: int = SEGMENT_HEAD_BYTES


class WhereDamaged(Exception):
    """segment: its number."""

    def __init__(self, segment: int, offset: int, what: str) -> None:
        super().__init__(f"segment {segment}, offset {offset}: {what}")
        self.segment, self.offset, self.what = segment, offset, what


def scan(number: int, data: bytes, shard: int, incarnation: int) -> Scanned:
    """Raises Damaged."""
    head = unpack_segment_head(data)
    if head.number != number:
        raise Damaged(0, f"it is segment {head.number}, by its name it is {number}")
    if head.shard != shard or head.incarnation > incarnation:
        wanted = f"wanted shard {shard} and at most incarnation {incarnation}"
        raise Damaged(0, f"it is of shard {head.shard} and incarnation {head.incarnation}, {wanted}")
    found = Scanned(number, head, len(data))
    view = memoryview(data)
    while found.end < len(data):
        try:
            batch = unpack_batch(view, found.end, head.seed)
        except Torn:
            break
        found.batches.append((found.end, batch))
        found.end += batch.bytes
    return found


@dataclass(slots=True)
class Recovered:
    """index: of what the log holds.  batches: number of the last batch.  synced: up to this one a sync is known to have ended.  kept: the
    segments that count, in order; before and behind them may be others."""

    index: LogIndex
    batches: int
    synced: int
    kept: list[Scanned]

    def anew(self, segment: Scanned) -> bool:
        """Whether it has something torn, or something of which nobody knows that it is on disk."""
        return segment.end < segment.size or bool(segment.batches and segment.batches[-1][1].number > self.synced)


def recover(scanned: list[Scanned]) -> Recovered:
    """From all segments there are, by their number.  Raises WhereDamaged."""
    for one, other in pairwise(scanned):
        if other.number != one.number + 1:
            raise WhereDamaged(other.number, 0, f"segment {other.number} follows segment {one.number}: what is between them is missing")
    begin = max((at for at, segment in enumerate(scanned) if segment.head.reset), default=0)
    head = scanned[begin].head
    index = LogIndex(head.base_index, head.base_epoch)
    batches = head.before_batch
    known = head.reset or head.number == 1
    rest = [(at, place, batch) for at, segment in enumerate(scanned[begin:], begin) for place, batch in segment.batches]
    synced = max((batch.synced for _, _, batch in rest), default=0)
    if not known:
        if not rest:
            raise WhereDamaged(head.number, SEGMENT_HEAD_BYTES, "no batch is left, and segments before it were dropped")
        # What came before was trimmed; the first batch says itself what it follows.
        first = rest[0][2]
        index, batches = LogIndex(first.first - 1, first.before_epoch), first.number - 1
    last, end = begin, SEGMENT_HEAD_BYTES
    for at, place, batch in rest:
        segment = scanned[at]
        if batch.number != batches + 1:
            if at == last or batch.number <= batches or synced > batches:
                where = scanned[last]
                raise WhereDamaged(
                    where.number, end, f"batch {batches + 1} is wanted here, batch {batch.number} is the next, and {synced} were on disk"
                )
            break
        _follows(index, segment.number, place, batch)
        offsets = [place + offset for offset in batch.offsets]
        index.put(batch.first, batch.before_epoch, segment.number, offsets, batch.sizes, batch.epochs)
        batches, last, end = batch.number, at, place + batch.bytes
    return Recovered(index, batches, min(synced, batches), scanned[begin : last + 1])


def _follows(index: LogIndex, segment: int, place: int, batch: Batch) -> None:
    if batch.first > index.last + 1:
        raise WhereDamaged(segment, place, f"entry {batch.first} behind entry {index.last}")
    # What was replaced may reach back to before the first segment that is left: the batch says itself what came before it.
    if batch.first > index.first and batch.before_epoch != index.epoch_at(batch.first - 1):
        found = index.epoch_at(batch.first - 1)
        raise WhereDamaged(segment, place, f"entry {batch.first} behind epoch {batch.before_epoch}, found {found}")
    if any(one > other for one, other in pairwise((batch.before_epoch, *batch.epochs))):
        raise WhereDamaged(segment, place, f"epochs fall in batch {batch.number}")
