"""The publishing half of a client: its packet ids, its window, and what it sends again.

QoS 1 is sent until it is acknowledged.  QoS 2 is sent until PUBREC, then PUBREL until PUBCOMP; when the session is gone a
QoS 2 message that has no PUBREC is given up, for nobody can know whether it was taken.  After a reconnect everything
unfinished goes out again in its order, before anything new.  DUP is not always set on a repetition: the broker has to know a
repetition by its id.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mqtt.packets import MQTT_5, Ack, AckKind, Properties, Publish
from mqtt.reason import ReasonCode
from tests.sim.ledger import Message
from tests.sim.rules import Violation

if TYPE_CHECKING:
    from tests.sim.client import Client

_FAILED = 0x80
_PUBACK, _PUBREC, _PUBCOMP = AckKind.PUBACK, AckKind.PUBREC, AckKind.PUBCOMP


class Publishing:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._waiting: deque[Message] = deque()
        self._unfinished: dict[int, tuple[Message, AckKind]] = {}
        """packet id -> the message and what it waits for, in the order of the first sending."""
        self._last_id = 0
        self.ids_max = 40
        """Few ids, so that they come again soon."""
        self.window = 10
        self.dup_always = 0.8

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._unfinished

    @property
    def unfinished(self) -> list[Message]:
        return [message for message, _ in self._unfinished.values()]

    @property
    def unacknowledged(self) -> list[Message]:
        """Of QoS 2, what may or may not have been taken."""
        return [message for message, awaited in self._unfinished.values() if awaited is _PUBREC]

    def awaiting(self, packet_id: int) -> Message | None:
        """What is unfinished under this id."""
        return self._unfinished[packet_id][0] if packet_id in self._unfinished else None

    def publish(self, messages: list[Message]) -> None:
        self._waiting.extend(messages)
        self._pump()

    # ------------------------------------------------------------------ connections

    def online(self, present: bool) -> None:
        again, self._unfinished = self._unfinished, {}
        for packet_id, (message, awaited) in again.items():
            if present:
                self._unfinished[packet_id] = (message, awaited)
                if awaited is _PUBCOMP:
                    self._client.send(Ack(AckKind.PUBREL, packet_id))
                else:
                    self._send(message, packet_id, again=True)
            elif message.qos == 1:
                packet_id = self._next_id()
                self._unfinished[packet_id] = (message, _PUBACK)
                self._send(message, packet_id, again=False)
        self._pump()

    def offline(self) -> None:
        """What was sent at QoS 0 is gone; everything else waits for the next connection of the session, if there is one."""
        if not self._client.durable:
            self.session_over()

    def session_over(self) -> None:
        """What is unfinished at QoS 2 may have been taken or not."""
        self._unfinished = {packet_id: row for packet_id, row in self._unfinished.items() if row[0].qos == 1}

    # ------------------------------------------------------------------ sending

    def _pump(self) -> None:
        client = self._client
        while self._waiting and client.online:
            message = self._waiting[0]
            if message.qos and len(self._unfinished) >= min(self.window, client.server_receive_max):
                return
            self._waiting.popleft()
            packet_id = 0
            if message.qos:
                packet_id = self._next_id()
                self._unfinished[packet_id] = (message, _PUBACK if message.qos == 1 else _PUBREC)
            self._send(message, packet_id, again=False)

    def _send(self, message: Message, packet_id: int, again: bool) -> None:
        world = self._client.world
        if message.sent_us < 0:
            message.sent_us = world.now_us
        else:
            message.again = True
        dup = again and (message.qos == 1 or world.happens(self.dup_always))
        properties = Properties()
        if message.expires and self._client.temper.version == MQTT_5:
            properties = Properties(message_expiry_interval=2)
        world.note(self._client.id, "publishes", message)
        topic = message.topic if message.delay_s < 0 else b"$delayed/%d/%b" % (message.delay_s, message.topic)
        self._client.send(Publish(dup << 3 | message.qos << 1 | message.retain, packet_id, topic, message.payload, properties))

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % self.ids_max + 1
            if self._last_id not in self._unfinished:
                return self._last_id

    # ------------------------------------------------------------------ answers

    def acked(self, kind: AckKind, packet_id: int, reason: ReasonCode, left_us: int) -> None:
        client = self._client
        row = self._unfinished.get(packet_id)
        if row is None or row[1] is not kind:
            if row is not None and kind is _PUBREC and row[1] is _PUBCOMP:
                return  # a second PUBREC, for a PUBLISH that was sent twice
            raise Violation(f"{client.id} got {kind.name} {packet_id} ({reason.name}), {row} is unfinished under it")
        message = row[0]
        if kind is _PUBCOMP or reason >= _FAILED:
            del self._unfinished[packet_id]
        else:
            client.rules.acknowledged(message, left_us)
            if kind is _PUBACK:
                del self._unfinished[packet_id]
            else:
                self._unfinished[packet_id] = (message, _PUBCOMP)
                client.send(Ack(AckKind.PUBREL, packet_id))
        self._pump()
