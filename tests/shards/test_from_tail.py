"""What the tail has is told as it lies there where all of it is wanted, and picked out where it is not: the same messages either way, to
those who are fed and to those who ask."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtt.topics import matches
from shards import feeds as feeds_module
from shards.feeds import CREDIT_FRAMES, Feeds
from shards.frames import Feed, FeedWant, Place, Poll
from shards.reading import Reader
from shards.tail import Tail
from tests.shards.test_gone import Log

FILTERS = (b"#", b"a/#", b"a/1", b"b/+", b"$x/#")
TOPICS = (b"a/1", b"a/2", b"b/1", b"$x/1")
LINK = 1


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "FRAME_MESSAGES_MAX", 4)
    monkeypatch.setattr(feeds_module, "FRAME_BYTES_MAX", 100)
    monkeypatch.setattr(feeds_module, "KNOWN_TOPICS_MAX", 2)


# (topic, bytes of its value, whether its generation has been rolled before it)
entries = st.lists(st.tuples(st.sampled_from(TOPICS), st.sampled_from((10, 20, 60, 120)), st.booleans()), max_size=20)


def tail_of(found: list[tuple[bytes, int, bool]]) -> tuple[Tail, list[tuple[int, bytes, bytes, tuple[int, bytes]]]]:
    """The tail, and (position, topic, value, stream) of each."""
    tail = Tail(0, 1 << 20)
    expected, generation = [], 1
    for index, (topic, size, rolled) in enumerate(found):
        generation += rolled
        static = topic[:1]
        position, value = 10 * (index + 1), b"%d" % index + b"." * size
        tail.append(position, topic, value, (generation, static))
        expected.append((position, topic, value, (generation, static)))
    return tail, expected


def told(frame: Feed) -> list[tuple[int, bytes, tuple[int, bytes]]]:
    assert len(set(frame.streams)) == len(frame.streams)
    return [(at, value, frame.streams[of]) for at, value, of in zip(frame.positions, frame.values, frame.stream_of, strict=True)]


filters = st.sets(st.sampled_from(FILTERS), min_size=1)


@settings(max_examples=100)
@given(entries, filters, filters, st.integers(0, 21), st.integers(0, 21))
def test_frames_have_what_is_wanted_without_holes(
    found: list[tuple[bytes, int, bool]], wanted: set[bytes], later: set[bytes], committed: int, more: int
) -> None:
    """Each message once, of its stream, in order, and no frame larger than it may be; also when something else is wanted later."""
    tail, expected = tail_of(found)
    changed = min(10 * committed, 10 * len(found))
    end = min(changed + 10 * more, 10 * len(found))
    feeds = Feeds(tail)
    feeds.want(LINK, FeedWant(1, sorted(wanted), []), 0)
    frames = frames_upto(feeds, changed)
    frames += feeds.want(LINK, FeedWant(2, sorted(later - wanted), sorted(wanted - later)), changed)
    frames += frames_upto(feeds, end)
    assert [one for frame in frames for one in told(frame)] == [
        (position, value, stream)
        for position, topic, value, stream in expected
        if position <= end and any(matches(each, topic) for each in (wanted if position <= changed else later))
    ]
    after = 0
    for frame in frames:
        assert frame.after == after and all(after < position <= frame.upto for position in frame.positions)
        assert len(frame.values) <= 4 and sum(map(len, frame.values[:-1])) < 100
        after = frame.upto


def frames_upto(feeds: Feeds, watermark: int) -> list[Feed]:
    frames: list[Feed] = []
    while some := feeds.advance(watermark):
        assert len(some) <= CREDIT_FRAMES
        frames += [frame for _, frame in some]
        feeds.taken(LINK, frames[-1].upto)
    feeds.check()
    return frames


@settings(max_examples=50)
@given(entries, st.sampled_from(FILTERS), st.integers(1, 6), st.sampled_from((1, 30, 100, 1_000)), st.integers(0, 21))
def test_polls_have_what_is_asked_for_without_holes(
    found: list[tuple[bytes, int, bool]], topic_filter: bytes, count_max: int, bytes_max: int, committed: int
) -> None:
    """Each message once, in order, in ranges that say how they are read again."""
    tail, expected = tail_of(found)
    watermark = min(10 * committed, 10 * len(found))
    reader = Reader(Log().store, tail)
    place, got, turns = Place(0), list[tuple[int, bytes]](), 0
    while True:
        polled = reader.poll(Poll(topic_filter, place, count_max, bytes_max), watermark)
        assert polled is not None and (turns := turns + 1) <= 2 * len(found) + 2
        for segment in polled.segments:
            assert segment.merged and segment.after == place.cut and segment.upto == polled.place.cut
            assert segment.values and len(segment.values) <= count_max
            assert len(segment.values) == 1 or sum(map(len, segment.values)) <= bytes_max
            assert all(segment.after < position <= segment.upto for position in segment.positions)
            streams = {stream for position, *_, stream in expected if position in segment.positions}
            assert set(segment.streams) == streams and len(segment.streams) == len(streams)
            got += zip(segment.positions, segment.values, strict=True)
        place = polled.place
        if polled.at_head:
            break
    assert place.cut == watermark
    assert got == [(position, value) for position, topic, value, _ in expected if position <= watermark and matches(topic_filter, topic)]
