"""How many messages lie between two positions, from the counts that records leave in a generation (docs/formats.md, "Counts").

A generation knows what it holds, and at its marks what it holds below them; between marks there are bounds. Of one that was written by a
program that counted nothing, nothing is known.

What is told of a range must be the same whenever it is asked: by it a range is cut into the tasks of Spark, and a task that writes is known
by its number. So a current generation is known as far as its marks (as_of).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shards.generations import GenerationInfo
from shards.store import Counts, Mark


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one generation. marks: ascending."""

    info: GenerationInfo
    total: Counts
    marks: Sequence[Mark]

    def as_of(self, cut: int) -> Counted:
        """As it is told for good once everything below this cut is committed, whatever came since.

        A generation that ends at the cut may have been a current one then, as its end is in the first record behind it. What lies behind
        the last mark of such a one is not counted.
        """
        if self.info.until is not None and self.info.until < cut:
            return self
        marks = self.marks[: bisect_right(self.marks, cut, key=lambda mark: mark.position)]
        return Counted(replace(self.info, until=None), Counts(*marks[-1][1:]) if marks else Counts(0, 0), marks)

    def atleast(self, position: int) -> Counts:
        """Below this position lies so much, or more."""
        if position <= self.info.since:
            return Counts(0, 0)
        if self.info.until is not None and position >= self.info.until:
            return self.total
        at = bisect_right(self.marks, position, key=lambda mark: mark.position)
        return Counts(*self.marks[at - 1][1:]) if at else Counts(0, 0)

    def atmost(self, position: int) -> Counts:
        """Below this position lies so much, or less."""
        if position <= self.info.since:
            return Counts(0, 0)
        at = bisect_left(self.marks, position, key=lambda mark: mark.position)
        return Counts(*self.marks[at][1:]) if at < len(self.marks) else self.total

    def about(self, position: int) -> Counts:
        """Between two marks as if messages had come evenly."""
        low, high = self.atleast(position), self.atmost(position)
        if low == high:
            return low
        at = bisect_right(self.marks, position, key=lambda mark: mark.position)
        begin = self.marks[at - 1].position if at else self.info.since
        if at < len(self.marks):
            end = self.marks[at].position
        elif self.info.until is not None:
            end = self.info.until
        else:
            return high
        part = (position - begin) / max(1, end - begin)
        return Counts(low.rows + int((high.rows - low.rows) * part), low.bytes + int((high.bytes - low.bytes) * part))

    def most_between(self, begin: int, end: int) -> Counts:
        low, high = self.atleast(begin), self.atmost(end)
        return Counts(max(0, high.rows - low.rows), max(0, high.bytes - low.bytes))

    def about_between(self, begin: int, end: int) -> Counts:
        low, high = self.about(begin), self.about(end)
        return Counts(max(0, high.rows - low.rows), max(0, high.bytes - low.bytes))
