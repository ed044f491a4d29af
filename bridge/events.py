"""Events and effects of the core of a bridge.

The shell (actors.bridge) owns the session at the broker, the targets of all lanes, and the clock.  It feeds events as they happen, each
with the time, and carries out what comes back in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from bridge.port import Accepted, Batch, Message, Outcome


class Delivery(NamedTuple):
    """A message as the broker has sent it, under this packet identifier, at QoS 2."""

    packet_id: int
    message: Message


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker serves the session (again): what it has not heard PUBREC of comes once more."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """epoch: as in Batch, of all of them."""

    epoch: str
    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Released:
    """PUBREL: that PUBREC arrived is committed, and the message never comes again."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Opened:
    lane: int
    accepted: Accepted | None


@dataclass(frozen=True, slots=True)
class Delivered:
    lane: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The target of a lane could not be opened, or has not taken its batch.  final: somebody has to do something."""

    lane: int
    reason: str
    retry_after_ms: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True)
class Buried:
    """The dead letter of this number is stored."""

    number: int


@dataclass(frozen=True, slots=True)
class NotBuried:
    """It was refused, as when the disk is full."""

    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A wake-up that was asked for."""


Event: TypeAlias = Connected | Arrived | Released | Opened | Delivered | Failed | Buried | NotBuried | Tick


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """PUBREC.  May be lost: what was not heard comes again."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Complete:
    """PUBCOMP.  May be lost: PUBREL comes again."""

    packet_ids: Sequence[int]


@dataclass(frozen=True, slots=True)
class Open:
    """Make the target of this lane and open it; then Opened or Failed."""

    lane: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Then Delivered or Failed."""

    lane: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class Close:
    """Close the target of this lane, before another one is opened."""

    lane: int


@dataclass(frozen=True, slots=True)
class Bury:
    """Publish a dead letter, as the message came; then Buried or NotBuried.  When the connection ends meanwhile it is said again."""

    number: int
    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Wake:
    """Tick at this time at the latest; the newest one counts."""

    at_ms: int


Effect: TypeAlias = Acknowledge | Complete | Open | Deliver | Close | Bury | Wake
