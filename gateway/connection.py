"""What a gateway knows about one network connection.

Only state; the rules are in the modules named after what they do (connecting, inbound, subscribing, egress, closing).

    OPENED ──CONNECT──> AT_HOME ──Connected, no session──────────────────> ONLINE ──> CLOSED
       │                   │└──Connected, session──> ATTACHING ──Attached──> ONLINE
       └──> AUTHENTICATING ┘

Who is ONLINE may authenticate again, and goes on meanwhile.  Every phase may end in CLOSED, which is final.  An ephemeral session
is a part of its connection: it begins at Connected and ends at CLOSED.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from access.identity import ANONYMOUS
from access.profile import Profile
from gateway.zones import NO_ZONE
from mqtt.packets import Connect, Item

if TYPE_CHECKING:
    from gateway.aliases import AliasesOut
    from gateway.asker import Asker
    from gateway.ephemeral import EphemeralSession
    from gateway.events import Opened
    from gateway.guard import Guard
    from gateway.handshakes import Handshakes
    from gateway.live import LiveSub
    from gateway.outbox import PublishBatch, ReleaseBatch
    from gateway.pacing import Pace
    from gateway.second import Second
    from gateway.subscribing import Asked


class Phase(Enum):
    OPENED = "opened"
    AUTHENTICATING = "authenticating"
    AT_HOME = "at home"
    ATTACHING = "attaching"
    ONLINE = "online"
    CLOSED = "closed"


# Why a connection is not read.  Several may hold at once; it is read again when the last one is gone.
HELD = 1
"""Between CONNECT and CONNACK: what came along with CONNECT is kept, more is not read."""
OWN_BOUND = 2
"""Too many unanswered messages of this connection (3.1.1, which has no Receive Maximum)."""
SHARD_BOUND = 4
STOPPING = 8
RATE_BOUND = 16
"""More came than its listener takes of one client in that time (gateway.pacing)."""
ASKED = 32
"""A plugin is asked whether it may do what its oldest packet wants (gateway.asking)."""

AWAITING_ANSWER, AWAITING_PUBREL = 0, 1


@dataclass(slots=True)
class Exchange:
    """An authentication under way: it is the turn of whoever answers for identities, or the client's (`challenged`).

    step: grows with each turn, so that a deadline of an earlier one is known as such.  again: of a connection that is ONLINE."""

    attempt: int
    again: bool
    challenged: bool = False
    step: int = 0


class Connection:
    """One socket's state.  Hashed by identity; kept in dicts, never in sets, so that order is that of making."""

    __slots__ = (
        "ack_ids", "ack_kind", "address", "aliases", "aliases_out", "answered", "answers", "asker", "assigned", "attached", "attempts",
        "auth_method", "batch", "client", "congested", "conn", "contended", "deferred", "ends_ms", "ephemeral", "exchange", "expiry_s",
        "given", "gone", "guard", "handshakes", "heard_ms", "held", "home_until_ms", "identity", "keep_alive_ms", "last_word", "listener",
        "memory", "moving", "origin", "out", "owed", "owner", "pace", "packet_max", "paused", "phase", "present", "problem", "profile",
        "qos1_unanswered", "qos2_in", "qos2_since", "receive_max", "receive_max_in", "release", "relinked", "request",
        "second", "sent", "session", "session_id", "shard", "shared_elsewhere", "since_ms", "socket", "subs", "subscribed", "subscribing",
        "touched", "unsubscribing", "version", "zone",
    )  # fmt: skip

    def __init__(self, origin: Opened) -> None:
        self.socket = origin.socket
        self.origin = origin
        self.listener = origin.listener
        self.address = origin.address
        self.identity = ANONYMOUS
        self.auth_method: str | None = None
        self.attempts = 0
        self.exchange: Exchange | None = None
        """The authentication that is under way."""
        self.last_word: bytes | None = None
        """Of its method, to be said in CONNACK."""
        self.ends_ms = 0
        """When who it is does not count any more; 0: never."""
        self.profile: Profile | None = None
        """What it may do; None: there are no rules for it."""
        self.asker: Asker | None = None
        """Its profile where a plugin has the word beside the rules, and what waits for that word."""
        self.guard: Guard | None = None
        """What a session actor delivers, and what waited, is asked of it; None: there are no rules for it."""
        self.zone = NO_ZONE
        self.phase = Phase.OPENED
        self.version = 0
        self.client = b""
        self.conn = 0
        self.shard = 0
        self.session_id = 0
        """0: the session is ephemeral."""
        self.owner = 0
        """The owner token under which the home expects the session to be attached."""
        self.relinked = False
        """The link to the home broke while CONNECT was on its way: the answer may be an old one."""
        self.memory = 0
        """The session lives in the memory of a session actor, under this owner token; 0: it is durable, or ephemeral."""
        self.session = -1
        """The session actor of a session that outlives its connection."""
        self.attached = False
        """The session actor was told of this connection, and not yet that it is over."""
        self.moving = False
        """ONLINE, and its session actor is another one, which has not attached it yet (gateway.moving)."""
        self.given = self.answers = 0
        """Of several sites: messages of QoS 1 from its session actor, and how many of them the client has answered."""
        self.handshakes: Handshakes | None = None
        """Of several sites: its QoS 2 deliveries."""
        self.assigned = False
        """The client id is ours: the client gave none."""
        self.present = False
        self.problem = False
        """Its CONNECT was read, and it takes reason strings (Request Problem Information)."""
        self.home_until_ms = 0
        """CONNACK waits for the home and the session actor until then."""
        self.contended = False
        """Its home has told it to wait, because others take its client id from one another."""
        self.request: Connect | None = None
        self.subscribed: tuple[str, ...] = ()
        """Of a bridge: what its CONNACK says that its session has subscribed to."""
        self.expiry_s = 0
        self.keep_alive_ms = 0
        self.since_ms = 0
        """When it got its CONNACK."""
        self.heard_ms = 0
        self.touched = False
        self.held: list[Item] = []
        self.paused = 0
        self.pace: Pace | None = None
        """How fast it may publish; None: as it likes."""
        self.gone = False
        """The socket is not there any more: nothing can be written."""
        self.congested = False
        self.out: list[bytes] = []

        # Inbound.
        self.batch: PublishBatch | None = None
        self.release: ReleaseBatch | None = None
        self.sent = 0
        """QoS 1 and 2 messages handed to the home shard, and how many of them it has answered."""
        self.answered = 0
        self.qos1_unanswered = 0
        self.deferred: deque[tuple[int, bytes]] | None = None
        """Answers that need no shard but must not overtake earlier ones: (when so many are answered, bytes).  None: there has been none
        yet, as an empty deque takes 0.7 kB."""
        self.qos2_in: dict[int, int] = {}
        self.qos2_since: dict[int, int] = {}
        """When each was taken, the oldest first; only with an await_rel_timeout."""
        self.aliases: dict[int, bytes] = {}
        self.receive_max_in = 65_535
        """What its CONNACK has announced, or would have."""

        # Outbound.
        self.receive_max = 65_535
        self.packet_max = 0
        self.aliases_out: AliasesOut | None = None
        """None: it takes no topic aliases, or we give none."""
        self.ephemeral: EphemeralSession | None = None
        self.second: Second | None = None
        """Beside an ephemeral session: a durable one that serves its replays."""
        self.owed = 0
        """Deliveries of its session actor that it has not acknowledged; more where an acknowledgement was none."""
        self.ack_kind = 0
        self.ack_ids: list[int] | None = None
        """The acknowledgements of this tick that may still grow."""

        # Subscriptions that are in the live table, by filter, and SUBSCRIBE and UNSUBSCRIBE packets at the session actor.
        self.subs: dict[bytes, LiveSub] = {}
        self.shared_elsewhere: dict[bytes, None] = {}
        """Filters of shared subscriptions whose groups are with session actors: of its session, durable or in memory there."""
        self.subscribing: dict[int, Asked] = {}
        self.unsubscribing: dict[int, list[bytes]] = {}

    @property
    def durable(self) -> bool:
        """The session outlives the connection, so a session actor has it: as rows of the home, or in its memory."""
        return self.session_id != 0

    def fits(self, data: bytes) -> bool:
        """Whether the client takes a packet of this size."""
        return not self.packet_max or len(data) <= self.packet_max

    @property
    def unanswered(self) -> int:
        return self.sent - self.answered

    def __repr__(self) -> str:
        return f"<{self.client!r} conn {self.conn} socket {self.socket} {self.phase.value}>"
