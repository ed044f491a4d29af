"""Where a key lives: 256 slots, fixed for ever, and the versioned table that maps slots to shards.

The slot of a key never changes [docs/ARCHITECTURE.md, homes]; which shard serves a slot is a property of the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

SLOTS = 256


def slot_of(key: bytes) -> int:
    """The slot of a UTF-8 key: the first byte of its 8-byte blake2b digest.  slot_of(b"client-1") == 239."""
    return blake2b(key, digest_size=8).digest()[0]


@dataclass(frozen=True, slots=True)
class SlotTable:
    """slot -> shard index; the version grows with every change of the table."""

    version: int
    shards: tuple[int, ...]

    @classmethod
    def initial(cls, n_shards: int) -> SlotTable:
        return cls(1, tuple(slot % n_shards for slot in range(SLOTS)))

    def shard_of(self, key: bytes) -> int:
        return self.shards[slot_of(key)]
