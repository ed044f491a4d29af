"""What is written of an index as it grows, while messages come all the time. What it holds and finds is tested with record_batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shards.engine import Op, index_of
from shards.engine_memory import MemoryEngine
from shards.layouts.paged_index.index import Bounds
from shards.layouts.paged_index.pages import PAGE_PREFIX, decode_page
from shards.layouts.pagestream import PageStream
from shards.layouts.port import LayoutOptions
from shards.messages import encode_message


class Counting(MemoryEngine):
    """How many index entries were written, in how many ops, and how many pages were deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = self.deleted = 0

    def write(self, ops: Sequence[Op]) -> None:
        for _, key, value in ops:
            if key.startswith(PAGE_PREFIX):
                self.deleted += value is None
                self.entries += 0 if value is None else len(decode_page(key, value).hashes)
        super().write(ops)


class Index:
    """Streams ``s0/+``, ``s1/+``, ... of one generation, and what is done to their index between two records."""

    def __init__(self, bounds: Bounds) -> None:
        self.engine = Counting()
        self.engine.create_family(1)
        self.layout = PageStream.open(self.engine, 1, LayoutOptions((None, 0)), bounds)
        self.position = 0

    def put(self, count: int, streams: int) -> None:
        ops: list[Op] = []
        for _ in range(count):
            self.position += 1
            topic = b"s%d/%d" % (self.position % streams, self.position % 7)
            self.layout.put(ops, self.layout.key_of(topic), self.position, encode_message(1, 1, b"c", topic, b"\0"))
        self.layout.flush(ops)
        self.engine.write([*self.layout.take_growth(), *ops])

    def work(self, slices: int) -> int:
        """How many slices there were."""
        return next((done for done in range(slices) if not self.layout.idle_work(self.position)), slices)

    def segments(self) -> list[list[int]]:
        """The entries of each segment, by stream."""
        return [[segment.entries for segment in index.segments] for index in self.layout._index._streams.values()]


@pytest.mark.parametrize(("folded", "written"), [(8, 5), (4, 6)])
def test_an_entry_is_written_again_only_when_its_segment_grows_by_a_factor(folded: int, written: int) -> None:
    # Property: what is written of an index is the logarithm of what there is, not a part of all of it whenever a few segments have come.
    # With four at a time that is more often, as 600 segments are less than 4 to the power of 5: five times, and once as it comes.
    index = Index(Bounds(run_entries=16, flush_runs=2, slice_entries=64, page_entries=4, fold_segments=folded))
    for _ in range(600):
        index.put(32, 1)
        index.work(1_000)
    assert index.engine.entries / index.position < written


def test_large_segments_wait_until_there_are_twice_as_many() -> None:
    # Property: what is dear to write again is written again more rarely, and a reader still has few of them to seek in.
    written = {}
    for large in (128, 1 << 30):
        bounds = Bounds(run_entries=16, flush_runs=2, slice_entries=64, page_entries=4, fold_segments=4, large_segment=large)
        index = Index(bounds)
        most = 0
        for _ in range(600):
            index.put(32, 1)
            index.work(1_000)
            most = max(most, len(index.segments()[0]))
        written[large] = index.engine.entries / index.position
        assert most < (24 if large == 128 else 16)
    assert written[128] < 0.85 * written[1 << 30]


def test_a_stream_that_is_written_to_all_the_time_is_not_written_out_whole_for_ever() -> None:
    # Property: to make room all entries of then go to the disk; those that have come meanwhile wait until they are a segment's worth.
    index = Index(Bounds(run_entries=64, flush_runs=8, ram_entries_max=1_000, slice_entries=16, page_entries=16))
    for _ in range(2_000):
        index.put(16, 10)
        index.work(4)
    # Each stream has a tenth of what may be in RAM; half of that is the least that is worth a segment.
    assert min(min(sizes[1:], default=64) for sizes in index.segments()) >= 30
    assert index.engine.entries / index.position < 6


def test_pages_that_were_folded_are_deleted_also_when_a_process_ends_in_between() -> None:
    # Property: no page stays that no segment has: which they are is in RAM, or looked up again after a restart.
    bounds = Bounds(run_entries=16, flush_runs=2, slice_entries=64, slice_pages=4, page_entries=4)
    for slices in range(0, 60, 3):
        index = Index(bounds)
        while not index.engine.deleted:
            if not index.work(1):
                index.put(32, 1)
        index.work(slices)
        engine = index.engine.crash(power=False)
        layout = PageStream.open(engine, 1, LayoutOptions((None, 0)), bounds)
        layout.seal()
        while layout.idle_work(index.position):
            pass
        (found,) = layout._index._streams.values()
        (segment,) = found.segments
        pages = engine.scan(index_of(1), PAGE_PREFIX, PAGE_PREFIX + b"\xff" * 40, 10_000)
        assert {int.from_bytes(key[18:22], "big") for key, _ in pages} == {segment.number}
        assert sum(len(decode_page(key, value).hashes) for key, value in pages) == index.position


def test_a_generation_whose_index_is_among_its_messages_keeps_it_there() -> None:
    # Property: stores of before need no conversion, and nothing of an index is in two places.
    bounds = Bounds(run_entries=16, flush_runs=2, slice_entries=64, page_entries=4)
    index = Index(bounds)
    index.put(200, 1)
    index.work(1_000)
    engine = index.engine
    rows = engine.scan(index_of(1), b"", b"\xff", 10_000)
    engine.drop_family(index_of(1))
    engine.write([(1, key, value) for key, value in rows])
    index.layout = PageStream.open(engine, 1, LayoutOptions((None, 0)), bounds)
    index.put(200, 1)
    index.layout.seal()
    index.work(10_000)
    assert not engine.has_family(index_of(1)) and index.segments() == [[400]]
    pages = engine.scan(1, PAGE_PREFIX, PAGE_PREFIX + b"\xff" * 40, 10_000)
    assert sum(len(decode_page(key, value).hashes) for key, value in pages) == 400


def test_a_store_without_an_index_gets_none() -> None:
    # Property: a family costs memory and files: it is made when the first page is.
    index = Index(Bounds(run_entries=1_000))
    index.put(500, 3)
    index.work(1_000)
    assert not index.engine.has_family(index_of(1))
