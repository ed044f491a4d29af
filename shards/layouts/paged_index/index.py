"""The deferred index of one generation over the varying levels of its streams.

New entries are kept in RAM; when a stream has enough, they are written as a sorted segment, in slices, and the row that says so
comes last. Segments of like size are folded into one when there are four, or eight of large ones; when the generation is sealed, all of
a stream are. Of a stream with few messages nothing is written: making its entries anew from them is cheaper than a page.

What is written is derived from committed messages only, so whatever a crash leaves is true: a segment that no state row names is
overwritten, and entries that no segment covers are made anew from the messages (stream_index).

Holds:
1. one job at a time: a segment is being made of runs or of segments, which stay readable until it is finished;
2. entries in RAM are bounded by ``ram_entries_max`` and what is put between two sweeps, as long as messages are committed and
   idle work gets its turns;
3. no slice depends on how many streams there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from shards.engine import Engine, Op, index_of
from shards.layouts.joining import Moves
from shards.layouts.paged_index.checking import begun_anew, faults_of
from shards.layouts.paged_index.merging import Merge, RunSource, SegmentSource, Source
from shards.layouts.paged_index.pages import PAGE_ENTRIES_MAX, SEGMENT_END, STATE_PREFIX, STATES_END, IndexState, Segment, segment_prefix
from shards.layouts.paged_index.postings import Intersection, Postings
from shards.layouts.paged_index.stream_index import StreamIndex
from shards.layouts.port import ReadStream, Stream
from shards.lts import Leaf

_STREAMS_PER_SLICE = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """run_entries: how many are sorted at once.  flush_runs: so many runs of a stream become a segment.  ram_entries_max: over
    all streams of the generation; 8 bytes for the position and 8 for each level, 16 for each level when sorted.  fold_segments: so many of
    like size become one, and twice as many when one of them has large_segment entries: a seek more costs less there than writing all of
    them again.  slice_entries, slice_pages: what one slice of idle work merges, or deletes.  slice_messages: and reads.
    sampled_records: every so many records busy streams are looked for.  small_stream: of a stream with fewer messages in no segment they
    stay in none; their entries are dropped when RAM is short, and made anew by whoever asks.  slice_streams: looked at in one slice."""

    run_entries: int = 8192
    flush_runs: int = 8
    ram_entries_max: int = 262_144
    fold_segments: int = 4
    large_segment: int = 262_144
    slice_entries: int = 8192
    slice_pages: int = 64
    slice_messages: int = 512
    sampled_records: int = 8
    small_stream: int = 64
    slice_streams: int = 512
    page_entries: int = PAGE_ENTRIES_MAX


class PagedIndex:
    def __init__(self, engine: Engine, family: int, read: ReadStream, there: Iterable[Leaf] | None, bounds: Bounds) -> None:
        """family: of the messages. there: the streams that it may already have messages of; None: any, for who reads beside the one that
        writes."""
        self._engine = engine
        self._family = family if _among_messages(engine, family) else index_of(family)
        self._read = read
        self._bounds = bounds
        self._streams: dict[bytes, StreamIndex] = {}
        self._beside = there is None
        self._unloaded: dict[bytes, tuple[bytes | None, ...]] = {leaf.static: leaf.levels for leaf in there or () if None in leaf.levels}
        self._job: _Job | None = None
        self._due: deque[tuple[StreamIndex, int | None]] = deque()
        """Streams of which something is to be done; with a position: all entries up to it go into a segment."""
        self._put = 0
        self._sealed = False
        self._swept_upto = -1
        self._sweep: _Sweep | None = None
        self._excess = self._share = 0

    def of(self, static: bytes, levels: tuple[bytes | None, ...]) -> StreamIndex:
        """The index of a stream, loaded or not. Entries may be put into it."""
        index = self._streams.get(static)
        if index is None:
            index = self._streams[static] = StreamIndex(static, levels, not self._beside and static not in self._unloaded)
        return index

    def noted(self, count: int) -> None:
        """About so many entries were put since the last call."""
        self._put += count

    def take_back(self, position: int) -> None:
        """Entries from this position on are of messages that are not stored."""
        for index in self._streams.values():
            index.entries.take_back(position)

    def seal(self) -> None:
        self._sealed = True
        self._swept_upto = -1

    def reaches(self, static: bytes, levels: tuple[bytes | None, ...]) -> int | None:
        """Up to which position of a stream the index can be asked as it is; None: of everything."""
        index = self.of(static, levels)
        index.find(self._engine, self._family)
        return None if index.loaded else index.state.covered

    def load(self, static: bytes, levels: tuple[bytes | None, ...]) -> None:
        """Then it can be asked of everything. This takes as long as there are messages that no segment covers."""
        index = self.of(static, levels)
        while not index.loaded:
            self._load(index, self._bounds.slice_messages)

    def common(self, stream: Stream, levels: tuple[bytes | None, ...], after: int, upto: int, moves: Moves) -> Intersection:
        """The positions in (after, upto] at which all constraints of the stream are met, equal hashes taken for equal values; as far as it
        ``reaches``."""
        index = self.of(stream.static, levels)
        postings = [Postings(self._engine, self._family, index, level, hashed, upto, moves) for level, hashed in stream.constraints]
        return Intersection(postings, after, upto, moves)

    def faults(self, leaves: Iterable[Leaf]) -> Iterator[str]:
        """Of these streams; layouts.port.Layout.faults."""
        for leaf in leaves:
            if None in leaf.levels:
                yield from faults_of(self._engine, self._family, self.of(leaf.static, leaf.levels), self._read)

    def mended(self, leaves: Iterable[Leaf]) -> Iterator[list[Op]]:
        """Of these streams; layouts.port.Layout.mended."""
        for leaf in leaves:
            if None in leaf.levels:
                index = self.of(leaf.static, leaf.levels)
                if next(faults_of(self._engine, self._family, index, self._read), None):
                    yield begun_anew(self._engine, self._family, index, self._read)

    # ---- idle work

    def idle_work(self, upto: int) -> bool:
        """layouts.port.Layout.idle_work."""
        if self._job is not None:
            self._step(self._job)
            return True
        if self._unloaded:
            self._load_some()
            return True
        while True:
            while self._due:
                index, whole_upto = self._due[0]
                if self._advance(index, whole_upto, upto):
                    return True
                self._due.popleft()
            if self._sweep is None:
                enough_put = self._put >= max(self._bounds.run_entries // 2, len(self._streams))
                if not enough_put and not self._excess and not (self._sealed and self._swept_upto < upto):
                    return False
                self._sweep = _Sweep(list(self._streams.values()), upto, self._excess, self._share)
                self._put = 0
            if self._sweep_on(self._sweep):
                return True

    def _sweep_on(self, sweep: _Sweep) -> bool:
        """Look at some more streams for what is to be done; False when all have been seen."""
        bounds = self._bounds
        for index in sweep.next(bounds.slice_streams):
            count = index.entries.count
            sweep.held += count
            sweep.holding += count > 0
            small = index.uncovered < bounds.small_stream and not index.entries.runs
            if self._sealed:
                if small and not index.segments:
                    index.forget(sweep.upto)
                elif index.uncovered or len(index.segments) > 1 or index.state.garbage:
                    self._due.append((index, sweep.upto))
            elif sweep.excess > 0 and small:
                sweep.excess -= index.forget(sweep.upto)
            elif sweep.excess > 0 and count > sweep.share:
                sweep.excess -= count
                self._due.append((index, sweep.upto))
            elif count >= bounds.run_entries or index.state.garbage:
                self._due.append((index, None))
        if sweep.left:
            return True
        self._sweep = None
        if self._sealed:
            self._swept_upto = max(self._swept_upto, sweep.upto)
        # Once more, this time to make room: a quarter of the bound, so that it is not soon again.
        over = not sweep.making_room and sweep.held > bounds.ram_entries_max
        self._excess = sweep.held - bounds.ram_entries_max * 3 // 4 if over else 0
        self._share = sweep.held // (2 * max(1, sweep.holding))
        return False

    def _advance(self, index: StreamIndex, whole_upto: int | None, upto: int) -> bool:
        """The next thing to be done for this stream, if there is one. Of a stream that is written to all the time more has come by then:
        what is behind ``whole_upto`` waits until it is a segment's worth."""
        bounds, entries, state = self._bounds, index.entries, index.state
        if not index.loaded:
            self._load(index, bounds.slice_messages)
            return True
        if whole_upto is not None and entries.freeze(whole_upto, bounds.run_entries):
            return True
        if entries.open_count >= bounds.run_entries and entries.freeze(upto, bounds.run_entries):
            return True
        runs = entries.runs
        if len(runs) >= bounds.flush_runs or (runs and whole_upto is not None and runs[0].last <= whole_upto):
            self._begin(_Job(index, len(runs), 0, 0))
            return True
        first = 0 if self._sealed else _to_fold(state.segments, bounds)
        if len(state.segments) - first > 1:
            self._begin(_Job(index, 0, first, len(state.segments)))
            return True
        if state.garbage:
            self._delete_garbage(index)
            return True
        return False

    def _begin(self, job: _Job) -> None:
        if not self._engine.has_family(self._family):
            self._engine.create_family(self._family)
        self._job = job
        self._step(job)

    def _step(self, job: _Job) -> None:
        # A job whose write failed is given up: nothing refers to its pages, and the next one clears them away.
        self._job = None
        ops, done = job.step(self._engine, self._family, self._bounds)
        self._engine.write(ops)
        if done:
            job.finish()
        else:
            self._job = job

    def _delete_garbage(self, index: StreamIndex) -> None:
        """Delete pages of segments that are folded into others; the state forgets a segment together with its last page."""
        state, pages_max = index.state, self._bounds.slice_pages
        number = state.garbage[0]
        known = index.folded.get(number)
        if known is None:
            keys = self._pages_of(index, number, pages_max)
        else:
            keys = known[-pages_max:]
        ops: list[Op] = [(self._family, key, None) for key in keys]
        last = len(keys) < pages_max
        if last:
            state = state._replace(garbage=state.garbage[1:])
            ops.append((self._family, *index.encoded(state)))
        self._engine.write(ops)
        if known is not None:
            del known[-pages_max:]
        if last:
            index.state = state
            index.folded.pop(number, None)

    def _pages_of(self, index: StreamIndex, number: int, pages_max: int) -> list[bytes]:
        """The keys of some pages of a segment: all that are left, if there are fewer than so many."""
        keys: list[bytes] = []
        for level in range(1, index.levels + 1):
            prefix = segment_prefix(index.static, level, number)
            keys += _page_keys(self._engine, self._family, prefix, pages_max - len(keys))
        return keys

    def _load(self, index: StreamIndex, messages_max: int) -> int:
        read = index.load(self._engine, self._family, self._read, messages_max)
        if index.loaded:
            self._unloaded.pop(index.static, None)
            self._put += index.entries.count
        return read

    def _load_some(self) -> None:
        left = self._bounds.slice_messages
        for static, levels in list(islice(self._unloaded.items(), _STREAMS_PER_SLICE)):
            left -= self._load(self.of(static, levels), left)
            if left <= 0:
                return


class _Sweep:
    """One look at all streams, in slices. excess: how many entries are still to leave RAM.  share: of streams with more than so many, half
    of the average, which together hold half of all; of the others a segment would be too small.  held, holding: entries in RAM, and
    streams that have some, of those seen."""

    def __init__(self, left: list[StreamIndex], upto: int, excess: int, share: int) -> None:
        self.left = left
        self.upto = upto
        self.excess = excess
        self.share = share
        self.making_room = excess > 0
        self.held = self.holding = 0

    def next(self, count: int) -> list[StreamIndex]:
        found = self.left[-count:]
        del self.left[-count:]
        return found


class _Job:
    """Makes one segment of a stream, of its first runs or of some of its segments, level by level."""

    def __init__(self, index: StreamIndex, runs: int, first: int, end: int) -> None:
        """runs: how many of the runs; or 0: of segments from index first to before end."""
        self._index = index
        self._runs = index.entries.runs[:runs]
        self._segments = index.segments[first:end]
        self._first, self._end = first, end
        self._number = index.state.next_number
        self._level = 0
        self._merge: Merge | None = None
        self._after = index.state
        self._folded: dict[int, list[bytes]] = {segment.number: [] for segment in self._segments}
        self._clears, index.unfinished = index.unfinished, True

    def step(self, engine: Engine, family: int, bounds: Bounds) -> tuple[list[Op], bool]:
        """Ops of the next slice, and whether they are the last: then ``finish`` is to be called when they are written."""
        index = self._index
        if self._merge is None:
            left_behind = self._clears and self._left_behind(engine, family, bounds.slice_pages)
            if left_behind:
                return left_behind, False
            self._level += 1
            self._merge = Merge(family, index.static, self._level, self._number, self._sources(engine, family), bounds.page_entries)
        ops, done = self._merge.step(bounds.slice_entries)
        if done and self._level == index.levels:
            self._after = self._outcome(self._merge.entries)
            ops.append((family, *index.encoded(self._after)))
            return ops, True
        if done:
            self._merge = None
        return ops, False

    def finish(self) -> None:
        self._index.state = self._after
        self._index.unfinished = False
        self._index.folded.update(self._folded)
        del self._index.entries.runs[: len(self._runs)]

    def _left_behind(self, engine: Engine, family: int, pages_max: int) -> list[Op]:
        """Deletes pages that a job of the same number wrote before a crash, or before it was given up."""
        prefix = segment_prefix(self._index.static, self._level + 1, self._number)
        return [(family, key, None) for key in _page_keys(engine, family, prefix, pages_max)]

    def _sources(self, engine: Engine, family: int) -> list[Source]:
        if self._runs:
            return [RunSource(*run.columns[self._level - 1]) for run in self._runs]
        static, level = self._index.static, self._level
        among = len(self._segments)
        return [SegmentSource(engine, family, static, level, each.number, self._folded[each.number], among) for each in self._segments]

    def _outcome(self, entries: int) -> IndexState:
        state = self._index.state
        if self._runs:
            last = self._runs[-1].last
            return IndexState(last, self._number + 1, (*state.segments, Segment(self._number, entries, last)), state.garbage)
        made = Segment(self._number, entries, self._segments[-1].last)
        segments = (*state.segments[: self._first], made, *state.segments[self._end :])
        garbage = (*state.garbage, *[segment.number for segment in self._segments])
        return IndexState(state.covered, self._number + 1, segments, garbage)


def _among_messages(engine: Engine, family: int) -> bool:
    """Whether a generation has its index in its own family, as all had before there were families of indexes: it stays there."""
    return bool(engine.scan(family, STATE_PREFIX, STATES_END, 1))


def _page_keys(engine: Engine, family: int, prefix: bytes, pages_max: int) -> list[bytes]:
    """Of pages that are about to be deleted, so not through the cache."""
    return [key for keys, _, _ in engine.columns(family, prefix, prefix + SEGMENT_END, pages_max) for key in keys]


def _to_fold(segments: tuple[Segment, ...], bounds: Bounds) -> int:
    """From which segment on to fold: as many as possible at the end, at least as many as bounds say (`least`), which together have
    ``least / 2`` times as many entries as the largest of them; the number of segments when there are none such. An entry is therefore
    written once for every time that its segment grows by so much, and not whenever a few small ones have come behind a large one."""
    found = len(segments)
    largest = total = 0
    for index in range(len(segments) - 1, -1, -1):
        entries = segments[index].entries
        largest, total = max(largest, entries), total + entries
        least = bounds.fold_segments * (2 if largest >= bounds.large_segment else 1)
        if len(segments) - index >= least and least * largest <= 2 * total:
            found = index
    return found
