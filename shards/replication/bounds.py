"""Every bound of replication: docs/replication.md, "Bounds", says what happens when one is reached.

Times are of the shell's steady clock, in ms. None of them is needed for anything to be right.
"""

from __future__ import annotations

from dataclasses import dataclass

HEARTBEAT_MS = 200
ACK_MS = 2_000
FAILOVER_MS = 2_000
RANK_MS = 300
ELIGIBLE_MS = 4_000
REGISTER_MS = 1_000
LOOK_MS = 5_000
"""How often a leader looks whether the register says something new: another target, or that it leads no more."""
WINDOW_APPENDS = 8
APPEND_BYTES = 96 * 1024
APPEND_ENTRIES = 1024
RESEND_MS = 1_000
UNCOMMITTED_BYTES_MAX = 64 << 20
APPLY_BYTES_MAX = 4 << 20
APPLY_ENTRIES_MAX = 4096
CHUNK_BYTES = 1 << 20
TRANSFER_IDLE_MS = 30_000
FILES_MAX = 65_536
"""Of one checkpoint; an offer of more is not taken."""
LEARNERS_MAX = 1
LEARNER_MS = 5_000
"""A learner that has not asked for so long is not sent anything any more."""


@dataclass(frozen=True, slots=True)
class Retained:
    """How much log is kept for who is behind, and how often the data engine is synced, so that the log can go at all. Whichever of two
    comes first."""

    entries: int = 65_536
    bytes: int = 64 << 20
    sync_data_ms: int = 60_000
    sync_data_bytes: int = 64 << 20


RETAINED = Retained()
