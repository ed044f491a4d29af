"""What leaves for one taker: a message to one subscriber of this gateway, and messages to one other gateway.

Here a message gets the form in which its taker gets it: what is left of its expiry, the subscription's identifier, an alias for
its topic, nothing larger than the client takes.  Who is to get it is decided in gateway.fanout and gateway.sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from gateway.asking import Asking
from gateway.frames import ForGroups, Forward
from gateway.groups import GroupMessage
from gateway.live import LiveSub
from gateway.state import State
from mqtt.body import message_expiry, with_message_expiry, with_subscription_ids
from mqtt.encode import PublishTemplate
from mqtt.packets import MQTT_5

PUBLISH = 0x30


class _Open:
    """A Forward of this turn that may still grow."""

    __slots__ = ("bodies", "bytes", "conn", "flags", "publisher", "shared", "topics")

    def __init__(self, publisher: bytes, conn: int) -> None:
        self.publisher = publisher
        self.conn = conn
        self.bytes = 0
        self.flags = bytearray()
        self.topics: list[bytes] = []
        self.bodies: list[bytes] = []
        self.shared: list[ForGroups] = []


class Sending:
    def __init__(self, state: State, asking: Asking) -> None:
        self._state = state
        self._asking = asking
        self._outbox = state.outbox
        self._counters = state.counters
        self._forwards: dict[int, list[_Open]] = {}

    # ---------------------------------------------------------------- subscribers
    def send(
        self, sub: LiveSub, qos: int, retain: int, template: PublishTemplate, published_at_ms: int, of_group: GroupMessage | None = None
    ) -> bool:
        """One message to one subscriber; False when it is not sent because of its size, its age, or the rules.

        of_group: as what the message goes to another member when this one ends without having taken it, or may not read it."""
        asker = sub.connection.asker
        if asker is None or sub.guard is None or not asker.must_wait(template.topic):
            return self._send(sub, qos, retain, template, published_at_ms, of_group)
        size = len(template.topic) + len(template.body)
        later: Callable[[], object] = partial(self._send, sub, qos, retain, template, published_at_ms)
        if of_group is not None:
            later = partial(self._send_of_group, sub, qos, retain, template, published_at_ms, of_group)
        kept = self._asking.later(asker, template.topic, size, later, droppable=True, of_group=of_group)
        self._asking.drain(asker)
        return kept

    def _send_of_group(
        self, sub: LiveSub, qos: int, retain: int, template: PublishTemplate, published_at_ms: int, of_group: GroupMessage
    ) -> None:
        """The plugin has said its word; a no sends the message to another member."""
        if sub.guard is not None and not sub.guard.may_read(template.topic):
            self._state.suppressed(sub.connection, template.topic)
            self._state.orphans.append(of_group.refused())
        else:
            self._send(sub, qos, retain, template, published_at_ms, of_group)

    def _send(
        self, sub: LiveSub, qos: int, retain: int, template: PublishTemplate, published_at_ms: int, of_group: GroupMessage | None = None
    ) -> bool:
        connection = sub.connection
        if sub.guard is not None and not sub.guard.may_read(template.topic):
            self._state.suppressed(connection, template.topic)
            return False
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
        first = PUBLISH | qos << 1 | retain
        head, tail = template.v5(first) if connection.version == MQTT_5 else template.v3(first)
        if connection.packet_max and len(head) + len(tail) + (2 if qos else 0) > connection.packet_max:
            self._counters.live_dropped_too_large += 1
            return False
        session = connection.ephemeral
        if not qos and connection.congested:
            self._counters.live_dropped_slow += 1
            return False
        self._counters.publish_bytes_sent += len(tail)
        if connection.aliases_out is not None and (not qos or (session is not None and session.sends_now())):
            head, tail = connection.aliases_out.shorten(template, connection.packet_max, first).v5(first)
        if not qos:
            self._outbox.write(connection, head + tail, 0)
            return True
        assert session is not None, f"{connection}: a live subscription with QoS {qos} in a durable session"
        if not connection.out:
            self._outbox.dirty.append(connection)
        session.offer(connection.out, qos, head, tail, expires_ms, of_group)
        return True

    def fits(self, sub: LiveSub, qos: int, template: PublishTemplate) -> bool:
        """Whether the subscriber can be sent this message, and nothing else has to go for it."""
        connection = sub.connection
        if sub.guard is not None:
            asker = connection.asker
            if asker is not None and asker.must_wait(template.topic):
                if not self._asking.has_room(asker, len(template.topic) + len(template.body)):
                    return False
            elif not sub.guard.may_read(template.topic):
                return False
        if connection.packet_max:
            if sub.identifier:
                template = PublishTemplate(template.topic, with_subscription_ids(template.body, (sub.identifier,)))
            if template.packet_bytes(connection.version, PUBLISH | qos << 1) > connection.packet_max:
                return False
        if not qos:
            return not connection.congested
        session = connection.ephemeral
        return session is not None and session.takes(len(template.topic) + len(template.body))

    # ---------------------------------------------------------------- other gateways
    def forward(
        self, link: int, publisher: bytes, conn: int, flags: int, topic: bytes, body: bytes,
        plain: bool = True, groups: Sequence[bytes] = (),
    ) -> None:  # fmt: skip
        """One message to another gateway: for its plain subscribers if plain, and for one member of each of these groups."""
        frames = self._forwards.get(link)
        if frames is None:
            frames = self._forwards[link] = []
        last = frames[-1] if frames else None
        if last is None or last.conn != conn or last.publisher != publisher or last.bytes >= self._state.options.frame_bytes_max:
            last = _Open(publisher, conn)
            frames.append(last)
        if groups:
            last.shared.append(ForGroups(len(last.topics), plain, list(groups)))
        last.bytes += len(topic) + len(body)
        last.flags.append(flags)
        last.topics.append(topic)
        last.bodies.append(body)

    def forwards(self) -> list[tuple[int, Forward]]:
        """What this turn sends to other gateways."""
        if not self._forwards:
            return []
        frames = [
            (link, Forward(last.publisher, last.conn, bytes(last.flags), last.topics, last.bodies, last.shared))
            for link, opened in self._forwards.items()
            for last in opened
        ]
        self._forwards.clear()
        self._counters.forwards_sent += sum(len(frame.topics) for _, frame in frames)
        return frames
