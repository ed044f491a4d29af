"""What must be in the rows of a session before it leaves is in the rows (PROTOCOLS 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sessions.frames import Deliver, Frame, SendPubrel
from shards.rows import PROGRESS, RANGE, ProgressRow, RangeRow, unpack_as

Rows = Mapping[tuple[bytes, bytes], bytes]


def check_committed(frame: Frame, rows_of: Callable[[int], Rows]) -> None:
    """A QoS 2 PUBLISH has its range and its mark, a PUBREL its PUBREC.  Rows are empty for a session that has ended."""
    if isinstance(frame, SendPubrel):
        if not frame.found:
            return
        progress = _progress(rows_of(frame.conn))
        if progress is not None:
            known = {number & 0x7FFF for number in progress.received2 if number > 0}
            assert all(packet_id & 0x7FFF in known for packet_id in frame.packet_ids), f"{frame} is not committed"
    elif isinstance(frame, Deliver):
        for conn, _, packet_ids, firsts, _ in frame.to:
            qos2 = [packet_id for packet_id, first in zip(packet_ids, firsts, strict=True) if first & 4]
            rows = rows_of(conn)
            progress = _progress(rows)
            if not qos2 or progress is None:
                continue
            ranges = [unpack_as(RangeRow, value) for (family, _), value in rows.items() if family == RANGE]
            for packet_id in qos2:
                number = progress.committed2 + 1 + (packet_id - 0x8000 - progress.committed2 - 1) % 0x8000
                assert number <= progress.sent2 < progress.next2, f"PUBLISH {packet_id} is not committed as sent"
                assert any(row.first2 <= number < row.first2 + row.count2 for row in ranges), f"no row has {packet_id}"


def _progress(rows: Rows) -> ProgressRow | None:
    row = rows.get((PROGRESS, b""))
    return unpack_as(ProgressRow, row) if row else None
