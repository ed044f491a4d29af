"""What travels between two gateways: who has live subscribers for what, and messages for them.

Everything here lives in RAM.  A new link begins with the whole table of each side (Interest with `reset`), so a gateway
that lost a link knows nothing stale afterwards.  Forwards carry the publisher's connection number: one that is older than
the newest seen of that publisher is dropped, so a paused gateway cannot reorder (PROTOCOLS 9).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

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


Frame: TypeAlias = Interest | InterestSeen | Forward
_KINDS: tuple[type[Any], ...] = (Interest, InterestSeen, Forward)
_CODE = {kind: code for code, kind in enumerate(_KINDS)}
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(frame: Frame) -> bytes:
    return bytes(_pack((_CODE[type(frame)], *frame)))


def decode(data: bytes | memoryview) -> Frame:
    """Raises ValueError for anything that is not a frame of this link."""
    try:
        row = msgpack.unpackb(data, raw=False, use_list=True, strict_map_key=False)
        frame: Frame = _KINDS[row[0]](*row[1:])
        return frame
    except (msgpack.UnpackException, TypeError, IndexError, KeyError, ValueError) as error:
        raise ValueError(f"not a frame of this link: {error}") from None
