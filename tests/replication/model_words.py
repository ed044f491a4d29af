"""The words of the model: which rules it can leave out, what copies send each other, and what a copy has in RAM and on its disk."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from shards.replication.configuration import Configuration, Rid


class Rule(Enum):
    """What may be left out. The first six are those of the model this one comes from."""

    ENOUGH_IN_SYNC = "nothing commits while fewer than min_isr are in sync"
    CAUGHT_UP_TO_JOIN = "who joins the isr has all that is committed, and the beginning of this epoch"
    PROPOSED_COUNTS = "who is proposed for the isr is waited for from before the proposal"
    ALL_IN_SYNC = "everybody in the isr has it before it commits, not just a majority"
    ONLY_IN_SYNC_LEADS = "only who is in the isr or the elr takes over"
    KEEP_WHAT_MATCHES = "a follower cuts off only what differs"
    UNKNOWN_STAYS_OPEN = "a compare-and-set of unknown outcome is settled by a newer version, never by seeing the old one"
    PROMISE_BEFORE_SPEAKING = "a leader sends nothing of its epoch before its promise is on its disk"
    SYNC_BEFORE_ACK = "a follower acknowledges what is on its disk"
    OLD_EPOCH_REFUSED = "a follower takes nothing of an epoch older than its promise"
    RESTART_TAKES_OVER = "a leader that was restarted leads again only under a new epoch"
    OWN_SYNC_COUNTS = "a leader counts itself with what is on its disk"
    COMMIT_WITHIN_SENT = "a follower commits no further than what it has compared with its leader"
    SHRINK_WHEN_KNOWN = "who is put out of the isr is waited for until the register says so"
    STAY_COMPLETE = "eligible is only who left when nothing could commit any more"
    APPLY_WHAT_IS_SYNCED = "a copy applies only what is on its own disk"


class Violation(AssertionError):
    """A promise is broken."""


class Item(NamedTuple):
    """An entry: its epoch, and what makes it different from any other of that epoch."""

    epoch: int
    value: int


class Append(NamedTuple):
    epoch: int
    before: int
    before_epoch: int
    items: tuple[Item, ...]
    commit: int


class Ack(NamedTuple):
    epoch: int
    upto: int


class Nak(NamedTuple):
    epoch: int
    hint: int


Message = Append | Ack | Nak


@dataclass(slots=True)
class Disk:
    """What a power cut leaves."""

    log: list[Item] = field(default_factory=list)
    promised: int = 0
    applied: int = 0


@dataclass(slots=True)
class Copy:
    """One copy. `stable`: so much of the log is on its disk. `open`: proposals whose outcome it does not know. `known`: those it has made.
    `waiting`: acknowledgements that leave with the next sync."""

    rid: Rid
    disk: Disk = field(default_factory=Disk)
    log: list[Item] = field(default_factory=list)
    promised: int = 0
    stable: int = 0
    commit: int = 0
    up: bool = True
    life: int = 0
    leads: bool = False
    cfg: Configuration | None = None
    begin: int = 0
    match: dict[Rid, int] = field(default_factory=dict)
    next: dict[Rid, int] = field(default_factory=dict)
    open: list[Configuration] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    waiting: list[tuple[Rid, Ack]] = field(default_factory=list)

    def epoch_at(self, place: int) -> int:
        return self.log[place - 1].epoch if place else 0

    def sync(self) -> None:
        self.disk.log = self.log.copy()
        self.stable = len(self.log)
        self.disk.promised = self.promised
