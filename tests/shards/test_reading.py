"""What a reader remembers of sweeps (shards/reading.py); what it tells of generations that are gone is in test_gone."""

from __future__ import annotations

import pytest

from shards import answering, reading
from shards.answering import BATCH_OF_MANY, CROWD, READ_LEAST
from shards.frames import Place, Poll, Polled, Query, Result
from tests.shards.harness import G, Harness, S, connect, linked, publish, route, topics
from tests.shards.test_gone import Log, positions


def test_what_sweeps_remember_is_bounded_by_their_streams_and_forgetting_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sweeps of five streams take turns, of which two are remembered: the third is matched again, and each of them gets all."""
    monkeypatch.setattr(reading, "STREAMS_REMEMBERED", 10)
    log = Log()
    log.publish(*[b"a/%d" % number for number in range(5)])
    filters = [b"#", b"a/#", b"a/+"]
    places = dict.fromkeys(filters, Place(0))
    got: dict[bytes, list[int]] = {topic_filter: [] for topic_filter in filters}
    for _ in range(5):
        for topic_filter in filters:
            polled = log.poll(places[topic_filter], 1, topic_filter)
            got[topic_filter] += positions(polled)
            places[topic_filter] = polled.place
    assert all(sorted(found) == [1, 2, 3, 4, 5] for found in got.values()), got
    assert log.reader.matched > len(filters)


def test_a_sweep_alone_is_remembered_however_many_streams_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each of its polls would match its filter with all streams again."""
    monkeypatch.setattr(reading, "STREAMS_REMEMBERED", 2)
    log = Log()
    log.publish(*[b"a/%d" % number for number in range(5)])
    place = Place(0)
    for _ in range(5):
        place = log.poll(place, 1).place
    assert log.reader.matched == 1


def _answered(h: Harness, from_position: int, asked: int, count: int) -> list[int]:
    """How many of some polls for so many messages each turn answers."""
    for number in range(asked):
        h.receive(S, Query(number, Poll(b"t", Place(from_position), count, 1 << 20)))
    found: list[int] = []
    while sum(found) < asked:
        assert h.core.busy
        h.tick()
        found.append(len(h.take(S, Result)))
    assert not h.core.busy
    return found


def test_when_many_sessions_ask_at_once_a_turn_reads_so_much_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read counts, not what was asked for; a poll that brings little counts as READ_LEAST messages."""
    monkeypatch.setattr(answering, "READ_PER_TURN_MAX", 4 * READ_LEAST)
    h = linked()
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    h.ask(G, publish(b"p", conn, *[b"t"] * (2 * READ_LEAST)))
    assert _answered(h, position, 5, 1000) == [2, 2, 1]
    assert _answered(h, position, 9, 1) == [4, 4, 1]


def test_when_many_ask_at_once_each_gets_few_so_that_publishers_need_not_wait_for_long() -> None:
    """Of so many frames each poll brings BATCH_OF_MANY, whatever it asks for; of one less it brings all."""
    h = linked()
    conn = connect(h, b"p").conn
    position = route(h, b"t")
    h.ask(G, publish(b"p", conn, *[b"t"] * (2 * BATCH_OF_MANY)))

    def brought(asked: int) -> list[int]:
        for number in range(asked):
            h.receive(S, Query(number, Poll(b"t", Place(position), 1000, 1 << 20)))
        h.tick()
        return [len(topics(result.told)) for result in h.take(S, Result) if isinstance(result.told, Polled)]

    assert brought(CROWD + 1)[:CROWD] == [BATCH_OF_MANY] * CROWD
    while h.core.busy:
        h.tick()
    h.take(S, Result)
    assert set(brought(CROWD)) == {2 * BATCH_OF_MANY}
