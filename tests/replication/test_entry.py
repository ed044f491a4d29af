"""Entries of a replicated log."""

from __future__ import annotations

import pytest

from shards.committer import BadRecord, Record
from shards.replication.entry import Entry, Kind, of_family


def test_a_record_is_the_payload_as_it_is() -> None:
    """Any replica applies the same ops, home rows and deletions among them, without logic."""
    record = Record(77, [(0, b"key", b"value"), (3, b"gone", None)])
    entry = Entry(5, 2, Kind.RECORD, record.encode())
    assert entry.record() == record and entry.position() == 77


def test_damage_in_a_payload_is_seen() -> None:
    """A record carries its own checksum, whatever the log does."""
    data = bytearray(Record(77, [(0, b"key", b"value")]).encode())
    data[-1] ^= 1
    with pytest.raises(BadRecord):
        Entry(5, 2, Kind.RECORD, bytes(data)).record()


def test_a_family_is_named_by_what_makes_and_drops_it() -> None:
    """And by nothing else."""
    assert of_family(4, 1, Kind.DROP, 900).family() == 900 and of_family(4, 1, Kind.MAKE, 7).payload == b"\0\0\0\7"
    with pytest.raises(AssertionError):
        Entry(1, 1, Kind.NOOP).family()


def test_the_numbers_of_kinds_are_for_ever() -> None:
    """They are on disk."""
    assert {kind.name: kind.value for kind in Kind} == {"NOOP": 0, "RECORD": 1, "MAKE": 2, "DROP": 3}
