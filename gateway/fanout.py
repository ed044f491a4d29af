"""Hands messages to live subscribers: connections of this gateway, and other gateways that have some.  One member of each
shared group is the business of gateway.sharing, the form in which a message leaves that of gateway.sending.

Called with messages of one publisher in their order; what a subscriber gets leaves in that order.  QoS 1 and 2 messages come
here only after their shard has answered (PROTOCOLS 9): when, is the business of gateway.inbound.

Several matching subscriptions of one client bring it one copy each, with the identifier of that subscription
[MQTT-3.3.4-2 allows it]: no message has to be compared with any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.frames import Forward
from gateway.groups import Group
from gateway.live import MISSING, LiveSub, LiveTable
from gateway.sending import Sending
from gateway.sharing import Sharing
from gateway.state import State
from mqtt.encode import PublishTemplate
from mqtt.encode import publish as encode_publish
from mqtt.packets import MQTT_3_1_1, MQTT_5
from shards.frames import Live
from shards.persistence import stored_flags

_PLAIN: Final[tuple[bool, list[bytes]]] = (True, [])


class Fanout:
    def __init__(self, state: State, table: LiveTable, sending: Sending, sharing: Sharing) -> None:
        self._state = state
        self._table = table
        self._send = sending.send
        self._forward = sending.forward
        self._sharing = sharing
        self._stored = stored_flags(state.options.store_qos0)
        self._outbox = state.outbox
        self._counters = state.counters

    def hand_over(self, publisher: bytes, conn: int, flags: Sequence[int], topics: Sequence[bytes], bodies: Sequence[bytes]) -> None:
        """Messages of a connection of this gateway, to subscribers here and at other gateways."""
        table = self._table
        if not len(table):
            return
        cached, stored = table.cache.get, self._stored
        for flag, topic, body in zip(flags, topics, bodies, strict=True):
            targets = cached(topic, MISSING)
            if targets is None:
                continue
            if targets is MISSING:
                targets = table.look_up(topic)
                if targets is None:
                    continue
            if stored[flag]:
                subs, peers, groups = targets.subs, targets.peers, targets.groups
            else:
                subs, peers, groups = targets.subs_qos0, targets.peers_qos0, targets.groups_qos0
            if subs:
                self._local(publisher, flag, topic, body, subs)
            if groups:
                self._shared(publisher, conn, flag, topic, body, groups, peers)
                continue
            for link in peers:
                self._forward(link, publisher, conn, flag, topic, body)

    def _shared(
        self, publisher: bytes, conn: int, flags: int, topic: bytes, body: bytes, groups: Sequence[Group], peers: Sequence[int]
    ) -> None:
        """A message that groups want too: what another gateway has to serve of them goes there along with it."""
        asked = self._sharing.choose(groups, publisher, flags, topic, body)
        for link in peers:
            self._forward(link, publisher, conn, flags, topic, body, True, asked.pop(link, ()))
        for link, filters in asked.items():
            self._forward(link, publisher, conn, flags, topic, body, False, filters)

    def forwarded(self, frame: Forward) -> None:
        """Messages that came from another gateway: for plain subscribers here, and for the groups that it says."""
        for_groups = {at: (plain, groups) for at, plain, groups in frame.shared}
        for index, topic in enumerate(frame.topics):
            plain, groups = for_groups.get(index, _PLAIN)
            if plain:
                self._to_plain(frame.publisher, frame.flags[index], topic, frame.bodies[index])
            if groups:
                self._sharing.serve(groups, frame.publisher, frame.flags[index], topic, frame.bodies[index])

    def entered_everywhere(self, message: Live) -> None:
        """A message that a shard has told every gateway."""
        self._to_plain(message.publisher, message.flags, message.topic, message.body)
        targets = self._table.targets(message.topic)
        groups = () if targets is None else targets.groups if self._stored[message.flags] else targets.groups_qos0
        if groups:
            self._sharing.entered_everywhere(groups, message.publisher, message.flags, message.topic, message.body)

    def _to_plain(self, publisher: bytes, flags: int, topic: bytes, body: bytes) -> None:
        targets = self._table.targets(topic)
        if targets is not None:
            subs = targets.subs if self._stored[flags] else targets.subs_qos0
            if subs:
                self._local(publisher, flags, topic, body, subs)

    def _local(self, publisher: bytes, flags: int, topic: bytes, body: bytes, subs: Sequence[LiveSub]) -> None:
        published_qos = flags >> 1 & 3
        template: PublishTemplate | None = None
        dirty = self._outbox.dirty
        qos0_5 = qos0_3 = b""
        plain = 0
        for sub in subs:
            qos = sub.sent_qos[published_qos]
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
            plain += 1
            if sub.retain_topics is not None and flags & 1:
                sub.retain_topics.add(topic)
        self._counters.live_delivered += len(subs)
        self._counters.publish_bytes_sent += plain * len(body)

    def _with_care(self, sub: LiveSub, publisher: bytes, flags: int, qos: int, template: PublishTemplate) -> None:
        if sub.no_local and sub.connection.client == publisher:
            self._counters.live_delivered -= 1
            return
        if sub.retain_topics is not None and flags & 1:
            sub.retain_topics.add(template.topic)
        if not self._send(sub, qos, flags & 1 if sub.retain_as_published else 0, template, self._state.wall_ms):
            self._counters.live_delivered -= 1
