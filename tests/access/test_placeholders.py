"""What is known of a client, as a level of a topic filter."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.identity import Identity
from access.placeholders import VALUE_BYTES_MAX, TemplateError, escape, parse_template, values_of
from mqtt.topics import check_topic_filter, matches

NASTY = st.text(st.sampled_from("/+#%$2FB43a\0\n\x7f\x80\x9f\xa0é"), min_size=1, max_size=8)
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NAMES = st.one_of(NASTY, ANYTHING)


@given(NAMES, NAMES)
def test_two_values_never_become_the_same_level(one: str, other: str) -> None:
    """Nor does one become what another is by itself."""
    assert (escape(one.encode()) == escape(other.encode())) == (one == other)


@given(NAMES)
def test_a_value_is_one_level_and_no_wildcard(value: str) -> None:
    """It is not empty, it begins no topic of the broker, and it can be read back."""
    level = escape(value.encode())
    assert check_topic_filter(level) == level and not re.search(rb"[/+#\0\n\x7f]|\A\$", level)
    assert not matches(level, level + b"x") and matches(level, level)
    assert re.sub(rb"%(..)", lambda found: bytes.fromhex(found[1].decode()), level) == value.encode()


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("meter-7", "meter-7"),
        ("a/b", "a%2Fb"),
        ("+", "%2B"),
        ("#", "%23"),
        ("a%2Fb", "a%252Fb"),
        ("$SYS", "%24SYS"),
        ("a$", "a$"),
        ("a\nb", "a%0Ab"),
        ("\x85", "%C2%85"),
        ("é ü", "é ü"),
    ],
)
def test_values_as_they_stand_in_topics(value: str, level: str) -> None:
    """The form is in the topics of devices: it never changes."""
    assert escape(value.encode()) == level.encode()


def test_placeholders_are_filled_in() -> None:
    """Each with its own; text around one stays."""
    template = parse_template("a/${client_id}/x-${user}-y/${attr.site}/#")
    values = values_of(Identity("u/1", "jwt", attributes=(("site", "s+"),)), b"c")
    assert template.names == ("client_id", "user", "attr.site")
    assert template.fill(values, allow=True) == (b"a", b"c", b"x-u%2F1-y", b"s%2B", b"#")
    assert template.widest() == b"a/+/+/+/#"


@pytest.mark.parametrize("template", ["a/${user}", "a/x-${user}", "a/${client_id}", "a/${attr.site}", "a/${attr.twice}", "a/${attr.other}"])
@pytest.mark.parametrize("value", ["", "x" * (VALUE_BYTES_MAX + 1), "\ud800"])
def test_a_value_that_is_missing_opens_nothing_and_closes_everything(template: str, value: str) -> None:
    """Empty, too long, without a form in UTF-8, said twice, or not there at all."""
    who = Identity(value, "jwt", attributes=(("site", value), ("twice", "a"), ("twice", "b")))
    values = values_of(who, value.encode("utf-8", "surrogatepass"))
    assert parse_template(template).fill(values, allow=True) is None
    assert parse_template(template).fill(values, allow=False) == (b"a", b"+")


@given(NAMES, st.sampled_from(["m/${user}/#", "${user}", "${user}/x", "x${user}", "m/+/a${user}b/c", "$SYS/${user}"]))
def test_what_is_filled_in_is_within_the_widest(name: str, text: str) -> None:
    """So a look at the widest form overlooks nobody."""
    template = parse_template(text)
    for values in ({"user": escape(name.encode())}, {}):
        filled = template.fill(values, allow=False)
        assert filled is not None
        topic = b"/".join([b"t" if level in (b"+", b"#") else level for level in filled])
        assert matches(b"/".join(filled), topic) and matches(template.widest(), topic)


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("", "topic filter is empty"),
        ("a/#/b", "# is not the whole last level"),
        ("a+/b", r"\+ is not a whole level"),
        ("+${user}", r"\+ is not a whole level"),
        ("${user}#", "# is not the whole last level"),
        ("a\0${user}", "topic filter"),
        ("\ud800", "surrogate at character 0"),
        ("a/" * 128, "129 levels, at most 128"),
        ("${name}", r"'name' is no placeholder, known are"),
        ("${}", "'' is no placeholder"),
        ("${attr.}", "is no placeholder"),
        ("${attr.a b}", "is no placeholder"),
        ("${ user}", "is no placeholder"),
        ("${USER}", "is no placeholder"),
        ("a/${user", "a placeholder without its }"),
        ("${attr.a/b}", "a placeholder without its }"),
        ("${${user}}", "is no placeholder"),
        ("${user}-${client_id}", "2 placeholders in one level, at most one"),
        ("$${user}", r"first level begins with \$ and has a placeholder"),
        ("$share/g/a", "shared subscription"),
    ],
)
def test_what_is_no_topic_filter_is_refused_with_what_was_found(text: str, story: str) -> None:
    """One sentence's rest, whatever is filled in later."""
    with pytest.raises(TemplateError, match=story):
        parse_template(text)
