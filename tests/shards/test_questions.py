"""Retained messages of a shard with copies on several sites are told behind a record that follows the question."""

from __future__ import annotations

from shards.frames import Query, Result, RetainedMessages, RetainedPage, RoutesOf
from shards.messages import topic_of
from tests.shards.harness import G, Harness, S, connect, publish

ALL = RetainedPage(b"#", b"", 10)


def replicated(n: int = 1) -> tuple[Harness, int]:
    h = Harness(replicated=True)
    h.link(G, "gateway", "g0:a")
    h.link(S, "session", "s0:a")
    conn = connect(h, b"p").conn
    h.ask(G, publish(b"p", conn, b"old", retain=1))
    h.settle()
    return h, conn


def told(h: Harness, link: int = G) -> list[tuple[int, list[bytes]]]:
    found = []
    for result in h.take(link, Result):
        assert isinstance(result.told, RetainedMessages)
        found.append((result.id, [topic_of(value) for value in result.told.values]))
    return found


def test_a_question_is_answered_when_an_empty_record_behind_it_is_committed() -> None:
    """Who leads no more commits none, and says nothing; the clock does not change that."""
    h, _ = replicated()
    h.receive(G, Query(1, ALL))
    h.tick(sync=False)
    assert len(h.uncommitted) == 1 and not told(h)
    h.tick(60_000, sync=False)
    assert not told(h)
    h.commit()
    assert told(h) == [(1, [b"old"])]


def test_where_there_is_one_copy_nothing_is_written_for_a_question() -> None:
    """It is answered at once."""
    h = Harness()
    h.link(G, "gateway", "g0:a")
    h.tick()
    h.settle()
    h.receive(G, Query(1, ALL))
    h.tick(sync=False)
    assert told(h) == [(1, [])] and not h.uncommitted


def test_a_record_that_was_on_its_way_before_the_question_does_not_do() -> None:
    """It may be committed by copies that have another leader since."""
    h, conn = replicated()
    h.request(G, publish(b"p", conn, b"new", ids=[2], retain=1))
    h.tick(sync=False)
    first = h.uncommitted.copy()
    h.receive(G, Query(1, ALL))
    h.tick(sync=False)
    second, h.uncommitted = h.uncommitted, first
    assert len(second) == 2
    h.commit()
    assert not told(h)
    h.uncommitted = second[1:]
    h.commit()
    assert told(h) == [(1, [b"new", b"old"])]


def test_one_empty_record_at_a_time_is_made_for_all_who_wait() -> None:
    """Those who ask meanwhile are answered with the next record of any kind."""
    h, conn = replicated()
    for id in (1, 2):
        h.receive(G, Query(id, ALL))
    h.tick(sync=False)
    h.receive(S, Query(3, ALL))
    for _ in range(5):
        h.tick(sync=False)
    assert len(h.uncommitted) == 1 and not h.core.busy
    h.commit()
    assert told(h) == [(1, [b"old"]), (2, [b"old"])] and not told(h, S)
    assert h.core.busy
    h.tick(sync=False)
    h.receive(S, Query(4, ALL))
    h.request(G, publish(b"p", conn, b"new", ids=[2], retain=1))
    h.tick(sync=False)
    assert len(h.uncommitted) == 2
    h.commit()
    assert told(h, S) == [(3, [b"old"]), (4, [b"new", b"old"])]


def test_other_questions_are_answered_as_before() -> None:
    """Whose answer says nothing that a newer leader could know better, or whose asker has a token."""
    h, _ = replicated()
    h.receive(S, Query(1, RoutesOf(0, 0, 10)))
    h.tick(sync=False)
    assert len(h.take(S, Result)) == 1 and not h.uncommitted
