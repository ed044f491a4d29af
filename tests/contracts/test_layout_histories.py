"""Random histories of a store over every layout and engine: rolls between layouts, drops, idle work, kills, power cuts, restarts.

And that these histories see mistakes: each planted fault is found within some seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest

from shards.engine import Engine, Op, StoreFailed
from shards.layouts import LAYOUTS
from shards.layouts.record_batch.entries import Entries
from shards.layouts.record_batch.merging import Source
from shards.layouts.record_batch.paged_index import Bounds, _Job
from shards.layouts.record_batch.pages import IndexState, Segment
from shards.layouts.record_batch.postings import Postings
from shards.layouts.record_batch.scanning import Scanner, _Taken
from shards.layouts.record_batch.stream_index import StreamIndex
from shards.layouts.record_batch.values import Batch, encode_batch
from tests.contracts.layout_history import Layouts
from tests.contracts.layouts import open_small

STEPS = 60
FAULT_SEEDS = 60
SHIPPED = (("skipstream",), ("record_batch",), ("record_batch", "skipstream"))


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYOUTS, "record_batch", open_small)


def live(seed: int, layouts: tuple[str, ...], directory: Path | None, steps: int = STEPS) -> None:
    history = Layouts(seed, layouts, directory)
    for _ in range(steps):
        history.step()
    history.finish()
    history.disk.engine.close()


@pytest.mark.parametrize("layouts", SHIPPED, ids="+".join)
@pytest.mark.parametrize("seed", range(25))
def test_what_was_put_is_read_whatever_happens_between(seed: int, layouts: tuple[str, ...]) -> None:
    # Property: over any history of records, syncs, rolls, drops, idle work and crashes, what was synced is read, exactly and in order.
    live(seed, layouts, None)


@pytest.mark.parametrize("layouts", SHIPPED, ids="+".join)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_so_it_is_on_a_real_store(seed: int, layouts: tuple[str, ...], tmp_path: Path) -> None:
    # Property: the same over RocksDB, where a power cut goes back to what the last sync left.
    live(seed, layouts, tmp_path, 40)


# ---- the histories see mistakes


class Plant(Protocol):
    __name__: str

    def __call__(self, monkeypatch: pytest.MonkeyPatch, /) -> None: ...


def an_index_entry_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze = Entries.freeze

    def planted(self: Entries, upto: int, entries_max: int) -> int:
        if self.open_count > 3:
            del self.rows[: self.width]
        return freeze(self, upto, entries_max)

    monkeypatch.setattr(Entries, "freeze", planted)


def a_batch_loses_its_last_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(static: bytes, messages: Sequence[tuple[int, bytes]]) -> tuple[bytes, bytes]:
        return encode_batch(static, messages[:-1])

    monkeypatch.setattr("shards.layouts.record_batch.layout.encode_batch", planted)


def a_batch_is_read_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    take = _Taken.batch

    def planted(self: _Taken, batch: Batch) -> None:
        upto, self.upto = self.upto, batch.last
        take(self, batch)
        self.upto = upto

    monkeypatch.setattr(_Taken, "batch", planted)


def a_batch_over_the_bound_is_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scanner, "_over", lambda *args: None)


def runs_go_before_their_segment_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = _Job.__init__

    def planted(self: _Job, index: StreamIndex, runs: int, first: int, end: int) -> None:
        begin(self, index, runs, first, end)
        del index.entries.runs[:runs]

    monkeypatch.setattr(_Job, "__init__", planted)


def a_fold_loses_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = _Job._sources

    def planted(self: _Job, engine: Engine, family: int) -> list[Source]:
        return sources(self, engine, family)[1:] if self._segments else sources(self, engine, family)

    monkeypatch.setattr(_Job, "_sources", planted)


def a_restart_forgets_what_no_segment_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    load = StreamIndex.load

    def planted(self: StreamIndex, engine: Engine, family: int, messages_max: int) -> int:
        before = bytes(self.entries.rows)
        read = load(self, engine, family, messages_max)
        if self.loaded:
            self.entries.rows[:] = before
        return read

    monkeypatch.setattr(StreamIndex, "load", planted)


def a_segment_claims_more_than_it_covers(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = _Job._outcome

    def planted(self: _Job, entries: int) -> IndexState:
        state = outcome(self, entries)
        return state._replace(covered=state.covered + 5000)

    monkeypatch.setattr(_Job, "_outcome", planted)


def the_row_of_a_segment_is_written_before_its_last_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    step = _Job.step

    def planted(self: _Job, engine: Engine, family: int, bounds: Bounds) -> tuple[list[Op], bool]:
        ops, _ = step(self, engine, family, bounds)
        if self._runs and self._level == self._index.levels:
            self._after = self._outcome(0)
            return [*ops, (family, *self._index.encoded(self._after))], True
        return ops, False

    monkeypatch.setattr(_Job, "step", planted)


def a_page_that_goes_on_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Postings._page

    def planted(self: Postings, segment: Segment, target: int) -> bool:
        found = page(self, segment, target)
        if self._more:
            self._more = False
            self._source += 1
        return found

    monkeypatch.setattr(Postings, "_page", planted)


def a_read_batch_is_kept_for_the_wrong_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Batch, "index_after", lambda self, position: sum(self.first + offset < position for offset in self.offsets))


PLANTED: tuple[Plant, ...] = (
    an_index_entry_is_skipped,
    a_batch_loses_its_last_message,
    a_batch_is_read_beyond_the_bound,
    a_batch_over_the_bound_is_overlooked,
    runs_go_before_their_segment_is_there,
    a_fold_loses_a_segment,
    a_restart_forgets_what_no_segment_covers,
    a_segment_claims_more_than_it_covers,
    the_row_of_a_segment_is_written_before_its_last_pages,
    a_page_that_goes_on_is_not_followed,
    a_read_batch_is_kept_for_the_wrong_place,
)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: str(plant.__name__))
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: these histories would not pass over the mistakes that such a layout invites.
    plant(monkeypatch)
    for seed in range(FAULT_SEEDS):
        try:
            live(seed, ("record_batch",), None)
        except (AssertionError, StoreFailed):
            return
    pytest.fail(f"{plant.__name__} was not found within {FAULT_SEEDS} seeds")
