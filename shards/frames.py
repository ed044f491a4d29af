"""What travels on a link to a shard: frames, the entries of numbered frames, their answers, queries, the feed.

A frame is a msgpack array whose first element is its kind.  Numbered frames carry entries; the shard makes all entries of
a frame part of one record and answers the frame, entry by entry, once the record is committed.  Queries change nothing,
carry an id of the asker and may be asked again after a reconnect.  Everything here is a NamedTuple, so that msgpack packs
it as an array without a copy; byte strings are UTF-8 where MQTT has strings.

Who sends what:

    gateway  -> shard    Request(Publish, Release, Connect, Disconnect, Check)      Beat, Query(RetainedPage)
    session  -> shard    Request(Own, Commit, Route, WorkDone)                      Beat, FeedWant, FeedTaken,
                                                                                    Query(Load, Poll, ReadRange, RetainedPage,
                                                                                          RoutesOf, Unknown)
    shard    -> shard    Request(Retain)                                            Beat, Query(Unread)
    reader, admin -> shard    Request(LeasePut, LeaseAck, LeaseDrop)                Beat, Query(Leases, RetentionState)
    shard    -> all      Answer, Refused, Result;  to gateways Superseded;  to session actors Feed, Work;  to both Live

The link layer below (actors.links) authenticates both ends and tells the shard the sender's role, name and incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgpack

from shards.queries import (
    Ask,
    Gone,
    Leases,
    LeasesFound,
    Load,
    Loaded,
    Place,
    Poll,
    Polled,
    RangeRead,
    ReadRange,
    RetainedMessages,
    RetainedPage,
    RetentionFound,
    RetentionState,
    RoutesFound,
    RoutesOf,
    Segment,
    Told,
    Unknown,
    UnknownFound,
    Unread,
    UnreadFound,
    told_fields,
)

# Those of another module that are found here too.
__all__ = [
    "Ask", "Gone", "Leases", "LeasesFound", "Load", "Loaded", "Place", "Poll", "Polled", "RangeRead", "ReadRange", "RetainedMessages",
    "RetainedPage", "RetentionFound", "RetentionState", "RoutesFound", "RoutesOf", "Segment", "Told", "Unknown", "UnknownFound", "Unread",
    "UnreadFound",
]  # fmt: skip

# ------------------------------------------------------------------ frame kinds
REQUEST, ANSWER, REFUSED, QUERY, RESULT, BEAT, SUPERSEDED, LIVE, FEED_WANT, FEED, FEED_TAKEN, WORK = range(1, 13)

FRAMES_UNANSWERED_MAX = 64
"""A sender has at most this many numbered frames without an answer; a shard keeps as many answers per sender."""


# ------------------------------------------------------------------ entries of numbered frames
class Publish(NamedTuple):
    """Messages of one connection in the order they were received.  Columns of equal length.

    flags: low nibble of each PUBLISH's first byte (DUP 8, QoS 2|4, RETAIN 1), and shards.persistence.NOT_STORED for a message
    that no durable session gets from the store.  packet_ids: 0 at QoS 0.
    bodies: property length, properties, payload (MQTT 5 form, without topic alias).
    QoS 0 messages are here only to be retained (or stored under store_qos0).
    keep_ids: the publisher's session outlives the connection, so its QoS 2 ids are rows of its home.
    """

    client: bytes
    conn: int
    keep_ids: bool
    published_at_ms: int
    flags: bytes
    packet_ids: list[int]
    topics: list[bytes]
    bodies: list[bytes]


STORED, NOBODY, REPEATED, REFUSED_QUOTA = 0, 1, 2, 3


class Published(NamedTuple):
    """stale: the connection is not the client's newest, nothing was taken.  codes: one of STORED, NOBODY, REPEATED,
    REFUSED_QUOTA per message; empty when all are STORED."""

    stale: bool
    codes: bytes


class Release(NamedTuple):
    """PUBREL of incoming QoS 2 messages whose ids are rows of the home."""

    client: bytes
    conn: int
    packet_ids: list[int]


class Released(NamedTuple):
    """found: one byte per packet id, 1 when the id was known."""

    stale: bool
    found: bytes


class Will(NamedTuple):
    """The will of a connection; delay in seconds; body in MQTT 5 form without the delay property."""

    topic: bytes
    qos: int
    retain: bool
    delay_s: int
    body: bytes


class Connect(NamedTuple):
    """A client connects: takes the next connection number, fences the older connection, makes or resumes the session.

    expiry_s 0 = ephemeral, EXPIRY_NEVER = never.  will: a Will as a plain sequence, or None.
    memory: a session that is made now lives in the memory of its session actor; one that is there stays what it is.
    """

    client: bytes
    clean_start: bool
    expiry_s: int
    protocol: int
    will: Sequence[Any] | None
    memory: bool = False


class Connected(NamedTuple):
    """conn 0: the home is still erasing a former session of the client; nothing is connected, ask again.

    session_id 0: ephemeral.  present: the session existed before.  memory: 0 for a durable session, else the owner token
    of the session actor that has it in memory, as in rows.SessionRow.  owner: the newest owner token that the home has given:
    an actor with an older one was replaced, and may not know it."""

    conn: int
    present: bool
    session_id: int
    memory: int = 0
    owner: int = 0


NORMAL, WITH_WILL, LOST = 0, 1, 2


class Disconnect(NamedTuple):
    """The connection is over.  how: NORMAL (no will), WITH_WILL, LOST.  expiry_s: a new session expiry, or None."""

    client: bytes
    conn: int
    how: int
    expiry_s: int | None


class Disconnected(NamedTuple):
    stale: bool


class Check(NamedTuple):
    """After a reconnect of the link: which of these connections are still the newest of their clients?"""

    connections: list[tuple[bytes, int]]


class Checked(NamedTuple):
    stale: list[int]


class Own(NamedTuple):
    """A session actor takes over the sessions of this shard: every older token is refused from now on."""


class Owned(NamedTuple):
    """token: grows with every Own.  work: unfinished subscription steps as (client, sub id, filter): each is to be
    removed from every shard and then reported with WorkDone."""

    token: int
    work: list[tuple[bytes, int, bytes]]


class Commit(NamedTuple):
    """Rows of one session, written by its owner: puts are (family, suffix, value), deletes (family, suffix).

    Refused when the token is old, the session is another one, or conn is older than one the owner has committed for (conn 0:
    not checked, for work that no connection caused).  Families: those of shards.rows that belong to session actors.
    """

    token: int
    client: bytes
    session_id: int
    conn: int
    puts: list[tuple[bytes, bytes, bytes]]
    deletes: list[tuple[bytes, bytes]]


TAKEN, OLD_TOKEN, NO_SESSION, OLD_CONN = 0, 1, 2, 3


class CommitDone(NamedTuple):
    """code: TAKEN, OLD_TOKEN, NO_SESSION or OLD_CONN; only with TAKEN were the rows written."""

    code: int


class Route(NamedTuple):
    """Durable routes of this shard: (sub id, filter).  Repeats change nothing; a removal names the id it removes.

    clients: whose subscription each added one is, by which a sweep finds routes of which nobody knows.
    fences: (home, owner token) of who removes what an older owner had begun: that one adds no more (shards.fences).
    """

    add: list[tuple[int, bytes]]
    remove: list[tuple[int, bytes]]
    clients: Sequence[bytes] = ()
    fences: Sequence[tuple[int, int]] = ()


class Routed(NamedTuple):
    """Every matching message of this shard with a greater position is stored for the added subscriptions."""

    position: int


class WorkDone(NamedTuple):
    """The routes of these (client, sub id) are gone from every shard: their work rows can go."""

    token: int
    done: list[tuple[bytes, int]]


class WorkTaken(NamedTuple):
    code: int


class Retain(NamedTuple):
    """Retained messages whose topics live here, from the publisher's shard, in its log order.

    items: (position at the source, topic, stored message, or empty bytes to delete).
    """

    source: int
    items: list[tuple[int, bytes, bytes]]


class Retained(NamedTuple):
    applied: int


START_EARLIEST, START_LATEST = -2, -1


class LeasePut(NamedTuple):
    """Make a lease, or renew it: then its place stays, and everything else is as it is said here.

    start: where a new one begins: START_EARLIEST, START_LATEST, or the position up to which its reader has everything.
    filters: what is stored for it even when nobody else wants it.  The others as in shards.leases.LeaseRow.
    """

    name: bytes
    ttl_ms: int
    max_age_ms: int
    max_bytes: int
    block: bool
    filters: list[bytes]
    start: int


class LeaseAck(NamedTuple):
    """The reader of this lease has taken everything up to here; a place only grows."""

    name: bytes
    position: int


class LeaseDrop(NamedTuple):
    """The lease holds nothing any more."""

    name: bytes


LeaseEntry: TypeAlias = LeasePut | LeaseAck | LeaseDrop
LEASE_TAKEN, LEASE_UNKNOWN, LEASES_FULL, LEASE_FORBIDDEN, LEASE_SENSELESS = 0, 1, 2, 3, 4


class LeaseDone(NamedTuple):
    """code: LEASE_TAKEN, LEASE_UNKNOWN (no such lease), LEASES_FULL (there are as many as may be), LEASE_FORBIDDEN (not for this
    role) or LEASE_SENSELESS (values that cannot be).  position: its place, with LEASE_TAKEN."""

    code: int
    position: int


Entry: TypeAlias = Publish | Release | Connect | Disconnect | Check | Own | Commit | Route | WorkDone | Retain | LeaseEntry
Reply: TypeAlias = (
    Published | Released | Connected | Disconnected | Checked | Owned | CommitDone | Routed | WorkTaken | Retained | LeaseDone
)

_ENTRIES: tuple[type[Any], ...] = (
    Publish, Release, Connect, Disconnect, Check, Own, Commit, Route, WorkDone, Retain, LeasePut, LeaseAck, LeaseDrop,
)  # fmt: skip
_REPLIES: tuple[type[Any], ...] = (
    Published, Released, Connected, Disconnected, Checked, Owned, CommitDone, Routed, WorkTaken, Retained, LeaseDone,
)  # fmt: skip
_ENTRY_CODE = {kind: code for code, kind in enumerate(_ENTRIES)}
_REPLY_CODE = {kind: code for code, kind in enumerate(_REPLIES)}


# ------------------------------------------------------------------ frames
class Request(NamedTuple):
    """Numbered per (sender incarnation, shard), from 1, without gaps."""

    number: int
    entries: list[Entry]


class Answer(NamedTuple):
    number: int
    replies: list[Reply]


class Refused(NamedTuple):
    """The frame and all behind it were not taken and used no number (disk full): send them again after retry_ms."""

    number: int
    retry_ms: int


class Beat(NamedTuple):
    """The sender lives.  Any frame counts as one; this one is sent when there is nothing else to say."""


class Superseded(NamedTuple):
    """These connections of this gateway are not the newest of their clients any more: close them (0x8E)."""

    connections: list[tuple[bytes, int]]


class Live(NamedTuple):
    """A message that entered in the shard (a will): each gateway and session actor hands it to its own live subscribers only."""

    publisher: bytes
    flags: int
    topic: bytes
    body: bytes


class FeedWant(NamedTuple):
    """Filters this session actor's feed must cover from now on, or no longer.  version counts the frames from 1."""

    version: int
    add: list[bytes]
    remove: list[bytes]


class Feed(NamedTuple):
    """Every committed stored message with after < position <= upto that matches the wanted filters (version or newer).

    streams: distinct (generation, static key); stream_of[i] is the index of message i's stream in it.
    A feed whose `after` is greater than the last `upto` has a hole: whoever stands in it polls.
    """

    version: int
    after: int
    upto: int
    streams: list[tuple[int, bytes]]
    stream_of: list[int]
    positions: list[int]
    values: list[bytes]


class FeedTaken(NamedTuple):
    """Everything up to here was taken: credit for the shard to send more."""

    upto: int


class Work(NamedTuple):
    """Sessions ended: remove these (client, sub id, filter) from every shard, then WorkDone."""

    work: list[tuple[bytes, int, bytes]]


# ------------------------------------------------------------------ queries, whose questions and answers are in shards.queries
class Query(NamedTuple):
    id: int
    ask: Ask


class Result(NamedTuple):
    """told None: the shard could not answer (a bad query), or not yet (a poll behind the cut-off, shards.reading); the asker treats
    it as the world's fault, and asks again later."""

    id: int
    told: Told | None


Frame: TypeAlias = Request | Answer | Refused | Query | Result | Beat | Superseded | Live | FeedWant | Feed | FeedTaken | Work

_ASKS: tuple[type[Any], ...] = (Load, Poll, ReadRange, RetainedPage, RoutesOf, Unknown, Unread, Leases, RetentionState)
_TELLS: tuple[type[Any], ...] = (
    Loaded, Polled, RangeRead, RetainedMessages, RoutesFound, UnknownFound, UnreadFound, LeasesFound, RetentionFound,
)  # fmt: skip
_ASK_CODE = {kind: code for code, kind in enumerate(_ASKS)}
_TELL_CODE = {kind: code for code, kind in enumerate(_TELLS)}
_FIELDS_OF_A_LOSS = {_TELL_CODE[kind]: len(kind._fields) for kind in (Polled, RangeRead)}
_PLAIN: dict[int, type[Any]] = {
    REFUSED: Refused, BEAT: Beat, SUPERSEDED: Superseded, LIVE: Live, FEED_WANT: FeedWant,
    FEED: Feed, FEED_TAKEN: FeedTaken, WORK: Work,
}  # fmt: skip
_PLAIN_CODE = {kind: code for code, kind in _PLAIN.items()}

_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack


def encode(frame: Frame) -> bytes:
    """The bytes of one frame (without its length, which is the link's)."""
    code = _PLAIN_CODE.get(type(frame))
    if code is not None:
        return bytes(_pack((code, *frame)))
    match frame:
        case Request(number, entries):
            return bytes(_pack((REQUEST, number, encode_entries(entries))))
        case Answer(number, replies):
            return bytes(_pack((ANSWER, number, encode_replies(replies))))
        case Query(id, ask):
            return bytes(_pack((QUERY, id, _ASK_CODE[type(ask)], tuple(ask))))
        case Result(id, None):
            return bytes(_pack((RESULT, id, -1, ())))
        case Result(id, told):
            assert told is not None
            return bytes(_pack((RESULT, id, _TELL_CODE[type(told)], told_fields(told))))
    raise TypeError(f"{type(frame).__name__} is not a frame")


def encode_entries(entries: Iterable[Entry]) -> list[tuple[Any, ...]]:
    return [(_ENTRY_CODE[type(entry)], *entry) for entry in entries]


def encode_replies(replies: Iterable[Reply]) -> list[tuple[Any, ...]]:
    return [(_REPLY_CODE[type(reply)], *reply) for reply in replies]


def decode_replies(rows: Iterable[Sequence[Any]]) -> list[Reply]:
    return [_REPLIES[row[0]](*row[1:]) for row in rows]


def decode(data: bytes | memoryview) -> Frame:
    """The frame of these bytes.  Raises ValueError for anything that is not one: then the link is closed."""
    try:
        row = msgpack.unpackb(data, raw=False, use_list=True, strict_map_key=False)
        kind = row[0]
        if kind == REQUEST:
            return Request(row[1], [_ENTRIES[entry[0]](*entry[1:]) for entry in row[2]])
        if kind == ANSWER:
            return Answer(row[1], decode_replies(row[2]))
        if kind == QUERY:
            return Query(row[1], _decode_ask(row[2], row[3]))
        if kind == RESULT:
            return Result(row[1], None if row[2] < 0 else _decode_told(row[2], row[3]))
        frame: Frame = _PLAIN[kind](*row[1:])
        return frame
    except (msgpack.UnpackException, TypeError, IndexError, KeyError, ValueError) as error:
        raise ValueError(f"not a frame of this link: {error}") from None


def _decode_ask(code: int, fields: list[Any]) -> Ask:
    if code == _ASK_CODE[Poll]:
        fields[1] = Place(*fields[1])
    ask: Ask = _ASKS[code](*fields)
    return ask


def _decode_told(code: int, fields: list[Any]) -> Told:
    if code == _TELL_CODE[Polled]:
        fields[0] = Place(*fields[0])
        fields[1] = [Segment(*segment) for segment in fields[1]]
    if len(fields) == _FIELDS_OF_A_LOSS.get(code):
        fields[-1] = [Gone(*gone) for gone in fields[-1]]
    elif code == _TELL_CODE[UnreadFound]:
        fields[0] = [(client, topic_filter, Place(*place)) for client, topic_filter, place in fields[0]]
    told: Told = _TELLS[code](*fields)
    return told
