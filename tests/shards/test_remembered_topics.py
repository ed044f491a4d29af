"""What a shard remembers of topics that were published to (shards/publishing.py)."""

from __future__ import annotations

import pytest

from shards import publishing
from shards.frames import Place
from shards.store import TopicKey
from tests.shards.harness import G, connect, linked, poll, publish, route, topics


def test_so_many_topics_are_remembered_and_the_first_one_is_forgotten_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is looked up again, in whatever order they come; one more costs one. What is stored is the same."""
    monkeypatch.setattr(publishing, "TOPICS_REMEMBERED_MAX", 8)
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"#")
    asked: list[bytes] = []
    key_of = h.core._store.key_of

    def noted(topic: bytes) -> TopicKey:
        asked.append(topic)
        return key_of(topic)

    monkeypatch.setattr(h.core._store, "key_of", noted)
    names = [b"t/%d" % number for number in range(8)]
    for _ in range(3):
        h.ask(G, publish(b"p", conn, *names))
        h.ask(G, publish(b"p", conn, *reversed(names)))
    assert asked == names
    h.ask(G, publish(b"p", conn, b"new", *names[1:]))
    assert asked == [*names, b"new"]
    h.ask(G, publish(b"p", conn, names[0], b"new", *names[2:], names[0]))
    assert asked == [*names, b"new", names[0]]
    kept = h.core._publishing
    assert len(kept._topics) == len(kept._met) == 8
    stored = topics(poll(h, b"#", Place(0), count=1_000))
    assert sorted(set(stored)) == sorted([b"new", *names]) and len(stored) == 6 * 8 + 8 + 9


def test_of_a_thousand_topics_that_come_once_none_is_left_but_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one call brings more of them than are remembered, and a topic comes twice in it."""
    monkeypatch.setattr(publishing, "TOPICS_REMEMBERED_MAX", 4)
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"#")
    names = [b"t/%d" % (number // 2) for number in range(2_000)]
    h.ask(G, publish(b"p", conn, *names))
    kept = h.core._publishing
    assert list(kept._topics) == list(kept._met) == [b"t/996", b"t/997", b"t/998", b"t/999"]
    assert sorted(topics(poll(h, b"#", Place(0), count=10_000))) == sorted(names)


def test_a_topic_that_was_not_wanted_is_asked_again_when_a_session_comes() -> None:
    """It is remembered as of the routes that there were."""
    h = linked()
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a", b"b", b"c"))
    route(h, b"a")
    h.ask(G, publish(b"p", conn, b"a", b"b"))
    assert topics(poll(h, b"#", Place(0), count=10)) == [b"a"]


def test_what_was_stored_before_a_roll_keeps_its_key() -> None:
    """A topic has another key from then on, and what lies in the tail is of the generation before."""
    h = linked()
    conn = connect(h, b"p").conn
    route(h, b"#")
    h.ask(G, publish(b"p", conn, b"a"))
    before = h.core._store.main
    h.core._draft.ops.extend(h.core._store.roll(h.core._clock.take(), 0, 0))
    h.tick()
    h.ask(G, publish(b"p", conn, b"a"))
    now = h.core._store.main
    assert now != before and [generation for generation, _ in h.core._tail.streams] == [before, now]
