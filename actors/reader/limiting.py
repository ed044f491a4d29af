"""How far to read for so many messages at most: what LIMIT answers, by counts where there are any, else by looking.

Counts give bounds at their marks, so most answers cost no reading. Where the next mark is beyond what may be read, or nothing was counted,
the messages between are looked at, never more of them than are asked for and a page.

Always holds: at most so many rows as are allowed lie between `from` and the answer, over all shards together; and the answer is beyond
`from` in at least one shard, or nothing is left in any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from actors.reader.planning import overlapping
from actors.reader.views import Seen
from shards.generations import GenerationInfo
from shards.layouts.port import Stream
from shards.store import Counts

_LOOKED_AT_MAX = 50_000
"""Where nothing was counted, a step is no longer than this, whatever is allowed."""
_FIRST_WINDOW_US = 1 << 17
_PAGE_ROWS = 4096
_PAGE_BYTES = 4 << 20
_NO_LIMIT = 1 << 62


class Range(NamedTuple):
    """begin <= position < end."""

    begin: int
    end: int


class _Line:
    """One shard's range, with what is known of its amounts."""

    def __init__(self, seen: Seen, range_: Range) -> None:
        self.seen = seen
        self.begin, self.end = range_
        self.parts = [(info, seen.view.counted(info)) for info, _, _ in overlapping(seen, *range_)]
        self.most = self.most_below(self.end)
        """None: nobody has counted."""

    def most_below(self, position: int) -> Counts | None:
        rows = size = 0
        for info, counted in self.parts:
            if info.since >= position:
                continue
            if counted is None:
                return None
            found = counted.most_between(max(self.begin, info.since), position)
            rows, size = rows + found.rows, size + found.bytes
        return Counts(rows, size)

    def furthest(self, allowed: Counts) -> int:
        """The last position for which the counts say that no more lies below it; `begin` when they say it of none."""
        low, high = 0, len(places := sorted(set(self._places())))
        while low < high:
            middle = (low + high + 1) // 2
            most = self.most_below(places[middle - 1])
            low, high = (middle, high) if most is not None and _within(most, allowed) else (low, middle - 1)
        return places[low - 1] if low else self.begin

    def looked(self, allowed: Counts) -> int:
        """As `furthest`, by looking: beyond `begin` unless one row alone is not allowed."""
        allowed = Counts(min(allowed.rows, _LOOKED_AT_MAX), allowed.bytes)
        good, width = self.begin, _FIRST_WINDOW_US
        upto = min(good + width, self.end)
        while self._fits(upto, allowed):
            if upto == self.end:
                return upto
            good, width = upto, width * 4
            upto = min(good + width, self.end)
        while upto - good > 1:
            middle = (good + upto) // 2
            good, upto = (middle, upto) if self._fits(middle, allowed) else (good, middle)
        return good

    def _places(self) -> Iterator[int]:
        yield self.end
        for info, counted in self.parts:
            ends = [info.since, *([info.until] if info.until is not None else [])]
            marks = [mark.position for mark in counted.marks] if counted is not None else []
            yield from (position for position in (*ends, *marks) if self.begin < position < self.end)

    def _fits(self, upto: int, allowed: Counts) -> bool:
        rows = size = 0
        for info, _ in self.parts:
            if info.since >= upto:
                continue
            for count, total in _pages(self.seen, info, self.begin, upto, allowed.rows - rows + 1):
                rows, size = rows + count, size + total
                if rows > allowed.rows or (size > allowed.bytes and rows > 1):
                    return False
        return True


def limit(seen: Mapping[int, Seen], ranges: Mapping[int, Range], rows: int | None, value_bytes: int | None) -> dict[int, int]:
    """Where each shard may be read to. rows, value_bytes: at least 1 each; None: without end."""
    lines = {shard: _Line(seen[shard], range_) for shard, range_ in ranges.items()}
    left = {shard: line for shard, line in lines.items() if line.begin < line.end}
    allowed = Counts(_NO_LIMIT if rows is None else rows, _NO_LIMIT if value_bytes is None else value_bytes)
    found = {shard: line.begin for shard, line in lines.items()}
    for shard, part in _shares(left, allowed).items():
        if part.rows:
            line = left[shard]
            reached = line.furthest(part)
            found[shard] = reached if reached > line.begin else line.looked(part)
    return found


def _shares(lines: Mapping[int, _Line], allowed: Counts) -> dict[int, Counts]:
    """By backlog; where somebody's is not known, evenly. The largest has what is left over, so that it gets on."""
    if not lines:
        return {}
    backlog = {shard: 1 if line.most is None else line.most.rows for shard, line in lines.items()}
    if any(line.most is None for line in lines.values()):
        backlog = dict.fromkeys(lines, 1)
    total = max(1, sum(backlog.values()))
    shares = {shard: Counts(allowed.rows * count // total, allowed.bytes * count // total) for shard, count in backlog.items()}
    largest = max(backlog, key=lambda shard: backlog[shard])
    over = Counts(allowed.rows - sum(each.rows for each in shares.values()), allowed.bytes - sum(each.bytes for each in shares.values()))
    shares[largest] = Counts(shares[largest].rows + over.rows, shares[largest].bytes + over.bytes)
    # A shard of which the counts say that nothing is left may go to its end.
    return {shard: share if share.rows or backlog[shard] else Counts(1, 1) for shard, share in shares.items()}


def _within(found: Counts, allowed: Counts) -> bool:
    return found.rows <= allowed.rows and (found.bytes <= allowed.bytes or found.rows <= 1)


def _pages(seen: Seen, info: GenerationInfo, begin: int, end: int, rows_max: int) -> Iterator[tuple[int, int]]:
    """(rows, bytes) of what a generation holds of the range, page by page."""
    for leaf in seen.view.leaves(info.id):
        place, done = begin - 1, False
        while not done:
            columns = seen.view.bulk(info.id, Stream(leaf.static), place, end - 1, min(_PAGE_ROWS, rows_max), _PAGE_BYTES)
            place, done = columns.place, columns.done
            yield columns.rows, columns.value_bytes
