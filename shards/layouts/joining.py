"""Reads with constraints: the positions that an index names for all wanted levels become messages.

The real topic of each is compared, as two values may share a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from shards.layouts.learned import has
from shards.layouts.port import Read, Stream, read_of
from shards.messages import topic_of

_FETCH_FIRST = 8
_FETCH_MAX = 128
_KEYS_PER_MESSAGE = 8
"""A message that is looked into counts as so many keys."""
_LOOK_MESSAGES_MAX = 512


class Limits(NamedTuple):
    """Of a read, as in layouts.port.Layout.read."""

    count_max: int
    bytes_max: int
    examine_max: int


@dataclass(slots=True)
class Moves:
    """seek: jumps to a place, next: steps from one key to its neighbour. hit, hash_collision: messages that the index names for all wanted
    levels, and that match, or only share hashes. miss: positions that one level's index has and another's has not. end_of_stream: reads
    that found the end."""

    seek: int = 0
    next: int = 0
    hash_collision: int = 0
    hit: int = 0
    miss: int = 0
    end_of_stream: int = 0


class Common(Protocol):
    """The positions that the index lists of all constraints have in common, in order, each handed out once."""

    @property
    def examined(self) -> int:
        """Entries, pages and messages that this read has looked at."""

    def next(self, count: int, examine_max: int) -> tuple[list[int], int, bool]:
        """Up to ``count`` further positions, the place reached, and whether there are no more.

        Looks at no more than about ``examine_max`` since the read began, but far enough to move the place.
        """

    def fetched(self, count: int) -> None:
        """So many messages were looked at."""


def joined(
    common: Common, fetch: Callable[[list[int]], Iterable[tuple[int, bytes]]], stream: Stream, upto: int, limits: Limits, moves: Moves
) -> Read:
    """layouts.port.Layout.read for a stream with constraints. fetch: (position, message) of positions, in their order."""
    count_max, bytes_max, examine_max = limits
    messages: list[tuple[int, bytes]] = []
    total = 0
    fetch_max = _FETCH_FIRST
    while True:
        positions, place, exhausted = common.next(min(fetch_max, count_max - len(messages)), examine_max)
        common.fetched(len(positions))
        for position, value in fetch(positions):
            if not has(topic_of(value), stream.literals):
                moves.hash_collision += 1
                continue
            moves.hit += 1
            if messages and total + len(value) > bytes_max:
                return read_of(messages, position - 1, False)
            messages.append((position, value))
            total += len(value)
        if exhausted:
            return read_of(messages, upto, True)
        if len(messages) >= count_max or total >= bytes_max or common.examined >= examine_max:
            return read_of(messages, place, False)
        average = total // len(messages) + 1 if messages else 1
        fetch_max = max(1, min(2 * fetch_max, _FETCH_MAX, (bytes_max - total) // average))


def looked_through(scan: Callable[[int, int], Read], stream: Stream, upto: int, before: Read, limits: Limits) -> Read:
    """The same without an index, behind what was read before: of messages of the whole stream those that match. scan: those after a place,
    and how many at most."""
    count_max, bytes_max, examine_max = limits
    messages = before.messages
    total = sum(map(len, before.values))
    left = max(1, examine_max // _KEYS_PER_MESSAGE)
    place = before.place
    while place < upto and left > 0 and len(messages) < count_max and (total < bytes_max or not messages):
        read = scan(place, min(left, _LOOK_MESSAGES_MAX))
        left -= max(1, len(read.positions))
        for position, value in zip(read.positions, read.values, strict=True):
            if not has(topic_of(value), stream.literals):
                continue
            if len(messages) >= count_max or (messages and total + len(value) > bytes_max):
                return read_of(messages, position - 1, False)
            messages.append((position, value))
            total += len(value)
        place = read.place
    return read_of(messages, place, place == upto)
