"""What travels on a link to a shard: frames, the entries of numbered frames, their answers, queries, the feed.

A frame is a msgpack array whose first element is its kind.  Numbered frames carry entries; the shard makes all entries of
a frame part of one record and answers the frame, entry by entry, once the record is committed.  Queries change nothing,
carry an id of the asker and may be asked again after a reconnect.  Everything here is a NamedTuple, so that msgpack packs
it as an array without a copy; byte strings are UTF-8 where MQTT has strings.

Who sends what:

    gateway  -> shard    Request(Publish, Delay, Release, Connect, Disconnect, Check)   Beat, Query(RetainedPage, Holdings)
    session  -> shard    Request(Own, Commit, Route, WorkDone, Join, Begin, Open,   Beat, FeedWant, FeedTaken,
                                 Give, TakeBack, Settle)                            Query(Load, Poll, ReadRange, RetainedPage,
                                                                                          RoutesOf, Unknown, Groups, Rewound)
    shard    -> shard    Request(Retain)                                            Beat, Query(Unread)
    reader, admin -> shard    Request(LeasePut, LeaseAck, LeaseDrop, Append)        Beat, Query(Leases, RetentionState, Cut, Rows)
    admin  -> shard      Request(Disconnect) with DESTROYED, Request(Declare, Drop)    Query(GroupRows)
    shard    -> all      Answer, Refused, Result;  to gateways Superseded;  to session actors Feed, Work, Given, GroupNews,
                         GroupMade;  to both Live

The link layer below (actors.links) authenticates both ends and tells the shard the sender's role, name and incarnation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgpack

from shards.entries import (
    APPEND_FORBIDDEN,
    APPEND_FULL,
    APPEND_REPEATED,
    APPEND_SENSELESS,
    APPEND_TAKEN,
    DESTROYED,
    EARLIEST,
    ENTRIES,
    GROUP_BEGUN,
    GROUP_FORBIDDEN,
    GROUP_HAS_MEMBERS,
    GROUP_OTHERWISE,
    GROUP_SENSELESS,
    GROUP_TAKEN,
    GROUP_UNKNOWN,
    GROUPS_FULL,
    LATEST,
    LEASE_FORBIDDEN,
    LEASE_SENSELESS,
    LEASE_TAKEN,
    LEASE_UNKNOWN,
    LEASES_FULL,
    LOST,
    NO_END,
    NO_SESSION,
    NOBODY,
    NORMAL,
    NOT_PERMITTED,
    OLD_CONN,
    OLD_TOKEN,
    PLACE,
    REFUSED_QUOTA,
    REFUSED_RULES,
    REPEATED,
    REPLIES,
    START_EARLIEST,
    START_LATEST,
    STEADY,
    STORED,
    TAKEN,
    WALL,
    WITH_WILL,
    Append,
    Appended,
    Begin,
    Check,
    Checked,
    Commit,
    CommitDone,
    Connect,
    Connected,
    Declare,
    Declared,
    Delay,
    Disconnect,
    Disconnected,
    Drop,
    Dropped,
    Entry,
    Give,
    GroupEntry,
    GroupTaken,
    HomeOfGroupEntry,
    Join,
    Joined,
    LeaseAck,
    LeaseDone,
    LeaseDrop,
    LeaseEntry,
    LeasePut,
    Open,
    Own,
    Owned,
    Publish,
    Published,
    Release,
    Released,
    Replay,
    Replayed,
    Reply,
    Retain,
    Retained,
    Route,
    Routed,
    Settle,
    TakeBack,
    Will,
    WorkDone,
    WorkTaken,
)
from shards.queries import (
    Ask,
    Cut,
    CutFound,
    Gone,
    GroupFound,
    GroupRows,
    GroupRowsFound,
    Groups,
    GroupsFound,
    Holdings,
    HoldingsFound,
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
    Rewound,
    RewoundNoted,
    RoutesFound,
    RoutesOf,
    Rows,
    RowsFound,
    Segment,
    Told,
    Unknown,
    UnknownFound,
    Unread,
    UnreadFound,
    told_fields,
)
from shards.shapes import maker

# Those of another module that are found here too.
__all__ = [
    "APPEND_FORBIDDEN", "APPEND_FULL", "APPEND_REPEATED", "APPEND_SENSELESS", "APPEND_TAKEN", "Append", "Appended", "Ask", "Begin", "Check",
    "Checked", "Commit", "CommitDone", "Connect", "Connected", "Cut", "CutFound", "DESTROYED", "Declare", "Declared", "Delay", "Disconnect",
    "Disconnected", "Drop", "Dropped", "EARLIEST", "Entry", "GROUPS_FULL", "GROUP_BEGUN", "GROUP_FORBIDDEN", "GROUP_HAS_MEMBERS",
    "GROUP_OTHERWISE", "GROUP_SENSELESS", "GROUP_TAKEN", "GROUP_UNKNOWN", "Give", "Gone", "GroupEntry", "GroupFound", "GroupRows",
    "GroupRowsFound", "GroupTaken", "Groups", "GroupsFound", "Holdings", "HoldingsFound", "HomeOfGroupEntry", "Join",
    "Joined", "LATEST", "LEASES_FULL", "LEASE_FORBIDDEN", "LEASE_SENSELESS", "LEASE_TAKEN", "LEASE_UNKNOWN", "LOST", "LeaseAck",
    "LeaseDone", "LeaseDrop", "LeaseEntry", "LeasePut", "Leases", "LeasesFound", "Load", "Loaded", "NOBODY", "NORMAL", "NOT_PERMITTED",
    "NO_END", "NO_SESSION", "OLD_CONN", "OLD_TOKEN", "Open", "Own", "Owned", "PLACE", "Place", "Poll", "Polled", "Publish", "Published",
    "REFUSED_QUOTA", "REFUSED_RULES", "REPEATED", "REPLIES", "RangeRead", "ReadRange", "Release", "Released", "Replay", "Replayed",
    "Reply", "Retain", "Retained", "RetainedMessages", "RetainedPage", "RetentionFound", "RetentionState", "Rewound", "RewoundNoted",
    "Route", "Routed", "RoutesFound", "RoutesOf", "Rows", "RowsFound", "START_EARLIEST", "START_LATEST", "STEADY", "STORED", "Segment",
    "Settle", "TAKEN", "TakeBack", "Told", "Unknown", "UnknownFound", "Unread", "UnreadFound", "WALL", "WITH_WILL", "Will", "WorkDone",
    "WorkTaken",
]  # fmt: skip

# ------------------------------------------------------------------ frame kinds
REQUEST, ANSWER, REFUSED, QUERY, RESULT, BEAT, SUPERSEDED, LIVE, FEED_WANT, FEED, FEED_TAKEN, WORK = range(1, 13)
GIVEN, GROUP_NEWS, GROUP_MADE = range(13, 16)

FRAMES_UNANSWERED_MAX = 64
"""A sender has at most this many numbered frames without an answer; a shard keeps as many answers per sender."""


# ------------------------------------------------------------------ entries of numbered frames, which are in shards.entries
_ENTRY_CODE = {kind: code for code, kind in enumerate(ENTRIES)}
_REPLY_CODE = {kind: code for code, kind in enumerate(REPLIES)}


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
    """A message that entered in the shard (a will, or one of a writer): each gateway and session actor hands it to its own live
    subscribers only."""

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
    """Sessions ended: remove these (client, sub id, filter) from every shard, then WorkDone.

    owner: the newest owner token that the shard has given; whoever has an older one was replaced, and may not know it.  left: who has
    that one is not linked any more, so whoever is told is to ask for the next.
    """

    work: list[tuple[bytes, int, bytes]]
    owner: int = 0
    left: bool = False


class Given(NamedTuple):
    """For the owner of the sessions here: a member of a shared group was given these messages.  Its rows say so too."""

    client: bytes
    group: int
    filter: bytes
    numbers: list[int]
    values: list[bytes]


GONE, AWAY, FULL = 0, 1, 2
"""In place of the number of a connection, which is higher.  FULL: it is connected, and its home takes nothing more for it now."""
IS_GIVEN, IS_SETTLED, IS_BACK = 1, 2, 3


class GroupNews(NamedTuple):
    """For whoever has opened a group: what has changed here, in the order in which it happened.

    serial: of the Open that it follows.  whole: it begins with all there is.  members: (client, its connection number, AWAY, FULL or GONE).
    deliveries: (client, number, IS_GIVEN, IS_SETTLED: nobody else may have it, or IS_BACK: it is with that client no more).
    """

    group: int
    serial: int
    whole: bool
    members: list[tuple[bytes, int]]
    deliveries: list[tuple[bytes, int, int]]


class GroupMade(NamedTuple):
    """For the owner of the sessions here: a shared group at home here is new, or not what it was.  As queries.GroupFound."""

    filter: bytes
    group: int
    session_id: int
    strategy: str = ""
    begun: bool = True
    lays: Sequence[int] = ()


# ------------------------------------------------------------------ queries, whose questions and answers are in shards.queries
class Query(NamedTuple):
    id: int
    ask: Ask


class Result(NamedTuple):
    """told None: the shard could not answer (a bad query), or not yet (a poll behind the cut-off, shards.reading); the asker treats
    it as the world's fault, and asks again later."""

    id: int
    told: Told | None


Frame: TypeAlias = (
    Request | Answer | Refused | Query | Result | Beat | Superseded | Live | FeedWant | Feed | FeedTaken | Work | Given | GroupNews
    | GroupMade
)  # fmt: skip

_ASKS: tuple[type[Any], ...] = (
    Load, Poll, ReadRange, RetainedPage, RoutesOf, Unknown, Unread, Leases, RetentionState, Cut, Holdings, Rows, Rewound, Groups,
    GroupRows,
)  # fmt: skip
_TELLS: tuple[type[Any], ...] = (
    Loaded, Polled, RangeRead, RetainedMessages, RoutesFound, UnknownFound, UnreadFound, LeasesFound, RetentionFound, CutFound,
    HoldingsFound, RowsFound, RewoundNoted, GroupsFound, GroupRowsFound,
)  # fmt: skip
_ASK_CODE = {kind: code for code, kind in enumerate(_ASKS)}
_TELL_CODE = {kind: code for code, kind in enumerate(_TELLS)}
_PLAIN: dict[int, type[Any]] = {
    REFUSED: Refused, BEAT: Beat, SUPERSEDED: Superseded, LIVE: Live, FEED_WANT: FeedWant,
    FEED: Feed, FEED_TAKEN: FeedTaken, WORK: Work, GIVEN: Given, GROUP_NEWS: GroupNews, GROUP_MADE: GroupMade,
}  # fmt: skip
_PLAIN_CODE = {kind: code for code, kind in _PLAIN.items()}

_make_entry = [maker(kind) for kind in ENTRIES]
_make_reply = [maker(kind) for kind in REPLIES]
_make_ask = [maker(kind) for kind in _ASKS]
_make_told = [maker(kind) for kind in _TELLS]
_make_plain = {code: maker(kind) for code, kind in _PLAIN.items()}

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
    return [_make_reply[row[0]](row[1:]) for row in rows]


def decode(data: bytes | memoryview) -> Frame:
    """The frame of these bytes.  Raises ValueError for anything that is not one: then the link is closed."""
    try:
        row = msgpack.unpackb(data, raw=False, use_list=True, strict_map_key=False)
        kind = row[0]
        if kind == REQUEST:
            return Request(row[1], [_make_entry[entry[0]](entry[1:]) for entry in row[2]])
        if kind == ANSWER:
            return Answer(row[1], decode_replies(row[2]))
        if kind == QUERY:
            return Query(row[1], _make_ask[row[2]](row[3]))
        if kind == RESULT:
            return Result(row[1], None if row[2] < 0 else _make_told[row[2]](row[3]))
        frame: Frame = _make_plain[kind](row[1:])
        return frame
    except (msgpack.UnpackException, TypeError, IndexError, KeyError, ValueError) as error:
        raise ValueError(f"not a frame of this link: {error}") from None
