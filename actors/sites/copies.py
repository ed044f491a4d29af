"""What the replicas of this site say of themselves: one small file in the run directory for each, written by the shard processes.

It is for people, and to hear of a new leader without the register.  Nothing safe rests on it.

    replica-SHARD.json      an object with the fields of CopyStatus; others are ignored
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from shards.replication.configuration import Rid, site_of

PATTERN: Final = "replica-*.json"


@dataclass(frozen=True, slots=True)
class CopyStatus:
    """role: follower, leader.  epoch, leader: as it knows them.  last, commit, applied: places of its log.  behind: of a leader, entries
    that each other replica has not acknowledged, by rid.  last_epoch: of its last entry.  drained: its site gives away what it leads; the
    site process says so."""

    shard: int
    rid: str
    role: str
    epoch: int
    leader: str
    last: int = 0
    commit: int = 0
    applied: int = 0
    behind: Mapping[str, int] = field(default_factory=dict)
    last_epoch: int = 0
    drained: bool = False

    @property
    def site(self) -> str:
        return site_of(Rid(self.rid))

    def row(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(row: Any) -> CopyStatus | None:
        """None: it is none."""
        try:
            behind = row.get("behind") or {}
            return CopyStatus(
                int(row["shard"]), str(row["rid"]), str(row["role"]), int(row["epoch"]), str(row["leader"] or ""),
                int(row.get("last", 0)), int(row.get("commit", 0)), int(row.get("applied", 0)),
                {str(rid): int(entries) for rid, entries in behind.items()} if isinstance(behind, dict) else {},
                int(row.get("last_epoch", 0)),
                row.get("drained") is True,
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def read_copies(run_dir: Path) -> list[CopyStatus]:
    """One that is just being replaced, or is of another version, is left out."""
    found = []
    for path in sorted(run_dir.glob(PATTERN)):
        try:
            status = CopyStatus.of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
        if status is not None:
            found.append(status)
    return found
