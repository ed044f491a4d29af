"""What clients know: which messages they published, which were acknowledged, who subscribed from when to when, who got what.

Only facts, with their times; what follows from them is checked elsewhere (tests.sim.rules).  A time is that of the moment
that counts for the promise: an acknowledgement counts from when it left the gateway, not from when it was heard.

A subscription is one life of a filter in a session, from its SUBACK to its UNSUBSCRIBE or the end of the session.  A change
of its QoS between 1 and 2, or of its options, goes on with the same life; a change from or to 0 begins a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mqtt.topics import matches
from tests.sim.world import World

StreamKey = tuple[bytes, bytes, int]
"""Publisher, topic, QoS: messages of one of these are in order."""
SHARE = b"$share/"


@dataclass(slots=True, eq=False)
class Message:
    """One application message.  number: its place in its stream.  sent_us: the first PUBLISH.  acked_us: PUBACK or PUBREC
    left the gateway.  expires: it has an expiry interval, so it may be missing.  will: the connection attempt it is the will of.
    delay_s: it is published to `$delayed/SECONDS/topic` (tests.sim.delaying); -1: it is not."""

    payload: bytes
    publisher: bytes
    topic: bytes
    qos: int
    retain: bool
    expires: bool = False
    will: int = 0
    delay_s: int = -1
    number: int = 0
    sent_us: int = -1
    again: bool = False
    """Its publisher has sent it more than once."""
    acked_us: int = -1
    written_us: int = -1
    copies: dict[tuple[int, int], None] = field(default_factory=dict)
    """(shard, position) of what is written and not forgotten."""
    ever_synced: bool = False

    @property
    def key(self) -> StreamKey:
        return self.publisher, self.topic, self.qos

    def __repr__(self) -> str:
        return f"{self.payload.split(b' ')[0].decode()} ({self.publisher.decode()} {self.topic.decode()} QoS {self.qos} #{self.number})"


@dataclass(slots=True, eq=False)
class Subscription:
    """One life of a filter.  qos: as granted last, -1 before its SUBACK.  since_us: its SUBACK left the gateway."""

    client: bytes
    filter: bytes
    options: int
    asked_us: int
    durable: bool
    qos: int = -1
    since_us: int = -1
    until_us: int = -1
    """It was given up: UNSUBSCRIBE was sent, or the session ended."""
    uncertain_us: int = -1
    """A SUBSCRIBE for it was sent that may end it (to or from QoS 0) and is not answered: nothing more is owed from here on."""
    granted: dict[int, None] = field(default_factory=dict)
    identifiers: dict[int, None] = field(default_factory=dict)
    got: dict[Message, int] = field(default_factory=dict)
    """How often each message was delivered at its own QoS, retained copies not counted."""
    weakly: set[Message] = field(default_factory=set)
    """What came below QoS 2 only, or may have been a retained copy: it may come once more at QoS 2."""
    last: dict[tuple[StreamKey, int], int] = field(default_factory=dict)
    """The number of the newest first delivery per stream and delivered QoS."""
    local: bool = False
    no_local_once: bool = False
    """Whether it was asked for without, or with, the option no-local at any time; who asks for both may get either."""
    as_published_once: bool = False
    """The same of retain-as-published: then a retained message and a live one cannot be told apart."""

    @property
    def shared(self) -> bool:
        return self.filter.startswith(SHARE)

    @property
    def topics(self) -> bytes:
        """The filter that topics have to match: of a shared subscription, what is behind the share name."""
        return self.filter.split(b"/", 2)[2] if self.shared else self.filter

    @property
    def open(self) -> bool:
        return self.until_us < 0 and self.since_us >= 0

    def __repr__(self) -> str:
        return f"{self.client.decode()}'s {self.filter.decode()} (QoS {self.qos}, since {self.since_us}, until {self.until_us})"


class Ledger:
    def __init__(self, world: World) -> None:
        self._world = world
        self.messages: dict[bytes, Message] = {}
        self.streams: dict[StreamKey, list[Message]] = {}
        self.subscriptions: dict[bytes, list[Subscription]] = {}
        self.by_identifier: dict[tuple[bytes, int], list[Subscription]] = {}
        self.will_written: Callable[[Message], None] = _nothing
        self.grouped: dict[tuple[bytes, bytes], bytes] = {}
        """Shared filter, payload -> the member that got it at QoS 2."""
        self.unreadable: dict[tuple[bytes, bytes], None] = {}
        """(client, topic) that rules have kept apart at any time (tests.sim.revoking): nothing of it is owed to that client."""
        self.unpublishable: dict[tuple[bytes, bytes], None] = {}
        """(publisher, topic) likewise: nothing of it is owed to anybody."""
        self.unsynced: dict[bytes, int] = {}
        """Payloads of which a copy is written and none is synced."""

    # ------------------------------------------------------------------ messages

    def promised(self, message: Message) -> bool:
        """Whether the rules have always let its publisher publish it."""
        return (message.publisher, message.topic) not in self.unpublishable

    def add(self, message: Message) -> None:
        stream = self.streams.setdefault(message.key, [])
        message.number = len(stream) + 1
        stream.append(message)
        self.messages[message.payload] = message

    # ------------------------------------------------------------------ what the disks say

    def written(self, shard: int, position: int, payload: bytes) -> None:
        message = self.messages.get(payload)
        if message is not None:
            message.copies[shard, position] = None
            message.written_us = self._world.now_us
            if message.will:
                self.will_written(message)
            if not message.ever_synced:
                self.unsynced[payload] = 1

    def synced(self, payload: bytes) -> None:
        message = self.messages.get(payload)
        if message is not None:
            message.ever_synced = True
            self.unsynced.pop(payload, None)

    def forgotten(self, shard: int, position: int, payload: bytes) -> None:
        message = self.messages.get(payload)
        if message is not None:
            message.copies.pop((shard, position), None)
            if not message.copies:
                self.unsynced.pop(payload, None)

    # ------------------------------------------------------------------ subscriptions

    def of(self, client: bytes) -> list[Subscription]:
        return self.subscriptions.setdefault(client, [])

    def current(self, client: bytes, topic_filter: bytes) -> Subscription | None:
        """The life of this filter that has not ended, answered or not."""
        for subscription in reversed(self.of(client)):
            if subscription.filter == topic_filter:
                return subscription if subscription.until_us < 0 else None
        return None

    def matching(self, client: bytes, message: Message) -> list[Subscription]:
        """Every life of a filter that may have brought this message."""
        return [sub for sub in self.of(client) if matches(sub.topics, message.topic)]


def _nothing(message: Message) -> None:
    pass


__all__ = ["Ledger", "Message", "StreamKey", "Subscription"]
