"""What rules come to, beside what is seen when every topic of a small world is looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.decide import Bound, decide, decide_filter, said, says_of_filter
from access.rights import Extent, Right
from tests.mqtt.universe import FILTERS, TOPICS, matched

NO_RIGHT = Right(0)
RIGHTS = st.integers(1, 63).map(Right)
# Few rights and near filters, so that rules get into each other's way.
NEAR = [each for each in FILTERS if each.count(b"/") < 2] + [b"a/a/#", b"a/+/#", b"+/+/#", b"a/+/a", b"$s/+/#"]
BOUNDS = st.builds(
    Bound,
    st.booleans(),
    st.sampled_from([8, 16, 24, 1, 63]),
    st.lists(st.sampled_from(NEAR).map(lambda each: tuple(each.split(b"/"))), min_size=1, max_size=3).map(tuple),
)
RULES = st.lists(BOUNDS, max_size=6)


def allowed(rules: list[Bound], right: Right) -> int:
    """The topics on which one right is there, as bits: each rule in turn takes its share of those that are left."""
    left, found = matched(b"#") | matched(b"$s/#"), 0
    for rule in [rule for rule in rules if rule.rights & right]:
        named = 0
        for each in rule.filters:
            named |= matched(b"/".join(each))
        if rule.allow:
            found |= left & named
        left &= ~named
    return found


@given(RULES, RIGHTS, st.sampled_from(TOPICS))
def test_the_first_rule_that_names_right_and_topic_decides(rules: list[Bound], right: Right, topic: bytes) -> None:
    """For each of the rights by itself; all of them have to be there."""
    shown = all(allowed(rules, each) >> TOPICS.index(topic) & 1 for each in right)
    assert decide(rules, right, topic) == shown


@given(RULES, st.sampled_from([Right.SUBSCRIBE, Right.SHARE, Right.REPLAY]), st.sampled_from(NEAR))
def test_all_means_every_topic_of_a_filter(rules: list[Bound], right: Right, topic_filter: bytes) -> None:
    """No topic gets through that a rule denies or none allows."""
    if decide_filter(rules, right, topic_filter) is Extent.ALL:
        assert matched(topic_filter) & ~allowed(rules, right) == 0


@given(RULES, RIGHTS, st.sampled_from(NEAR))
def test_the_answer_for_a_filter_is_that_of_the_definition(rules: list[Bound], right: Right, topic_filter: bytes) -> None:
    """One rule allows the whole, before any that denies the whole; those before it that deny a part make it SOME."""
    assert decide_filter(rules, right, topic_filter) is min([_defined(rules, each, topic_filter) for each in right])


def _defined(rules: list[Bound], right: Right, topic_filter: bytes) -> Extent:
    about = [rule for rule in rules if rule.rights & right]
    whole = [place for place, rule in enumerate(about) if _covers(rule, topic_filter)]
    if not whole or not about[whole[0]].allow:
        # An allowing rule that covers is not first when one that denies covers before it.
        return Extent.NONE
    before = [rule for rule in about[: whole[0]] if not rule.allow]
    touched = any(matched(topic_filter) & matched(b"/".join(each)) for rule in before for each in rule.filters)
    return Extent.SOME if touched else Extent.ALL


@given(RULES, RIGHTS, st.sampled_from(TOPICS))
def test_nothing_is_said_where_no_rule_names_a_right_and_none_denies_one(rules: list[Bound], right: Right, topic: bytes) -> None:
    """Which is what may be left to somebody else to say."""
    bit = 1 << TOPICS.index(topic)
    firsts = [
        next((rule.allow for rule in rules if rule.rights & each and any(matched(b"/".join(one)) & bit for one in rule.filters)), None)
        for each in right
    ]
    assert said(rules, right, topic) is (False if False in firsts else None if None in firsts else True)


@given(RULES, st.sampled_from(list(Right)), st.sampled_from(NEAR))
def test_of_a_filter_something_is_said_if_a_rule_is_about_the_whole(rules: list[Bound], right: Right, topic_filter: bytes) -> None:
    """Those that deny a part of it leave the rest."""
    about = any(rule.rights & right and _covers(rule, topic_filter) for rule in rules)
    assert says_of_filter(rules, right, topic_filter) is about


def _covers(rule: Bound, topic_filter: bytes) -> bool:
    return any(matched(topic_filter) & ~matched(b"/".join(each)) == 0 for each in rule.filters)


def test_no_right_at_all_is_never_there() -> None:
    """Whoever asks for nothing has made a mistake, and a mistake opens nothing."""
    everything = [Bound(True, 63, ((b"#",),))]
    assert not decide(everything, NO_RIGHT, b"a") and decide_filter(everything, NO_RIGHT, b"a") is Extent.NONE


@pytest.mark.parametrize("right", Right)
def test_without_a_rule_nothing_is_allowed(right: Right) -> None:
    """Nor by rules about other rights, nor by one without topics."""
    others = [Bound(True, 63 & ~right, ((b"#",),)), Bound(True, 63, ())]
    for rules in ([], others):
        assert not decide(rules, right, b"a") and decide_filter(rules, right, b"a") is Extent.NONE


def test_a_wildcard_does_not_open_what_begins_with_a_dollar() -> None:
    """$SYS is named where it is meant."""
    everything = [Bound(True, 63, ((b"#",),))]
    assert not decide(everything, Right.SUBSCRIBE, b"$SYS/broker/uptime")
    assert decide_filter(everything, Right.SUBSCRIBE, b"$SYS/#") is Extent.NONE
    assert decide_filter(everything, Right.SUBSCRIBE, b"#") is Extent.ALL
