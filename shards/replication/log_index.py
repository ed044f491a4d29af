"""Where each entry of a log lies, and which epoch it has.  Pure; twelve bytes for each entry.

Always holds (see check):
1. the entries are those from `first` to `last`, without gaps; `before_epoch` is that of the entry before `first`;
2. their places grow along the log, over all segments, and their epochs never fall.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

OFFSET_BITS = 32


class LogIndex:
    __slots__ = ("_epochs", "_from", "_places", "_sizes", "before_epoch", "first")

    def __init__(self, base_index: int, base_epoch: int) -> None:
        self.first = base_index + 1
        self.before_epoch = base_epoch
        self._places = array("Q")
        self._sizes = array("I")
        self._from: list[int] = []
        """Where each run of one epoch begins; a list for each, since searching one of pairs makes pairs."""
        self._epochs: list[int] = []

    @property
    def last(self) -> int:
        return self.first + len(self._places) - 1

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else self.before_epoch

    def epoch_at(self, index: int) -> int | None:
        """None: it is not in the log; of the one before the first it is known."""
        if index == self.first - 1:
            return self.before_epoch
        if not self.first <= index <= self.last:
            return None
        return self._epochs[bisect_right(self._from, index) - 1]

    def first_of_epoch(self, index: int) -> int:
        """Where the epoch of this entry begins, as far as the log goes back."""
        return self._from[bisect_right(self._from, index) - 1]

    def place(self, index: int) -> tuple[int, int, int]:
        """Number of the segment, offset in it, bytes of the payload."""
        at = index - self.first
        place = self._places[at]
        return place >> OFFSET_BITS, place & (1 << OFFSET_BITS) - 1, self._sizes[at]

    def last_in(self, segment: int) -> int:
        """The last entry that lies in this segment or in an earlier one; `first` - 1: none does."""
        return self.first + bisect_left(self._places, segment + 1 << OFFSET_BITS) - 1

    def put(self, first: int, before_epoch: int, segment: int, offsets: Sequence[int], sizes: Sequence[int], epochs: Sequence[int]) -> None:
        """Entries from `first` on, which replace all that are there from it on."""
        assert first <= self.last + 1, f"entry {first} behind {self.last}"
        if first <= self.first:
            self.first, self.before_epoch = first, before_epoch
            del self._places[:], self._sizes[:], self._from[:], self._epochs[:]
        else:
            kept = first - self.first
            del self._places[kept:], self._sizes[kept:]
            runs = bisect_left(self._from, first)
            del self._from[runs:], self._epochs[runs:]
        at = segment << OFFSET_BITS
        self._places.extend([at | offset for offset in offsets])
        self._sizes.extend(sizes)
        epoch = self._epochs[-1] if self._epochs else None
        if epoch != epochs[0] or epoch != epochs[-1]:
            for index, each in enumerate(epochs, first):
                if each != epoch:
                    self._from.append(index)
                    self._epochs.append(each)
                    epoch = each

    def drop_through(self, index: int) -> None:
        """Forget this entry and all before it."""
        if index < self.first:
            return
        epoch, behind = self.epoch_at(index), self.epoch_at(index + 1)
        assert epoch is not None, f"entry {index} of a log from {self.first} to {self.last}"
        # A run that goes on behind it is kept, and begins later.
        runs = bisect_right(self._from, index) - (behind == epoch)
        del self._from[:runs], self._epochs[:runs]
        del self._places[: index + 1 - self.first], self._sizes[: index + 1 - self.first]
        self.first, self.before_epoch = index + 1, epoch
        if self._from:
            self._from[0] = self.first

    def check(self) -> None:
        assert len(self._places) == len(self._sizes)
        assert len(self._from) == len(self._epochs)
        assert self._from == sorted(set(self._from))
        assert self._epochs == sorted(set(self._epochs))
        assert (not self._places) == (not self._from)
        if self._from:
            assert self._from[0] == self.first
            assert self._from[-1] <= self.last
            assert self._epochs[0] >= self.before_epoch
        assert all(one < other for one, other in zip(self._places, self._places[1:], strict=False))
