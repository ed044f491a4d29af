"""Entries of a shard's replicated log.

The log is the write-ahead log of the shard: what one tick of its leader produced (shards.committer.Record) is one entry, and an entry is
durable when its log is synced. The bytes of a record are the payload, unchanged, so every replica applies the same ops without logic.

Three kinds beside the record:

    NOOP    begins the time of a leader; nothing of an earlier leader commits before it does
    MAKE    a family of the engine is made; comes before every record that names it
    DROP    a family is given back; comes after the record that erased its row has committed

Always holds: two entries of one shard with the same index and the same epoch are the same entry, in every log, for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from shards.committer import Record

PAYLOAD_BYTES_MAX = 1 << 30
"""Four times the largest packet of MQTT. What is larger is refused by whoever makes the entry; nothing of it is stored."""
BEFORE_FIRST = 0
"""The index, and the epoch, of what comes before the first entry. The first entry has index 1; epochs of leaders begin at 1."""

_FAMILY = Struct(">I")
_POSITION = Struct("<Q")


class Kind(IntEnum):
    """Stored as one byte. A number that is not here is not read by this program."""

    NOOP = 0
    RECORD = 1
    MAKE = 2
    DROP = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """index: its place in the log, from 1, without gaps. epoch: of the leader that made it; never falls along the log."""

    index: int
    epoch: int
    kind: Kind
    payload: bytes = b""

    def record(self) -> Record:
        """Of a RECORD. Raises shards.committer.BadRecord when the bytes are damaged."""
        assert self.kind is Kind.RECORD, f"entry {self.index} is a {self.kind.name}, not a record"
        return Record.decode(self.payload)

    def position(self) -> int:
        """Of a RECORD: the highest one in it, without looking at its ops (docs/formats.md, "Record")."""
        assert self.kind is Kind.RECORD, f"entry {self.index} is a {self.kind.name}, and has no position"
        return int(_POSITION.unpack_from(self.payload, 8)[0])

    def family(self) -> int:
        """Of a MAKE or a DROP."""
        assert self.kind in (Kind.MAKE, Kind.DROP), f"entry {self.index} is a {self.kind.name}, and names no family"
        return int(_FAMILY.unpack(self.payload)[0])


def of_family(index: int, epoch: int, kind: Kind, family: int) -> Entry:
    """A MAKE or a DROP of this family."""
    return Entry(index, epoch, kind, _FAMILY.pack(family))
