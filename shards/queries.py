"""What a shard is asked without being changed: the questions of gateways and session actors, and what it tells them.

They travel in the Query and Result frames of shards.frames, where everybody finds them too.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Place(NamedTuple):
    """How far a subscription has read one shard: constant size, whatever the number of streams.

    horizon 0: everything with position <= cut has been read.  horizon > 0 (a sweep, stream by stream): streams before
    (generation, static) are read up to the horizon, this one up to `position`, those behind it up to `cut`.
    """

    cut: int
    horizon: int = 0
    generation: int = 0
    static: bytes = b""
    position: int = 0


class Segment(NamedTuple):
    """Messages that become one range.  Reading (filter, streams, after, upto, merged) again gives the same messages.

    merged: in position order over the streams; else stream by stream in the listed order.
    """

    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    merged: bool
    positions: list[int]
    values: list[bytes]


class Load(NamedTuple):
    """All rows of a session."""

    client: bytes


class Loaded(NamedTuple):
    """session_id 0: there is none.  rows: (family, suffix, value)."""

    conn: int
    session_id: int
    watermark: int
    rows: list[tuple[bytes, bytes, bytes]]


class Poll(NamedTuple):
    """The next messages of one filter from a place on, committed ones only.  renew_ms: streams matched longer ago are matched anew."""

    filter: bytes
    place: Place
    count_max: int
    bytes_max: int
    renew_ms: int = 30_000


class Polled(NamedTuple):
    """place: where to go on.  at_head: everything committed when the shard answered has been read."""

    place: Place
    segments: list[Segment]
    at_head: bool


class ReadRange(NamedTuple):
    """The messages of a range again."""

    filter: bytes
    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    merged: bool


class RangeRead(NamedTuple):
    """lost: a generation of the range was dropped; then there are no messages."""

    lost: bool
    positions: list[int]
    values: list[bytes]


class RetainedPage(NamedTuple):
    """Retained messages of this home that match the filter, in topic order, after a topic (exclusive)."""

    filter: bytes
    after: bytes
    count_max: int


class RetainedMessages(NamedTuple):
    """next_after: empty when there is no more, else what to ask with.  values: stored messages."""

    values: list[bytes]
    next_after: bytes


class RoutesOf(NamedTuple):
    """Routes of this shard that belong to subscriptions at home in shard `home`, in the order of their ids, after one."""

    home: int
    after: int
    count_max: int


class RoutesFound(NamedTuple):
    """(sub id, client) of each; fewer than asked for: these are the last."""

    routes: list[tuple[int, bytes]]


class Unknown(NamedTuple):
    """Which of these (sub id, client), all at home here, have neither a subscription nor work left?  They never will again."""

    routes: list[tuple[int, bytes]]


class UnknownFound(NamedTuple):
    routes: list[tuple[int, bytes]]


Ask: TypeAlias = Load | Poll | ReadRange | RetainedPage | RoutesOf | Unknown
Told: TypeAlias = Loaded | Polled | RangeRead | RetainedMessages | RoutesFound | UnknownFound
