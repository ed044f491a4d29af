"""What `bulk` of every layout promises (shards/layouts/port.py), over every engine: the messages that `read` gives, in columns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from shards.bulk import Columns
from shards.layouts.port import LayoutOptions, Stream
from tests.contracts.engines import ENGINES, Harness, make
from tests.contracts.layouts import OPENERS, settle
from tests.contracts.test_layout import FAMILY, MANY, Kept, bounds, filled
from tests.shards.topic_model import any_filter, any_topic


@pytest.fixture(params=[f"{layout}-{engine}" for layout in OPENERS for engine in ENGINES])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Harness]]:
    layout, engine = request.param.rsplit("-", 1)
    harness = make(engine, tmp_path)
    yield layout, harness
    harness.close()


def messages(columns: Columns) -> list[tuple[int, bytes]]:
    """As `read` has them."""
    assert len(columns.positions) == 2 * len(columns.lengths) == 8 * columns.rows == 8 * len(columns.values)
    assert b"".join(columns.values) == b"".join(columns.pieces) and len(b"".join(columns.values)) == columns.value_bytes
    positions = [int.from_bytes(columns.positions[at : at + 8], "little") for at in range(0, len(columns.positions), 8)]
    return list(zip(positions, columns.values, strict=True))


def in_pieces(kept: Kept, stream: Stream, after: int, upto: int, rng: random.Random) -> list[tuple[int, bytes]]:
    """Read with any bounds, one after the other; the bounds are kept."""
    found: list[tuple[int, bytes]] = []
    place, done = after, False
    while not done:
        rows_max, bytes_max = rng.choice((1, 2, 7, 64, 100, MANY)), rng.choice((1, 60, 200, 3000, MANY))
        columns = kept.layout.bulk(stream, place, upto, rows_max, bytes_max)
        assert len(columns.values) <= rows_max
        assert len(columns.values) <= 1 or sum(map(len, columns.values)) <= bytes_max
        assert columns.done or columns.place > place
        assert columns.done == (columns.place >= upto)
        found += messages(columns)
        place, done = columns.place, columns.done
        assert not found or found[-1][0] <= place
    assert place == max(upto, after)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_bulk_is_what_read_is(stored: tuple[str, Harness], seed: int) -> None:
    # Property: over any bounds, whole or in pieces, with fewer rows a prefix; after writes, idle work, a seal and restarts.
    kept, rng = filled(stored, seed)
    for what in ("nothing", "idle", "write", "restart", "again", "write", "seal", "restart"):
        if what == "idle":
            settle(kept.layout, kept.last, 30)
        elif what == "seal":
            kept.layout.seal()
            settle(kept.layout, kept.last, 10_000)
        elif what == "write":
            busy = any_topic(rng)
            for _ in range(3):
                kept.publish([any_topic(rng) for _ in range(10)] + [busy] * 20, rng)
        elif what == "restart":
            kept.reopen()
        elif what == "again":
            kept.layout = kept.layout.seen_again()
            kept.keys = {}
        for topic_filter in (b"#", any_filter(rng), any_filter(rng)):
            after, upto = bounds(kept, rng)
            # What is not yet written is not read: pages of what was read are kept.
            upto = min(upto, kept.last)
            for stream in kept.layout.streams(topic_filter):
                expected = kept.whole(stream, after, upto) if after <= upto else []
                whole = kept.layout.bulk(stream, after, upto, MANY, MANY)
                assert messages(whole) == expected
                assert (whole.place, whole.done) == (max(upto, after), True)
                rows = rng.randint(1, 1 + len(expected))
                assert messages(kept.layout.bulk(stream, after, upto, rows, MANY)) == expected[:rows]
                assert in_pieces(kept, stream, after, upto, rng) == expected


def test_rows_end_where_the_bound_is_whatever_they_are_stored_in(stored: tuple[str, Harness]) -> None:
    # Property: every pair of bounds, over single messages and batches: the place is a message position and nothing shows of a batch.
    rng = random.Random(3)
    kept = Kept(*stored, LayoutOptions((100,)))
    for count in (1, *[20] * 8, 100, 40, 3, *[17] * 9, 64):
        # A stream is found to be busy in every eighth record at least, and its batches begin with the next one.
        kept.publish([b"busy"] * count, rng)
    rows_there = len(kept.harness.engine.scan(FAMILY, b"\x01", b"\xff" * 9, MANY))
    assert (rows_there < len(kept.messages) / 2) == kept.name.startswith(("pagestream", "record_batch")), "there are batches"
    (stream,) = kept.layout.streams(b"busy")
    everything = kept.whole(stream, -1, kept.last)
    positions = [-1, *(position for position, _ in everything)]
    for first in range(0, len(positions), 31):
        for last in range(first, len(positions), 7):
            found = messages(kept.layout.bulk(stream, positions[first], positions[last], MANY, MANY))
            assert found == everything[first:last], (first, last)
            rows = rng.randint(1, 40)
            columns = kept.layout.bulk(stream, positions[first], positions[last] + 1, rows, MANY)
            assert messages(columns) == everything[first : min(first + rows, last + (positions[last] + 1 in positions))]


def test_a_message_larger_than_the_byte_bound_comes_alone_in_columns(stored: tuple[str, Harness]) -> None:
    # Property: a first message is never too large, so a read always comes on.
    rng = random.Random(1)
    kept = Kept(*stored, LayoutOptions((0,)))
    kept.publish([b"a/b"] * 30, rng, 4000)
    for stream in kept.layout.streams(b"#"):
        place, found = -1, 0
        for _ in range(30):
            columns = kept.layout.bulk(stream, place, kept.last, MANY, 10)
            assert len(columns.values) == 1
            place, found = columns.place, found + 1
        assert found == 30 and kept.layout.bulk(stream, place, kept.last, MANY, 10) == Columns(b"", b"", [], max(place, kept.last), True)
