"""Events and effects of the gateway core.

The shell (actors.gateway) owns sockets, links and the clock.  It feeds what one turn of its loop brought and then one
`TickEnded`; within a tick the core joins what goes to one shard into one numbered request, what goes to one session actor
or gateway into few frames, and what goes to one connection into one write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from access.asked import Asked
from access.identity import Identity
from access.login import Login
from access.rules import Access
from gateway.frames import Frame as PeerFrame
from gateway.options import Options
from mqtt.packets import Item
from sessions.frames import Frame as SessionFrame
from sessions.inquiry_frames import Ask as InquiryAsk
from sessions.inquiry_frames import Told as InquiryTold
from shards.frames import Entry, HoldingsFound, Live, Reply, Superseded


@dataclass(frozen=True, slots=True)
class Opened:
    """A network connection was accepted.  socket: a number of the shell that is never used twice.  listener: its name.

    address: from where it comes, as rules know it; empty: not known.  waited_ms: how long ago it was accepted, of the time that it has
    for its CONNECT.  packet_bytes_max: of its listener; 0: as for all.  The others as in access.login.Login."""

    socket: int
    listener: str
    peer: str
    address: str = ""
    loopback: bool = True
    names: tuple[str, ...] = ()
    serial: str = ""
    takes_certificate: bool = False
    waited_ms: int = 0
    packet_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Received:
    """Decoded packets of one connection, in order.  The shell owns the Decoder and feeds its errors as Malformed."""

    socket: int
    items: list[Item]


@dataclass(frozen=True, slots=True)
class Malformed:
    """The decoder refused the bytes (items before them were fed).  code: MQTT 5 reason code.

    version: the decoder's; it says in what form a refused CONNECT is answered, None: in none."""

    socket: int
    code: int
    detail: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SocketLost:
    """The peer closed, the network failed, or the write buffer bound was hit."""

    socket: int
    why: str


@dataclass(frozen=True, slots=True)
class Congested:
    """The client does not read what was written to it: until it does again QoS 0 is dropped, and what is kept for it waits.  A shell that
    never says so cuts such clients off at its write buffer bound instead."""

    socket: int
    congested: bool


@dataclass(frozen=True, slots=True)
class ShardLinked:
    """The link to a shard is up (again); unanswered requests are sent again by the shell."""

    shard: int


@dataclass(frozen=True, slots=True)
class ShardLost:
    shard: int


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to one ToShard request with this id: replies in the order of its entries."""

    shard: int
    id: int
    replies: list[Reply]


@dataclass(frozen=True, slots=True)
class FromShard:
    shard: int
    frame: Superseded | Live


@dataclass(frozen=True, slots=True)
class RetainedTold:
    """The result of a RetainedQuery; None when the shard could not answer."""

    shard: int
    id: int
    values: list[bytes] | None
    next_after: bytes


@dataclass(frozen=True, slots=True)
class HoldingsTold:
    """The result of a HoldingsQuery."""

    shard: int
    found: HoldingsFound


@dataclass(frozen=True, slots=True)
class SessionLinked:
    session: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """Every durable connection attached there is closed: its client comes back and resumes (PROTOCOLS 6)."""

    session: int


@dataclass(frozen=True, slots=True)
class FromSession:
    session: int
    frame: SessionFrame


@dataclass(frozen=True, slots=True)
class PeerLinked:
    """Another gateway; link is a number of the shell that is never used twice."""

    link: int
    gateway: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    link: int


@dataclass(frozen=True, slots=True)
class FromPeer:
    link: int
    frame: PeerFrame


@dataclass(frozen=True, slots=True)
class FromInquirer:
    """A command or the admin side asks."""

    link: int
    ask: InquiryAsk


@dataclass(frozen=True, slots=True)
class TickEnded:
    """now_ms: monotonic; wall_ms: steady time (shards.steady), for published_at and the expiry of messages."""

    now_ms: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Other options from now on, for connections that are opened from now on where it is about what their CONNACK says."""

    options: Options


@dataclass(frozen=True, slots=True)
class AccessChanged:
    """Other rules from now on, for connections that are there too."""

    access: Access


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The answer to an Authenticate: who it is.  data: the last word of the method, for the client.  ends_in_ms: for how long it counts;
    None: as long as the connection.  An answer to another attempt than the connection's newest means nothing."""

    socket: int
    attempt: int
    identity: Identity
    data: bytes | None = None
    ends_in_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AuthChallenged:
    """The answer to an Authenticate or a ContinueAuth: the client is to be asked further."""

    socket: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class AuthRefused:
    """The answer to an Authenticate or a ContinueAuth: no.  code: a reason code of CONNACK, as MQTT 5 has it.  cause: for people."""

    socket: int
    attempt: int
    code: int
    cause: str


@dataclass(frozen=True, slots=True)
class IdentitiesRevoked:
    """Who came in by a password of these users, or shows one of these certificates, is let in no more.  serials: in hexadecimal."""

    users: frozenset[str]
    serials: frozenset[str]


@dataclass(frozen=True, slots=True)
class Stopping:
    """Graceful shutdown: no new connections; every client gets DISCONNECT 0x8B once its acknowledgements are out."""


@dataclass(frozen=True, slots=True)
class RightTold:
    """The answer to an AskRight.  answered False: nobody has said it in time."""

    asker: int
    key: tuple[int, bytes]
    allow: bool
    answered: bool = True


@dataclass(frozen=True, slots=True)
class RightsForgotten:
    """Whoever answers has changed its mind: no former answer counts."""


Event: TypeAlias = (
    Opened | Received | Malformed | SocketLost | Congested | ShardLinked | ShardLost | Replied | FromShard | RetainedTold | HoldingsTold
    | SessionLinked | SessionLost | FromSession | PeerLinked | PeerLost | FromPeer | FromInquirer | TickEnded | Stopping | SettingsChanged
    | AccessChanged | Authenticated | AuthChallenged | AuthRefused | IdentitiesRevoked | RightTold | RightsForgotten
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for one connection, once per tick."""

    socket: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CloseSocket:
    """Flush what was written, then close.  No SocketLost follows."""

    socket: int
    why: str


@dataclass(frozen=True, slots=True)
class PauseReading:
    """The connection is over a bound (unanswered messages, a shard that is away): read no more from it until resumed."""

    socket: int
    paused: bool


@dataclass(frozen=True, slots=True)
class LookForEnd:
    """Of a connection that is not read, and whose client would have to be there: SocketLost follows if it has gone, or sends no more."""

    socket: int


@dataclass(frozen=True, slots=True)
class SetVersion:
    """The protocol version of this connection's decoder from now on (known at CONNECT)."""

    socket: int
    version: int


@dataclass(frozen=True, slots=True)
class ToShard:
    """A numbered request, sent until it is answered; its answer comes as Replied with the same id."""

    shard: int
    id: int
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class RetainedQuery:
    """A page of retained messages; lost with the link (the core asks again at ShardLinked)."""

    shard: int
    id: int
    filter: bytes
    after: bytes
    count_max: int


@dataclass(frozen=True, slots=True)
class HoldingsQuery:
    """How much a shard holds, for `$SYS`; lost with the link."""

    shard: int


@dataclass(frozen=True, slots=True)
class ToSession:
    session: int
    frame: SessionFrame


@dataclass(frozen=True, slots=True)
class ToPeer:
    link: int
    frame: PeerFrame


@dataclass(frozen=True, slots=True)
class ToInquirer:
    """Lost with the link; then it is asked again, or not."""

    link: int
    told: InquiryTold


@dataclass(frozen=True, slots=True)
class Authenticate:
    """Find out who this is, and answer with one of Authenticated, AuthChallenged and AuthRefused, some time."""

    socket: int
    attempt: int
    login: Login


@dataclass(frozen=True, slots=True)
class ContinueAuth:
    """What the client has answered to an AuthChallenged."""

    socket: int
    attempt: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ForgetAuth:
    """Nobody waits any more for the answer to the newest attempt of this connection."""

    socket: int


@dataclass(frozen=True, slots=True)
class AskRight:
    """Find out whether it may, and answer with RightTold within a time that is bounded."""

    asker: int
    key: tuple[int, bytes]
    asked: Asked


@dataclass(frozen=True, slots=True)
class Wake:
    """Feed a TickEnded not later than now + after_ms."""

    after_ms: int


Effect: TypeAlias = (
    Write | CloseSocket | PauseReading | LookForEnd | SetVersion | ToShard | RetainedQuery | HoldingsQuery | ToSession | ToPeer | Wake
    | Authenticate | ContinueAuth | ForgetAuth | AskRight | ToInquirer
)  # fmt: skip
