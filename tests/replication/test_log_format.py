"""The bytes of the replicated log are those of docs/formats.md."""

from __future__ import annotations

from pathlib import Path

from shards.replication.entry import Entry, Kind
from shards.replication.log_format import BATCH_HEAD_BYTES, ENTRY_HEAD_BYTES, SEGMENT_HEAD_BYTES, SegmentHead, unpack_segment_head
from shards.replication.promise import Promise, read_promise
from tests.replication.logs import RID, found, make, put, segments

GOLDEN = Path(__file__).parent.parent / "golden" / "replicated_log"
ENTRIES = [
    [Entry(1, 1, Kind.NOOP)],
    [Entry(2, 1, Kind.RECORD, b"two"), Entry(3, 1, Kind.MAKE, b"\0\0\0\7")],
    [Entry(3, 2, Kind.RECORD, b"other")],
]


def test_a_log_is_written_as_it_always_was(tmp_path: Path) -> None:
    """Byte by byte; a change of these is a new version."""
    log = make(tmp_path / "log")
    for entries in ENTRIES:
        put(log, entries)
    log.promise(5)
    log.sync()
    log.close()
    assert segments(tmp_path / "log")[0].read_bytes().hex() == (GOLDEN / "segment.hex").read_text().replace("\n", "")
    assert (tmp_path / "log" / "promise").read_bytes().hex() == (GOLDEN / "promise.hex").read_text().strip()


def test_a_log_of_then_is_read(tmp_path: Path) -> None:
    """Entries, epochs and promise of the golden files."""
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{1:016d}.seg").write_bytes(bytes.fromhex((GOLDEN / "segment.hex").read_text()))
    (tmp_path / "log" / "promise").write_bytes(bytes.fromhex((GOLDEN / "promise.hex").read_text()))
    assert read_promise(str(tmp_path / "log")) == Promise(5, RID, None)
    assert found(tmp_path / "log") == (1, 0, [*ENTRIES[0], ENTRIES[1][0], *ENTRIES[2]])


def test_the_head_of_a_segment_comes_back(tmp_path: Path) -> None:
    """With the largest numbers that its fields have."""
    head = SegmentHead(255, 2**32 - 1, 2**63, True, 2**64 - 1, 2**64 - 2, 2**64 - 3)
    assert unpack_segment_head(head.pack()) == head
    assert (SEGMENT_HEAD_BYTES, BATCH_HEAD_BYTES, ENTRY_HEAD_BYTES) == (52, 56, 28)
