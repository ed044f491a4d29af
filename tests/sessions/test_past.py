"""What a replay makes of a segment: in an order in which the position of each message says that all before it was delivered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from sessions.bodies import HISTORY, POSITIONS
from sessions.past import Part, parts
from sessions.ranges import Terms
from sessions.session import Cursor, Past
from shards.frames import Place, Segment
from shards.messages import encode_message

A, B = (1, b"\x01"), (1, b"\x02")
HORIZON = 100
"""Of the sweep; up to half of it is history."""

pytestmark = pytest.mark.needs("interpreted")


def cursor(options: int, ends: bool = False) -> Cursor:
    sub = SimpleNamespace(terms=Terms(7, b"#", 1, options, 0), history={}, ends=ends)
    return cast(Cursor, SimpleNamespace(sub=sub, shard=0, past=Past(HORIZON // 2)))


def segment() -> Segment:
    """Two streams, one after the other, each with a message of the past and one behind it."""
    values = [
        encode_message(1, 1, b"p", topic, b"\x00" + payload) for topic, payload in ((b"a", b"1"), (b"a", b"2"), (b"b", b"3"), (b"b", b"4"))
    ]
    return Segment([A, B], 0, HORIZON, False, [10, 60, 20, 70], values, [2, 2])


def taken(options: int, ends: bool = False) -> list[Part]:
    return list(parts(cursor(options, ends), segment(), [Place(0)], Place(0, HORIZON)))


def told(found: list[Part]) -> list[tuple[list[tuple[int, bytes]], int, int, bool, int]]:
    return [(part.streams, part.after, part.upto, bool(part.terms.options & HISTORY), len(part.bodies.messages)) for part in found]


def test_with_positions_one_stream_is_through_before_the_next_begins() -> None:
    """Who goes on from the position of B's first message does not get A again: all of A must have left before it."""
    half = HORIZON // 2
    assert told(taken(POSITIONS)) == [
        ([A], 0, half, True, 1), ([A], half, HORIZON, False, 1), ([B], 0, half, True, 1), ([B], half, HORIZON, False, 1)
    ]  # fmt: skip


def test_without_positions_a_segment_over_the_end_of_the_past_is_two_ranges() -> None:
    """Nobody can go on from the middle of it, so it need not be more."""
    half = HORIZON // 2
    assert told(taken(0)) == [([A, B], 0, half, True, 2), ([A, B], half, HORIZON, False, 2)]


@pytest.mark.parametrize("options", [0, POSITIONS])
def test_a_replay_that_ends_there_has_the_past_alone(options: int) -> None:
    """Of each stream."""
    found = taken(options, ends=True)
    assert all(part.terms.options & HISTORY for part in found) and sum(len(part.bodies.messages) for part in found) == 2
