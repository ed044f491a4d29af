"""One filter covers another exactly when it matches every topic that the other one matches; two intersect when a topic matches both."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtt.cover import covers, intersects
from mqtt.reason import ProtocolError
from mqtt.topics import matches
from tests.mqtt.universe import FILTERS, matched

WORDS = ("a", "b", "", "$s", "+")
FRESH = b"nobody names it"

filters = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map("/".join),
    st.lists(st.sampled_from(WORDS), max_size=4).map(lambda levels: "/".join([*levels, "#"])),
).filter(bool)
topics = st.lists(st.sampled_from((*WORDS[:-1], "c")), min_size=1, max_size=6).map("/".join).filter(bool)


@given(filters, filters, topics)
def test_what_a_covered_filter_matches_its_cover_matches(outer: str, inner: str, topic: str) -> None:
    """No topic gets through a filter that was allowed and is not matched by the one that allowed it."""
    if covers(outer, inner) and matches(inner.encode(), topic.encode()):
        assert matches(outer.encode(), topic.encode())


@given(filters, filters)
def test_a_filter_that_is_not_covered_matches_a_topic_that_shows_it(outer: str, inner: str) -> None:
    """Nothing is refused without a reason: words that no filter names, and tails of every length, find each difference."""
    assert covers(outer, inner) == all(matches(outer.encode(), topic) for topic in _witnesses(inner.encode()))


def _witnesses(inner: bytes) -> list[bytes]:
    levels = [FRESH if level == b"+" else level for level in inner.split(b"/")]
    if levels[-1] != b"#":
        return [b"/".join(levels)]
    tails = [levels[:-1] + [FRESH] * length for length in range(8)]
    found = [b"/".join(tail) for tail in tails]
    return [topic for topic in found if topic and matches(inner, topic)]


@pytest.mark.parametrize(
    ("outer", "inner", "covered"),
    [
        ("plant/1/#", "plant/1/+/temp", True),
        ("plant/1/#", "plant/#", False),
        ("plant/1/#", "plant/1", True),
        ("#", "$SYS/#", False),
        ("#", "+/#", True),
        ("+/#", "#", True),
        ("a/+/#", "a/#", False),
        ("$SYS/#", "$SYS/broker/+", True),
        ("a/#", "$share/group/a/b", True),
        ("$share/group/a/+", "a/b", True),
        ("a/b", "$share/group/a/c", False),
        ("+", "a/b", False),
        ("a/+", "a/", True),
        ("/+/#", "/#", True),
    ],
)
def test_covers_as_people_expect(outer: str, inner: str, covered: bool) -> None:
    """The cases that documentation speaks of."""
    assert covers(outer, inner) is covered


def test_all_filters_of_a_small_world_lie_to_each_other_as_its_topics_show() -> None:
    """Nothing that is denied is overlooked in what is granted, and nothing is looked for in vain."""
    for one in FILTERS:
        for other in FILTERS:
            assert covers(one, other) == (matched(other) & ~matched(one) == 0), (one, other)
            assert intersects(one, other) == (matched(one) & matched(other) != 0), (one, other)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("plant/#", "plant/secret/#", True),
        ("plant/+/temp", "plant/secret/#", True),
        ("plant/+/temp", "plant/secret/+/#", True),
        ("plant/+", "plant/secret/+/#", False),
        ("plant/#", "plant", True),
        ("#", "$SYS/#", False),
        ("+/broker", "$SYS/broker", False),
        ("$SYS/+", "$SYS/broker", True),
        ("$share/g/a/+", "$share/h/+/b", True),
        ("+", "/#", False),
    ],
)
def test_intersects_as_people_expect(one: str, other: str, meet: bool) -> None:
    """The cases that documentation speaks of; nobody comes first."""
    assert intersects(one, other) is intersects(other, one) is meet


@pytest.mark.parametrize("broken", ["", "a/#/b", "a+", "$share/g", "$share//a"])
def test_what_is_no_filter_covers_nothing_is_not_covered_and_meets_nothing(broken: str) -> None:
    """It is the asker's mistake, and never an answer."""
    with pytest.raises(ProtocolError):
        covers("#", broken)
    with pytest.raises(ProtocolError):
        covers(broken, "#")
    with pytest.raises(ProtocolError):
        intersects(broken, "#")
