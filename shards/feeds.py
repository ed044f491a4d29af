"""Live delivery: what was just committed goes once to every session actor that wants it.

A feed is one session actor's link with the union of its filters.  It covers the log without holes from a position on; when
the actor takes too long (no credit) and the tail moves on, the next frame begins later, and whoever stands in the hole polls.

Holds after every call (see check): everything in (sent, examined] matched nothing that was wanted then; at most CREDIT frames
of a feed are not taken.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from mqtt.trie import FilterTrie
from shards.frames import Feed, FeedWant
from shards.tail import StreamRef, Tail

CREDIT_FRAMES = 4
FRAME_MESSAGES_MAX = 1000
FRAME_BYTES_MAX = 1 << 20
KNOWN_TOPICS_MAX = 8192
KNOWN_TOPIC_BYTES_MAX = 256


@dataclass(slots=True)
class LinkFeed:
    """sent: upto of the last frame, or the position where coverage began.  examined: looked at, nothing wanted since sent.  known: topics
    that are wanted, so that each is matched once; never more than KNOWN_TOPICS_MAX, and none longer than KNOWN_TOPIC_BYTES_MAX."""

    sent: int
    examined: int
    version: int = 0
    wanted: dict[bytes, None] = field(default_factory=dict)
    trie: FilterTrie[int] = field(default_factory=FilterTrie)
    untaken: list[int] = field(default_factory=list)
    known: set[bytes] = field(default_factory=set)

    def wants_all(self, topics: set[bytes]) -> bool:
        new = topics - self.known
        if not all(map(self.trie.matches_any, new)):
            return False
        self._know(new)
        return True

    def wants(self, topics: set[bytes]) -> set[bytes]:
        """Which of these."""
        new = topics - self.known
        wanted = {topic for topic in new if self.trie.matches_any(topic)}
        self._know(wanted)
        return topics - new | wanted

    def _know(self, wanted: set[bytes]) -> None:
        if len(self.known) + len(wanted) > KNOWN_TOPICS_MAX:
            self.known.clear()
        else:
            self.known.update([topic for topic in wanted if len(topic) <= KNOWN_TOPIC_BYTES_MAX])


class _Found(NamedTuple):
    streams: list[StreamRef]
    stream_of: list[int]
    positions: list[int]
    values: list[bytes]
    bytes: int


class Feeds:
    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self._feeds: dict[int, LinkFeed] = {}

    def want(self, link: int, want: FeedWant, watermark: int) -> list[Feed]:
        """Change what a link wants.  Coverage of added filters begins at what has been examined; those who stood before
        are told so with an empty frame."""
        feed = self._feeds.get(link)
        if feed is None:
            feed = self._feeds[link] = LinkFeed(watermark, watermark)
        out: list[Feed] = []
        if feed.examined > feed.sent:
            out.append(Feed(feed.version, feed.sent, feed.examined, [], [], [], []))
            feed.sent = feed.examined
            feed.untaken.append(feed.sent)
        for topic_filter in want.remove:
            if topic_filter in feed.wanted:
                del feed.wanted[topic_filter]
                feed.trie.remove(topic_filter, 0)
                feed.known.clear()
        for topic_filter in want.add:
            if topic_filter not in feed.wanted:
                feed.wanted[topic_filter] = None
                feed.trie.add(topic_filter, 0)
        feed.version = want.version
        return out

    def taken(self, link: int, upto: int) -> None:
        feed = self._feeds.get(link)
        if feed is not None:
            feed.untaken = [position for position in feed.untaken if position > upto]

    def drop(self, link: int) -> None:
        self._feeds.pop(link, None)

    def advance(self, watermark: int) -> list[tuple[int, Feed]]:
        """Frames for everything newly committed, as far as credit goes."""
        out: list[tuple[int, Feed]] = []
        for link, feed in self._feeds.items():
            while feed.examined < watermark and len(feed.untaken) < CREDIT_FRAMES:
                frame = self._next(feed, watermark)
                if frame is None:
                    break
                out.append((link, frame))
        return out

    def _next(self, feed: LinkFeed, watermark: int) -> Feed | None:
        tail = self._tail
        if not feed.wanted:
            feed.sent = feed.examined = watermark
            return None
        hole = feed.examined < tail.floor
        if hole:
            feed.sent = feed.examined = tail.floor
        start, end = tail.index_after(feed.examined), tail.index_after(watermark)
        found = self._all(feed, start, min(end, start + FRAME_MESSAGES_MAX)) or self._some(feed, start, end)
        full = len(found.values) >= FRAME_MESSAGES_MAX or found.bytes >= FRAME_BYTES_MAX
        upto = found.positions[-1] if full else watermark
        feed.examined = upto
        if not found.values and not hole:
            return None
        # An empty frame, too, tells those who stand in a hole that they have to poll.
        frame = Feed(feed.version, feed.sent, upto, found.streams, found.stream_of, found.positions, found.values)
        feed.sent = upto
        feed.untaken.append(upto)
        return frame

    def _all(self, feed: LinkFeed, start: int, end: int) -> _Found | None:
        """The entries between these indexes as they lie there, where all of them are wanted and have room in a frame."""
        tail = self._tail
        values = tail.values[start:end]
        size = sum(map(len, values))
        if size > FRAME_BYTES_MAX or not feed.wants_all(set(tail.topics[start:end])):
            return None
        return _Found(*tail.streams_between(start, end), tail.positions[start:end], values, size)

    def _some(self, feed: LinkFeed, start: int, end: int) -> _Found:
        """Those of them that are wanted, as many as have room."""
        tail, found, next_up = self._tail, list[int](), start
        while next_up < end and len(found) < FRAME_MESSAGES_MAX:
            begin, next_up = next_up, min(end, next_up + 2 * FRAME_MESSAGES_MAX)
            found += tail.of_topics(feed.wants(set(tail.topics[begin:next_up])), begin, next_up)
        del found[FRAME_MESSAGES_MAX:]
        sizes = list(accumulate([len(tail.values[index]) for index in found]))
        # The one with which it is full is in it.
        del found[bisect_left(sizes, FRAME_BYTES_MAX) + 1 :]
        streams = [tail.streams[index] for index in found]
        index_of = {stream: index for index, stream in enumerate(dict.fromkeys(streams))}
        size = sizes[len(found) - 1] if found else 0
        return _Found(
            list(index_of), [index_of[stream] for stream in streams],
            [tail.positions[index] for index in found], [tail.values[index] for index in found], size,
        )  # fmt: skip

    def check(self) -> None:
        for feed in self._feeds.values():
            assert feed.sent <= feed.examined
            assert len(feed.untaken) <= CREDIT_FRAMES + 64
            assert len(feed.known) <= KNOWN_TOPICS_MAX and all(map(feed.trie.matches_any, feed.known))
