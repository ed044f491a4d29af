"""A store that is read beside its living owner (shards/view.py), against what the owner must have written by then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from shards.engine import StoreFailed
from shards.messages import topic_of
from shards.store import GenerationDropped, Stream
from shards.view import StoreView
from tests.shards.primary import Cut, Elsewhere, Primary, topic_at
from tests.shards.topic_model import matches

LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")
FILTERS = (b"#", b"plant/+/line/7/temp", b"busy", b"site/+", b"new/#", b"plant/1/#", b"site/3", b"none/at/all")


wants = cache(matches)


class Pair:
    """An owner and a view beside it."""

    def __init__(self, directory: Path, layout: str, seed: int = 1) -> None:
        self._owner = directory / "store", layout
        self.primary = Primary(*self._owner, seed)
        self.primary.publish(10)
        self.view = StoreView(str(directory / "store"), str(directory / "scratch"))
        self.rng = random.Random(seed)

    def caught_up(self) -> Cut:
        cut = self.primary.cut()
        self.view.catch_up(cut.sequence, cut.written)
        return cut

    def begin_anew(self) -> None:
        """Another owner, with what the one before had made for its next generation in its way."""
        self.primary.close()
        self.primary = Primary(*self._owner, self.rng.getrandbits(32))

    def close(self) -> None:
        self.view.close()
        self.primary.close()


@pytest.fixture(params=LAYOUTS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, request.param)
    yield made
    made.close()


def bulk(view: StoreView, generation: int, stream: Stream, after: int, upto: int, rows_max: int = 1000) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    place, done = after, False
    while not done:
        columns = view.bulk(generation, stream, place, upto, rows_max, 100_000)
        place, done = columns.place, columns.done
        found += zip(memoryview(columns.positions).cast("Q").tolist(), columns.values, strict=True)
    assert [position for position, _ in found] == sorted({position for position, _ in found})
    return found


def seen(view: StoreView, generation: int, topic_filter: bytes, after: int, upto: int, rows_max: int = 1000) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for stream in view.streams_in(generation, topic_filter):
        for position, value in bulk(view, generation, stream, after, upto, rows_max):
            assert position not in found, f"{position} is in two streams"
            found[position] = value
    return found


def compare(view: StoreView, cut: Cut, rng: random.Random, gone: frozenset[int] = frozenset()) -> int:
    """Everything of a filter between two positions below a cut that the view has caught up with; how many messages those were.

    gone: generations that were dropped between the cut and the catching up."""
    after = rng.choice((-1, rng.randint(0, cut.watermark), max(-1, cut.watermark - rng.randint(0, 200))))
    upto = rng.choice((cut.watermark, rng.randint(max(after, 0), max(after, 0, cut.watermark))))
    topic_filter = rng.choice(FILTERS)
    expected = cut.messages(after, upto)
    there = {int(info.id) for info in view.generations()}
    assert set(expected) - gone <= there
    count = 0
    for generation in there:
        wanted = {at: value for at, value in expected.get(generation, {}).items() if wants(topic_filter, topic_at(at))}
        found = seen(view, generation, topic_filter, after, upto, rng.choice((7, 500)))
        assert found == wanted, (generation, topic_filter, after, upto, sorted(set(found) ^ set(wanted))[:9])
        count += len(found)
    return count


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_below_the_cut_everything_is_seen_and_nothing_else(tmp_path: Path, layout: str, seed: int) -> None:
    # Property: over writes, rolls, drops, folds, flushes, compactions and new owners, the view shows below the cut what was written;
    # what the owner writes after the cut, caught up with or not, changes nothing of it, and what was dropped is told as dropped.
    pair = Pair(tmp_path, layout, seed)
    rng, view = pair.rng, pair.view
    compared = 0
    try:
        for _ in range(25 if seed else 8):
            if rng.random() < 0.15:
                pair.begin_anew()
            primary = pair.primary
            for _ in range(rng.choice((1, 3, 10))):
                primary.step()
            cut = pair.caught_up()
            for _ in range(rng.choice((0, 2, 8))):
                # After the cut: it shows, or not, and nothing below the cut changes.
                primary.step()
            live = {row[0] for row in primary.cut().live}
            if rng.random() < 0.5:
                view.catch_up(primary.cut().sequence)
            for _ in range(3):
                compared += compare(view, cut, rng, frozenset(row[0] for row in cut.live) - live)
            for row in view.dropped_between(0, cut.watermark):
                with pytest.raises(GenerationDropped):
                    view.streams_in(row.generation, b"#")
        assert compared > (500 if seed else 50)
    finally:
        pair.close()


def test_the_next_generation_of_an_owner_that_began_anew_is_seen(pair: Pair) -> None:
    # Property: also when nothing was in memory, so that none of its files has changed: the family made for it before is another one.
    pair.primary.store.create_next()
    pair.primary.engine.release_log()
    pair.view.close()
    pair.caught_up()
    pair.begin_anew()
    pair.primary.roll("default")
    pair.primary.publish(200)
    cut = pair.caught_up()
    newest = max(row[0] for row in cut.live)
    assert len(seen(pair.view, newest, b"#", -1, cut.watermark)) == len(cut.messages(-1, cut.watermark)[newest]) > 100


def test_what_is_only_in_the_log_is_seen(pair: Pair) -> None:
    # Property: neither a flush nor a sync is waited for.
    cut = pair.caught_up()
    assert compare(pair.view, cut, random.Random(0)) >= 0 and pair.view.position == cut.watermark == 10
    pair.primary.publish(5)
    assert pair.view.position == 10
    pair.caught_up()
    assert pair.view.position == 15
    assert len(seen(pair.view, 1, b"#", -1, 15)) + len(seen(pair.view, 2, b"#", -1, 15)) == 15


def test_a_structure_that_has_grown_is_seen(pair: Pair) -> None:
    # Property: new streams are found when the cut says that there are more edges, or the structure is loaded again by hand.
    primary, view = pair.primary, pair.view
    pair.caught_up()
    before = len(view.leaves(1))
    primary.publish(400)
    view.catch_up(primary.cut().sequence)
    assert len(view.leaves(1)) == before, "the structure is loaded once"
    view.refresh(1)
    assert len(view.leaves(1)) > before
    assert set(seen(view, 1, b"new/#", -1, primary.last)) == {
        at for at, v in primary.cut().messages(-1, primary.last)[1].items() if b"new/" in v
    }
    primary.publish(400)
    cut = pair.caught_up()
    assert len(seen(view, 1, b"#", -1, cut.watermark)) == len(cut.messages(-1, cut.watermark)[1])


def test_what_a_generation_learned_before_its_end_is_seen(pair: Pair) -> None:
    # Property: a cut after a roll says nothing of the structure of the sealed generation, and it is complete all the same.
    primary, view = pair.primary, pair.view
    pair.caught_up()
    seen(view, 1, b"#", -1, 10)
    primary.publish(400)
    primary.roll()
    primary.publish(10)
    cut = pair.caught_up()
    assert 1 not in dict(cut.written)
    assert seen(view, 1, b"#", -1, cut.watermark) == cut.messages(-1, cut.watermark)[1]


def test_a_generation_is_read_until_it_is_caught_up_with_its_drop(pair: Pair) -> None:
    # Property: a dropped generation is read as before through the files that are open, in full; from the next catching up on it raises.
    primary, view = pair.primary, pair.view
    primary.publish(300)
    primary.engine.release_log()
    primary.publish(300)
    primary.roll()
    cut = pair.caught_up()
    wanted = cut.messages(-1, cut.watermark)[1]
    (stream, *_) = view.streams_in(1, b"busy")
    half = view.bulk(1, stream, -1, cut.watermark, 50, 1 << 20)
    primary.drop(keeps=0)
    primary.drop(keeps=0)
    primary.sync()
    primary.engine.release_log()
    primary.engine.compact(0)
    assert seen(view, 1, b"#", -1, cut.watermark) == wanted
    assert len(bulk(view, 1, stream, half.place, cut.watermark)) + half.rows == sum(topic_of(v) == b"busy" for v in wanted.values())
    now = pair.caught_up()
    assert not {1, 2} & {row[0] for row in now.live}
    for call in (lambda: view.bulk(1, stream, -1, cut.watermark, 50, 1 << 20), lambda: view.streams_in(1, b"#"), lambda: view.leaves(1)):
        with pytest.raises(GenerationDropped):
            call()
    assert {1, 2} == {row.generation for row in view.dropped_between(0, cut.watermark)}


def test_a_generation_that_was_flushed_and_dropped_in_between_is_never_read_in_part(pair: Pair) -> None:
    # Property: RocksDB would show what is left of it, as its log went into a file and the file is gone; so its row is asked first.
    primary, view = pair.primary, pair.view
    primary.publish(300)
    pair.caught_up()
    primary.publish(300)
    primary.engine.release_log()
    primary.roll()
    primary.publish(1)
    primary.drop(keeps=0)
    primary.drop(keeps=0)
    primary.sync()
    view.catch_up(primary.engine.latest_sequence())
    for generation in (1, 2):
        with pytest.raises(GenerationDropped):
            view.streams_in(generation, b"#")


def test_it_is_opened_anew_for_what_it_cannot_follow_and_for_nothing_else(pair: Pair) -> None:
    # Property: a generation that came, and a flush, want one opening; what is written is followed, and so is what is made ahead or
    # dropped, unless RocksDB deletes a file just then.
    primary, view = pair.primary, pair.view
    for what in ("write", "make", "write", "roll", "write", "flush", "write", "make", "roll", "flush", "drop", "write"):
        match what:
            case "roll":
                primary.roll("default")
            case "flush":
                primary.engine.release_log()
            case "make":
                primary.store.create_next()
            case "drop":
                primary.drop(keeps=0)
                primary.sync()
        opened = view.opened
        primary.publish(50)
        compare(view, pair.caught_up(), pair.rng)
        assert view.opened - opened in {"write": (0,), "make": (0, 1), "drop": (0, 1)}.get(what, (1,)), what


def test_what_was_flushed_hides_nothing_that_is_newer(pair: Pair) -> None:
    # Property: RocksDB leaves in the memory of a secondary what a flush has taken, before newer values of the same keys, and brings back
    # what was erased: the position, the table of generations and the counts are those of the cut, though nothing was written since.
    primary, view = pair.primary, pair.view
    primary.publish(100)
    primary.roll()
    pair.caught_up()
    primary.publish(100)
    primary.drop(keeps=0)
    primary.engine.release_log()
    primary.engine.compact(0)
    cut = pair.caught_up()
    assert view.position == cut.watermark
    assert [int(info.id) for info in view.generations()] == [row[0] for row in cut.live]


def test_a_number_that_the_files_do_not_reach_is_an_error(pair: Pair) -> None:
    # Property: it is opened anew once; then it is said what was found and what was wanted, and the view goes on.
    cut = pair.caught_up()
    with pytest.raises(StoreFailed, match=rf"shows what was written up to {cut.sequence}, and {cut.sequence + 1} is wanted"):
        pair.view.catch_up(cut.sequence + 1)
    assert pair.view.opened == 2
    pair.primary.publish(1)
    compare(pair.view, pair.caught_up(), pair.rng)


def test_an_owner_that_was_closed_and_came_again_is_followed(tmp_path: Path) -> None:
    # Property: another log and another manifest, which an opening of the owner makes, are followed or opened anew.
    for layout in LAYOUTS:
        pair = Pair(tmp_path / layout, layout)
        try:
            for _ in range(3):
                pair.primary.publish(200)
                pair.caught_up()
                pair.primary.publish(50)
                pair.primary.close()
                pair.primary = Primary(tmp_path / layout / "store", layout, 2)
                pair.primary.publish(20)
                compare(pair.view, pair.caught_up(), pair.rng)
        finally:
            pair.close()


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_owner_elsewhere_that_writes_on_and_is_killed_is_followed(tmp_path: Path, layout: str) -> None:
    # Property: as above, while the owner writes at full speed in another process, is killed in the middle of it and opened again.
    rng = random.Random(layout)
    first = Primary(tmp_path / "store", layout, 0)
    first.publish(10)
    view = StoreView(str(tmp_path / "store"), str(tmp_path / "scratch"))
    first.close()
    compared = 0
    try:
        for life in range(5):
            owner = Elsewhere(tmp_path / "store", layout, life)
            try:
                rounds = 0
                # A slow owner has little to compare at first; it writes on, so more rounds have more.
                while rounds < 8 or compared <= 200 * (life + 1):
                    rounds += 1
                    cut = owner.cut()
                    view.catch_up(cut.sequence, cut.written)
                    later = {row[0] for row in owner.cut().live}
                    compared += compare(view, cut, rng, frozenset(row[0] for row in cut.live) - later)
            finally:
                owner.kill()
        assert compared > 1000
    finally:
        view.close()


def test_a_closed_view_says_so(pair: Pair) -> None:
    # Property: after closing nothing is read, and closing twice is harmless.
    pair.view.close()
    pair.view.close()
    with pytest.raises(StoreFailed, match="not open"):
        pair.view.generations()
