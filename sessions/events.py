"""Events and effects of the session core: all sessions that one session actor serves.

The shell (actors.session) owns links to every shard (numbered requests through shards.numbered.NumberedSender, queries,
feed) and the links from gateways.  It feeds events as they happen and one `TickEnded` after each turn of its loop; what
the core wants to send to one peer within a tick may be joined into one frame by the core at TickEnded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sessions.frames import Frame as GatewayFrame
from sessions.inquiry_frames import Ask as InquiryAsk
from sessions.inquiry_frames import Told as InquiryTold
from sessions.options import SessionOptions
from shards.frames import Ask, Entry, Feed, FeedTaken, FeedWant, Given, GroupMade, GroupNews, Live, Reply, Told, Work
from shards.rows import LossRow


@dataclass(frozen=True, slots=True)
class GatewayLinked:
    link: int
    gateway: str


@dataclass(frozen=True, slots=True)
class GatewayLost:
    """Every connection attached over this link is detached."""

    link: int


@dataclass(frozen=True, slots=True)
class FromGateway:
    link: int
    frame: GatewayFrame


@dataclass(frozen=True, slots=True)
class ShardLinked:
    """The link to a shard is up (again).  Unanswered requests are sent again by the shell; queries and the feed are not:
    the core asks again for what it still needs and states its whole want anew with version 1."""

    shard: int


@dataclass(frozen=True, slots=True)
class ShardLost:
    shard: int


@dataclass(frozen=True, slots=True)
class Replied:
    """The answer to one `AskShard` request with this id: replies in the order of its entries."""

    shard: int
    id: int
    replies: list[Reply]


@dataclass(frozen=True, slots=True)
class ToldBy:
    """The result of one query.  told None: the shard could not answer."""

    shard: int
    id: int
    told: Told | None


@dataclass(frozen=True, slots=True)
class FeedReceived:
    shard: int
    feed: Feed


@dataclass(frozen=True, slots=True)
class WorkReceived:
    shard: int
    work: Work


@dataclass(frozen=True, slots=True)
class OfGroup:
    """A shard tells of shared groups."""

    shard: int
    frame: Given | GroupNews | GroupMade


@dataclass(frozen=True, slots=True)
class LiveEntered:
    """A message that entered in a shard, for the sessions in memory here."""

    shard: int
    live: Live


@dataclass(frozen=True, slots=True)
class TickEnded:
    """now_ms: monotonic milliseconds of this process.  wall_ms: steady time (shards.steady), for the expiry of messages."""

    now_ms: int
    wall_ms: int = 0


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Other options from now on.  What a connection or a session has taken of the former ones it keeps until it attaches again."""

    options: SessionOptions


@dataclass(frozen=True, slots=True)
class FromInquirer:
    """A command or the admin side asks."""

    link: int
    ask: InquiryAsk


Event: TypeAlias = (
    GatewayLinked | GatewayLost | FromGateway | ShardLinked | ShardLost | Replied | ToldBy | FeedReceived | WorkReceived | LiveEntered
    | OfGroup | TickEnded | SettingsChanged | FromInquirer
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ToGateway:
    """Lost with the link; then the attachments on it are gone too."""

    link: int
    frame: GatewayFrame


@dataclass(frozen=True, slots=True)
class AskShard:
    """A numbered request, sent until it is answered; its answer comes as Replied with the same id."""

    shard: int
    id: int
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class QueryShard:
    """A query, lost with the link."""

    shard: int
    id: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class ToFeed:
    """Feed control; lost with the link."""

    shard: int
    frame: FeedWant | FeedTaken


@dataclass(frozen=True, slots=True)
class TellLoss:
    """A session has lost messages, and the row that says so is committed: say it.  Lost in a crash, unlike the row."""

    client: bytes
    loss: LossRow


UNTOLD, UNANSWERED, ASLEEP = "untold", "unanswered", "asleep"
"""How a subscription came to get nothing: at the head, and the feed had left something out; it had asked, and was not answered; it was
behind, had room, and did not ask."""


@dataclass(frozen=True, slots=True)
class TellStall:
    """A subscription had got nothing though there was something, and asked by itself: a fault of ours, mended.  after: where it stood.
    messages: that it got by that, the oldest published so long ago."""

    client: bytes
    filter: bytes
    shard: int
    how: str
    after: int
    messages: int
    oldest_ms: int


@dataclass(frozen=True, slots=True)
class TellMoved:
    """Somebody has moved places of a session, and that is committed: say who (sessions.inquiry_frames.Move).  Lost in a crash."""

    client: bytes
    verb: int
    by: str
    filter: bytes
    to: list[int]
    moved: int
    closed: int


@dataclass(frozen=True, slots=True)
class TellDeadLetter:
    """A message became a dead letter, as its client has ended so many connections with it, and that is committed.  Lost in a crash."""

    client: bytes
    topic: bytes
    count: int


@dataclass(frozen=True, slots=True)
class ToInquirer:
    """Lost with the link; then it is asked again, or not."""

    link: int
    told: InquiryTold


@dataclass(frozen=True, slots=True)
class Wake:
    """Feed a TickEnded not later than now + after_ms, even when nothing else happens."""

    after_ms: int


Effect: TypeAlias = ToGateway | AskShard | QueryShard | ToFeed | TellLoss | TellStall | TellMoved | TellDeadLetter | ToInquirer | Wake
