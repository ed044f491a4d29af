"""What a shard remembers of topics that were published to (shards/publishing.py)."""

from __future__ import annotations

import pytest

from shards import publishing
from shards.frames import Place
from shards.store import TopicKey
from tests.shards.harness import G, connect, linked, poll, publish, route, topics


def test_a_topic_that_comes_again_is_not_forgotten_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last so many are found, and those before only while they come again; what is stored is the same."""
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
    names = [b"t/%d" % number for number in range(40)]
    for number, name in enumerate(names):
        h.ask(G, publish(b"p", conn, b"often", name))
        # Three topics ago it was there, and so it is found.
        h.ask(G, publish(b"p", conn, names[max(0, number - 3)]))
    assert asked == [b"often", *names]
    kept = h.core._publishing
    assert len(kept._topics) <= 8 and len(kept._older) <= 8
    h.ask(G, publish(b"p", conn, names[0]))
    assert asked[-1] == names[0] and len(asked) == 42
    stored = topics(poll(h, b"#", Place(0), count=1_000))
    assert sorted(set(stored)) == sorted([b"often", *names]) and len(stored) == 40 * 3 + 1


def test_a_topic_that_was_not_wanted_is_asked_again_when_a_session_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it is one of those that were remembered before."""
    monkeypatch.setattr(publishing, "TOPICS_REMEMBERED_MAX", 2)
    h = linked()
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"a", b"b", b"c"))
    assert b"a" in h.core._publishing._older
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
