"""The layouts that the contract suites run over: those that ship, and record_batch with bounds so small that a few hundred messages
go through all that happens to an index: runs, segments, folds, garbage, pages that end in the middle of a value."""

from __future__ import annotations

from shards.engine import Engine
from shards.layouts import LAYOUTS, OpenLayout
from shards.layouts.port import Layout, LayoutOptions
from shards.layouts.record_batch import Bounds, RecordBatch

SMALL = Bounds(
    run_entries=8,
    flush_runs=2,
    ram_entries_max=60,
    fold_segments=3,
    slice_entries=8,
    slice_pages=2,
    slice_messages=5,
    sampled_records=1,
    page_entries=4,
)


def open_small(engine: Engine, family: int, options: LayoutOptions) -> Layout:
    return RecordBatch.open(engine, family, options, SMALL)


OPENERS: dict[str, OpenLayout] = {**LAYOUTS, "record_batch_small": open_small}


def settle(layout: Layout, upto: int, slices_max: int) -> int:
    """Idle work until there is no more, or so many slices are done; returns how many were."""
    for done in range(slices_max):
        if not layout.idle_work(upto):
            return done
    return slices_max
