"""Positions by the value of a varying level, and those that several levels have in common.

For use within one read: what is found refers to the index as it was when the read began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from shards.engine import Cursor, Engine
from shards.layouts.joining import Moves
from shards.layouts.paged_index.entries import Run
from shards.layouts.paged_index.pages import Segment, decode_page, entry_of, level_prefix, segment_number, segment_prefix
from shards.layouts.paged_index.stream_index import StreamIndex

_PREFIX_END = b"\xff" * 21


class Postings:
    """The positions of one value of one level, in order: on disk segment by segment, then in RAM run by run and the open part.

    A source is looked into only when those before it are used up, and pages of a segment only as far as they are wanted.
    """

    __slots__ = (
        "_at", "_cursor", "_engine", "_family", "_found", "_hash", "_index", "_level", "_more", "_moves", "_raw", "_source", "_sources",
        "_upto", "examined",
    )  # fmt: skip

    def __init__(self, engine: Engine, family: int, index: StreamIndex, level: int, hashed: bytes, upto: int, moves: Moves) -> None:
        """level: from 1, as in the keys."""
        self._moves = moves
        self._engine = engine
        self._family = family
        self._index = index
        self._level = level
        self._raw = hashed
        self._hash = int.from_bytes(hashed, "big")
        self._upto = upto
        self._sources: list[Segment | Run] = [*index.segments, *index.entries.runs]
        self._source = 0
        self._more = False
        self._cursor: Cursor | None = None
        self._found: Sequence[int] = ()
        self._at = 0
        self.examined = 0

    def forward(self, target: int) -> int | None:
        """The first position >= ``target`` and <= upto; None when there is none. Targets grow from call to call."""
        while True:
            found, at = self._found, self._at
            if at < len(found):
                if found[at] < target:
                    at = bisect_left(found, target, at + 1)
                    self._at = at
                if at < len(found):
                    self.examined += 1
                    position = found[at]
                    return position if position <= self._upto else None
            if not self._refill(target):
                return None

    def _refill(self, target: int) -> bool:
        """Look into the next source that can hold the target; False when there is none."""
        sources = self._sources
        if target > self._upto:
            return False
        while self._source < len(sources):
            source = sources[self._source]
            if source.last < target:
                self._more = False
            elif isinstance(source, Run):
                self._found, self._at = source.positions(self._level - 1, self._hash), 0
                self._source += 1
                return True
            elif self._page(source, target):
                return True
            self._source += 1
            if source.last >= self._upto:
                self._source = len(sources) + 1
                return False
        if self._source == len(sources):
            self._source += 1
            self._found, self._at = self._index.entries.open_positions(self._level - 1, self._raw), 0
            return True
        return False

    def _page(self, segment: Segment, target: int) -> bool:
        """Read the page of the segment that has the target, if any has; stays at the segment while its next page may have more."""
        cursor = self._cursor
        if cursor is None:
            prefix = level_prefix(self._index.static, self._level)
            cursor = self._cursor = self._engine.cursor(self._family, prefix, prefix + _PREFIX_END)
        self.examined += 1
        wanted = segment_prefix(self._index.static, self._level, segment.number) + entry_of(self._hash, target)
        # The page that follows is the wanted one unless the target is far ahead; a step costs a fraction of a seek.
        if self._more:
            cursor.next()
            self._moves.next += 1
        if not self._more or (cursor.valid() and cursor.key() < wanted):
            cursor.seek(wanted)
            self._moves.seek += 1
        self._more = False
        if not cursor.valid():
            return False
        key = cursor.key()
        if segment_number(key) != segment.number:
            return False
        page = decode_page(key, cursor.value())
        low = bisect_left(page.hashes, self._hash)
        high = bisect_right(page.hashes, self._hash, low)
        if low == high:
            return False
        self._found, self._at = page.positions[low:high], 0
        self._more = high == len(page.hashes)
        if not self._more:
            self._source += 1
        return True


class Intersection:
    """joining.Common over postings: whoever is behind moves forward to the foremost. All common positions up to ``place`` have been
    handed out."""

    __slots__ = ("_fetched", "_moves", "_place", "_postings", "_upto")

    def __init__(self, postings: Sequence[Postings], after: int, upto: int, moves: Moves) -> None:
        self._moves = moves
        self._postings = postings
        self._place = after
        self._upto = upto
        self._fetched = 0

    @property
    def examined(self) -> int:
        return self._fetched + sum([postings.examined for postings in self._postings])

    def fetched(self, count: int) -> None:
        self._fetched += count

    def next(self, count: int, examine_max: int) -> tuple[list[int], int, bool]:
        """joining.Common.next."""
        found: list[int] = []
        postings = self._postings
        before = self._place
        candidate = before + 1
        agreed = turn = 0
        while len(found) < count:
            at = postings[turn].forward(candidate)
            if at is None:
                return found, self._upto, True
            if at == candidate:
                agreed += 1
            else:
                self._moves.miss += agreed > 0
                agreed = 1
            candidate = at
            turn = (turn + 1) % len(postings)
            if agreed == len(postings):
                found.append(candidate)
                self._place = candidate
                candidate += 1
                agreed = 0
            elif candidate - 1 > self._place:
                self._place = candidate - 1
            if self._place > before and self.examined >= examine_max:
                break
        return found, self._place, False
