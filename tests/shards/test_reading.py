"""What a reader remembers of sweeps (shards/reading.py); what it tells of generations that are gone is in test_gone."""

from __future__ import annotations

import pytest

from shards import reading
from shards.frames import Place
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
