"""What says who has live subscribers for what, and brings them messages: between gateways, and between a gateway and a session
actor, which has the sessions that live in memory.

Everything here lives in RAM.  A new link begins with the whole table of the sender (Interest with `reset`), so whoever lost a
link knows nothing stale afterwards.  Forwards carry the publisher's connection number: one that is older than the newest seen
of that publisher is dropped, so a paused gateway cannot reorder (PROTOCOLS 9).
"""

from __future__ import annotations

from typing import Final, NamedTuple

HANDED_ON: Final = 0
"""In place of a connection number: a message for a group that was on its way to another member.  It has no order to keep."""


class Interest(NamedTuple):
    """Filters of live subscribers at the sender.  number: confirmed with InterestSeen.

    add_all: filters that want every message; add_qos0: filters that want only messages published at QoS 0 (durable
    sessions get the rest from the store).  reset: forget what was said before.  groups: how many members the sender has of
    each of these shared groups now, under its whole filter; 0: none any more.
    """

    number: int
    reset: bool
    add_all: list[bytes]
    add_qos0: list[bytes]
    remove_all: list[bytes]
    remove_qos0: list[bytes]
    groups: list[tuple[bytes, int]]


class InterestSeen(NamedTuple):
    number: int


class ForGroups(NamedTuple):
    """Of a message of a Forward, named by its index: the groups of which the taker has to serve one member each.

    plain: it is for the plain subscribers there as well."""

    at: int
    plain: bool
    groups: list[bytes]


class Forward(NamedTuple):
    """Messages of one publisher's connection, in order.  flags as in shards.frames.Publish, columns of equal length.

    shared: the messages that groups have to do with, in order; all others are for the plain subscribers only."""

    publisher: bytes
    conn: int
    flags: bytes
    topics: list[bytes]
    bodies: list[bytes]
    shared: list[ForGroups]
