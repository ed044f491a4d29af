"""Where the process of a replica may end, at each step of what it writes: exactly before it, and exactly after it.

The library of tests/faultdisk ends it with SIGKILL in the system call that makes the step, so nothing of the broker is changed, and nothing
costs anything without that library. What the step leaves is for the next process to go on from. A step of the register is one of
etcd's, or of another process: there the one that asked ends before its change is made, or when it is made and not answered.

`situation` says what brings a process there; walk.py has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.faultdisk.trace import Op

Situation = Literal[
    "a follower at work", "a leader at work", "opened again", "much is written", "a leader is followed", "behind another leader",
    "a checkpoint is made", "a checkpoint comes", "the register is changed", "a copy is erased and made", "a damaged copy",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FailPoint:
    """op, pattern: of the call (tests.faultdisk.control); op None: a change of the register.  times: at the so-manieth."""

    situation: Situation
    op: Op | None
    pattern: str
    after: bool
    times: int = 1


class NoSuchPoint(ValueError):
    """One sentence."""


def _both(words: str, situation: Situation, op: Op | None, pattern: str, times: int = 1) -> dict[str, FailPoint]:
    return {f"{when} {words}": FailPoint(situation, op, pattern, when == "after", times) for when in ("before", "after")}


SEGMENT, PROMISE, WAL = "*/log/*.seg", "*/log/promise", "*/data/*.log"
POINTS: dict[str, FailPoint] = {
    **_both("entries are written by a follower", "a follower at work", Op.WRITE, SEGMENT),
    **_both("entries are synced by a follower", "a follower at work", Op.FSYNC, SEGMENT),
    **_both("entries are applied by a follower", "a follower at work", Op.WRITE, WAL, 3),
    **_both("data are synced by a follower", "a follower at work", Op.FSYNC, WAL),
    **_both("entries are written by a leader", "a leader at work", Op.WRITE, SEGMENT, 2),
    **_both("entries are synced by a leader", "a leader at work", Op.FSYNC, SEGMENT, 2),
    **_both("entries are applied by a leader", "a leader at work", Op.WRITE, WAL, 3),
    **_both("data are synced by a leader", "a leader at work", Op.FSYNC, WAL),
    **_both("the log is written anew at the start", "opened again", Op.WRITE, SEGMENT + ".part"),
    **_both("the log is synced at the start", "opened again", Op.FSYNC, SEGMENT + ".part"),
    **_both("the log takes its place at the start", "opened again", Op.RENAME, SEGMENT),
    **_both("the next segment is written", "much is written", Op.WRITE, SEGMENT + ".part"),
    **_both("the next segment is synced", "much is written", Op.FSYNC, SEGMENT + ".part"),
    **_both("the next segment has its name", "much is written", Op.RENAME, SEGMENT),
    **_both("a segment is trimmed", "much is written", Op.UNLINK, SEGMENT),
    **_both("a promise is written", "a leader is followed", Op.WRITE, PROMISE + ".part"),
    **_both("a promise is synced", "a leader is followed", Op.FSYNC, PROMISE + ".part"),
    **_both("a promise has its name", "a leader is followed", Op.RENAME, PROMISE),
    **_both("the register is changed", "the register is changed", None, ""),
    **_both("a truncation is written", "behind another leader", Op.WRITE, SEGMENT),
    **_both("a truncation is synced", "behind another leader", Op.FSYNC, SEGMENT),
    **_both("a file of a checkpoint is linked", "a checkpoint is made", Op.LINK, "*/sent-*"),
    **_both("a checkpoint has its name", "a checkpoint is made", Op.RENAME, "*/sent-*"),
    **_both("a part of a checkpoint is written", "a checkpoint comes", Op.WRITE, "*/new.tmp/*"),
    **_both("a part of a checkpoint is synced", "a checkpoint comes", Op.FSYNC, "*/new.tmp/*"),
    **_both("a checkpoint is what this copy has", "a checkpoint comes", Op.RENAME, "*/0/new"),
    **_both("the former data are put aside", "a checkpoint comes", Op.RENAME, "*/0/old.tmp"),
    **_both("a checkpoint is the data", "a checkpoint comes", Op.RENAME, "*/0/data"),
    **_both("the former data are erased", "a checkpoint comes", Op.UNLINK, "*/0/old.tmp/*"),
    **_both("a log behind a checkpoint has its name", "a checkpoint comes", Op.RENAME, SEGMENT),
    **_both("the log before a checkpoint is unlinked", "a checkpoint comes", Op.UNLINK, SEGMENT),
    **_both("the log of a dismissed copy is erased", "a copy is erased and made", Op.UNLINK, "*/log/*"),
    **_both("the data of a dismissed copy are erased", "a copy is erased and made", Op.UNLINK, "*/0/data/IDENTITY"),
    **_both("the log of a new copy has its name", "a copy is erased and made", Op.RENAME, SEGMENT),
    **_both("the first promise of a copy has its name", "a copy is erased and made", Op.RENAME, PROMISE),
    **_both("the log of a damaged copy is put aside", "a damaged copy", Op.RENAME, "*/damaged/log"),
    **_both("the data of a damaged copy are put aside", "a damaged copy", Op.RENAME, "*/damaged/data"),
}


def chosen(names: Sequence[str]) -> dict[str, FailPoint]:
    """In the order of the table.  Raises NoSuchPoint."""
    unknown = [name for name in names if name not in POINTS]
    if unknown:
        raise NoSuchPoint(f"no point is called {', '.join(map(repr, unknown))}; there are: {', '.join(POINTS)}")
    return {name: point for name, point in POINTS.items() if name in names}
