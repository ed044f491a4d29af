"""What a shard is asked without being changed: the questions of gateways and session actors, and what it tells them.

They travel in the Query and Result frames of shards.frames, where everybody finds them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias


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

    merged: in position order over the streams; else stream by stream in the listed order, so many messages of each (`counts`).
    """

    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    merged: bool
    positions: list[int]
    values: list[bytes]
    counts: Sequence[int] = ()


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


class Gone(NamedTuple):
    """Messages with after < position <= upto of a generation cannot be read any more; whether any of them would have matched, nobody
    knows.  generation 0: of generations that are not remembered singly any more.

    The wall clocks say when they may have been published, for people; 0: not known.  reason: shards.dropped.Dropped.
    """

    generation: int
    klass: str
    after: int
    upto: int
    from_wall_ms: int
    to_wall_ms: int
    reason: str


class Polled(NamedTuple):
    """place: where to go on.  at_head: everything committed when the shard answered has been read.

    gone: what the place has moved over without reading it.  Told once, by the poll that moves over it.
    """

    place: Place
    segments: list[Segment]
    at_head: bool
    gone: Sequence[Gone] = ()


class ReadRange(NamedTuple):
    """The messages of a range again."""

    filter: bytes
    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    merged: bool


class RangeRead(NamedTuple):
    """lost: some of the range cannot be read any more.  Then `gone` says of which generations, the first `before` messages are the
    first of the range, and the others are its last ones; nobody knows which number is that of a message between two gaps."""

    lost: bool
    positions: list[int]
    values: list[bytes]
    before: int = 0
    gone: Sequence[Gone] = ()


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


class Unread(NamedTuple):
    """From one shard to another: which sessions at home there have not acknowledged all of a generation of mine?

    until: where the generation ends.  start: where to begin among the sessions, `next_start` of the answer before; empty for the
    first.  rows_max: rows to look at; those of one session are looked at together, however many they are.
    """

    shard: int
    generation: int
    until: int
    start: bytes
    rows_max: int


class UnreadFound(NamedTuple):
    """behind: (client, filter, place) of subscriptions that have not read up to the end; whether there is something for them in the
    generation, its own shard knows.  holding: clients with messages of it that were assigned and are not acknowledged, or with a
    subscription that is just being made.  next_start: empty when these were the last sessions."""

    behind: list[tuple[bytes, bytes, Place]]
    holding: list[bytes]
    next_start: bytes


class Leases(NamedTuple):
    """All leases of this shard."""


class LeasesFound(NamedTuple):
    """leases: (name, row as in shards.leases.LeaseRow).  age_ms: of the shard, by which the ages in the rows count."""

    age_ms: int
    leases: list[tuple[bytes, list[Any]]]


class RetentionState(NamedTuple):
    """Why each sealed generation is still there."""


class RetentionFound(NamedTuple):
    """generations: (number, class, since, until, ms until its time is over and negative when it is, who holds it: empty for nobody).
    quota_level: shards.events.QuotaChanged."""

    generations: list[tuple[int, str, int, int, int, str]]
    quota_level: int


class Cut(NamedTuple):
    """How far may a reader of the engine's files read (shards.cuts)?"""


class CutFound(NamedTuple):
    """watermark: everything up to here is committed, and nothing appears there any more.  sequence: a view of the engine that shows this
    sequence number shows all of it.  written: (generation, edges of its learned structure) of those that were written to at the watermark;
    a view that shows the sequence number shows at least so many edges."""

    watermark: int
    sequence: int
    written: list[tuple[int, int]]


class Holdings(NamedTuple):
    """How much is at home here?"""


class HoldingsFound(NamedTuple):
    """away: sessions whose client is not connected.  expired: sessions that have, since the shard started.  messages, bytes: in the log,
    as far as somebody has counted.  retained: messages."""

    away: int
    expired: int
    messages: int
    bytes: int
    retained: int


class Groups(NamedTuple):
    """The shared groups that are at home here."""


class GroupFound(NamedTuple):
    """begun: it has positions from which it reads.  strategy: empty: as it is configured.  lays: (since, since_value), as in
    shards.entries.Replay, of a declared one whose own routes are not in every shard yet; else nothing."""

    filter: bytes
    group: int
    session_id: int
    strategy: str = ""
    begun: bool = True
    lays: Sequence[int] = ()


class GroupsFound(NamedTuple):
    """A GroupFound of each."""

    groups: Sequence[Sequence[Any]]


class GroupRows(NamedTuple):
    """Those at home here for people, in the order of their filters, from one on."""

    start: bytes
    count_max: int


class GroupRowsFound(NamedTuple):
    """rows: (filter, its row as shards.rows.GroupRow has it, how many members it has).  whole: these are the last ones.  age_ms: of the
    shard, by which ages in the rows count."""

    age_ms: int
    rows: list[tuple[bytes, bytes, int]]
    whole: bool


class Rows(NamedTuple):
    """Rows of this home as they are, for people: several ranges of keys at one moment.  ranges: (start, end, rows at most), keys in
    start <= key < end.  value_bytes_max: of each value; what is behind that is left out."""

    ranges: list[tuple[bytes, bytes, int]]
    value_bytes_max: int


class RowsFound(NamedTuple):
    """found: for each range, (key, value, bytes of the whole value) in the order of keys.  whole: for each, whether these are the last
    ones; else ask again from behind the last key.  age_ms: of the shard, by which ages in the rows count, as of a second ago at most."""

    age_ms: int
    found: list[list[tuple[bytes, bytes, int]]]
    whole: list[bool]


class Rewound(NamedTuple):
    """Some session reads again from this position on: whoever was found to want nothing of what is above it is to be asked anew."""

    position: int


class RewoundNoted(NamedTuple):
    """From now on nothing above it goes before every home has been asked."""

    position: int


Ask: TypeAlias = (
    Load | Poll | ReadRange | RetainedPage | RoutesOf | Unknown | Unread | Leases | RetentionState | Cut | Holdings | Rows | Rewound
    | Groups | GroupRows
)  # fmt: skip
Told: TypeAlias = (
    Loaded | Polled | RangeRead | RetainedMessages | RoutesFound | UnknownFound | UnreadFound | LeasesFound | RetentionFound | CutFound
    | HoldingsFound | RowsFound | RewoundNoted | GroupsFound | GroupRowsFound
)  # fmt: skip


def told_fields(told: Told) -> tuple[Any, ...]:
    """What travels: the last fields of Polled and RangeRead only when they tell of a loss."""
    if isinstance(told, Polled):
        return told if told.gone else told[:-1]
    if isinstance(told, RangeRead):
        return told if told.gone or told.before else told[:-2]
    return told
