"""The subscribing half of a client: what it wants, what it has got, and how it acknowledges.

Acknowledgements may come late and in any order.  The ids of QoS 2 messages are known until their PUBREL, over connections of
the same session; a PUBLISH under a known id is a repetition and not a delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqtt.packets import MQTT_5, Ack, AckKind, Properties, Suback, Subscribe, Unsuback, Unsubscribe
from mqtt.packets import Subscription as Row
from tests.sim.ledger import Message, Subscription
from tests.sim.rules import Violation

if TYPE_CHECKING:
    from tests.sim.client import Attempt, Client

_FAILED = 0x80


class Subscribing:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.wanted: dict[bytes, tuple[int, int]] = {}
        """filter -> QoS and options: bit 0 no local, bit 1 retain as published."""
        self.ack_late = 0.0
        self.ack_within_us = 0
        self.prompt = False
        """Acknowledge at once, whatever the temper: the end is near."""
        self._taken: dict[int, bytes] = {}
        """QoS 2 ids that wait for PUBREL, with what came under them."""
        self._received: dict[int, None] = {}
        """Those of them for which PUBREC was sent."""
        self._under_way: dict[int, bytes] = {}
        """Ids of this connection that are not finished from the client's side."""
        self._asked: dict[int, list[Subscription]] = {}
        self._leaving: dict[int, list[bytes]] = {}
        self._last_id = 0
        self._last_identifier = 0

    @property
    def idle(self) -> bool:
        return not self._asked and not self._leaving and not self._under_way and not self._taken

    def story(self) -> str:
        return f"{list(self._asked.values())} {list(self._leaving.values())} {self._under_way} {self._taken}"

    # ------------------------------------------------------------------ connections

    def online(self, present: bool) -> None:
        """Subscribe to what is wanted and not known to be there."""
        now = self._client.ledger
        fresh = [
            name for name in self.wanted if (sub := now.current(self._client.key, name)) is None or not sub.open or sub.uncertain_us >= 0
        ]
        if fresh:
            self.subscribe(fresh)

    def offline(self) -> None:
        self._under_way.clear()
        self._asked.clear()
        self._leaving.clear()
        if not self._client.durable:
            self.session_over()

    def session_over(self) -> None:
        self._taken.clear()
        self._received.clear()
        for sub in self._client.ledger.of(self._client.key):
            if sub.until_us < 0:
                sub.until_us = self._client.world.now_us

    # ------------------------------------------------------------------ subscriptions

    def subscribe(self, filters: list[bytes], retain_handling: int = 0) -> None:
        """SUBSCRIBE to these at the QoS that is wanted; with MQTT 5 each with an identifier of its own, so that it is known
        which one brought a message."""
        if self._client.temper.version == MQTT_5:
            for name in filters:
                self._subscribe([name], retain_handling)
        else:
            self._subscribe(filters, retain_handling)

    def _subscribe(self, filters: list[bytes], retain_handling: int) -> None:
        client = self._client
        self._last_id = self._last_id % 65_535 + 1
        now_us, ledger = client.world.now_us, client.ledger
        identifier = 0
        if client.temper.version == MQTT_5:
            self._last_identifier += 1
            identifier = self._last_identifier
        asked: list[Subscription] = []
        rows: list[Row] = []
        for name in filters:
            qos, options = self.wanted[name]
            sub = ledger.current(client.key, name)
            if sub is not None and sub.since_us >= 0 and (sub.qos > 0) != (qos > 0):
                # Another life, should it be granted; until then nobody can say which.
                sub.uncertain_us = now_us if sub.uncertain_us < 0 else sub.uncertain_us
                sub = None
            if sub is None or sub.since_us < 0 or sub.uncertain_us >= 0:
                sub = Subscription(client.key, name, options, now_us, client.stored)
                ledger.of(client.key).append(sub)
            sub.granted[qos] = None
            sub.options = options
            sub.local |= not options & 1
            sub.no_local_once |= bool(options & 1)
            sub.as_published_once |= bool(options & 2)
            if identifier:
                sub.identifiers[identifier] = None
            asked.append(sub)
            rows.append(Row(name, qos, bool(options & 1), bool(options & 2), retain_handling) if identifier else Row(name, qos))
        if identifier:
            ledger.by_identifier[client.key, identifier] = asked
        self._asked[self._last_id] = asked
        client.world.note(client.id, "subscribes", rows)
        properties = Properties(subscription_identifiers=(identifier,)) if identifier else Properties()
        client.send(Subscribe(self._last_id, tuple(rows), properties))

    def subacked(self, packet: Suback, left_us: int) -> None:
        asked = self._asked.pop(packet.packet_id, None)
        if asked is None or len(asked) != len(packet.reasons):
            raise Violation(f"{self._client.id} got {packet} for {asked}")
        for sub, reason in zip(asked, packet.reasons, strict=True):
            if reason >= _FAILED:
                continue
            if int(reason) not in sub.granted:
                raise Violation(f"{self._client.id}: {sub} was granted {reason}")
            self._end_others(sub)
            sub.qos = int(reason)
            if sub.since_us < 0:
                sub.since_us = left_us
        failed = [sub.filter for sub, reason in zip(asked, packet.reasons, strict=True) if reason >= _FAILED]
        wanted_still = [name for name in failed if name in self.wanted]
        if wanted_still:
            self._client.world.later(1_000_000, self._again, self._client.attempt, wanted_still)

    def _again(self, attempt: Attempt | None, filters: list[bytes]) -> None:
        if attempt is not None and self._client.attempt is attempt:
            self.subscribe([name for name in filters if name in self.wanted] or list(self.wanted))

    def _end_others(self, sub: Subscription) -> None:
        """An earlier life of the same filter has ended when this one is granted."""
        for other in self._client.ledger.of(self._client.key):
            if other is not sub and other.filter == sub.filter and other.until_us < 0:
                other.until_us = self._client.world.now_us

    def unsubscribe(self, filters: list[bytes]) -> None:
        client = self._client
        self._last_id = self._last_id % 65_535 + 1
        for name in filters:
            self.wanted.pop(name, None)
            for sub in client.ledger.of(client.key):
                if sub.filter == name and sub.until_us < 0:
                    sub.until_us = client.world.now_us
        self._leaving[self._last_id] = filters
        client.world.note(client.id, "leaves", filters)
        client.send(Unsubscribe(self._last_id, tuple(filters)))

    def unsubacked(self, packet: Unsuback) -> None:
        if self._leaving.pop(packet.packet_id, None) is None:
            raise Violation(f"{self._client.id} got {packet} and has not asked")

    # ------------------------------------------------------------------ messages

    def got(self, flags: int, packet_id: int, topic: bytes, payload: bytes, identifier: int) -> None:
        client = self._client
        qos, retained = flags >> 1 & 3, bool(flags & 1)
        if qos == 2 and packet_id in self._taken:
            if self._taken[packet_id] != payload:
                raise Violation(
                    f"{client.id}: QoS 2 id {packet_id} came with {payload[:12]!r} before PUBREL for {self._taken[packet_id][:12]!r}"
                )
            if not flags & 8:
                raise Violation(f"{client.id}: {payload[:12]!r} came again under id {packet_id} without DUP")
            self._hold(packet_id, payload)
            self._answer(AckKind.PUBREC, packet_id)
            return
        if qos:
            self._hold(packet_id, payload)
        message = client.ledger.messages.get(payload)
        if message is not None and retained and not message.retain:
            raise Violation(f"{client.id}: {message} came as a retained message, and is none")
        if message is not None and message.topic != topic:
            raise Violation(f"{client.id}: {message} came with topic {topic.decode()}")
        client.rules.delivered(client.key, identifier, payload, qos, retained, client.stored)
        client.heard_message(client)
        if qos == 1:
            self._answer(AckKind.PUBACK, packet_id)
        elif qos == 2:
            self._taken[packet_id] = payload
            self._answer(AckKind.PUBREC, packet_id)

    def _hold(self, packet_id: int, payload: bytes) -> None:
        client = self._client
        known = self._under_way.get(packet_id)
        if known is not None:
            raise Violation(f"{client.id}: id {packet_id} came with {payload[:12]!r} while {known[:12]!r} is not finished under it")
        self._under_way[packet_id] = payload
        if client.temper.version == MQTT_5 and len(self._under_way) > client.temper.receive_max:
            raise Violation(f"{client.id}: {len(self._under_way)} messages are under way, {client.temper.receive_max} were announced")

    def released(self, packet_id: int) -> None:
        """PUBREL: always answered, so that the broker can finish."""
        payload = self._taken.pop(packet_id, None)
        if payload is not None:
            if packet_id not in self._received and not self._ended_for_it(payload):
                raise Violation(f"{self._client.id}: PUBREL {packet_id} came for {payload[:12]!r} before PUBREC was sent")
            self._received.pop(packet_id, None)
            self._under_way.setdefault(packet_id, payload)
        self._answer(AckKind.PUBCOMP, packet_id)

    def _ended_for_it(self, payload: bytes) -> bool:
        """What it may not read any more is acknowledged in its place, when it would be sent once more."""
        message = self._client.ledger.messages.get(payload)
        return message is not None and (self._client.key, message.topic) in self._client.ledger.unreadable

    def _answer(self, kind: AckKind, packet_id: int) -> None:
        client = self._client
        attempt = client.attempt
        if not self.prompt and client.world.happens(self.ack_late):
            client.world.later(client.world.between(0, self.ack_within_us), self._answer_now, attempt, kind, packet_id)
        else:
            self._answer_now(attempt, kind, packet_id)

    def _answer_now(self, attempt: Attempt | None, kind: AckKind, packet_id: int) -> None:
        if self._client.attempt is not attempt or attempt is None:
            return
        if kind is AckKind.PUBREC:
            if packet_id in self._taken:
                self._received[packet_id] = None
        else:
            self._under_way.pop(packet_id, None)
        self._client.send(Ack(kind, packet_id))


__all__ = ["Message", "Subscribing"]
