"""Messages in columns: what a read of a whole stream gives when it is for many messages at once.

`layouts.port.Layout.bulk` fills them, `shards.view` hands them on. They hold the same messages as `layouts.port.Read`, but no tuple and no
number per message: the positions are one piece of bytes that goes into a block as it is (docs/reader.md).

Always holds: as many positions as values, and the positions grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shards.engine import StoreDamaged

Positions = npt.NDArray[np.uint64]
NO_LIMIT = 1 << 62


class Columns(NamedTuple):
    """positions: u64 little-endian, one after the other. values: stored messages. place and done: as in layouts.port.Read."""

    positions: bytes
    values: list[bytes]
    place: int
    done: bool


def columns_of(messages: Sequence[tuple[int, bytes]], place: int, done: bool) -> Columns:
    """What was read message by message."""
    positions = np.array([position for position, _ in messages], "<u8")
    return Columns(positions.tobytes(), [value for _, value in messages], place, done)


def positions_in(keys: Sequence[bytes], width: int, at: int) -> Positions:
    """The big-endian positions that begin at byte `at` of each key; all keys must be `width` bytes long."""
    if not keys:
        return np.empty(0, np.uint64)
    joined = b"".join(keys)
    if len(joined) != width * len(keys):
        wrong = next((key for key in keys if len(key) != width), b"")
        raise StoreDamaged(f"the key {wrong.hex()} is {len(wrong)} bytes long, and lies among keys of {width}")
    return np.ndarray((len(keys),), ">u8", joined, at, (width,)).astype(np.uint64)


def scanned_columns(positions: Positions, values: list[bytes], upto: int, limit: int, bytes_max: int, header_bytes: int = 0) -> Columns:
    """layouts.learned.scanned, in columns: what one scan up to `upto` gave, of at most `limit` values that were not to pass `bytes_max`."""
    count = len(values)
    total = sum(map(len, values))
    if count < limit and total + header_bytes * count < bytes_max:
        return Columns(positions.tobytes(), values, upto, True)
    if total > bytes_max and count > 1:
        # The engine stops with the value that passes the bound; only a first one may pass it.
        del values[-1]
        positions = positions[:-1]
    place = int(positions[-1])
    return Columns(positions.tobytes(), values, place, place == upto)
