"""The filter trie against a plain list of pairs asked with ``matches``."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mqtt.topics import matches
from mqtt.trie import FilterTrie
from tests.mqtt.generated import near_filters, near_topics, topic_filters, topic_names


class TrieMachine(RuleBasedStateMachine):
    """Adds and removes pairs, and asks, against a list in the order of adding."""

    def __init__(self) -> None:
        super().__init__()
        self.trie: FilterTrie[int] = FilterTrie(cache_cost_max=10)
        self.pairs: list[tuple[bytes, int]] = []

    @rule(topic_filter=near_filters(), value=st.integers(0, 3))
    def add(self, topic_filter: bytes, value: int) -> None:
        before = self.trie.generation
        new = (topic_filter, value) not in self.pairs
        assert self.trie.add(topic_filter, value) is new
        assert self.trie.generation == before + new
        if new:
            self.pairs.append((topic_filter, value))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs) if self.pairs else st.tuples(near_filters(), st.integers(0, 3)))
        before = self.trie.generation
        there = pair in self.pairs
        assert self.trie.remove(*pair) is there
        assert self.trie.generation == before + there
        if there:
            self.pairs.remove(pair)

    @rule(topic_filter=near_filters(), value=st.integers(0, 3))
    def remove_what_may_not_be_there(self, topic_filter: bytes, value: int) -> None:
        there = (topic_filter, value) in self.pairs
        assert self.trie.remove(topic_filter, value) is there
        if there:
            self.pairs.remove((topic_filter, value))

    @rule(topic=near_topics)
    def ask(self, topic: bytes) -> None:
        wanted = [value for topic_filter, value in self.pairs if matches(topic_filter, topic)]
        found = self.trie.match(topic)
        assert Counter(found) == Counter(wanted)
        assert self.trie.match(topic) == found
        assert self.trie.matches_any(topic) is bool(wanted)

    @invariant()
    def holds_the_same_pairs(self) -> None:
        assert sorted(self.trie.pairs()) == sorted(self.pairs)
        assert len(self.trie) == len(self.pairs)


TrieMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
TestTrie = pytest.mark.slow(TrieMachine.TestCase)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(topic_filters(), max_size=12), st.lists(topic_names, max_size=6))
def test_generated_filters_and_topics(filters: list[bytes], topics: list[bytes]) -> None:
    """With whatever levels: the trie finds what comparing one by one finds."""
    trie: FilterTrie[bytes] = FilterTrie()
    for topic_filter in filters:
        trie.add(topic_filter, topic_filter)
    for topic in topics:
        assert sorted(trie.match(topic)) == sorted({one for one in filters if matches(one, topic)})


def test_many_filters_and_topics_agree_with_brute_force() -> None:
    """300 random filters of a fixed seed, every topic of three levels over the same words."""
    chance = random.Random(7)
    words = ["a", "b", "c", "+"]
    filters = sorted({"/".join(chance.choices(words, k=chance.randint(1, 3))) + chance.choice(["", "/#"]) for _ in range(300)})
    trie: FilterTrie[str] = FilterTrie()
    for topic_filter in filters:
        trie.add(topic_filter.encode(), topic_filter)
    topics = [f"{one}/{two}/{three}" for one in "abc" for two in "abc" for three in "abc"] + ["a", "b/c", "a/b/c/d"]
    for topic in topics:
        wanted = [one for one in filters if matches(one.encode(), topic.encode())]
        assert sorted(trie.match(topic.encode())) == wanted


def test_a_value_under_two_filters_comes_twice() -> None:
    """Overlapping subscriptions are two pairs, and each pair counts."""
    trie: FilterTrie[str] = FilterTrie()
    assert trie.add(b"a/+", "s") and trie.add(b"a/#", "s") and trie.add(b"a/b", "s")
    assert not trie.add(b"a/b", "s")
    assert trie.match(b"a/b") == ("s", "s", "s")
    assert len(trie) == 3


def test_order_is_that_of_the_walk_and_of_adding() -> None:
    """Literal first, then by walk, within a filter by adding: the same calls give the same tuple."""
    values = ["z", "y", "x", "w"]
    trie: FilterTrie[str] = FilterTrie()
    for topic_filter in (b"a/+", b"#", b"a/b", b"+/b"):
        for value in values:
            trie.add(topic_filter, topic_filter.decode() + value)
    found = trie.match(b"a/b")
    assert found[:4] == tuple("a/b" + value for value in values)
    assert found[4:8] == tuple("#" + value for value in values)
    assert len(found) == 16


def test_generation_and_cache_follow_every_change() -> None:
    """A cached result is never older than the last change, for literal and wildcard filters."""
    trie: FilterTrie[int] = FilterTrie()
    assert trie.match(b"a/b") == () and not trie.matches_any(b"a/b")
    seen = [trie.generation]
    steps = [
        (trie.add, b"a/b", 1, (1,)),
        (trie.add, b"a/+", 2, (1, 2)),
        (trie.add, b"#", 3, (1, 3, 2)),
        (trie.remove, b"a/b", 1, (3, 2)),
        (trie.remove, b"#", 3, (2,)),
    ]
    for change, topic_filter, value, found in steps:
        assert change(topic_filter, value)
        seen.append(trie.generation)
        assert trie.match(b"a/b") == found
    assert seen == sorted(set(seen))
    assert trie.match(b"a/b") == (2,)
    assert not trie.remove(b"#", 3) and not trie.remove(b"x/+/y", 3) and not trie.remove(b"nothing", 3)
    assert trie.generation == seen[-1]


def test_the_cache_is_bounded() -> None:
    """More topics and more results than the bound allows: the answers stay right and the cache stays small."""
    trie: FilterTrie[int] = FilterTrie(cache_cost_max=50)
    for value in range(10):
        trie.add(b"t/#", value)
    for number in range(1_000):
        assert len(trie.match(b"t/%d" % number)) == 10
    assert len(trie._cache) <= 5
    assert trie.match(b"t/" + b"x" * 300) == tuple(range(10))
    assert b"t/" + b"x" * 300 not in trie._cache


def test_nothing_stays_behind_a_removal() -> None:
    """Subscribing and unsubscribing for years leaves an empty trie."""
    trie: FilterTrie[int] = FilterTrie()
    filters = [b"a/+/c", b"a/+", b"a/#", b"#", b"+", b"+/+/+", b"a/b", b"a/b/c/d/e/+/#"]
    for topic_filter in filters:
        trie.add(topic_filter, 1)
    for topic_filter in filters:
        assert trie.remove(topic_filter, 1)
    assert len(trie) == 0 and list(trie.pairs()) == []
    assert trie._root.is_empty() and not trie._literals


def test_deep_filters_and_topics_need_no_recursion() -> None:
    """A filter of 3,000 levels is added, matched and removed."""
    trie: FilterTrie[int] = FilterTrie()
    deep = b"/".join([b"+"] * 3_000)
    trie.add(deep, 1)
    assert trie.match(b"/".join([b"x"] * 3_000)) == (1,)
    assert next(trie.pairs()) == (deep, 1)
    assert trie.remove(deep, 1) and trie._root.is_empty()
