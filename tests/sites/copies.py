"""Whether the copies of a shard are equal: of sites that have stopped, entry by entry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shards.backends import open_backend
from shards.replication.applying import applied_in
from shards.replication.entry import Entry
from shards.replication.log_opening import open_log

AT_ONCE = 1_000
BYTES = 64 << 20


def unequal(stores: Sequence[Path], shard: int) -> str | None:
    """stores: the directories of the shards of each site (`DATA/shards`).  What is wrong with the logs of this shard, in one sentence; None
    when they are equal up to where all of them were applied: what is behind that may be of a leader that nobody followed any more."""
    applied = [_applied(store / str(shard) / "data") for store in stores]
    logs = [open_log(str(store / str(shard) / "log"), shard, 1) for store in stores]
    try:
        at, upto = max(log.first for log in logs), min(applied)
        if upto < at:
            return f"shard {shard}: nothing to compare: applied {applied}, the logs begin at {[log.first for log in logs]}"
        while at <= upto:
            parts = [log.read(at, AT_ONCE, BYTES) for log in logs]
            length = min(*map(len, parts), upto + 1 - at)
            for place in range(length):
                if len({_said(part[place]) for part in parts}) > 1:
                    return f"shard {shard}: entry {at + place} is not the same in all copies"
            at += length
        return None
    finally:
        for log in logs:
            log.close()


def _applied(data: Path) -> int:
    engine = open_backend("rocksdb", str(data), "strict", 8 << 20)
    try:
        return applied_in(engine).index
    finally:
        engine.close()


def _said(entry: Entry) -> tuple[int, int, int, bytes]:
    return entry.index, entry.epoch, entry.kind.value, entry.payload
