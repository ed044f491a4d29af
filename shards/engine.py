"""The port to the ordered key-value store of one shard.

An engine keeps *families* of sorted byte keys. Family 0 always exists and holds home rows and metadata; family g >= 1 is
generation g. Family -g is the index of generation g, where its layout writes one later: it is derived from the messages, so it may be
made at any time, is not among `families`, and goes with its generation. What the keys and values mean is none of its business: layouts and
homes know that.

Two engines pass one contract suite (tests/contracts/test_engine.py): the in-memory twin for tests and the simulator, and
RocksDB.

Always holds:
1. a write is atomic over all its families and visible to reads at once, but it is only safe against a power cut after a
   ``sync`` that began after it; a killed process loses no finished write;
2. what survives a crash is a prefix of the writes, in the order in which they were made;
3. creating and dropping a family is durable when the call returns, and is not ordered with unsynced writes. So metadata
   that names a family is written after its creation, and erased *and synced* before its drop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

Op = tuple[int, bytes, bytes | None]
"""(family, key, value); a value of None deletes the key. A plain tuple because the hot path makes one per stored message."""

HOME_FAMILY = 0


def index_of(generation: int) -> int:
    """The family of its index."""
    return -generation


class StoreFailed(Exception):
    """The disk or the store refused or broke: the world's fault, never ours. Carries the text of the store or errno."""


class StoreFull(StoreFailed):
    """There was no room. Nothing of the write is there; it may succeed later, when space has been freed."""


class StoreDamaged(StoreFailed):
    """What was stored cannot be read any more: a file is missing, too short, or not what was written. Trying again does not help."""


class StoreInUse(StoreFailed):
    """Another process has this directory open."""


class FamilyMissing(LookupError):
    """A family that does not exist was named: a bug of the caller."""


class Cursor(Protocol):
    """A position in the sorted keys of one family between two bounds. For use within one call: it does not outlive the next write."""

    def seek(self, key: bytes) -> None:
        """Move to the first key >= ``key``."""

    def next(self) -> None:
        """Move to the following key. Only when valid."""

    def valid(self) -> bool: ...

    def key(self) -> bytes: ...

    def value(self) -> bytes: ...


Apart: TypeAlias = tuple[list[bytes], list[bytes], int]
"""Keys, as many values, and how many bytes these are together."""
Entries: TypeAlias = tuple[list[bytes], list[bytes], list[int]]
"""Keys, as many values, and how long these are; never none."""


class Engine(Protocol):
    def families(self) -> list[int]:
        """All families but indexes, sorted; 0 is always among them."""

    def has_family(self, family: int) -> bool: ...

    def create_family(self, family: int) -> None:
        """Make an empty family, durable on return. It must not exist; of an index, its generation must."""

    def drop_family(self, family: int) -> None:
        """Remove a family and all its data, durable on return, and its index before it. Never family 0."""

    def write(self, ops: Sequence[Op]) -> None:
        """Apply all ops, later ones over earlier ones. Atomic, unsynced, visible at once. On StoreFailed nothing was applied."""

    def sync(self) -> None:
        """Return when everything written before the call is on disk. Blocks; only the one sync thread calls it.

        After StoreFailed nobody knows what is on disk, and asking the same file again would get a false yes: the process ends.
        """

    def get(self, family: int, key: bytes) -> bytes | None: ...

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of ``keys``, in their order."""

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        """Entries with start <= key < end in key order: at most ``limit``, and none after the one with which the values
        together reach ``bytes_max`` bytes. So at least one entry is returned when there is one and limit > 0."""

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        """As ``scan``, keys and values apart. For families to which entries are only added, each behind those that are there: of several
        calls with the same end, each beginning behind where the one before it ended, all may go by what was there at the first until that
        is through.  goes_on: few entries, and yet most likely the first of several such calls, as those are large."""

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        """As ``scan``, keys and values apart, and some of them at a time: whoever joins each before the next comes keeps no object for
        each entry. To be read to its end at once: what is written meanwhile may be in it or not."""

    def cursor(self, family: int, lower: bytes, upper: bytes) -> Cursor:
        """A cursor over lower <= key < upper; not valid before its first seek."""

    def latest_sequence(self) -> int:
        """Counts what was written: it grows with every write that has ops, by how much is the engine's affair, and never goes back while
        the engine is open. A read-only view of the same files that says at least this number shows everything written before."""

    def checkpoint(self, path: str) -> None:
        """Make a consistent copy at ``path``, which must not exist. It contains at least everything written before the call."""

    def size_bytes(self) -> int:
        """What the store takes on disk, roughly."""

    def family_bytes(self, family: int) -> int:
        """What one family takes with its index, roughly: on disk, and what of it is not there yet. Less than was written, where that
        compresses."""

    def close(self) -> None:
        """Release the files. Does not sync: a clean shutdown syncs first."""
