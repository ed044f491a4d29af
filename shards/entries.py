"""What numbered frames carry: the entries that are taken in order and once, and the reply to each.

They travel in the Request and Answer frames of shards.frames, where everybody finds them too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias


class Publish(NamedTuple):
    """Messages of one connection in the order they were received.  Columns of equal length.

    flags: low nibble of each PUBLISH's first byte (DUP 8, QoS 2|4, RETAIN 1), shards.persistence.NOT_STORED for a message
    that no durable session gets from the store, PERSIST for one that is stored for nobody too, and NOT_PERMITTED.  packet_ids: 0 at QoS 0.
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


NOT_PERMITTED = 0x20
"""In the flags of a QoS 2 message that the rules refuse, and whose identifier only the home may know from a former connection: it is
REPEATED there, or REFUSED_RULES, and never taken."""

STORED, NOBODY, REPEATED, REFUSED_QUOTA, REFUSED_RULES = 0, 1, 2, 3, 4


class Published(NamedTuple):
    """stale: the connection is not the client's newest, nothing was taken.  codes: one of STORED, NOBODY, REPEATED,
    REFUSED_QUOTA, REFUSED_RULES per message; empty when all are STORED."""

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
    user, identity: who connects, by name and as access.identity packs it; nothing is the anonymous one.  peer: from where, for people.
    adopt: a session of the anonymous one becomes this user's.
    """

    client: bytes
    clean_start: bool
    expiry_s: int
    protocol: int
    will: Sequence[Any] | None
    memory: bool = False
    user: bytes = b""
    identity: bytes = b""
    peer: str = ""
    adopt: bool = False


class Connected(NamedTuple):
    """conn 0: the home is still erasing a former session of the client; nothing is connected, ask again.  Unless refused says why this
    client does not get a connection (a reason code of CONNACK), or retry_ms that it is to ask again after this time, because others
    take the client from one another; then nothing has changed.

    session_id 0: ephemeral.  present: the session existed before.  memory: 0 for a durable session, else the owner token
    of the session actor that has it in memory, as in rows.SessionRow.  owner: the newest owner token that the home has given:
    an actor with an older one was replaced, and may not know it."""

    conn: int
    present: bool
    session_id: int
    memory: int = 0
    owner: int = 0
    refused: int = 0
    retry_ms: int = 0


NORMAL, WITH_WILL, LOST, DESTROYED = 0, 1, 2, 3


class Disconnect(NamedTuple):
    """The connection is over.  how: NORMAL (no will), WITH_WILL, LOST.  expiry_s: a new session expiry, or None.

    DESTROYED: somebody who may wants the session to end, at once and with everything it has, whether its client is connected or not; conn
    is its session id.  Asking twice does no harm: the second time there is none with this id."""

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
    removed from every shard and then reported with WorkDone.  groups: shared groups at home here, as in queries.GroupsFound."""

    token: int
    work: list[tuple[bytes, int, bytes]]
    groups: Sequence[Sequence[Any]] = ()


class Letter(NamedTuple):
    """A message that a client never acknowledged, for the topic of dead letters; body in MQTT 5 form."""

    topic: bytes
    qos: int
    body: bytes


class Commit(NamedTuple):
    """Rows of one session, written by its owner: puts are (family, suffix, value), deletes (family, suffix).

    Refused when the token is old, the session is another one, or conn is older than one the owner has committed for (conn 0:
    not checked, for work that no connection caused).  Families: those of shards.rows that belong to session actors.
    letters: each a Letter as a plain sequence; they enter the log in the same record, and are stored whether somebody wants them or not.
    """

    token: int
    client: bytes
    session_id: int
    conn: int
    puts: list[tuple[bytes, bytes, bytes]]
    deletes: list[tuple[bytes, bytes]]
    letters: Sequence[Sequence[Any]] = ()


TAKEN, OLD_TOKEN, NO_SESSION, OLD_CONN = 0, 1, 2, 3


class CommitDone(NamedTuple):
    """code: TAKEN, OLD_TOKEN, NO_SESSION or OLD_CONN; only with TAKEN were the rows written."""

    code: int


NO_END, LATEST, EARLIEST, WALL, STEADY, PLACE = range(6)
"""What a replay begins with, or ends before: the moment of its Route; what is the oldest; a time of the wall clock, or steady time, in
milliseconds; a position up to which everything is known."""


class Replay(NamedTuple):
    """An added subscription, by its number in `add`, wants messages from before it.  until: only those, up to there."""

    number: int
    since: int
    since_value: int
    until: int = NO_END
    until_value: int = 0


class Replayed(NamedTuple):
    """after < position <= upto and since_ms <= published at < until_ms (0: not asked) is what a replay wants of this shard.

    kept_since_ms: something of it was dropped, and what was published from this time of the wall clock on was not; 0: nothing was."""

    after: int
    upto: int
    since_ms: int
    until_ms: int
    kept_since_ms: int


class Route(NamedTuple):
    """Durable routes of this shard: (sub id, filter).  Repeats change nothing; a removal names the id it removes.

    clients: whose subscription each added one is, by which a sweep finds routes of which nobody knows.
    fences: (home, owner token) of who removes what an older owner had begun: that one adds no more (shards.fences).
    replays: a Replay of each added one that begins in the past.  owners: (number in `add`, owner token of who adds it), of those whose id
    does not say that: groups that were declared.
    """

    add: list[tuple[int, bytes]]
    remove: list[tuple[int, bytes]]
    clients: Sequence[bytes] = ()
    fences: Sequence[tuple[int, int]] = ()
    replays: Sequence[Sequence[int]] = ()
    owners: Sequence[tuple[int, int]] = ()


class Routed(NamedTuple):
    """Every matching message of this shard with a greater position is stored for the added subscriptions.  replays: a Replayed of each
    Replay."""

    position: int
    replays: Sequence[Sequence[int]] = ()


class WorkDone(NamedTuple):
    """The routes of these (client, sub id) are gone from every shard: their work rows can go."""

    token: int
    done: list[tuple[bytes, int]]


class WorkTaken(NamedTuple):
    code: int


class Retain(NamedTuple):
    """Retained messages whose topics live here, from the publisher's shard, in its log order.

    items: (position at the source, topic, stored message, or empty bytes to delete, who has published it as shards.sources has it).
    """

    source: int
    items: list[tuple[int, bytes, bytes, bytes | None]]


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


class Append(NamedTuple):
    """Messages of a writer that is no client, taken once and all or none of them.  Columns of equal length.

    (batch, block): which part of what the writer writes this is; only one that is above the last that was taken is taken.
    published_at_ms: steady time, 0 for the shard's now; never later than that.  clients: whose messages they are, all at home here.
    flags, bodies: as in Publish; a DUP flag means nothing.  identity: who is responsible for them, as access.identity packs it; None:
    somebody who may do everything.
    """

    writer: bytes
    batch: int
    block: int
    published_at_ms: int
    clients: list[bytes]
    flags: bytes
    topics: list[bytes]
    bodies: list[bytes]
    identity: bytes | None = None


APPEND_TAKEN, APPEND_REPEATED, APPEND_FORBIDDEN, APPEND_FULL, APPEND_SENSELESS = 0, 1, 2, 3, 4


class Appended(NamedTuple):
    """code: APPEND_TAKEN, APPEND_REPEATED (it was taken before), APPEND_FORBIDDEN (not for this role), APPEND_FULL (too many writers, no
    room on the disk, or the quota: the same may be sent again later) or APPEND_SENSELESS (columns of unequal length, what is no topic name,
    client id or body, or a client that is at home elsewhere).  stored: how many of them somebody wanted, with APPEND_TAKEN."""

    code: int
    stored: int


class Delay(NamedTuple):
    """Messages of one connection that enter so many seconds later (shards.delayed); columns as in Publish, answered by a Published.

    topics: those behind the delays.  What is STORED waits in the store."""

    client: bytes
    conn: int
    keep_ids: bool
    flags: bytes
    packet_ids: list[int]
    seconds: list[int]
    topics: list[bytes]
    bodies: list[bytes]


class Join(NamedTuple):
    """A subscription becomes a member of the shared group that is at home here.  The first one makes the group, and it begins at these
    positions, (shard, position).  Removing the route of the subscription, anywhere in shards.frames.Route, ends the membership."""

    filter: bytes
    sub_id: int
    starts: Sequence[tuple[int, int]]


class Joined(NamedTuple):
    """code: TAKEN, or OLD_TOKEN: whoever made the subscription was replaced."""

    code: int


class Declare(NamedTuple):
    """Somebody wants a shared group at home here, with members or without (shards.groups).

    since, since_value: where it begins, as in Replay: LATEST, EARLIEST or WALL.  said: the same in people's words, by which it is known
    whether a later one says the same.  strategy: empty: as it is configured.  by: who wants it, for the log.
    """

    filter: bytes
    since: int
    since_value: int
    said: str
    strategy: str
    by: str


GROUP_TAKEN, GROUP_OTHERWISE, GROUP_BEGUN, GROUPS_FULL, GROUP_UNKNOWN, GROUP_HAS_MEMBERS, GROUP_FORBIDDEN, GROUP_SENSELESS = range(8)


class Declared(NamedTuple):
    """code: GROUP_TAKEN, also when it was declared like that before; GROUP_OTHERWISE (it is declared with other words), GROUP_BEGUN (its
    members have begun it, and it cannot begin in the past any more), GROUPS_FULL (there are as many as may be), GROUP_FORBIDDEN (not for
    this role) or GROUP_SENSELESS (values that cannot be).  group, said, strategy: of the one that there is, if there is one."""

    code: int
    group: int = 0
    said: str = ""
    strategy: str = ""


class Drop(NamedTuple):
    """A group is not declared any more; group: its id.  Without members it ends.  With some it is refused, unless it is to be left to them
    and to end with the last one."""

    filter: bytes
    group: int
    leave: bool
    by: str


class Dropped(NamedTuple):
    """code: GROUP_TAKEN, GROUP_UNKNOWN (none with this id is declared), GROUP_HAS_MEMBERS or GROUP_FORBIDDEN."""

    code: int
    members: int = 0


class Begin(NamedTuple):
    """The owner of a declared group's home: its own routes are in every shard, and it begins at these positions, unless it has begun.

    starts: (shard, position).  past: as in shards.rows.SubscriptionRow.  kept_ms: as Replayed.kept_since_ms, of all shards.
    """

    filter: bytes
    group: int
    token: int
    starts: Sequence[tuple[int, int]]
    past: Sequence[Any]
    kept_ms: int


class Open(NamedTuple):
    """The owner of a group's home begins to give its messages to members at home here: all there is of the group is told, and from then on
    whatever changes (frames.GroupNews, with this serial).  What comes under an older token is refused from this record on."""

    group: int
    filter: bytes
    token: int
    serial: int


class Give(NamedTuple):
    """Messages of a group to one member, as (number, stored message) columns.  The news say which of them it has: all, or none when
    conn is not its connection any more."""

    group: int
    filter: bytes
    token: int
    client: bytes
    conn: int
    numbers: list[int]
    values: list[bytes]


class TakeBack(NamedTuple):
    """What this member has of a group and has not begun at QoS 2 is taken from it, if its client is not connected."""

    group: int
    token: int
    client: bytes


class Settle(NamedTuple):
    """The home of the group has committed what became of these (client, number): they need not be remembered for it any more."""

    group: int
    token: int
    deliveries: Sequence[tuple[bytes, int]]


class GroupTaken(NamedTuple):
    """The answer to Begin, Open, Give, TakeBack and Settle.  code: TAKEN or OLD_TOKEN."""

    code: int


GroupEntry: TypeAlias = Open | Give | TakeBack | Settle
HomeOfGroupEntry: TypeAlias = Join | Declare | Drop | Begin
Entry: TypeAlias = (
    Publish | Release | Connect | Disconnect | Check | Own | Commit | Route | WorkDone | Retain | LeaseEntry | Append | Delay
    | HomeOfGroupEntry | GroupEntry
)  # fmt: skip
Reply: TypeAlias = (
    Published | Released | Connected | Disconnected | Checked | Owned | CommitDone | Routed | WorkTaken | Retained | LeaseDone | Appended
    | Joined | GroupTaken | Declared | Dropped
)  # fmt: skip

ENTRIES: tuple[type[Any], ...] = (
    Publish, Release, Connect, Disconnect, Check, Own, Commit, Route, WorkDone, Retain, LeasePut, LeaseAck, LeaseDrop, Append, Delay,
    Join, Open, Give, TakeBack, Settle, Declare, Drop, Begin,
)  # fmt: skip
REPLIES: tuple[type[Any], ...] = (
    Published, Released, Connected, Disconnected, Checked, Owned, CommitDone, Routed, WorkTaken, Retained, LeaseDone, Appended,
    Joined, GroupTaken, Declared, Dropped,
)  # fmt: skip
