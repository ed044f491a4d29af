"""Messages in columns: what a read of a whole stream gives when it is for many messages at once.

`layouts.port.Layout.bulk` fills them, `shards.view` hands them on. They hold the same messages as `layouts.port.Read`, but no tuple, number
or object per message: positions, lengths and values go into a block as they are (docs/reader.md). Values are joined as soon as they are
read, some at a time, while they are in the processor's cache.

Always holds: as many positions as lengths, the positions grow, and the lengths add up to the bytes of the pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct, pack
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shards.engine import Entries, StoreDamaged

if TYPE_CHECKING:
    from shards.layouts.port import Read

Positions = npt.NDArray[np.uint64]
NO_LIMIT = 1 << 62
_FEW: Final = 24
"""Fewer numbers are had sooner without numpy."""
_unpack_position = Struct(">Q").unpack_from


class Columns(NamedTuple):
    """positions: u64 little-endian, one after the other; lengths of the values: u32. pieces: stored messages, one after the other, cut
    anywhere. place and done: as in layouts.port.Read."""

    positions: bytes
    lengths: bytes
    pieces: list[bytes]
    place: int
    done: bool

    @property
    def rows(self) -> int:
        return len(self.positions) // 8

    @property
    def value_bytes(self) -> int:
        return sum(map(len, self.pieces))

    @property
    def values(self) -> list[bytes]:
        """Each by itself, for who wants them so."""
        joined = b"".join(self.pieces)
        ends = np.cumsum(np.frombuffer(self.lengths, "<u4"), dtype=np.int64).tolist()
        return [joined[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def columns_of(read: Read) -> Columns:
    """What was read for who takes numbers and objects."""
    return in_columns(np.array(read.positions, "<u8"), read.values, read.place, read.done)


def in_columns(positions: Positions, values: Sequence[bytes], place: int, done: bool) -> Columns:
    return Columns(positions.tobytes(), lengths_of(values), [b"".join(values)] if values else [], place, done)


def lengths_of(values: Sequence[bytes]) -> bytes:
    """As a block has them."""
    return _packed(list(map(len, values)))


def _packed(lengths: Sequence[int]) -> bytes:
    return pack(f"<{len(lengths)}I", *lengths)


def gathered(found: Iterable[Entries]) -> tuple[list[bytes], list[bytes]]:
    """Keys and values of shards.engine.Engine.columns, all of them."""
    keys: list[bytes] = []
    values: list[bytes] = []
    for some_keys, some_values, _ in found:
        keys += some_keys
        values += some_values
    return keys, values


def positions_in(keys: Sequence[bytes], width: int, at: int) -> Positions:
    """The big-endian positions that begin at byte `at` of each key; all keys must be `width` bytes long."""
    return _positions(_joined(keys, width), width, at)


def position_list(keys: Sequence[bytes], width: int, at: int) -> list[int]:
    """The same as numbers."""
    joined = _joined(keys, width)
    if len(keys) < _FEW:
        return [_unpack_position(joined, place)[0] for place in range(at, len(joined), width)]
    found: list[int] = _positions(joined, width, at).tolist()
    return found


def _joined(keys: Sequence[bytes], width: int) -> bytes:
    joined = b"".join(keys)
    if len(joined) != width * len(keys):
        wrong = next((key for key in keys if len(key) != width), b"")
        raise StoreDamaged(f"the key {wrong.hex()} is {len(wrong)} bytes long, and lies among keys of {width}")
    return joined


def _positions(joined: bytes, width: int, at: int) -> Positions:
    if not joined:
        return np.empty(0, np.uint64)
    return np.ndarray((len(joined) // width,), ">u8", joined, at, (width,)).astype(np.uint64)


def packed_columns(found: Iterable[Entries], width: int, at: int, upto: int, limit: int, bytes_max: int) -> Columns:
    """What one scan up to `upto` gave (Engine.columns, with these bounds), where values are stored messages and keys have their
    positions (`positions_in`)."""
    keys: list[bytes] = []
    lengths: list[int] = []
    pieces: list[bytes] = []
    for some_keys, values, some_lengths in found:
        keys.append(_joined(some_keys, width))
        lengths += some_lengths
        pieces.append(b"".join(values))
    positions = _positions(b"".join(keys), width, at)
    total = sum(map(len, pieces))
    if len(positions) < limit and total < bytes_max:
        return Columns(positions.tobytes(), _packed(lengths), pieces, upto, True)
    if total > bytes_max and len(positions) > 1:
        # The engine stops with the value that passes the bound; only a first one may pass it.
        positions = positions[:-1]
        pieces[-1] = pieces[-1][: len(pieces[-1]) - lengths.pop()]
    place = int(positions[-1])
    return Columns(positions.tobytes(), _packed(lengths), pieces, place, place == upto)


def scanned_columns(positions: Positions, values: list[bytes], upto: int, limit: int, bytes_max: int, header_bytes: int = 0) -> Columns:
    """The same of values that had headers of so many bytes, which the bounds counted."""
    count = len(values)
    total = sum(map(len, values))
    if count < limit and total + header_bytes * count < bytes_max:
        return in_columns(positions, values, upto, True)
    if total > bytes_max and count > 1:
        del values[-1]
        positions = positions[:-1]
    place = int(positions[-1])
    return in_columns(positions, values, place, place == upto)
