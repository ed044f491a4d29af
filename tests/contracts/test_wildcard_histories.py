"""Random histories of a store in bit-field keys: epochs of any length, equal hashes, rolls to and from other layouts, kills, power cuts.

And that these histories see the mistakes such a layout invites: each planted fault is found within some seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pytest

from shards.engine import StoreFailed
from shards.layouts import LAYOUTS
from shards.layouts.wildcard_optimized import WildcardOptimized
from shards.layouts.wildcard_optimized.epochs import Asked, Epochs, Page
from shards.layouts.wildcard_optimized.keys import Filter, KeyMapper
from tests.contracts.layout_history import Layouts
from tests.contracts.layouts import open_small

STEPS = 50
FAULT_SEEDS = 60
SHIPPED = (("wildcard_optimized",), ("wildcard_optimized", "record_batch", "skipstream"))


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
@pytest.mark.parametrize("seed", range(20))
def test_what_was_put_is_read_whatever_happens_between(seed: int, layouts: tuple[str, ...]) -> None:
    # Property: over any history, what was synced is read, exactly and in order; who follows the cut-off is given all of it, too.
    live(seed, layouts, None)


@pytest.mark.parametrize("layouts", SHIPPED, ids="+".join)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_so_it_is_on_a_real_store(seed: int, layouts: tuple[str, ...], tmp_path: Path) -> None:
    # Property: the same over RocksDB, where a power cut goes back to what the last sync left.
    live(seed, layouts, tmp_path, 35)


# ---- the histories see mistakes


class Plant(Protocol):
    __name__: str

    def __call__(self, monkeypatch: pytest.MonkeyPatch, /) -> None: ...


def the_cut_off_is_one_epoch_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    right = WildcardOptimized.cutoff

    def planted(self: WildcardOptimized, topic_filter: bytes, upto: int) -> int:
        cut = right(self, topic_filter, upto)
        return cut if cut == upto else cut + (1 << self._epoch_bits)

    monkeypatch.setattr(WildcardOptimized, "cutoff", planted)
    # The store would hide it by never going beyond what is committed.
    monkeypatch.setattr("shards.store.Store.cutoff", lambda self, topic_filter, upto: self._layout.cutoff(topic_filter, upto))


def an_epoch_is_kept_before_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    collect = Epochs._collect

    def planted(self: Epochs, mapper: KeyMapper, asked: Asked, first: int, upto: int, examine_max: int) -> Page:
        page = collect(self, mapper, asked, first, upto, examine_max)
        through = ((page.through >> mapper.epoch_bits) + 1 << mapper.epoch_bits) - 1
        return page._replace(through=through) if page.entries and page.through == upto else page

    monkeypatch.setattr(Epochs, "_collect", planted)


def a_ratchet_leaves_the_lower_fields_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(self: KeyMapper, wanted: Filter, key: int, number: int, value: int) -> int:
        _, _, size, shift = self.fields[number]
        return key & ~((1 << size) - 1 << shift) | value << shift

    monkeypatch.setattr(KeyMapper, "_with", planted)


def real_topics_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WildcardOptimized, "_belongs", lambda *args: True)


def streams_with_equal_indexes_are_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    note = WildcardOptimized._note

    def planted(self: WildcardOptimized, leaf: object) -> int:
        index = note(self, leaf)  # type: ignore[arg-type]
        self._shared.clear()
        return index

    monkeypatch.setattr(WildcardOptimized, "_note", planted)


def nobody_completes_the_last_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WildcardOptimized, "wants_tick", lambda *args: False)


def a_page_is_in_the_order_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Epochs, "_done", lambda self, entries, first, through: Page(first, through, entries))


PLANTED: tuple[Plant, ...] = (
    the_cut_off_is_one_epoch_too_late,
    an_epoch_is_kept_before_it_is_complete,
    a_ratchet_leaves_the_lower_fields_as_they_are,
    real_topics_are_not_compared,
    streams_with_equal_indexes_are_taken_for_one,
    nobody_completes_the_last_epoch,
    a_page_is_in_the_order_of_its_keys,
)


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: str(plant.__name__))
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    # Property: these histories would not pass over the mistakes that such a layout invites.
    plant(monkeypatch)
    for seed in range(FAULT_SEEDS):
        try:
            live(seed, ("wildcard_optimized",), None)
        except (AssertionError, StoreFailed):
            return
    pytest.fail(f"{plant.__name__} was not found within {FAULT_SEEDS} seeds")
