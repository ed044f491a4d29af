"""The form of pagestream: stored messages and batches as they are, under keys that tell them apart by their length.

    static[8] | 0 u16 | position u64             -> stored message
    static[8] | 0 u16 | last position u64 | 21   -> batch

RocksDB has a checksum for each of its blocks; there is none beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shards.bulk import Positions, position_list, positions_in
from shards.engine import StoreDamaged
from shards.layouts.batched.batch import Batch, unpacked
from shards.layouts.by_position import DATA, KEY_BYTES, POSITION_AT

BATCH_KIND: Final = b"\x21"
"""And version."""
_SINGLES_ONLY = {KEY_BYTES}


class Plain:
    """batched.scanning.Form."""

    def prefix(self, static: bytes) -> bytes:
        return static + DATA

    def batches(self, keys: Sequence[bytes]) -> list[int]:
        if set(map(len, keys)) == _SINGLES_ONLY:
            return []
        return [index for index, key in enumerate(keys) if key[KEY_BYTES:] == BATCH_KIND]

    def opened(self, key: bytes, value: bytes) -> Batch:
        batch = unpacked(value, int.from_bytes(key[POSITION_AT:KEY_BYTES], "big"))
        if batch is None:
            raise StoreDamaged(f"the value of {len(value)} bytes under {key.hex()} is no batch of messages that end at its position")
        return batch

    def positions(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> list[int]:
        return position_list(keys, KEY_BYTES, POSITION_AT)

    def position_column(self, static: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> Positions:
        return positions_in(keys, KEY_BYTES, POSITION_AT)
