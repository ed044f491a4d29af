"""A shell for the session core as sessions in memory see it: a home that gives tokens, gateways that forward, clients by hand.

Gateways confirm at once what they are told, unless `mute`.  Every body is the empty property list and a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sessions.core import SessionCore
from sessions.events import (
    AskShard,
    Event,
    FromGateway,
    GatewayLinked,
    GatewayLost,
    LiveEntered,
    QueryShard,
    Replied,
    ShardLinked,
    TickEnded,
    ToGateway,
    ToldBy,
)
from sessions.frames import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    Acked,
    Attach,
    Attached,
    Deliver,
    Detach,
    Frame,
    Subacked,
    Subscribe,
    Unsubscribe,
    decode,
    encode,
)
from sessions.live_frames import ForGroups, Forward, Interest, InterestSeen
from sessions.options import Counters, SessionOptions
from shards.frames import Live, Own, Owned, RetainedMessages, RetainedPage
from shards.slots import SlotTable

LINK, OTHER_LINK = 7, 8
TOKEN = 3
WALL_MS = 1_700_000_000_000


class Got(NamedTuple):
    """One delivery as a gateway was told to make it."""

    conn: int
    payload: bytes
    packet_id: int
    first: int
    identifier: int

    @property
    def dup(self) -> bool:
        return bool(self.first & 8)


class Script:
    def __init__(self, options: SessionOptions | None = None, links: Sequence[int] = (LINK, OTHER_LINK), token: int = TOKEN) -> None:
        self.core = SessionCore(1, frozenset((0,)), SlotTable.initial(1), options or SessionOptions())
        self.token = token
        self.now_ms = 1_000
        self.sent: list[tuple[int, Frame]] = []
        self.interest: dict[int, list[Interest]] = {}
        self.asked: list[AskShard] = []
        self.queries: list[QueryShard] = []
        self.mute: set[int] = set()
        self.retained: list[bytes] = []
        self.conns = 100
        for link in links:
            self.link(link)

    @property
    def counters(self) -> Counters:
        return self.core.counters

    # ---------------------------------------------------------------- events
    def feed(self, event: Event) -> None:
        for effect in self.core.handle(event):
            match effect:
                case ToGateway(link, frame):
                    self._to_gateway(link, decode(encode(frame)))
                case AskShard():
                    self.asked.append(effect)
                case QueryShard():
                    self.queries.append(effect)
                case _:
                    pass
        self.core.check()

    def _to_gateway(self, link: int, frame: Frame) -> None:
        if isinstance(frame, Interest):
            self.interest.setdefault(link, []).append(frame._replace(groups=[(filter, members) for filter, members in frame.groups]))
        else:
            self.sent.append((link, frame))

    def tick(self, after_ms: int = 1) -> None:
        """One turn; what gateways are told in it they confirm before the next one."""
        self.now_ms += after_ms
        told = {link: len(frames) for link, frames in self.interest.items()}
        self.feed(TickEnded(self.now_ms, WALL_MS + self.now_ms))
        for link, frames in list(self.interest.items()):
            for frame in frames[told.get(link, 0) :]:
                if link not in self.mute:
                    self.feed(FromGateway(link, InterestSeen(frame.number)))

    def link(self, link: int) -> None:
        self.feed(GatewayLinked(link, f"gateway-{link}"))

    def unlink(self, link: int) -> None:
        self.feed(GatewayLost(link))

    def own(self) -> None:
        """The home is linked and gives its token."""
        self.feed(ShardLinked(0))
        self.answer_own()

    def answer_own(self) -> None:
        (ask,) = [ask for ask in self.asked if isinstance(ask.entries[0], Own)]
        self.asked.remove(ask)
        self.feed(Replied(0, ask.id, [Owned(self.token, [])]))

    def tell_retained(self, count: int = 100) -> None:
        """One page for every query."""
        queries, self.queries = self.queries, []
        for query in queries:
            assert isinstance(query.ask, RetainedPage)
            start = int(query.ask.after or b"0")
            after = start + count
            more = str(after).encode() if after < len(self.retained) else b""
            self.feed(ToldBy(0, query.id, RetainedMessages(self.retained[start:after], more)))

    # ---------------------------------------------------------------- clients
    def attach(
        self, client: bytes = b"c", session_id: int = 50, present: bool = True, receive_max: int = 100, link: int = LINK,
        expiry_s: int = 3600, token: int | None = None,
    ) -> int:  # fmt: skip
        """Ask for it; the connection number."""
        self.conns += 1
        memory = self.token if token is None else token
        self.feed(FromGateway(link, Attach(client, self.conns, session_id, present, 5, receive_max, memory, expiry_s)))
        return self.conns

    def attached(
        self, client: bytes = b"c", session_id: int = 50, present: bool = True, receive_max: int = 100, link: int = LINK,
        expiry_s: int = 3600,
    ) -> int:  # fmt: skip
        """A client that is online."""
        conn = self.attach(client, session_id, present, receive_max, link, expiry_s)
        assert (link, Attached(conn, 0, [])) in self.sent
        self.sent.remove((link, Attached(conn, 0, [])))
        self.tick()
        return conn

    def frame(self, frame: Frame, link: int = LINK) -> None:
        self.feed(FromGateway(link, frame))

    def detach(self, conn: int, link: int = LINK, expiry_s: int | None = None) -> None:
        self.frame(Detach(conn, expiry_s), link)
        self.tick()

    def subscribe(
        self, conn: int, filter: bytes, qos: int = 1, options: int = 0, identifier: int = 0, handling: int = 2, link: int = LINK
    ) -> None:
        self.frame(Subscribe(conn, 9, [(filter, qos, options, handling)], identifier), link)
        self.tick()
        self.tick()
        assert (link, Subacked(conn, 9, [qos])) in self.sent, self.sent
        self.sent.remove((link, Subacked(conn, 9, [qos])))

    def unsubscribe(self, conn: int, filter: bytes, link: int = LINK) -> None:
        self.frame(Unsubscribe(conn, 9, [filter]), link)

    def puback(self, conn: int, *packet_ids: int, link: int = LINK) -> None:
        self.frame(Acked(conn, PUBACK, list(packet_ids), False), link)
        self.tick()

    def pubrec(self, conn: int, *packet_ids: int, failed: bool = False, link: int = LINK) -> None:
        self.frame(Acked(conn, PUBREC, list(packet_ids), failed), link)
        self.tick()

    def pubcomp(self, conn: int, *packet_ids: int, link: int = LINK) -> None:
        self.frame(Acked(conn, PUBCOMP, list(packet_ids), False), link)
        self.tick()

    # ---------------------------------------------------------------- publishers
    def forward(
        self, *payloads: bytes, qos: int = 1, topic: bytes = b"t", publisher: bytes = b"p", conn: int = 1, retain: int = 0,
        properties: bytes = b"\0", groups: Sequence[bytes] = (), plain: bool = True, link: int = LINK,
    ) -> None:  # fmt: skip
        flags = bytes([qos << 1 | retain] * len(payloads))
        bodies = [properties + payload for payload in payloads]
        shared = [ForGroups(index, plain, list(groups)) for index in range(len(payloads))] if groups else []
        self.frame(Forward(publisher, conn, flags, [topic] * len(payloads), bodies, shared), link)
        self.tick()

    def will(self, payload: bytes, qos: int = 1, topic: bytes = b"t") -> None:
        self.feed(LiveEntered(0, Live(b"dead", qos << 1, topic, b"\0" + payload)))
        self.tick()

    # ---------------------------------------------------------------- what came out
    def take(self) -> list[tuple[int, Frame]]:
        sent, self.sent = self.sent, []
        return sent

    def delivered(self) -> list[Got]:
        """Deliveries since the last call."""
        found: list[Got] = []
        for _, frame in self.sent:
            if isinstance(frame, Deliver):
                for conn, indexes, packet_ids, firsts, identifiers in frame.to:
                    for index, packet_id, first, identifier in zip(indexes, packet_ids, firsts, identifiers, strict=True):
                        found.append(Got(conn, frame.messages[index][1][1:], packet_id, first, identifier))
        self.sent = [(link, frame) for link, frame in self.sent if not isinstance(frame, Deliver)]
        return found

    def payloads(self) -> list[bytes]:
        return [got.payload for got in self.delivered()]


def owned(options: SessionOptions | None = None) -> Script:
    script = Script(options)
    script.own()
    script.tick()
    return script
