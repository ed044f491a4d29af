"""Messages as keys and values: one by one, or a batch of messages that one record has of one stream.

Formats (docs/formats.md, "Generation, layout record_batch"); numbers in keys big-endian, in values little-endian:

    varying levels   static[8] | position u64                      -> 0x11 | crc u32 | message
    none             static[8] | position u64 | 0x11 | crc u32     -> message
                     static[8] | last position u64 | 0x21 | crc u32 -> batch (batched.batch)

0x11 and 0x21 are kind and version. Messages of a stream with varying levels are looked up by position, so nothing may follow it in their
keys. All others are only scanned, and with the checksum in the key the value is the message as it came, which need not be copied.

The checksum is zlib's crc32 of the value (of the message, where it is in the value), begun with a number made of static key and
position (``begun``), so that a value under a wrong key is found out, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from zlib import crc32

import numpy as np
import numpy.typing as npt

from shards.bulk import Positions
from shards.engine import StoreDamaged
from shards.layouts.batched.batch import Batch, packed, unpacked

SINGLE = 0x11
BATCH = 0x21

_SINGLE = Struct("<BI")
SINGLE_HEADER_BYTES = _SINGLE.size

PRIME = 4_294_967_291
"""The largest below 2**32: no flipped bit of a position leaves its rest by this as it was."""

pack_single = _SINGLE.pack
_unpack_single = _SINGLE.unpack_from
pack_position = Struct(">Q").pack
unpack_position = Struct(">Q").unpack_from
POSITION_AT = 8
pack_tail = Struct(">QBI").pack
"""(position, kind, checksum): what follows the static key where no level varies."""
unpack_tail = Struct(">QBI").unpack_from
_VARYING_KEY_BYTES = 16
KIND_AT = 16
KEY_BYTES = 21
_TAIL = np.dtype([("static", "S8"), ("position", ">u8"), ("kind", "u1"), ("crc", ">u4")])
assert _TAIL.itemsize == KEY_BYTES


class BadValue(StoreDamaged):
    """A stored value that is damaged, is under the wrong key, or is of a kind this program does not know."""


def begun(static: bytes, position: int) -> int:
    """What the checksum of a value under this key begins with."""
    return crc32(static) ^ position % PRIME


def messages_of(static: bytes, found: Iterable[tuple[bytes, bytes]]) -> list[tuple[int, bytes]]:
    """(position, message) of single values of a stream with varying levels, given by key and value."""
    messages = []
    start = crc32(static)
    for key, value in found:
        if len(value) < SINGLE_HEADER_BYTES or len(key) != _VARYING_KEY_BYTES:
            raise damaged(key, value)
        kind, crc = _unpack_single(value)
        if kind != SINGLE:
            raise unknown(key, value[:1])
        position: int = unpack_position(key, POSITION_AT)[0]
        message = value[SINGLE_HEADER_BYTES:]
        if crc32(message, start ^ position % PRIME) != crc:
            raise damaged(key, value)
        messages.append((position, message))
    return messages


def check_single(key: bytes, value: bytes) -> None:
    """Raise unless this is an undamaged single message of either form."""
    if len(key) < KEY_BYTES:
        messages_of(key[:POSITION_AT], [(key, value)])
        return
    position, kind, crc = unpack_tail(key, POSITION_AT)
    if kind != SINGLE:
        raise unknown(key, key[KIND_AT : KIND_AT + 1])
    if crc32(value, begun(key[:POSITION_AT], position)) != crc:
        raise damaged(key, value)


def unknown(key: bytes, kind: bytes) -> BadValue:
    return BadValue(f"{_where(key)}: a value of kind 0x{kind.hex()} found, this program reads {SINGLE:#04x} and {BATCH:#04x}")


def damaged(key: bytes, value: bytes) -> BadValue:
    return BadValue(f"{_where(key)}: the value of {len(value)} bytes is damaged, or belongs to another key")


def _where(key: bytes) -> str:
    return f"stream {key[:POSITION_AT].hex()}, position {int.from_bytes(key[POSITION_AT : POSITION_AT + 8], 'big')}"


def encode_single(static: bytes, position: int, message: bytes) -> tuple[bytes, bytes]:
    """(key, value) of a message of a stream without varying levels."""
    return static + pack_tail(position, SINGLE, crc32(message, begun(static, position))), message


def encode_batch(static: bytes, positions: Sequence[int], messages: Sequence[bytes]) -> tuple[bytes, bytes]:
    """(key, value) of these messages, in the order of their positions; they must be within the bounds of ``batched.batch.cut``."""
    last, value = positions[-1], packed(positions, messages)
    return static + pack_tail(last, BATCH, crc32(value, begun(static, last))), value


def open_batch(key: bytes, value: bytes) -> Batch:
    """The batch under a key whose kind says that it is one."""
    last, _, crc = unpack_tail(key, POSITION_AT)
    batch = unpacked(value, last) if crc32(value, begun(key[:POSITION_AT], last)) == crc else None
    if batch is None:
        raise damaged(key, value)
    return batch


class Checked:
    """The form of streams without varying levels (batched.scanning.Form): kind and checksum in the key."""

    def prefix(self, static: bytes) -> bytes:
        return static

    def batches(self, keys: Sequence[bytes]) -> list[int]:
        if not all(len(key) == KEY_BYTES for key in keys):
            raise damaged(next(key for key in keys if len(key) != KEY_BYTES), b"")
        found = [index for index, key in enumerate(keys) if key[KIND_AT] != SINGLE]
        for index in found:
            if keys[index][KIND_AT] != BATCH:
                raise unknown(keys[index], keys[index][KIND_AT : KIND_AT + 1])
        return found

    def opened(self, key: bytes, value: bytes) -> Batch:
        return open_batch(key, value)

    def positions(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
        start = crc32(static)
        positions = []
        for key, value in zip(keys, values, strict=True):
            position, _, crc = unpack_tail(key, POSITION_AT)
            if crc32(value, start ^ position % PRIME) != crc:
                raise damaged(key, value)
            positions.append(position)
        return positions

    def position_column(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> Positions:
        tails = np.frombuffer(b"".join(keys), _TAIL)
        positions = tails["position"].astype(np.uint64)
        check(static, positions, values, tails["crc"], keys)
        return positions


def check(static: bytes, positions: Positions, values: Sequence[bytes], crcs: npt.NDArray[np.uint32], keys: Sequence[bytes]) -> None:
    """Raise unless these messages have these checksums."""
    begun_with = (positions % np.uint64(PRIME) ^ np.uint64(crc32(static))).tolist()
    wrong = np.flatnonzero(np.fromiter(map(crc32, values, begun_with), np.uint32, len(values)) != crcs)
    if len(wrong):
        raise damaged(keys[wrong[0]], values[wrong[0]])
