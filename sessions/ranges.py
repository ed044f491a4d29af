"""Ranges: which stored messages got which sequence numbers.

A range says everything that is needed to read the same messages again and give them the same numbers, whatever happens to
its subscription later (PROTOCOLS 12).  It knows counts and numbers, never a message, except those that come from no stream:
they are copied into it.

Life cycle:  opened (fresh) -> taken into a commit -> finished on both tracks -> its row deleted.
A range that is opened and finished between two commits leaves no trace on disk.

Holds after every call (see check):
1. the numbers of all open ranges, in order, are consecutive on each track and end at the track's next - 1;
2. a range is in the queue of a track exactly while a number of it on that track is above `committed`;
3. the open ranges that no commit has taken are those from the number `taken` on.
"""

from __future__ import annotations

from collections.abc import Sequence

from sessions.seqno import Track
from shards.rows import RangeRow, pack_range, unpack_as

COPIES = -1
"""In the place of a shard: the messages are in the range itself."""
GIVEN = -2
"""They are in rows of deliveries; `copies` has the keys of these (sessions.given).  Of one QoS."""


class Terms:
    """What a range delivers under: the state of its subscription when it was opened.  Shared, never changed."""

    __slots__ = ("filter", "identifier", "options", "qos", "since_ms", "sub_id", "until_ms")

    def __init__(
        self, sub_id: int, filter: bytes, qos: int, options: int, identifier: int, since_ms: int = 0, until_ms: int = 0
    ) -> None:  # fmt: skip
        self.sub_id = sub_id
        self.filter = filter
        self.qos = qos
        self.options = options
        self.identifier = identifier
        self.since_ms = since_ms
        self.until_ms = until_ms
        """Of a replay: what was published before, or from then on, is left out; 0: nothing."""


class Range:
    __slots__ = (
        "after", "copies", "count1", "count2", "first1", "first2", "gate", "lost", "merged", "number", "open1", "open2", "shard", "streams",
        "terms", "upto",
    )  # fmt: skip

    def __init__(
        self, number: int, terms: Terms, shard: int, merged: bool, streams: list[tuple[int, bytes]], after: int, upto: int,
        first1: int, count1: int, first2: int, count2: int, copies: list[bytes], lost: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.number = number
        self.terms = terms
        self.shard = shard
        self.merged = merged
        self.streams = streams
        self.after = after
        self.upto = upto
        self.first1 = first1
        self.count1 = count1
        self.first2 = first2
        self.count2 = count2
        self.copies = copies
        self.lost = lost
        """Which numbers were closed as lost: as in its row."""
        self.open1 = False
        self.open2 = False
        self.gate = 0
        """The commit of this session that writes it; 0: it was loaded."""

    @property
    def last1(self) -> int:
        return self.first1 + self.count1 - 1

    @property
    def last2(self) -> int:
        return self.first2 + self.count2 - 1

    def row(self) -> bytes:
        terms = self.terms
        return pack_range(
            RangeRow(
                terms.sub_id,
                terms.filter,
                terms.qos,
                terms.options,
                terms.identifier,
                self.shard,
                self.merged,
                self.streams,
                self.after,
                self.upto,
                self.first1,
                self.count1,
                self.first2,
                self.count2,
                self.copies,
                self.lost,
                terms.since_ms,
                terms.until_ms,
            )
        )


class RangeLog:
    """The open ranges of one session."""

    __slots__ = ("_messages_max", "_queue1", "_queue2", "_streams_max", "dead", "next_number", "one", "open", "taken", "two")

    def __init__(self, one: Track, two: Track, next_number: int, messages_max: int, streams_max: int) -> None:
        self.one = one
        self.two = two
        self.next_number = self.taken = next_number
        self.open: dict[int, Range] = {}
        self.dead: list[int] = []
        self._queue1: list[Range] = []
        self._queue2: list[Range] = []
        self._messages_max = messages_max
        self._streams_max = streams_max

    def add(
        self, terms: Terms, shard: int, merged: bool, streams: list[tuple[int, bytes]], after: int, upto: int,
        count1: int, count2: int, copies: list[bytes], gate: int,
    ) -> tuple[int, int]:  # fmt: skip
        """Assign numbers to messages that were just read: the first one on each track.  gate: the next commit."""
        first1, first2 = self.one.assign(count1), self.two.assign(count2)
        grown = self._grow(terms, shard, merged, streams, after, upto, count1, count2) if merged else None
        if grown is None:
            grown = Range(
                self.next_number, terms, shard, merged, streams, after, upto, first1, count1, first2, count2, copies
            )  # fmt: skip
            grown.gate = gate
            self.next_number += 1
            self.open[grown.number] = grown
        self._enqueue(grown, count1 > 0, count2 > 0)
        return first1, first2

    def _grow(
        self, terms: Terms, shard: int, merged: bool, streams: list[tuple[int, bytes]], after: int, upto: int, count1: int, count2: int
    ) -> Range | None:
        """The newest range with these messages added, if one row can stand for both.

        It can when both were read merged by one subscription under the same terms, one after the other: then all that
        matches in all their streams between its start and our end is in one of them, and reading it again finds exactly
        these messages.
        """
        last = self.open.get(self.next_number - 1)
        if last is None or self.is_taken(last) or last.terms is not terms or last.shard != shard or not last.merged or last.upto > after:
            return None
        if terms.since_ms or terms.until_ms:
            # What is left out of it is read again too, and must not add up.
            return None
        if last.count1 + last.count2 + count1 + count2 > self._messages_max:
            return None
        known = dict.fromkeys(last.streams)
        known.update(dict.fromkeys(streams))
        if len(known) > self._streams_max:
            return None
        last.streams = list(known)
        last.upto = upto
        last.count1 += count1
        last.count2 += count2
        return last

    def sever(self) -> None:
        """A place was moved: what is read from there begins a row of its own, as nothing says what lies between."""
        self.next_number += 1

    def restore(self, number: int, row: bytes) -> None:
        """A range of the rows of the session, in the order of numbers."""
        fields = unpack_as(RangeRow, row)
        found = Range(
            number,
            Terms(fields.sub_id, fields.filter, fields.qos, fields.options, fields.identifier, fields.since_ms, fields.until_ms),
            fields.shard, fields.merged, fields.streams, fields.after, fields.upto,
            fields.first1, fields.count1, fields.first2, fields.count2, fields.copies, fields.lost,
        )  # fmt: skip
        if (found.count1 and found.last1 > self.one.committed) or (found.count2 and found.last2 > self.two.committed):
            self.open[number] = found
            self._enqueue(
                found, found.count1 > 0 and found.last1 > self.one.committed, found.count2 > 0 and found.last2 > self.two.committed
            )
        else:
            self.dead.append(number)

    def progressed1(self) -> bool:
        """`committed` of QoS 1 has moved; whether a row must be deleted for it."""
        return self._progressed(self._queue1, self.one.committed, 1)

    def progressed2(self) -> bool:
        return self._progressed(self._queue2, self.two.committed, 2)

    def _progressed(self, queue: list[Range], committed: int, qos: int) -> bool:
        died = False
        while queue:
            head = queue[0]
            if (head.last1 if qos == 1 else head.last2) > committed:
                break
            del queue[0]
            if qos == 1:
                head.open1 = False
            else:
                head.open2 = False
            if not head.open1 and not head.open2:
                del self.open[head.number]
                if self.is_taken(head):
                    self.dead.append(head.number)
                    died = True
        return died

    def is_taken(self, known: Range) -> bool:
        """A commit has it, or it was loaded."""
        return known.number < self.taken

    @property
    def has_fresh(self) -> bool:
        return self.next_number > self.taken and bool(self.open) and next(reversed(self.open)) >= self.taken

    def take_fresh(self) -> list[Range]:
        """What the commit that is being assembled has to write; from now on these ranges do not grow."""
        numbers = range(self.taken, self.next_number)
        self.taken = self.next_number
        return [self.open[number] for number in numbers if number in self.open]

    def take_dead(self) -> list[int]:
        dead, self.dead = self.dead, []
        return dead

    def _enqueue(self, added: Range, one: bool, two: bool) -> None:
        if one and not added.open1:
            added.open1 = True
            self._queue1.append(added)
        if two and not added.open2:
            added.open2 = True
            self._queue2.append(added)

    def check(self) -> None:
        for track, first, count, queue in (
            (self.one, "first1", "count1", self._queue1),
            (self.two, "first2", "count2", self._queue2),
        ):
            expected: int | None = None
            for item in self.open.values():
                if not getattr(item, count):
                    continue
                assert expected is None or getattr(item, first) >= expected, f"range {item.number} overlaps the one before it"
                expected = getattr(item, first) + getattr(item, count)
            covered = sum(min(getattr(item, count), getattr(item, first) + getattr(item, count) - 1 - track.committed) for item in queue)
            assert covered == track.open, f"ranges cover {covered} of {track.open} open numbers of QoS {track.qos}"
        assert list(self.open) == sorted(self.open)
        for number, item in self.open.items():
            assert item.open1 or item.open2, f"range {number} is finished and still open"
            assert item.number == number < self.next_number
        assert self.taken <= self.next_number
