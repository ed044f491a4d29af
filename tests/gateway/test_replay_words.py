"""What a SUBSCRIBE says about the past: every form of a moment, and one sentence for what is none."""

from __future__ import annotations

import pytest

from gateway.replay import NOTHING, NotUnderstood, Wanted, shown, wanted
from sessions.frames import Replay
from sessions.positions import decode_position, encode_position
from shards.entries import EARLIEST, LATEST, NO_END, PLACE, STEADY, WALL
from shards.frames import Place

NOW_MS = 1_700_000_000_000
PLACES = [Place(5), Place(3, 9, 2, b"static", 4)]
POSITION = encode_position(77, PLACES).decode()


def said(*pairs: tuple[str, str]) -> Wanted:
    return wanted(pairs, NOW_MS, 2)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("earliest", (EARLIEST, 0)),
        ("latest", (LATEST, 0)),
        ("-2h", (STEADY, NOW_MS - 7_200_000)),
        ("-1500ms", (STEADY, NOW_MS - 1_500)),
        ("-999999999999d", (STEADY, 1)),
        ("1970-01-01T00:00:01Z", (WALL, 1_000)),
        ("1970-01-01t00:00:01.0001z", (WALL, 1_001)),
        ("1970-01-01T02:00:01.5+02:00", (WALL, 1_500)),
        ("1969-12-31T23:59:59Z", (WALL, 1)),
    ],
)
def test_a_moment_has_many_forms(value: str, found: tuple[int, int]) -> None:
    """Between two milliseconds the later one is meant: nothing is brought that was published before."""
    assert said(("replay-from", value)) == Wanted(Replay(*found, NO_END, 0))


def test_other_properties_mean_nothing_here() -> None:
    """Whatever an application writes there is its own."""
    assert said(("trace", "1"), ("Replay-From", "earliest")) is NOTHING


def test_an_end_and_positions_are_asked_for_beside_a_beginning() -> None:
    """Positions alone move nothing."""
    assert said(("replay-positions", "true")) == Wanted(None, True)
    found = said(("replay-until", "latest"), ("replay-from", "-1s"), ("replay-positions", "false"))
    assert found == Wanted(Replay(STEADY, NOW_MS - 1_000, LATEST, 0)) and found.ends and not said(("replay-from", "earliest")).ends


def test_a_position_is_given_back_as_it_was() -> None:
    """With the time before which nothing is wanted."""
    assert said(("replay-from", POSITION)) == Wanted(Replay(PLACE, 77, NO_END, 0, PLACES))
    assert decode_position(POSITION, 2) == (77, PLACES)


@pytest.mark.parametrize(
    "pairs",
    [
        (("replay-from", ""),),
        (("replay-from", "2h"),),
        (("replay-from", "-2 h"),),
        (("replay-from", "2026-11-20"),),
        (("replay-from", "2026-11-20T10:00:00"),),
        (("replay-from", "2026-02-30T10:00:00Z"),),
        (("replay-from", "٢٠٢٦-11-20T10:00:00Z"),),
        (("replay-from", "earliest"), ("replay-from", "latest")),
        (("replay-from", "earliest"), ("replay-until", "earliest")),
        (("replay-from", "earliest"), ("replay-until", POSITION)),
        (("replay-until", "latest"),),
        (("replay-positions", "1"),),
        (("replay-speed", "2"),),
        (("replay-from", "@"),),
        (("replay-from", POSITION[:-4]),),
        (("replay-from", POSITION + "é"),),
        (("replay-from", encode_position(0, PLACES[:1]).decode()),),
        (("replay-from", encode_position(-1, PLACES).decode()),),
        (("replay-from", encode_position(0, [Place(5), Place(9, 3, 1, b"", 5)]).decode()),),
        (("replay-from", encode_position(0, [Place(5), Place(1 << 63)]).decode()),),
    ],
)
def test_what_is_no_moment_is_refused_with_one_sentence(pairs: tuple[tuple[str, str], ...]) -> None:
    """Whatever it is: nothing else is raised."""
    with pytest.raises(NotUnderstood) as found:
        said(*pairs)
    assert "\n" not in str(found.value) and len(str(found.value)) < 200


def test_a_time_is_shown_as_it_may_be_asked_for() -> None:
    """What is kept since then can be given back."""
    assert shown(NOW_MS + 1) == "2023-11-14T22:13:20.001Z"
    assert said(("replay-from", shown(NOW_MS + 1))) == Wanted(Replay(WALL, NOW_MS + 1, NO_END, 0))
