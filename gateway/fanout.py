"""Hands messages to live subscribers: connections of this gateway, and other gateways that have some.

Called with messages of one publisher in their order; what a subscriber gets leaves in that order.  QoS 1 and 2 messages come
here only after their shard has answered (PROTOCOLS 9): when, is the business of gateway.inbound.

Several matching subscriptions of one client bring it one copy each, with the identifier of that subscription
[MQTT-3.3.4-2 allows it]: no message has to be compared with any other.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.frames import Forward
from gateway.live import MISSING, LiveSub, LiveTable, Targets
from gateway.state import State
from mqtt.body import message_expiry, with_message_expiry, with_subscription_ids
from mqtt.encode import PublishTemplate
from mqtt.encode import publish as encode_publish
from mqtt.packets import MQTT_3_1_1, MQTT_5

PUBLISH = 0x30


class _Open:
    """A Forward of this turn that may still grow."""

    __slots__ = ("bodies", "bytes", "conn", "flags", "publisher", "topics")

    def __init__(self, publisher: bytes, conn: int) -> None:
        self.publisher = publisher
        self.conn = conn
        self.bytes = 0
        self.flags = bytearray()
        self.topics: list[bytes] = []
        self.bodies: list[bytes] = []


class Fanout:
    def __init__(self, state: State, table: LiveTable) -> None:
        self._state = state
        self._table = table
        self._outbox = state.outbox
        self._counters = state.counters
        self._forwards: dict[int, list[_Open]] = {}

    def hand_over(self, publisher: bytes, conn: int, flags: Sequence[int], topics: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Messages of a connection of this gateway, to subscribers here and at other gateways."""
        table = self._table
        if not len(table):
            return
        cached = table.cache.get
        for index, topic in enumerate(topics):
            targets = cached(topic, MISSING)
            if targets is None:
                continue
            if targets is MISSING:
                targets = table.look_up(topic)
                if targets is None:
                    continue
            self._local(publisher, flags[index], topic, bodies[index], targets)
            peers = targets.peers if flags[index] & 6 else targets.peers_qos0
            for link in peers:
                self._forward(link, publisher, conn, flags[index], topic, bodies[index])

    def hand_over_here(self, publisher: bytes, flags: Sequence[int], topics: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Messages that came from another gateway or from a shard: every gateway serves its own."""
        for index, topic in enumerate(topics):
            targets = self._table.targets(topic)
            if targets is not None:
                self._local(publisher, flags[index], topic, bodies[index], targets)

    def _local(self, publisher: bytes, flags: int, topic: bytes, body: bytes, targets: Targets) -> None:
        published_qos = flags >> 1 & 3
        subs = targets.subs if published_qos else targets.subs_qos0
        if not subs:
            return
        template: PublishTemplate | None = None
        dirty = self._outbox.dirty
        qos0_5 = qos0_3 = b""
        for sub in subs:
            qos = sub.qos if sub.qos < published_qos else published_qos
            if qos or not sub.plain:
                template = template or PublishTemplate(topic, body)
                self._with_care(sub, publisher, flags, qos, template)
                continue
            connection = sub.connection
            if connection.congested:
                self._counters.live_dropped_slow += 1
                self._counters.live_delivered -= 1
                continue
            if connection.version == MQTT_5:
                packet = qos0_5 = qos0_5 or encode_publish(MQTT_5, 0, 0, topic, body)
            else:
                packet = qos0_3 = qos0_3 or encode_publish(MQTT_3_1_1, 0, 0, topic, body)
            if not connection.out:
                dirty.append(connection)
            connection.out.append(packet)
            if sub.retain_topics is not None and flags & 1:
                sub.retain_topics.add(topic)
        self._counters.live_delivered += len(subs)

    def _with_care(self, sub: LiveSub, publisher: bytes, flags: int, qos: int, template: PublishTemplate) -> None:
        if sub.no_local and sub.connection.client == publisher:
            self._counters.live_delivered -= 1
            return
        if sub.retain_topics is not None and flags & 1:
            sub.retain_topics.add(template.topic)
        if not self.send(sub, qos, flags & 1 if sub.retain_as_published else 0, template, self._state.wall_ms):
            self._counters.live_delivered -= 1

    def send(self, sub: LiveSub, qos: int, retain: int, template: PublishTemplate, published_at_ms: int) -> bool:
        """One message to one subscription; False when it is not sent because of its size or its age."""
        connection = sub.connection
        expires_ms = 0
        body = template.body
        if body[0]:
            expiry = message_expiry(body)
            if expiry is not None:
                expires_ms = published_at_ms + expiry * 1000
                left_ms = expires_ms - self._state.wall_ms
                if left_ms <= 0:
                    self._counters.live_dropped_expired += 1
                    return False
                if left_ms < expiry * 1000:
                    body = with_message_expiry(body, -(-left_ms // 1000))
        if sub.identifier:
            body = with_subscription_ids(body, (sub.identifier,))
        if body is not template.body:
            template = PublishTemplate(template.topic, body)
        head, tail = template.parts(connection.version, PUBLISH | qos << 1 | retain)
        if connection.packet_max and len(head) + len(tail) + (2 if qos else 0) > connection.packet_max:
            self._counters.live_dropped_too_large += 1
            return False
        if not qos:
            if connection.congested:
                self._counters.live_dropped_slow += 1
                return False
            self._outbox.write(connection, head + tail)
            return True
        session = connection.ephemeral
        assert session is not None, f"{connection}: a live subscription with QoS {qos} in a durable session"
        if not connection.out:
            self._outbox.dirty.append(connection)
        session.offer(connection.out, qos, head, tail, expires_ms)
        return True

    # ---------------------------------------------------------------- other gateways
    def _forward(self, link: int, publisher: bytes, conn: int, flags: int, topic: bytes, body: bytes) -> None:
        frames = self._forwards.get(link)
        if frames is None:
            frames = self._forwards[link] = []
        last = frames[-1] if frames else None
        if last is None or last.conn != conn or last.publisher != publisher or last.bytes >= self._state.options.frame_bytes_max:
            last = _Open(publisher, conn)
            frames.append(last)
        last.bytes += len(topic) + len(body)
        last.flags.append(flags)
        last.topics.append(topic)
        last.bodies.append(body)

    def forwards(self) -> list[tuple[int, Forward]]:
        """What this turn sends to other gateways."""
        if not self._forwards:
            return []
        frames = [
            (link, Forward(last.publisher, last.conn, bytes(last.flags), last.topics, last.bodies))
            for link, opened in self._forwards.items()
            for last in opened
        ]
        self._forwards.clear()
        self._counters.forwards_sent += sum(len(frame.topics) for _, frame in frames)
        return frames
