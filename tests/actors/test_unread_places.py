"""What lies unread behind many places of a shard (actors/inquiry/unread.py): each is told what counting from there alone gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.inquiry.lag import no_rest
from actors.inquiry.stretches import Counted
from actors.inquiry.unread import KEPT_MAX, FilterPlace, Unread, Unreads
from actors.reader.views import Seen, View
from shards.queries import Place
from tests.shards.primary import Cut, Primary, topic_at
from tests.shards.topic_model import matches

LAYOUTS = ("pagestream", "skipstream", "record_batch", "wildcard_optimized")
FILTERS = (b"#", b"plant/+/line/7/temp", b"busy", b"site/+", b"new/#", b"plant/1/#", b"site/+", b"none/at/all")
PERIOD_MS = 1_000
SEED, ROUNDS = 0, 6
"""Fifteen other seeds, in twelve rounds each, were right as well when this was made."""


@contextmanager
def stored(tmp_path: Path, layout: str, seed: int) -> Iterator[tuple[Primary, View]]:
    """An owner, and a view of its files."""
    primary = Primary(tmp_path / "store", layout, seed)
    primary.publish(10)
    view = View(str(tmp_path / "store"), str(tmp_path / "scratch"))
    try:
        yield primary, view
    finally:
        view.close()
        primary.close()


def caught_up(primary: Primary, view: View) -> Cut:
    cut = primary.cut()
    view.catch_up(cut.sequence, cut.written)
    return cut


def unreads(view: View, cut: Cut, counted: Counted, kept_max: int = KEPT_MAX) -> Unreads:
    return Unreads(0, counted, PERIOD_MS, no_rest, Seen(view, cut.watermark + 1), kept_max)


def answers(counting: Unreads, places: list[FilterPlace]) -> list[Unread | None]:
    counting.count(counting.unknown(places))
    return [counting.of(*place) for place in places]


def told(view: View, cut: Cut, filter: bytes, after: int) -> Unread:
    """Of a place that is in no sweep, by what was written."""
    behind = [
        (position, generation, len(value))
        for generation, messages in cut.messages(after, cut.watermark).items()
        for position, value in messages.items()
        if matches(filter, topic_at(position))
    ]
    position, generation, _ = min(behind, default=(None, 0, 0))
    gone = [one for one in view.dropped_between(after, cut.watermark, filter) if one.reason != "read"]
    return Unread(len(behind), True, len(gone), position, generation, sum(size for _, _, size in behind))


def place_in(rng: random.Random, view: View, cut: Cut, filter: bytes) -> Place:
    """Anywhere, also beyond the cut, where a generation has ended, and in a sweep."""
    ends = [one.until for one in view.dropped_between(-1, cut.watermark)] or [1]
    at = rng.choice(
        (-1, rng.randint(0, cut.watermark), max(0, cut.watermark - rng.randint(-20, 200)), rng.choice(ends) - rng.randint(0, 2))
    )
    if rng.random() < 0.7:
        return Place(at)
    horizon = at + rng.randint(1, 300)
    generation = rng.choice(view.generations()).id
    streams = view.streams_in(generation, filter)
    static = rng.choice(streams).static if streams else b""
    return Place(at, horizon, generation, static, rng.randint(at, horizon))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_who_shares_an_answer_is_told_what_he_would_be_told_alone(tmp_path: Path, layout: str) -> None:
    # Property: over writes, rolls of two classes, drops, folds, flushes, and looks one after the other that remember what was counted, each
    # place is told what was written behind it, and in a sweep what a count that remembers nothing finds. The owner writes on meanwhile.
    rng, counted = random.Random(SEED), Counted()
    with stored(tmp_path, layout, SEED) as (primary, view):
        for _ in range(ROUNDS):
            for _ in range(rng.choice((1, 5, 20))):
                primary.step()
            cut = caught_up(primary, view)
            counting = unreads(view, cut, counted, rng.choice((10, KEPT_MAX)))
            for _ in range(4):
                primary.step()
                places = [(filter, place_in(rng, view, cut, filter)) for filter in rng.choices(FILTERS, k=15)]
                for (filter, place), found in zip(places, answers(counting, places), strict=True):
                    if place.horizon:
                        assert [found] == answers(unreads(view, cut, Counted()), [(filter, place)]), (filter, place)
                    else:
                        assert found == told(view, cut, filter, place.cut), (filter, place)


@pytest.mark.parametrize("order", ["up", "down", "any"])
def test_one_count_for_all_who_wait_between_the_same_messages(tmp_path: Path, order: str) -> None:
    # Property: places in a gap between messages of a filter are counted once, so there are as many counts as gaps, in whatever order they
    # come; but for the first of those that come from behind, nothing has to be counted for them.
    with stored(tmp_path, "record_batch", 1) as (primary, view):
        primary.publish(300)
        cut = caught_up(primary, view)
        counting = unreads(view, cut, Counted())
        hits = [position for position in range(1, cut.watermark + 1) if matches(b"site/+", topic_at(position))]
        places = list(range(-1, cut.watermark + 10))
        if order == "down":
            places.reverse()
        elif order == "any":
            random.Random(1).shuffle(places)
        assert 20 < len(hits) < 100
        counts = 0
        for at in places:
            counts += len(counting.unknown([(b"site/+", Place(at))]))
            assert answers(counting, [(b"site/+", Place(at))]) == [told(view, cut, b"site/+", at)]
        if order == "up":
            assert counts == len(hits) + (hits[-1] < cut.watermark)
        assert counting.unknown([(b"site/+", Place(at)) for at in places]) == []
