"""Topic names, filters, levels, $share and matching, by tables."""

from __future__ import annotations

import pytest

from mqtt.reason import ProtocolError, ReasonCode
from mqtt.topics import (
    ParsedFilter,
    check_topic_filter,
    check_topic_name,
    has_wildcard,
    matches,
    matches_all,
    parse_filter,
)
from tests.mqtt import universe

NAME, FILTER, MALFORMED = ReasonCode.TOPIC_NAME_INVALID, ReasonCode.TOPIC_FILTER_INVALID, ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    "topic",
    ["a", "/", "//", "/a", "a/", "a//b", "$SYS/x", "$share/g/a", " ", "é/水/\U0001f41d", "\ufeffa", "\x01", "a" * 65_535, "/" * 127],
)
def test_valid_topic_names(topic: str) -> None:
    """A name passes as text and as bytes, and comes back as bytes."""
    assert check_topic_name(topic) == check_topic_name(topic.encode()) == topic.encode()
    assert check_topic_filter(topic) == topic.encode()


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", NAME),
        (b"", NAME),
        ("a/+", NAME),
        ("#", NAME),
        ("a+b", NAME),
        ("a" * 65_536, NAME),
        ("/" * 128, NAME),
        ("a\0b", MALFORMED),
        ("\ud800", MALFORMED),
        (b"\xed\xa0\x80", MALFORMED),
        (b"\xff", MALFORMED),
        (b"\xc0\xaf", MALFORMED),
    ],
)
def test_invalid_topic_names(topic: str | bytes, reason: ReasonCode) -> None:
    """What is not UTF-8 is malformed, what is not a name is 0x90."""
    with pytest.raises(ProtocolError) as caught:
        check_topic_name(topic)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    "topic_filter", ["#", "+", "+/#", "a/#", "/#", "a/+/b", "/+", "+/", "+/+", "a/+/#", "$SYS/#", "$share", "$sharex/a"]
)
def test_valid_filters(topic_filter: str) -> None:
    """Wildcards that are whole levels, the number sign last; without a share name the filter is plain."""
    assert parse_filter(topic_filter) == parse_filter(topic_filter.encode()) == ParsedFilter(topic_filter.encode())


@pytest.mark.parametrize(
    ("topic_filter", "reason"),
    [
        ("", FILTER),
        ("a#", FILTER),
        ("a/#/b", FILTER),
        ("#/", FILTER),
        ("##", FILTER),
        ("a/b#", FILTER),
        ("#a", FILTER),
        ("#/#", FILTER),
        ("a+", FILTER),
        ("+a/b", FILTER),
        ("a/++", FILTER),
        ("+#", FILTER),
        ("a" * 65_536, FILTER),
        ("+/" * 128, FILTER),
        ("a/\0/#", MALFORMED),
        (b"+/\xff", MALFORMED),
    ],
)
def test_invalid_filters(topic_filter: str | bytes, reason: ReasonCode) -> None:
    """Everything else is refused, shared or not, with 0x8F or as malformed."""
    raw = topic_filter if isinstance(topic_filter, bytes) else topic_filter.encode()
    for refused in (topic_filter, b"$share/g/" + raw):
        with pytest.raises(ProtocolError) as caught:
            parse_filter(refused)
        assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("topic_filter", "group", "rest"),
    [
        ("$share/g/a", b"g", b"a"),
        ("$share/g/a/+/#", b"g", b"a/+/#"),
        ("$share/g//", b"g", b"/"),
        ("$share/é/#", "é".encode(), b"#"),
        ("$share/$share/$share/g/a", b"$share", b"$share/g/a"),
    ],
)
def test_shared_filters_are_taken_apart(topic_filter: str, group: bytes, rest: bytes) -> None:
    """The share name ends at the first slash; what follows is the filter."""
    assert parse_filter(topic_filter) == ParsedFilter(rest, group)


@pytest.mark.parametrize(
    "topic_filter", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a", "$share/g#/a", "$share/#", "$share/a+b/c"]
)
def test_broken_shared_filters(topic_filter: str) -> None:
    """A share name that is missing or has a wildcard, or that nothing follows, is 0x8F."""
    with pytest.raises(ProtocolError) as caught:
        parse_filter(topic_filter)
    assert caught.value.reason is FILTER


def test_the_limit_of_levels() -> None:
    """Exactly ``levels_max`` levels pass; the two levels of a share name do not count."""
    assert check_topic_name("a/b/c", levels_max=3) == b"a/b/c"
    assert parse_filter("$share/g/a/+/#", levels_max=3) == ParsedFilter(b"a/+/#", b"g")
    for topic_filter in ("a/b/c/d", "$share/g/a/b/c/d"):
        with pytest.raises(ProtocolError) as caught:
            parse_filter(topic_filter, levels_max=3)
        assert caught.value.reason is FILTER
    with pytest.raises(ProtocolError) as caught:
        check_topic_name("a/b/c/d", levels_max=3)
    assert caught.value.reason is NAME


def test_many_topics_at_once_match_as_each_does() -> None:
    """In a world small enough to look at every topic."""
    for topic_filter in universe.FILTERS:
        for topic in universe.TOPICS:
            assert matches_all(topic_filter, [topic]) == matches(topic_filter, topic), (topic_filter, topic)


def test_wildcards() -> None:
    """What has one; a dollar sign is none."""
    assert [raw for raw in (b"a", b"+", b"a/#", b"$SYS") if has_wildcard(raw)] == [b"+", b"a/#"]


@pytest.mark.parametrize(
    ("topic_filter", "yes", "no"),
    [
        ("a/b", ["a/b"], ["a", "a/b/c", "A/b", "/a/b", "a/b/"]),
        ("#", ["a", "/", "a/b/c", "/a"], ["$SYS", "$SYS/a", "$"]),
        ("a/#", ["a", "a/", "a/b", "a/b/c", "a/$b"], ["b", "ab", "/a", "ab/c"]),
        ("/#", ["/", "/a", "/a/b", "//"], ["a", "a/b"]),
        ("+", ["a", " "], ["a/b", "/", "/a", "$SYS", "$"]),
        ("+/+", ["/a", "a/", "/", "a/b"], ["a", "a/b/c", "$SYS/a"]),
        ("/+", ["/a", "/"], ["a", "a/b", "//"]),
        ("a/+", ["a/b", "a/", "a/$x"], ["a", "a/b/c"]),
        ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/b/c", "a/b/c/d"]),
        ("+/b/#", ["a/b", "a/b/c", "/b"], ["a", "b/b2", "$a/b", "$SYS/b/c"]),
        ("$SYS/#", ["$SYS", "$SYS/a/b"], ["$SYSx", "a/$SYS", "SYS"]),
        ("$SYS/+/x", ["$SYS/a/x"], ["$SYS/x", "a/a/x"]),
        ("a/+/#", ["a/b", "a/b/c", "a/"], ["a"]),
        ("+/#", ["a", "/", "a/b"], ["$SYS", "$SYS/a"]),
        ("é/+", ["é/水"], ["e/水"]),
    ],
)
def test_matching(topic_filter: str, yes: list[str], no: list[str]) -> None:
    """The examples of MQTT 5, 4.7, and the corners between them."""
    assert [topic for topic in yes + no if matches(topic_filter.encode(), topic.encode())] == yes
    assert [topic for topic in yes + no if matches_all(topic_filter.encode(), [topic.encode()])] == yes
    assert matches_all(topic_filter.encode(), {topic.encode() for topic in yes})
    assert not matches_all(topic_filter.encode(), {topic.encode() for topic in yes + no[-1:]})
    assert matches_all(topic_filter.encode(), ())
