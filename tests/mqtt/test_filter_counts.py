"""The bag of filters against a list asked with ``matches``."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqtt.filter_counts import FilterCounts
from mqtt.topics import matches
from tests.mqtt.generated import near_filters, near_topics


class CountsMachine(RuleBasedStateMachine):
    """Adds and removes filters, and asks."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = FilterCounts()
        self.there: list[bytes] = []

    @rule(topic_filter=near_filters())
    def add(self, topic_filter: bytes) -> None:
        assert self.counts.add(topic_filter) is (topic_filter not in self.there)
        self.there.append(topic_filter)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        topic_filter = data.draw(st.sampled_from(self.there) if self.there else near_filters())
        if topic_filter in self.there:
            last = self.counts.remove(topic_filter)
            self.there.remove(topic_filter)
            assert last is (topic_filter not in self.there)
        else:
            with pytest.raises(KeyError):
                self.counts.remove(topic_filter)

    @rule(topic_filter=near_filters())
    def remove_what_may_not_be_there(self, topic_filter: bytes) -> None:
        if topic_filter in self.there:
            return
        with pytest.raises(KeyError):
            self.counts.remove(topic_filter)

    @rule(topic=near_topics)
    def ask(self, topic: bytes) -> None:
        assert self.counts.matches_any(topic) is any(matches(topic_filter, topic) for topic_filter in self.there)

    @invariant()
    def holds_the_same_filters(self) -> None:
        assert dict(self.counts.counts()) == Counter(self.there)
        assert len(self.counts) == len(self.there)
        if not self.there:
            assert self.counts._root == {}


CountsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestCounts = pytest.mark.slow(CountsMachine.TestCase)


def test_a_filter_that_very_many_share_is_a_number() -> None:
    """1,000 subscriptions to it take no more memory than one."""
    counts = FilterCounts()
    for _ in range(1000):
        counts.add(b"news/#")
    assert counts._root == {b"news": 1000}
    assert sys.getsizeof(counts._root) < 300


def test_a_filter_of_its_own_is_an_entry_of_a_dict() -> None:
    """Nothing is made for it but that."""
    counts = FilterCounts()
    counts.add(b"fleet/1/#")
    counts.add(b"fleet/2/+")
    assert counts._root == {b"fleet": {b"1": 1, b"2": {b"+": -1}}}


def test_what_is_below_a_filter_that_matched_is_known_until_it_is_gone() -> None:
    """One comparison, but neither for topics with $ nor below a filter with `+`."""
    counts = FilterCounts()
    for topic_filter in (b"#", b"+/a/#"):
        counts.add(topic_filter)
    assert counts.matches_any(b"x/a/b") and counts._prefixes == (b"",)
    assert not counts.matches_any(b"$SYS/a/b")
    counts.remove(b"#")
    assert counts.matches_any(b"x/a/b") and not counts.matches_any(b"x/b") and not counts._prefixes
    for number in range(20):
        counts.add(b"%d/x/#" % number)
        assert counts.matches_any(b"%d/x/y" % number)
    assert counts._prefixes == tuple(b"%d/x/" % number for number in range(8))
