"""Pages of retained messages (shards/retained.py): together they are all that match, each once, and no more is read than is given out."""

from __future__ import annotations

from random import Random

import pytest

from mqtt.topics import matches
from shards.draft import Draft
from shards.engine import HOME_FAMILY
from shards.engine_memory import MemoryEngine
from shards.judging import Judging
from shards.messages import encode_message, topic_of
from shards.retained import RetainedHome
from shards.rows import RETAINED

pytestmark = pytest.mark.needs("interpreted")


class Counted(Draft):
    """Counts the rows that were read."""

    def __init__(self, engine: MemoryEngine) -> None:
        super().__init__(engine)
        self.read: list[int] = []

    def scan_range(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        rows = super().scan_range(start, end, limit)
        self.read.append(len(rows))
        return rows


def home(topics: list[bytes]) -> tuple[RetainedHome, Counted]:
    engine = MemoryEngine()
    engine.write([(HOME_FAMILY, RETAINED + topic, encode_message(1, 7, b"c", topic, b"\0x")) for topic in topics])
    return RetainedHome(engine, Judging()), Counted(engine)


def all_pages(topics: list[bytes], topic_filter: bytes, count_max: int) -> tuple[list[bytes], list[int]]:
    """What was given out, and how many rows were read for each page."""
    retained, draft = home(topics)
    found: list[bytes] = []
    read: list[int] = []
    after = b""
    while True:
        page = retained.page(draft, topic_filter, after, count_max)
        found += [topic_of(value) for value in page.values]
        read.append(sum(draft.read))
        draft.read.clear()
        assert len(page.values) <= count_max
        if not page.next_after:
            return found, read
        assert page.next_after > after
        after = page.next_after


@pytest.mark.parametrize("count_max", [1, 7, 100, 5_000])
@pytest.mark.parametrize("topic_filter", [b"#", b"a/#", b"+/3/x", b"b/+/x", b"b/+/y", b"c/#", b"a/7/x"])
def test_all_pages_together_are_all_that_match(topic_filter: bytes, count_max: int) -> None:
    """In the order of topics, whatever lies between them."""
    topics = sorted([b"%s/%d/x" % (letter, number) for letter in (b"a", b"b") for number in range(150)] + [b"b/9/y", b"b/99/y"])
    found, _ = all_pages(topics, topic_filter, count_max)
    assert found == [topic for topic in topics if matches(topic_filter, topic)]


def test_a_page_reads_what_it_gives_out() -> None:
    """One subscription to everything reads each row once; the last page finds that there is no more."""
    topics = [b"t/%04d" % number for number in range(1_000)]
    found, read = all_pages(topics, b"#", 100)
    assert found == topics and read == [100] * 10 + [0]


def test_a_page_that_finds_little_ends_all_the_same() -> None:
    """A filter that matches one topic of thousands does not hold the shard until it is found."""
    rng = Random(1)
    topics = sorted({b"%d/x" % rng.randrange(10**9) for _ in range(5_000)} | {b"5/needle"})
    found, read = all_pages(topics, b"+/needle", 100)
    assert found == [b"5/needle"] and max(read) == 2_000 and sum(read) == len(topics)
