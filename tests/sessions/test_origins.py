"""What a bridge is told of each message is the same on every sending."""

from __future__ import annotations

import pytest

from mqtt.body import make_body, properties_of, strip_properties
from mqtt.packets import Properties
from sessions.bodies import Bodies
from sessions.origins import ORIGIN, Origin, is_bridge, read_origin, write_origin
from shards.messages import HAS_PROPERTIES, encode_message


@pytest.mark.parametrize("publisher", ["meter-7", "", "with spaces . and 1.2 3", "größe"])
def test_what_is_written_is_read(publisher: str) -> None:
    """Whatever a client is called."""
    text = write_origin(17, 3, 1_712_345_678, 42, 1_764_000_000_000, 1, publisher.encode()).decode()
    assert read_origin(text) == Origin(17, 3, 1_712_345_678, 42, 1_764_000_000_000, 1, publisher)


@pytest.mark.parametrize("text", ["", "1 2 3", "a 1.2 3 4 5 x", "1 12 3 4 5 x"])
def test_what_is_none_is_refused(text: str) -> None:
    """By somebody else, under the same name."""
    with pytest.raises(ValueError):
        read_origin(text)


def test_it_stands_before_what_the_publisher_has_said_and_only_in_what_is_asked_for() -> None:
    """So a property of that name by a client is not taken for ours; others who take the same message do not get it."""
    said = Properties(user_properties=((ORIGIN.decode(), "forged"), ("a", "b")))
    values = [
        encode_message(HAS_PROPERTIES | 1, 1_000, b"p", b"t", make_body(said, b"one")),
        encode_message(0, 2_000, b"q", b"t", b"\0two"),
    ]
    bodies = Bodies(values, shared=True)
    own = bodies.at_origins([1, 0], 9, 2, [70, 60], [5, 4])
    first, second = [properties_of(body).user_properties for _, body, _, _ in own.messages]
    assert [name for name, _ in first] == [ORIGIN.decode(), ORIGIN.decode(), "a"]
    assert read_origin(first[0][1]) == Origin(9, 2, 60, 4, 1_000, 1, "p") and read_origin(second[0][1]) == Origin(
        9, 2, 70, 5, 2_000, 0, "q"
    )
    assert [strip_properties(body) for _, body, _, _ in own.messages] == [b"one", b"two"]
    assert [properties_of(body) for _, body, _, _ in bodies.messages] == [said, Properties()]


def test_whose_ids_are_bridges() -> None:
    """The prefix as a whole."""
    assert is_bridge(b"$bridge/x") and not is_bridge(b"$bridge") and not is_bridge(b"x$bridge/")
