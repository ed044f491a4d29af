"""What an epoch has for a reader, collected by jumps and handed out in position order.

In an epoch keys are sorted by hashes first, so who reads in position order has to have looked at all keys that may match: they are
collected into a page and sorted. A page is never changed, so it is kept, within a bound, and the next reads of the same part of the
stream only look it up. Values are not in it: whoever hands messages out fetches them, and compares the real topics.

Two moves: *seek* jumps to where the ratchet says, *next* steps to the neighbour while it passes. Both are counted.

Always holds:
1. a page has every key of its stream that may match, with first <= position <= through;
2. `through` is never above the `upto` with which the page was collected: there nothing can come any more, however often the page is used;
3. no more than KEYS_HELD_MAX keys are kept, and no page has more than PAGE_KEYS_MAX.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shards.engine import Engine
from shards.layouts.wildcard_optimized.keys import Interval, KeyMapper

PAGE_KEYS_MAX = 16_384
"""A larger epoch is handed out in several pages, each of which costs a look at all keys of the epoch that may match."""
KEYS_HELD_MAX = 32_768
"""Over all pages of a generation, about 150 bytes each: 5 MB. Generations that were read stay open, so it is for each of them."""
_PAGE_COST = 16
"""A page counts for at least so many keys."""

Entry = tuple[int, bytes]
"""(position, key)."""


@dataclass(slots=True)
class Counters:
    """seek, next: moves over keys. collision: keys and messages that were looked at and belong to another topic, because hashes of
    levels or the truncated static keys of streams are equal."""

    seek: int = 0
    next: int = 0
    collision: int = 0


class Page(NamedTuple):
    """entries: by position, all that may match in first <= position <= through."""

    first: int
    through: int
    entries: list[Entry]


class Asked(NamedTuple):
    """The part of a stream that is wanted. levels: hash wanted of each varying level, None for any."""

    static: bytes
    topic_index: int
    levels: tuple[int | None, ...]


class Epochs:
    """The pages of one generation."""

    def __init__(self, engine: Engine, family: int) -> None:
        self._engine = engine
        self._family = family
        self._pages: OrderedDict[tuple[Asked, int], Page] = OrderedDict()
        self._held = 0
        self.counters = Counters()

    def page(self, mapper: KeyMapper, asked: Asked, start: int, upto: int, examine_max: int) -> Page:
        """A page with first <= start <= through. Everything up to `upto` must be committed.

        Gives up looking for an epoch that has something after about `examine_max` keys, but never within an epoch.
        """
        epoch = start >> mapper.epoch_bits
        known = self._pages.get((asked, epoch))
        if known is not None and known.first <= start <= known.through:
            self._pages.move_to_end((asked, epoch))
            return known
        # Looking at all of the epoch costs the same for any start; whoever reads it from its begin will need it whole.
        goes_on = known is not None and known.through < start
        first = start if goes_on else epoch << mapper.epoch_bits
        page = self._collect(mapper, asked, first, upto, examine_max)
        if page.through < start:
            page = self._collect(mapper, asked, start, upto, examine_max)
        if page.entries:
            self._keep((asked, page.entries[0][0] >> mapper.epoch_bits), page)
        return page

    def _collect(self, mapper: KeyMapper, asked: Asked, first: int, upto: int, examine_max: int) -> Page:
        """The first epoch from `first` on that has something."""
        wanted = mapper.filter([(asked.topic_index, asked.topic_index), (first, upto), *_intervals(asked.levels)])
        size, bits, shift = mapper.key_bytes, mapper.epoch_bits, mapper.epoch_shift
        low, high = wanted.first.to_bytes(size, "big"), wanted.last.to_bytes(size, "big") + b"\x00"
        cursor = self._engine.cursor(self._family, low, high)
        entries: list[Entry] = []
        # The epoch that is collected, with the topic index in front, once something was found; and what is beyond a full page.
        collected: int | None = None
        beyond = upto
        moves = self.counters.seek + self.counters.next
        target = wanted.first
        while True:
            key = target
            cursor.seek(target.to_bytes(size, "big"))
            self.counters.seek += 1
            while cursor.valid():
                raw = cursor.key()
                key = int.from_bytes(raw[:size].ljust(size, b"\x00"), "big")
                if len(raw) != size:
                    # A stream with another number of varying levels has the same topic index: go on behind this key.
                    self.counters.collision += 1
                    key += len(raw) > size
                    break
                if key & wanted.mask != wanted.wanted:
                    break
                if collected is None:
                    collected = key >> shift
                elif key >> shift != collected:
                    return self._done(entries, first, min(beyond, (mapper.position(key) >> bits << bits) - 1))
                position = mapper.position(key)
                if first <= position <= beyond:
                    entries.append((position, raw))
                    if len(entries) >= 2 * PAGE_KEYS_MAX:
                        beyond = _shorten(entries)
                cursor.next()
                self.counters.next += 1
            if not cursor.valid():
                return self._done(entries, first, beyond)
            following = mapper.ratchet(wanted, key)
            if following is None:
                return self._done(entries, first, beyond)
            start_of_epoch = mapper.position(following) >> bits << bits
            if collected is not None and following >> shift != collected:
                return self._done(entries, first, min(beyond, start_of_epoch - 1))
            if self.counters.seek + self.counters.next - moves >= examine_max and start_of_epoch > first and collected is None:
                return self._done(entries, first, start_of_epoch - 1)
            target = following

    def _done(self, entries: list[Entry], first: int, through: int) -> Page:
        entries.sort()
        if len(entries) > PAGE_KEYS_MAX:
            through = min(through, _shorten(entries))
        return Page(first, through, entries)

    def _keep(self, where: tuple[Asked, int], page: Page) -> None:
        pages = self._pages
        old = pages.pop(where, None)
        if old is not None:
            self._held -= max(_PAGE_COST, len(old.entries))
        pages[where] = page
        self._held += max(_PAGE_COST, len(page.entries))
        while self._held > KEYS_HELD_MAX:
            _, oldest = pages.popitem(last=False)
            self._held -= max(_PAGE_COST, len(oldest.entries))

    def check(self) -> None:
        assert self._held == sum(max(_PAGE_COST, len(page.entries)) for page in self._pages.values()) <= KEYS_HELD_MAX
        for page in self._pages.values():
            assert page.entries == sorted(page.entries) and len(page.entries) <= PAGE_KEYS_MAX
            assert page.first <= page.entries[0][0] and page.entries[-1][0] <= page.through


def _intervals(levels: Sequence[int | None]) -> list[Interval | None]:
    return [None if level is None else (level, level) for level in levels]


def _shorten(entries: list[Entry]) -> int:
    """Keep as many as a page takes, those with the smallest positions; the last of them is where the page ends."""
    entries.sort()
    del entries[PAGE_KEYS_MAX:]
    return entries[-1][0]
