"""Whether the entries of an index are those that the messages have: both are summed up, in whatever order they come.

An entry is the hash of a varying level and the position of its message. Summed up is how many there are, and a mix of each of them: sets
that differ have equal sums once in 2^64, and nothing has to be kept or sorted. For commands, as it reads everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shards.layouts.learned import level_hashes
from shards.layouts.port import ReadStream
from shards.messages import check_message

Column = npt.NDArray[np.uint64]

AT_ONCE, AT_ONCE_BYTES_MAX = 4096, 4 << 20
"""Messages that are read together."""
_ODD = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27))


class Sum(NamedTuple):
    """entries: how many.  mixed: of all of them, modulo 2^64."""

    entries: int = 0
    mixed: int = 0

    def plus(self, hashes: Column, positions: Column) -> Sum:
        mix = hashes * _ODD[0] ^ positions
        mix = (mix ^ mix >> _SHIFTS[0]) * _ODD[1]
        mix = (mix ^ mix >> _SHIFTS[1]) * _ODD[2]
        return Sum(self.entries + len(mix), (self.mixed + int(mix.sum(dtype=np.uint64))) % (1 << 64))


def sums_of_messages(read: ReadStream, static: bytes, depths: Sequence[int], after: int, upto: int) -> list[Sum]:
    """Of the messages of a stream with after < position <= upto, for each of its varying levels, which are at these depths of the topic.
    Raises StoreFailed or UnknownMessageFormat when one of them cannot be read."""
    sums = [Sum()] * len(depths)
    place, done = after, after >= upto
    while not done:
        found = read(static, place, upto, AT_ONCE, AT_ONCE_BYTES_MAX)
        for value in found.values:
            check_message(value)
        positions = np.array(found.positions, np.uint64)
        rows = np.frombuffer(b"".join([hashed for value in found.values for hashed in level_hashes(value, depths)]), ">u8")
        for number, hashes in enumerate(rows.reshape(-1, len(depths)).T):
            sums[number] = sums[number].plus(hashes.astype(np.uint64), positions)
        place, done = found.place, found.done
    return sums


def difference(found: Sum, wanted: Sum) -> str | None:
    """What is wrong with the entries that were found; None: nothing."""
    if found == wanted:
        return None
    if found.entries != wanted.entries:
        return f"{found.entries} entries, and {wanted.entries} messages"
    return f"{found.entries} entries, as many as messages, but not those of the messages"
