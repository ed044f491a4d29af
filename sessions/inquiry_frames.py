"""What a gateway and a session actor are asked for people, and what they tell (docs/inquiry.md).

These travel on a link of their own, from a command or the admin side, which is no gateway: nothing of it is numbered, and whoever gets
no answer asks again or says so.  The stored side of the same questions is shards.queries.Rows.

    to gateways          ConnectionsOf, SubscriptionsOf, Kick
    to session actors    SessionsOf, PlacesOf, SubscriptionsOf, Move

Holds: no question is about more than CLIENTS_MAX clients, and no answer has more than ROWS_MAX rows, whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from sessions.framing import framing
from shards.queries import Place

CLIENTS_MAX = 100
ROWS_MAX = 1000


class ConnectionsOf(NamedTuple):
    """Which of these clients are connected to this gateway, and how?"""

    id: int
    clients: list[bytes]


class OpenConnection(NamedTuple):
    """One that has its CONNACK.  how: in which way it was found who the user is.  since_ms: how long ago the CONNACK was.

    session_id 0: an ephemeral session.  subscriptions, inflight, queued: of an ephemeral session; others are known by the session actor.
    unanswered: messages of this publisher that its home has not answered.  congested: the client does not read what was written to it.
    """

    client: bytes
    conn: int
    session_id: int
    user: str
    how: str
    peer: str
    listener: str
    protocol: int
    keep_alive_s: int
    since_ms: int
    expiry_s: int
    receive_max: int
    subscriptions: int
    inflight: int
    queued: int
    unanswered: int
    congested: bool


class ConnectionsTold(NamedTuple):
    """Those that are here, in the order of the question."""

    id: int
    rows: list[OpenConnection]


class SessionsOf(NamedTuple):
    """What of the sessions of these clients is in the memory of this session actor?"""

    id: int
    clients: list[bytes]


class LoadedSession(NamedTuple):
    """memory: it is one in memory; else a cache of a durable one.  conn 0: no connection is attached.

    behind: subscriptions, once for each shard, that are not at the head; -1: not counted, there are too many.  waiting: messages that were
    given to it and are not sent yet.  inflight: sent and not finished.  held_bytes: of what waits and what is in flight, of one in memory.
    """

    client: bytes
    session_id: int
    memory: bool
    conn: int
    subscriptions: int
    behind: int
    waiting: int
    inflight: int
    held_bytes: int


class SessionsTold(NamedTuple):
    id: int
    rows: list[LoadedSession]


class PlacesOf(NamedTuple):
    """How far has this durable session read, where it is not at the head?  skip: rows that are known already."""

    id: int
    client: bytes
    skip: int
    count_max: int


class PlacesTold(NamedTuple):
    """rows: (sub id, shard, place).  whole: these are the last ones.  known False: the session is not in memory, its rows say it."""

    id: int
    known: bool
    rows: list[tuple[int, int, Place]]
    whole: bool


class SubscriptionsOf(NamedTuple):
    """What have these clients subscribed to that is here and in no row: those of ephemeral sessions, and of sessions in memory."""

    id: int
    clients: list[bytes]
    skip: int
    count_max: int


class SubscriptionsTold(NamedTuple):
    """rows: (client, filter, granted qos, options as in shards.rows.SubscriptionRow, identifier).  whole: these are the last ones."""

    id: int
    rows: list[tuple[bytes, bytes, int, int, int]]
    whole: bool


class Kick(NamedTuple):
    """Disconnect these clients, with 0x98 where the version has a word for it.  Their sessions stay, and their wills come."""

    id: int
    clients: list[bytes]


class Kicked(NamedTuple):
    """Those that were connected here."""

    id: int
    clients: list[bytes]


SKIP, REWIND, PURGE = 0, 1, 2
UNMOVED = -1


class Move(NamedTuple):
    """Move the places of a durable session, of all its subscriptions or of the one with this filter (docs/session-tools.md).

    to: for each shard the position up to which everything counts as read, UNMOVED to leave it.  by: who wants it, for the log.
    """

    id: int
    client: bytes
    session_id: int
    verb: int
    filter: bytes
    to: list[int]
    by: str


MOVE_DONE, MOVE_NO_SESSION, MOVE_NO_SUBSCRIPTION, MOVE_ELSEWHERE, MOVE_BUSY, MOVE_LATE = range(6)
"""LATE: not in time; it may be done all the same, and doing it again does no harm."""


class Moved(NamedTuple):
    """moved: places.  closed: messages that the session had been given, and gets no more under their numbers.  Committed, when DONE."""

    id: int
    code: int
    moved: int = 0
    closed: int = 0


Ask: TypeAlias = ConnectionsOf | SessionsOf | PlacesOf | SubscriptionsOf | Kick | Move
Told: TypeAlias = ConnectionsTold | SessionsTold | PlacesTold | SubscriptionsTold | Kicked | Moved
Frame: TypeAlias = Ask | Told
_decode: Callable[[bytes | memoryview], Frame]
encode: Callable[[Frame], bytes]
encode, _decode = framing(
    ConnectionsOf, ConnectionsTold, SessionsOf, SessionsTold, PlacesOf, PlacesTold, SubscriptionsOf, SubscriptionsTold, Kick, Kicked,
    Move, Moved,
)  # fmt: skip


def decode(data: bytes | memoryview) -> Frame:
    """Raises ValueError for anything that is not a frame of this link."""
    frame = _decode(data)
    try:
        if isinstance(frame, Move) and not (frame.verb in (SKIP, REWIND, PURGE) and all(isinstance(one, int) for one in frame.to)):
            raise ValueError(f"a move to {frame.to} by {frame.verb}")
        if isinstance(frame, ConnectionsOf | SessionsOf | SubscriptionsOf | Kick) and len(frame.clients) > CLIENTS_MAX:
            raise ValueError(f"a question about {len(frame.clients)} clients, at most {CLIENTS_MAX} are allowed")
    except (TypeError, ValueError) as error:
        raise ValueError(f"not a frame of this link: {error}") from None
    return frame


def decode_ask(data: bytes | memoryview) -> Ask:
    """Raises ValueError for anything that is not a question."""
    frame = decode(data)
    if not isinstance(frame, Ask):
        raise ValueError(f"not a frame of this link: {type(frame).__name__} is an answer")
    return frame


def decode_told(data: bytes | memoryview) -> Told:
    """Raises ValueError for anything that is not an answer."""
    frame = decode(data)
    if not isinstance(frame, Told):
        raise ValueError(f"not a frame of this link: {type(frame).__name__} is a question")
    return frame
