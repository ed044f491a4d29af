"""What travels between a gateway and a session actor.

The gateway owns connections, the session actor owns durable sessions.  A link that breaks ends every attachment on it at
both ends: the gateway closes those connections, the session actor detaches them.  Within one link nothing is lost or
reordered, so these frames need no answers beyond the ones below.  A frame that names a connection which is not attached
any more is dropped whole.

    gateway -> session   Attach, Subscribe, Unsubscribe, Acked, Hold, Detach
    session -> gateway   Attached, Subacked, Unsubacked, Deliver, SendPubrel, SessionClosed

Sessions in memory get their messages live.  For them the session actor is one more gateway that says what it wants, and the
frames of sessions.live_frames travel here too; it wants messages and has none of its own, but those that a member of a
shared group has left:

    gateway -> session   InterestSeen, Forward
    session -> gateway   Interest, Forward (HANDED_ON)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from sessions.framing import framing
from sessions.live_frames import Forward, Interest, InterestSeen
from shards.entries import PLACE
from shards.entries import Replay as OfShard

ROUTED = 4


class Attach(NamedTuple):
    """A connection whose home has answered Connected with this session id.  receive_max: the client's window.

    batch_size, idle_poll_ms, renew_streams_ms: sessions.options.ReadOverrides of the connection's zone.
    memory: as in Connected; the actor refuses a session that lives in the memory of another owner.  expiry_s: how long a
    session in memory outlives this connection.  owner: as in Connected.  moved: the connection is open already, and another actor had
    it, which may have sent what no row knows of.  Of that connection, packet identifiers of QoS 2: unreleased: sent, and without PUBREL;
    had_pubrel: that; refused: by a PUBREC with an error."""

    client: bytes
    conn: int
    session_id: int
    present: bool
    version: int
    receive_max: int
    memory: int = 0
    expiry_s: int = 0
    batch_size: int | None = None
    idle_poll_ms: int | None = None
    renew_streams_ms: int | None = None
    owner: int = 0
    moved: bool = False
    unreleased: Sequence[int] = ()
    had_pubrel: Sequence[int] = ()
    refused: Sequence[int] = ()


class Attached(NamedTuple):
    """The session is ready: CONNACK may go out; deliveries follow.  code 0, or an MQTT 5 reason code of failure.

    subscriptions: (filter, granted qos, options, identifier) for the gateway's live table; none of sessions in memory.  options:
    as in Subscribe, and ROUTED for one of QoS 0 that has a route all the same, because it was made under store_qos0.
    known False: it was refused because that session is not in this memory (any more), so its home has to end it.
    lost: messages were gone before the session could get them, and CONNACK has not said so yet.
    """

    conn: int
    code: int
    subscriptions: list[tuple[bytes, int, int, int]]
    known: bool = True
    lost: bool = False


class Replay(NamedTuple):
    """Where subscriptions are to begin, and end, in the words of shards.entries.Replay; since PLACE: `places`, by shard, as
    shards.queries.Place, and what was published before since_value is left out."""

    since: int
    since_value: int
    until: int
    until_value: int
    places: Sequence[Sequence[Any]] = ()

    def at(self, shard: int, index: int) -> OfShard:
        """What one shard is asked, for the added route of this index."""
        value = self.places[shard][0] if self.since == PLACE else self.since_value
        return OfShard(index, self.since, value, self.until, self.until_value)


class Subscribe(NamedTuple):
    """filters: (filter, qos, options, retain handling); options: bit 0 no local, bit 1 retain as published, and others of
    sessions.bodies.  identifier 0: none.  replay: a Replay, or nothing."""

    conn: int
    packet_id: int
    filters: list[tuple[bytes, int, int, int]]
    identifier: int
    replay: Sequence[Any] = ()


class Subacked(NamedTuple):
    """codes: one MQTT 5 reason code per filter; the granted ones are durable from their SUBACK on.

    kept_since_ms: of a replay something is gone; what was published from this time of the wall clock on is not (0: nothing is)."""

    conn: int
    packet_id: int
    codes: list[int]
    kept_since_ms: int = 0


class Unsubscribe(NamedTuple):
    conn: int
    packet_id: int
    filters: list[bytes]


class Unsubacked(NamedTuple):
    conn: int
    packet_id: int
    codes: list[int]


PUBACK, PUBREC, PUBCOMP = 4, 5, 7
"""MQTT packet types of the acknowledgements that a subscriber sends."""


class Acked(NamedTuple):
    """Acknowledgements of one connection, one kind, in order.  failed: PUBREC with an error code (delivery ends)."""

    conn: int
    kind: int
    packet_ids: list[int]
    failed: bool


class Hold(NamedTuple):
    """The client does not read what was written to it (held): it is sent nothing more until it does so again."""

    conn: int
    held: bool


class Detach(NamedTuple):
    """The connection is over, or another one took its place.  expiry_s: what DISCONNECT said instead of the expiry, or None."""

    conn: int
    expiry_s: int | None = None


class Deliver(NamedTuple):
    """Messages to connections of one gateway; a body is here once, however many connections get it.

    messages: (topic, body in MQTT 5 form, published_at_ms, message flags of shards.messages).
    to: (conn, message indexes, packet ids, first bytes of the PUBLISH packets, subscription identifiers), columns of
    equal length; packet id 0 at QoS 0; identifier 0: none.
    """

    messages: list[tuple[bytes, bytes, int, int]]
    to: list[tuple[int, list[int], list[int], bytes, list[int]]]


class SendPubrel(NamedTuple):
    """found False: nothing is under way under these identifiers (0x92 in MQTT 5)."""

    conn: int
    packet_ids: list[int]
    found: bool = True


class SessionClosed(NamedTuple):
    """Close this connection with this MQTT 5 reason code (session taken over, wrong acknowledgement, owner lost)."""

    conn: int
    code: int


Frame: TypeAlias = (
    Attach | Attached | Subscribe | Subacked | Unsubscribe | Unsubacked | Acked | Detach | Deliver | SendPubrel | SessionClosed
    | Interest | InterestSeen | Forward | Hold
)  # fmt: skip
encode: Callable[[Frame], bytes]
decode: Callable[[bytes | memoryview], Frame]
encode, decode = framing(
    Attach, Attached, Subscribe, Subacked, Unsubscribe, Unsubacked, Acked, Detach, Deliver, SendPubrel, SessionClosed,
    Interest, InterestSeen, Forward, Hold,
)  # fmt: skip
