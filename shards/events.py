"""Events and effects of the shard core.

The shell (actors.shard) feeds events as they happen and one `TickEnded` when it has fed everything that one turn of its
loop brought.  All that was fed since the last TickEnded becomes one record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from access.rules import Access
from shards.committer import Record
from shards.frames import Frame, Query, Result
from shards.options import ShardOptions, StoreOptions


@dataclass(frozen=True, slots=True)
class LinkUp:
    """A peer has connected and proved the secret.  role: gateway, session or shard; sender: its name and incarnation."""

    link: int
    role: str
    sender: str


@dataclass(frozen=True, slots=True)
class LinkDown:
    link: int


@dataclass(frozen=True, slots=True)
class FrameReceived:
    link: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class TickEnded:
    """elapsed_us: the shard's elapsed time, never going back.  age_ms: shards.clock.AgeClock.  wall_ms: steady time (shards.steady).

    age_suspended: an implausible jump of the wall clock is not accepted yet: nothing expires and nothing is dropped.
    """

    elapsed_us: int
    age_ms: int
    wall_ms: int
    age_suspended: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """Every record up to this position is on disk."""

    position: int


@dataclass(frozen=True, slots=True)
class SpaceChanged:
    """Room on the disk.  level 0: enough; 1: new messages are refused, everything else goes on; 2: nothing can be taken."""

    level: int


@dataclass(frozen=True, slots=True)
class QuotaChanged:
    """How much of its quota the whole store takes.  level 0: enough is left; 1: above the soft mark, leases that do not block hold
    nothing; 2: above the hard mark, new messages are refused, everything else goes on."""

    level: int


@dataclass(frozen=True, slots=True)
class ShardTold:
    """Another shard has answered AskShard.  None: the link to it is up, anew; what was asked over the one before may be lost."""

    shard: int
    result: Result | None


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Other options from now on.  store: for generations made from now on."""

    options: ShardOptions
    store: StoreOptions


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """Other rules from now on, for what was left behind before, too."""

    access: Access


Event: TypeAlias = (
    LinkUp | LinkDown | FrameReceived | TickEnded | Committed | SpaceChanged | QuotaChanged | ShardTold | SettingsChanged | AccessChanged
)


@dataclass(frozen=True, slots=True)
class Send:
    """Write this frame to the link.  May be lost with the link; the peer asks or sends again after it reconnects."""

    link: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class Submit:
    """Commit this record and report Committed(its position).  A crash before that loses it; nobody was told of it."""

    record: Record


@dataclass(frozen=True, slots=True)
class CloseLink:
    """The peer broke the rules of the link, or was replaced: close it and say why in the log."""

    link: int
    why: str


@dataclass(frozen=True, slots=True)
class SendToShard:
    """Numbered entries for another shard (retained messages on their way home); never lost: the outbox row stays."""

    shard: int
    source: int
    items: list[tuple[int, bytes, bytes, bytes | None]]


@dataclass(frozen=True, slots=True)
class AskShard:
    """A query for another shard.  May be lost with the link: ShardTold says so."""

    shard: int
    query: Query


@dataclass(frozen=True, slots=True)
class Adopted:
    """A session that had no owner, or an anonymous one, belongs to this user from now on; empty: the anonymous one.  For the log."""

    client: bytes
    user: bytes


@dataclass(frozen=True, slots=True)
class Contended:
    """Clients take this id from one another, and the newcomer has to wait.  (user, from where) of both.  For the log, and an alarm."""

    client: bytes
    there: tuple[bytes, str]
    newcomer: tuple[bytes, str]
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Peace:
    """No client is contended any more: the alarm goes."""


@dataclass(frozen=True, slots=True)
class GroupDeclared:
    """A shared group is there without members from now on; what is not empty is as it was said.  For the log."""

    filter: bytes
    said: str
    strategy: str
    by: str


@dataclass(frozen=True, slots=True)
class GroupDropped:
    """It is not declared any more; without members it has ended.  For the log."""

    filter: bytes
    members: int
    by: str


Notice: TypeAlias = Adopted | Contended | Peace | GroupDeclared | GroupDropped
Effect: TypeAlias = Send | Submit | CloseLink | SendToShard | AskShard | Notice
