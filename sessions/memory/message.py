"""Messages as sessions in memory hold them: one object per message, one per delivery of it to a session."""

from __future__ import annotations

from mqtt.body import message_expiry, with_message_expiry
from shards.messages import HAS_EXPIRY

DUP = 0x08
QOS_BITS = 0x06
QOS2 = 0x04


class Message:
    """As it was published; shared by all who wait for it.  kind: QoS << 1 | RETAIN, as in shards.frames.Publish.

    expires_ms: the wall-clock time from which on it is not worth sending; 0: never."""

    __slots__ = ("body", "expires_ms", "kind", "published_at_ms", "publisher", "size", "topic")

    def __init__(self, publisher: bytes, kind: int, topic: bytes, body: bytes, published_at_ms: int) -> None:
        self.publisher = publisher
        self.kind = kind & 7
        self.topic = topic
        self.body = body
        self.published_at_ms = published_at_ms
        self.size = len(topic) + len(body)
        expiry_s = message_expiry(body) if body[0] else None
        self.expires_ms = 0 if expiry_s is None else published_at_ms + expiry_s * 1000

    @property
    def qos(self) -> int:
        return self.kind >> 1

    def is_over(self, wall_ms: int) -> bool:
        return 0 < self.expires_ms <= wall_ms

    def row(self) -> tuple[bytes, bytes, int, int]:
        """As a Deliver frame carries it; the gateway counts its expiry down."""
        return self.topic, self.body, self.published_at_ms, HAS_EXPIRY if self.expires_ms else 0

    def aged(self, wall_ms: int) -> bytes:
        """The body with what is left of its expiry, for a frame that does not say when it was published."""
        if not self.expires_ms:
            return self.body
        return with_message_expiry(self.body, max(1, -(-(self.expires_ms - wall_ms) // 1000)))


class Delivery:
    """A QoS 1 or 2 message on its way to one session.

        waiting -> sent (has a packet id) -> [received: PUBREC came] -> finished

    first: the first byte of its PUBLISH without DUP.  group: the shared group it came for, or empty.  out: sent on the present
    connection.  message None: the client has received it, only PUBCOMP is missing."""

    __slots__ = ("first", "group", "identifier", "message", "out")

    def __init__(self, message: Message, first: int, identifier: int, group: bytes) -> None:
        self.message: Message | None = message
        self.first = first
        self.identifier = identifier
        self.group = group
        self.out = False

    @property
    def is_qos2(self) -> bool:
        return bool(self.first & QOS2)
