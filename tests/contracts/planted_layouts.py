"""Faults that are planted into the layouts: the mistakes that each of them invites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shards.engine import Engine, Op
from shards.layouts import pagestream
from shards.layouts.batched.batch import Batch, packed
from shards.layouts.batched.held import Held, Part
from shards.layouts.batched.scanning import Scanner, _Taken
from shards.layouts.by_position import Messages
from shards.layouts.joining import Limits, Moves, looked_through
from shards.layouts.paged_index.entries import Entries
from shards.layouts.paged_index.index import Bounds, PagedIndex, _Job
from shards.layouts.paged_index.merging import Source
from shards.layouts.paged_index.pages import IndexState, Segment
from shards.layouts.paged_index.postings import Intersection, Postings
from shards.layouts.paged_index.stream_index import StreamIndex
from shards.layouts.pagestream import PageStream
from shards.layouts.port import Read, ReadStream, Stream, TopicKey
from shards.layouts.record_batch import layout as record_batch
from shards.layouts.record_batch.values import encode_batch
from shards.layouts.skipstream import SkipStream, _Join
from shards.layouts.wildcard_optimized import WildcardOptimized
from shards.layouts.wildcard_optimized.epochs import Asked, Epochs, Page
from shards.layouts.wildcard_optimized.keys import Filter, KeyMapper
from shards.lts import RESERVED_PREFIX, Leaf
from tests.contracts.planting import Planting, faults

# ---- skipstream


def skipstream_skips_an_index_entry(planting: Planting) -> None:
    put = SkipStream.put

    def planted(self: SkipStream, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        put(self, ops, replace(key, indexes=key.indexes[:-1]) if position % 13 == 0 else key, position, value)

    planting.replace(SkipStream, "put", planted)


def a_scan_goes_one_position_beyond_its_bound(planting: Planting) -> None:
    scan = Messages.scan

    def planted(self: Messages, static: bytes, after: int, upto: int, limit: int, bytes_max: int) -> Read:
        read = scan(self, static, after, upto + 1, limit, bytes_max)
        return read._replace(place=upto) if read.done else read

    planting.replace(Messages, "scan", planted)


def a_join_says_that_it_is_further_than_it_is(planting: Planting) -> None:
    following = _Join.next

    def planted(self: _Join, count: int, examine_max: int) -> tuple[list[int], int, bool]:
        found, place, done = following(self, count, examine_max)
        return found, place if done else place + 1, done

    planting.replace(_Join, "next", planted)


# ---- pagestream


def pagestream_skips_an_index_entry(planting: Planting) -> None:
    put = PageStream.put

    def planted(self: PageStream, ops: list[Op], key: TopicKey, position: int, value: bytes) -> None:
        put(self, ops, replace(key, data=b"") if position % 13 == 0 else key, position, value)

    planting.replace(PageStream, "put", planted)


def what_was_looked_through_ends_too_far(planting: Planting) -> None:
    through = looked_through

    def planted(scan: Callable[[int, int], Read], stream: Stream, upto: int, before: Read, limits: Limits) -> Read:
        found = through(scan, stream, upto, before, limits)
        return found if found.done else found._replace(place=min(upto, found.place + 1))

    planting.replace(pagestream, "looked_through", planted)


def a_batch_of_pagestream_loses_a_message(planting: Planting) -> None:
    def planted(positions: Sequence[int], messages: Sequence[bytes]) -> bytes:
        return packed([*positions[:-2], positions[-1]], [*messages[:-2], messages[-1]])

    planting.replace(pagestream, "packed", planted)


def nobody_knows_where_the_newest_batch_ends(planting: Planting) -> None:
    put = PageStream._put_held

    def planted(self: PageStream, ops: list[Op], static: bytes, positions: list[int], messages: list[bytes]) -> None:
        put(self, ops, static, positions, messages)
        stream = self._literal_stream(static)
        assert stream is not None
        stream.batched = 0

    planting.replace(PageStream, "_put_held", planted)


def rows_of_the_structure_are_counted_as_messages(planting: Planting) -> None:
    ended = Held.ended

    def planted(self: Held, ops: Sequence[Op], family: int, key_bytes: int, batched: Callable[[bytes], bool]) -> list[Part]:
        unknown = [(number, key.replace(RESERVED_PREFIX, bytes(range(len(RESERVED_PREFIX)))), value) for number, key, value in ops]
        return ended(self, unknown, family, key_bytes, batched)

    planting.replace(Held, "ended", planted)


# ---- record_batch


def record_batch_skips_an_index_entry(planting: Planting) -> None:
    freeze = Entries.freeze

    def planted(self: Entries, upto: int, entries_max: int) -> int:
        if self.open_count > 3:
            del self.rows[: self.width]
        return freeze(self, upto, entries_max)

    planting.replace(Entries, "freeze", planted)


def a_batch_loses_its_last_message(planting: Planting) -> None:
    def planted(static: bytes, positions: Sequence[int], messages: Sequence[bytes]) -> tuple[bytes, bytes]:
        return encode_batch(static, positions[:-1], messages[:-1])

    planting.replace(record_batch, "encode_batch", planted)


def a_batch_is_read_above_the_watermark(planting: Planting) -> None:
    take = _Taken.batch

    def planted(self: _Taken, batch: Batch) -> None:
        upto, self.upto = self.upto, batch.last
        take(self, batch)
        self.upto = upto

    planting.replace(_Taken, "batch", planted)


def a_batch_over_the_bound_is_overlooked(planting: Planting) -> None:
    planting.replace(Scanner, "_over", lambda *args: None)


def runs_go_before_their_segment_is_there(planting: Planting) -> None:
    begin = _Job.__init__

    def planted(self: _Job, index: StreamIndex, runs: int, first: int, end: int) -> None:
        begin(self, index, runs, first, end)
        del index.entries.runs[:runs]

    planting.replace(_Job, "__init__", planted)


def a_fold_loses_a_segment(planting: Planting) -> None:
    sources = _Job._sources

    def planted(self: _Job, engine: Engine, family: int) -> list[Source]:
        return sources(self, engine, family)[1:] if self._segments else sources(self, engine, family)

    planting.replace(_Job, "_sources", planted)


def a_place_after_a_fold_is_off_by_one(planting: Planting) -> None:
    begin = Intersection.__init__

    def planted(self: Intersection, postings: Sequence[Postings], after: int, upto: int, moves: Moves) -> None:
        folded = any(segment.number > 0 for posting in postings for segment in posting._index.segments)
        begin(self, postings, after + 1 if folded and after > 0 else after, upto, moves)

    planting.replace(Intersection, "__init__", planted)


def a_restart_forgets_what_no_segment_covers(planting: Planting) -> None:
    load = StreamIndex.load

    def planted(self: StreamIndex, engine: Engine, family: int, stored: ReadStream, messages_max: int) -> int:
        before = bytes(self.entries.rows)
        read = load(self, engine, family, stored, messages_max)
        if self.loaded:
            self.entries.rows[:] = before
        return read

    planting.replace(StreamIndex, "load", planted)


def a_segment_claims_more_than_it_covers(planting: Planting) -> None:
    outcome = _Job._outcome

    def planted(self: _Job, entries: int) -> IndexState:
        state = outcome(self, entries)
        return state._replace(covered=state.covered + 5000)

    planting.replace(_Job, "_outcome", planted)


def the_row_of_a_segment_is_written_before_its_last_pages(planting: Planting) -> None:
    step = _Job.step

    def planted(self: _Job, engine: Engine, family: int, bounds: Bounds) -> tuple[list[Op], bool]:
        ops, _ = step(self, engine, family, bounds)
        if self._runs and self._level == self._index.levels:
            self._after = self._outcome(0)
            return [*ops, (family, *self._index.encoded(self._after))], True
        return ops, False

    planting.replace(_Job, "step", planted)


def a_page_that_goes_on_is_not_followed(planting: Planting) -> None:
    page = Postings._page

    def planted(self: Postings, segment: Segment, target: int) -> bool:
        found = page(self, segment, target)
        if self._more:
            self._more = False
            self._source += 1
        return found

    planting.replace(Postings, "_page", planted)


def a_read_batch_is_kept_for_the_wrong_place(planting: Planting) -> None:
    planting.replace(Batch, "index_after", lambda self, position: sum(self.first + offset < position for offset in self.offsets))


def idle_work_goes_on_from_what_a_full_disk_refused(planting: Planting) -> None:
    step = PagedIndex._step

    def planted(self: PagedIndex, job: _Job) -> None:
        try:
            step(self, job)
        except Exception:
            # As if it had been written.
            self._job = job
            raise

    planting.replace(PagedIndex, "_step", planted)


# ---- wildcard_optimized


def the_cut_off_is_one_epoch_too_late(planting: Planting) -> None:
    right = WildcardOptimized.cutoff

    def planted(self: WildcardOptimized, topic_filter: bytes, upto: int) -> int:
        cut = right(self, topic_filter, upto)
        return cut if cut == upto else cut + (1 << self._epoch_bits)

    planting.replace(WildcardOptimized, "cutoff", planted)


def the_cut_off_is_one_epoch_too_early(planting: Planting) -> None:
    complete = WildcardOptimized._complete
    planting.replace(WildcardOptimized, "_complete", lambda self, upto: complete(self, upto) - (1 << self._epoch_bits))


def an_epoch_is_kept_before_it_is_complete(planting: Planting) -> None:
    collect = Epochs._collect

    def planted(self: Epochs, mapper: KeyMapper, asked: Asked, first: int, upto: int, examine_max: int) -> Page:
        page = collect(self, mapper, asked, first, upto, examine_max)
        through = ((page.through >> mapper.epoch_bits) + 1 << mapper.epoch_bits) - 1
        return page._replace(through=through) if page.entries and page.through == upto else page

    planting.replace(Epochs, "_collect", planted)


def a_ratchet_leaves_the_lower_fields_as_they_are(planting: Planting) -> None:
    def planted(self: KeyMapper, wanted: Filter, key: int, number: int, value: int) -> int:
        _, _, size, shift = self.fields[number]
        return key & ~((1 << size) - 1 << shift) | value << shift

    planting.replace(KeyMapper, "_with", planted)


def real_topics_are_not_compared(planting: Planting) -> None:
    planting.replace(WildcardOptimized, "_belongs", lambda *args: True)


def streams_with_equal_indexes_are_taken_for_one(planting: Planting) -> None:
    note = WildcardOptimized._note

    def planted(self: WildcardOptimized, leaf: Leaf) -> int:
        index = note(self, leaf)
        self._shared.clear()
        return index

    planting.replace(WildcardOptimized, "_note", planted)


def nobody_completes_the_last_epoch(planting: Planting) -> None:
    planting.replace(WildcardOptimized, "wants_tick", lambda *args: False)


def a_page_is_in_the_order_of_its_keys(planting: Planting) -> None:
    planting.replace(Epochs, "_done", lambda self, entries, first, through: Page(first, through, entries))


IN_LAYOUTS = faults(
    skipstream_skips_an_index_entry,
    a_scan_goes_one_position_beyond_its_bound,
    a_join_says_that_it_is_further_than_it_is,
    pagestream_skips_an_index_entry,
    what_was_looked_through_ends_too_far,
    a_batch_of_pagestream_loses_a_message,
    nobody_knows_where_the_newest_batch_ends,
    rows_of_the_structure_are_counted_as_messages,
    record_batch_skips_an_index_entry,
    a_batch_loses_its_last_message,
    a_batch_is_read_above_the_watermark,
    a_batch_over_the_bound_is_overlooked,
    runs_go_before_their_segment_is_there,
    a_fold_loses_a_segment,
    a_place_after_a_fold_is_off_by_one,
    a_restart_forgets_what_no_segment_covers,
    a_segment_claims_more_than_it_covers,
    the_row_of_a_segment_is_written_before_its_last_pages,
    a_page_that_goes_on_is_not_followed,
    a_read_batch_is_kept_for_the_wrong_place,
    idle_work_goes_on_from_what_a_full_disk_refused,
    the_cut_off_is_one_epoch_too_late,
    the_cut_off_is_one_epoch_too_early,
    an_epoch_is_kept_before_it_is_complete,
    a_ratchet_leaves_the_lower_fields_as_they_are,
    real_topics_are_not_compared,
    streams_with_equal_indexes_are_taken_for_one,
    nobody_completes_the_last_epoch,
    a_page_is_in_the_order_of_its_keys,
)
