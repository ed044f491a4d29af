"""The layouts that the contract suites run over: those that ship, and pagestream and record_batch with bounds so small that a few hundred
messages go through all that happens to an index: runs, segments, folds, garbage, pages that end in the middle of a value; and
wildcard_optimized with keys so small that epochs are short, hashes of levels are often equal, and so are the truncated static keys of
streams."""

from __future__ import annotations

from dataclasses import replace

from shards.engine import Engine
from shards.layouts.pagestream import PageStream
from shards.layouts.port import Layout, LayoutOptions
from shards.layouts.record_batch import Bounds, RecordBatch
from shards.layouts.registry import LAYOUTS, OpenLayout
from shards.layouts.wildcard_optimized import WildcardOptimized

SMALL = Bounds(
    run_entries=8,
    flush_runs=2,
    ram_entries_max=60,
    fold_segments=3,
    slice_entries=8,
    slice_pages=2,
    slice_messages=5,
    sampled_records=1,
    small_stream=3,
    slice_streams=2,
    page_entries=4,
)


def open_small(engine: Engine, family: int, options: LayoutOptions) -> Layout:
    return RecordBatch.open(engine, family, options, SMALL)


def open_small_keys(engine: Engine, family: int, options: LayoutOptions) -> Layout:
    small = replace(options, bits_per_topic_level=8, epoch_bits=9, topic_index_bytes=1)
    return WildcardOptimized.open(engine, family, small)


def open_small_pages(engine: Engine, family: int, options: LayoutOptions) -> Layout:
    return PageStream.open(engine, family, options, SMALL)


OPENERS: dict[str, OpenLayout] = {
    **LAYOUTS, "pagestream_small": open_small_pages, "record_batch_small": open_small, "wildcard_optimized_small": open_small_keys
}  # fmt: skip


def settle(layout: Layout, upto: int, slices_max: int) -> int:
    """Idle work until there is no more, or so many slices are done; returns how many were."""
    for done in range(slices_max):
        if not layout.idle_work(upto):
            return done
    return slices_max
