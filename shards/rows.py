"""The rows of a home: what family 0 of a shard's engine holds besides the schema of generations.

Every key begins with one family byte.  Rows of a client are `family | u16 length | client id | suffix`, so that all rows
of one family of one client are adjacent.  Values are msgpack arrays whose first element is the version of that row kind.
docs/formats.md has the page.  Who writes:  the shard's own core (c s e i n o m R t y a f z T L A G M k l j B) or, through Commit, the
session actor that owns the sessions (u p r q w x; an ended session's are erased by the shard).

    c  connection      client                 newest connection number, gateway, whether it lives
    s  session         client                 expiry, will, creation
    e  ended           client                 the session is no more, and its other rows are being erased
    i  incoming id     client | u16 id        a QoS 2 message received and not yet released
    u  subscription    client | u64 sub id    filter, options, state, position per shard
    p  place           client | u64 sub id | u8 shard     frames.Place
    r  range           client | u64 number    what was assigned to which sequence numbers
    q  progress        client                 sequence numbers and acknowledgements
    w  work            client | u64 sub id    a route that must be removed from every shard
    v  to be copied    client | u64 sub id    retained messages that a subscription is still to get
    x  loss            client | u64 number    messages that the session will not get, because they are gone
    T  timer           u64 due age ms | kind | client     session expiry, will delay, end of a connection row
    n  numbered slot   sender | u8            one answered frame of a numbered link
    z  refused sender  sender                 an incarnation that was erased
    o  owner           -                      the owner token and who holds it
    m  meta            name                   last position, age clock, reserved connection numbers, incarnation
    R  route           u64 sub id             filter, client
    t  retained        topic                  stored message
    y  source          topic                  who has published the retained message there (shards.sources)
    a  applied         u8 shard               how far that shard's retained messages are applied here
    f  outbox          u8 shard | u64 pos     a retained message on its way to its home
    D  delayed         u64 number             a message that enters later (shards.delayed)
    L  lease           name                   what a reader makes messages wait for (shards.leases)
    A  writer          name                   what was taken last of a writer that is no client (shards.writers)
    G  group           filter                 a shared group that is at home here (shards.groups)
    M  member          u64 sub id             the filter of the group that this subscription is a member of
    k  membership      client | u64 sub id    the same, at the home of the member (shards.deliveries)
    B  bundle          u64 number             rows of many sessions as one (shards.bundles)
    l  delivery        client | u64 group | u64 number    a message of a group that this client has
    j  outcome         client | u64 group | u64 number    what became of it
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgpack

from shards.frames import Place
from shards.shapes import maker

N = TypeVar("N", bound=NamedTuple)

_maker = cache(maker)
_pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
_u16 = struct.Struct(">H")
_u64 = struct.Struct(">Q")

CONNECTION, SESSION, INCOMING, SUBSCRIPTION, PLACE, RANGE, PROGRESS, WORK = b"c", b"s", b"i", b"u", b"p", b"r", b"q", b"w"
ENDED, LOSS, TO_COPY = b"e", b"x", b"v"
TIMER, SLOT, REFUSED_SENDER, OWNER, META, ROUTE, RETAINED, APPLIED, OUTBOX = b"T", b"n", b"z", b"o", b"m", b"R", b"t", b"a", b"f"
LEASE, WRITER, SOURCE, DELAYED = b"L", b"A", b"y", b"D"
GROUP, MEMBER, MEMBERSHIP, DELIVERY, OUTCOME, BUNDLE = b"G", b"M", b"k", b"l", b"j", b"B"

COMMITTED_BY_OWNER = frozenset((SUBSCRIPTION, PLACE, RANGE, PROGRESS, WORK, LOSS, TO_COPY))
"""The families that a Commit may write.  What it says of an outcome is a wish (shards.deliveries)."""

ROW_VERSION = 1


def client_key(family: bytes, client: bytes, suffix: bytes = b"") -> bytes:
    return family + _u16.pack(len(client)) + client + suffix


def u64(value: int) -> bytes:
    return _u64.pack(value)


def read_u64(data: bytes, offset: int = 0) -> int:
    return int(_u64.unpack_from(data, offset)[0])


def successor(prefix: bytes) -> bytes:
    """The smallest key greater than every key with this prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else b"\xff" * 64


def split_client_key(key: bytes) -> tuple[bytes, bytes]:
    """(client, suffix) of a client row's key."""
    (length,) = _u16.unpack_from(key, 1)
    return key[3 : 3 + length], key[3 + length :]


def pack_row(fields: tuple[Any, ...]) -> bytes:
    return bytes(_pack((ROW_VERSION, *fields)))


def unpack_row(value: bytes) -> list[Any]:
    """The fields of a row.  Raises ValueError for a row of a newer version."""
    row = msgpack.unpackb(value, raw=False, use_list=True, strict_map_key=False)
    if row[0] != ROW_VERSION:
        raise ValueError(f"row of version {row[0]} found, {ROW_VERSION} is the newest this program reads")
    return list(row[1:])


def unpack_as(kind: type[N], value: bytes) -> N:
    """A row of this kind.  Raises ValueError or TypeError for one that is not."""
    made: N = _maker(kind)(unpack_row(value))
    return made


def pack_subscription(row: SubscriptionRow) -> bytes:
    """Only one that began in the past has the last element."""
    return pack_row(row if row.past else row[:-1])


def pack_range(row: RangeRow) -> bytes:
    """Only a range that a replay has bounded by time has the last two elements, and only that or one of which something was lost the
    one before."""
    if row.since_ms or row.until_ms:
        return pack_row(row)
    return pack_row(row[:-2] if row.lost else row[:-3])


def pack_progress(row: ProgressRow) -> bytes:
    """Only what is there is written, and what is before it: a connection, what was sent in vain, that a loss has to be told, how many there
    are."""
    if row.online:
        return pack_row(row)
    if row.again:
        return pack_row(row[:-1])
    if row.untold:
        return pack_row(row[:-2])
    return pack_row(row[:-3] if row.losses else row[:-4])


def pack_session(row: SessionRow) -> bytes:
    """Only the row of a session of which it is known whose it is has the last element, and only that or one in memory the last but one."""
    if row.user is not None:
        return pack_row(row)
    return pack_row(row[:-1] if row.memory else row[:-2])


def pack_connection(row: ConnectionRow) -> bytes:
    """Only the row of a connection of somebody who is known has the last element."""
    return pack_row(row if row.identity else row[:-1])


class ConnectionRow(NamedTuple):
    """gateway: name and incarnation of the gateway's link; ended_ms: age at which it ended, 0 while it lives.

    identity: whose it is, as access.identity packs it; once it has ended, only with a will."""

    conn: int
    gateway: str
    ended_ms: int
    ephemeral: bool
    will: list[Any] | None
    identity: bytes = b""


class SessionRow(NamedTuple):
    """session_id: the connection number that made it.  expiry_s as in frames.Connect.

    due_ms: age at which it expires when nobody comes back; 0 while connected or when it never expires.
    memory: 0 for a durable session.  Else it lives in the memory of the session actor that held this owner token (-1: nobody
    held one yet), and is gone with it: its only rows are this one and its incoming ids.
    user: whose it is, empty: the anonymous one's; None: it was made when nobody asked (shards.ownership).
    """

    session_id: int
    expiry_s: int
    protocol: int
    created_ms: int
    due_ms: int
    memory: int = 0
    user: bytes | None = None


class GroupRow(NamedTuple):
    """A shared group.  id: of its subscription, never used again.

    said: in which words its declaration says where it begins; empty: nobody has declared it.  strategy: empty: as it is configured.
    declared_ms: at which age of the shard.  begun: its subscription has positions.  lays: (since, since_value) as in shards.entries.Replay
    while its own routes may not be in every shard.  floor: (shard, position) of the first member, of one that has not begun.  kept_ms: what
    was published before is gone, though it was to begin earlier; 0: it is not.
    """

    id: int
    session_id: int
    said: str = ""
    strategy: str = ""
    declared_ms: int = 0
    begun: bool = True
    lays: tuple[int, ...] = ()
    floor: tuple[tuple[int, int], ...] = ()
    kept_ms: int = 0


def pack_group(row: GroupRow) -> bytes:
    """Only one that was declared has more than its ids."""
    return pack_row(row if row.said or row.lays else row[:2])


def unpack_group(value: bytes) -> GroupRow:
    return unpack_as(GroupRow, value)


ADDING, ACTIVE = 0, 1


class SubscriptionRow(NamedTuple):
    """One subscription of a session.  qos: granted.  options: bit 0 no local, bit 1 retain as published, bit 3 upgrade QoS, bit 4 messages
    carry their positions.

    identifier 0: none.  starts: (shard, position) from which its messages count; empty when it has no route: at QoS 0,
    unless it was made under store_qos0.  past: of a replay; whether it ends with its history, and (shard, up to which position it is
    history, since and until when it was published, 0: not asked) of each shard.
    """

    filter: bytes
    qos: int
    options: int
    identifier: int
    state: int
    starts: list[tuple[int, int]]
    past: Sequence[Any] = ()


class RangeRow(NamedTuple):
    """What was assigned: a segment of a stream (shard >= 0) or copied messages (shard -1, in `copies`).

    Self-contained: a later change or removal of the subscription does not change what a range delivers.
    first1/count1: sequence numbers on the QoS 1 track; first2/count2 on the QoS 2 track, in the order of the segment.
    lost: which of them were closed as lost: first and count on the QoS 1 track and on the QoS 2 track, four numbers for each time.
    options: as in SubscriptionRow, and bit 5: it is history of a replay.  since_ms, until_ms: what was published before, or from then on,
    is left out; 0: nothing.
    """

    sub_id: int
    filter: bytes
    qos: int
    options: int
    identifier: int
    shard: int
    merged: bool
    streams: list[tuple[int, bytes]]
    after: int
    upto: int
    first1: int
    count1: int
    first2: int
    count2: int
    copies: list[bytes]
    lost: Sequence[int] = ()
    since_ms: int = 0
    until_ms: int = 0


NOTHING_YET, BEGUN, FINISHED, ORPHANED, RETURNED, LEAVES = 0, 1, 2, 3, 4, 5
"""What became of a delivery of a shared group.  BEGUN: at QoS 2, so nobody else may have it.  FINISHED: only its group does not know yet.
ORPHANED: its group need not know.  The others are said in a Commit, and are no rows.  RETURNED: it is with this client no more.  LEAVES: at
QoS 0, and is finished by that."""


def delivery_suffix(group: int, number: int) -> bytes:
    return _u64.pack(group) + _u64.pack(number)


class ProgressRow(NamedTuple):
    """Tracks of a session.  committed: all sequence numbers <= are finished; next: first unassigned; sent: all <= were sent, or
    may have been by the time the row is read (they go out with DUP again).

    received2: QoS 2 numbers above committed2 for which PUBREC arrived (PUBREL goes out after this is committed); negative when
    the exchange is over too, and only waits for a number below it.
    next_range: the number of the next range row.  losses: how many loss rows there are.  untold: its client has lost something since
    the last CONNACK that said so.  again: of the oldest delivery of a track, its QoS, its number, and how many connections ended with it
    sent and not acknowledged; three numbers for each.  online: a connection was attached that gets messages at QoS 1; what is assigned
    after this row may be sent, too.
    """

    next_range: int
    committed1: int
    next1: int
    sent1: int
    committed2: int
    next2: int
    sent2: int
    received2: list[int]
    losses: int = 0
    untold: bool = False
    again: Sequence[int] = ()
    online: bool = False


LOSSES_PER_SESSION_MAX = 100
"""Loss rows of a session, numbered from 1.  The last one stands for everything that is lost after it, too."""
NOT_COUNTED = -1


class LossRow(NamedTuple):
    """Messages for a subscription that its session does not get any more: those of a generation with after < position <= upto.

    lost: how many, or NOT_COUNTED when they were gone before they were read, as nobody knows then how many matched.
    from_wall_ms, to_wall_ms: when they may have been published; at_wall_ms: when the session met the loss; 0: not known.
    reason: shards.dropped.Dropped, or "unlike", when a range did not read the same again.  more: losses that were added to this row
    when there was no room for others; generation, upto, times and `lost` are those of all, as far as they are in the same shard.
    """

    sub_id: int
    filter: bytes
    shard: int
    generation: int
    klass: str
    after: int
    upto: int
    lost: int
    from_wall_ms: int
    to_wall_ms: int
    at_wall_ms: int
    reason: str
    more: int = 0


def pack_place(place: Place) -> bytes:
    return pack_row(tuple(place))


def unpack_place(value: bytes) -> Place:
    return unpack_as(Place, value)
