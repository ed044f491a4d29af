"""Durable shared groups, in worlds where everything else happens too: members that come and go, over crashes of whatever holds them.

    comes       what is acknowledged to its publisher comes to a member, and everything that was under way is forgotten
    once        what one member has begun at QoS 2 comes to no other (tests.sim.rules)
    in order    by stream, messages of one publisher and topic come for the first time in the order of their publisher, at QoS 1, if
                they are stored: others go live to whoever's turn it is; and to each member, at QoS 1 and 2
    its own     in worlds where nothing breaks but connections: what a member has acknowledged comes to nobody again, unless the
                acknowledgement may have been lost with its connection; of what is stored more than once this holds for each copy

One member is always there, so the group lives as long as the world; the others join, leave, and lose their sessions in some worlds.  A
message of QoS 2 that was begun by a session that has ended is owed to nobody [MQTT-4.8.2-5].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from mqtt.packets import AckKind
from sessions.options import BY_PUBLISHER, BY_STREAM, BY_TOPIC, ROUND_ROBIN
from shards.engine import HOME_FAMILY
from shards.rows import DELIVERY, OUTCOME, successor
from tests.sim.broker import Plant
from tests.sim.client import Client
from tests.sim.ledger import Message, Subscription
from tests.sim.network import Wire
from tests.sim.rules import Violation
from tests.sim.shape import MESSAGES_PER_BURST, ClientShape, Shape, draw
from tests.sim.simulation import Simulation
from tests.sim.world import SECOND

MESSAGES = 60
TEAM = b"$share/s/team/#"
TOPICS = [b"team/%d" % number for number in range(5)]
PUBLISHERS = ("t0", "t1")
WEEK_S = 7 * 86_400
ACKED_LONG_US = 3 * SECOND
"""So long after its acknowledgement has left a client, nothing can be on its way to another any more."""
_QOS = ((1,), (2,), (2,))
"""At QoS 0 nothing is promised."""
CALM = {"drop client": 6}


def shape_of(seed: int) -> Shape:
    """Two who publish to the group, one member that stays, and some who do not."""
    shape = draw(Random(seed))
    rng = Random(seed * 7919 + 1)
    publisher = next(each for each in shape.clients if each.publishes and not each.temper.memory)
    subscriber = next(each for each in shape.clients if each.filters and each.temper.expiry_s and not each.temper.memory)
    rate = MESSAGES * SECOND / MESSAGES_PER_BURST / len(PUBLISHERS) / shape.safety_us
    calm = seed % 4 == 0
    publishing = [
        replace(
            publisher, name=name, publishes=rate, restless=0.0 if calm else publisher.restless, temper=replace(publisher.temper, user="")
        )
        for name in PUBLISHERS
    ]
    temper = replace(subscriber.temper, version=5, expiry_s=WEEK_S, will_qos=-1)
    steady = replace(
        subscriber, name="k0", filters=(TEAM,), subscribes=0.0, publishes=0.0, restless=0.0, torn=0.0, qos=rng.choice(_QOS), temper=temper
    )
    others = []
    for number in range(1, rng.choice((2, 3, 4))):
        home = replace(temper, receive_max=rng.choice((1, 5, 100)), expiry_s=WEEK_S if calm else rng.choice((WEEK_S, WEEK_S, 5)))
        others.append(
            replace(
                steady,
                name=f"k{number}",
                temper=home,
                subscribes=0.0 if calm else rng.choice((0.0, 0.05)),
                restless=0.0 if calm else rng.choice((0.05, 0.2)),
                torn=0.0 if calm else rng.choice((0.0, 0.05)),
                qos=rng.choice(_QOS),
                ack_late=rng.choice((0.0, 0.5, 0.9)),
                ack_within_us=rng.choice((10_000, 500_000, 3_000_000)),
            )
        )
    session = replace(
        shape.session,
        group_strategy=rng.choice((BY_STREAM, BY_STREAM, BY_STREAM, ROUND_ROBIN, BY_PUBLISHER, BY_TOPIC)),
        group_given_max=rng.choice((1, 4, 100)),
        group_inflight_max=rng.choice((2, 10, 1000)),
        group_bytes_max=rng.choice((300, 8 << 20)),
        redelivery_after_ms=rng.choice((200, 2000, 5000)),
    )
    shape = replace(shape, clients=(*shape.clients, *publishing, steady, *others), session=session)
    faults = CALM if calm and shape.faults else shape.faults
    return replace(shape, faults=faults, messages_max=shape.messages_max + MESSAGES)


class Sharing(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False, shape: Shape | None = None) -> None:
        super().__init__(seed, shape or shape_of(seed), plant, keep_all)
        self._calm = set(self.shape.faults) <= set(CALM) and seed % 4 == 0
        self._ordered = self.shape.session.group_strategy == BY_STREAM
        self._others = self.crowd.message
        self._heard = self.rules.delivered
        self._missing = self.rules.missing
        self._came: dict[Message, None] = {}
        self._last: dict[tuple[bytes, bytes], Message] = {}
        self._came_to: dict[tuple[bytes, Message], None] = {}
        self._last_at: dict[tuple[bytes, bytes, bytes], Message] = {}
        """By member, publisher and topic."""
        self._acked: dict[Message, list[tuple[int, Wire]]] = {}
        """When each acknowledgement left its member, and over which wire."""
        self._members = [client for client in self.crowd.clients if client.key.startswith(b"k")]
        self.crowd.message = self._message  # type: ignore[method-assign]
        self.rules.delivered = self._delivered  # type: ignore[method-assign]
        self.rules.missing = self._owed  # type: ignore[method-assign]
        for client in self._members:
            self._watch(client)

    def _message(self, wanted: ClientShape, client: Client) -> Message:
        if wanted.name not in PUBLISHERS:
            return self._others(wanted, client)
        rng, number = self.world.rng, len(self.ledger.messages)
        payload = b"team%d-%s %s" % (number, client.key, b"." * rng.choice((0, 20, 200)))
        made = Message(payload, client.key, rng.choice(TOPICS), rng.choice((1, 2)), False)
        self.ledger.add(made)
        return made

    def _watch(self, client: Client) -> None:
        """When an acknowledgement that ends a delivery leaves a member."""
        subscribing = client.subscribing
        answer = subscribing._answer_now

        def answered(attempt: object, kind: AckKind, packet_id: int) -> None:
            payload = subscribing._under_way.get(packet_id)
            before = client.attempt
            wire = before.wire if before is not None and before is attempt else None
            answer(attempt, kind, packet_id)  # type: ignore[arg-type]
            message = self.ledger.messages.get(payload or b"")
            if kind is AckKind.PUBACK and message is not None and wire is not None:
                self._acked.setdefault(message, []).append((self.world.now_us, wire))

        subscribing._answer_now = answered  # type: ignore[method-assign]

    # ------------------------------------------------------------------ as it comes

    def _delivered(self, client: bytes, identifier: int, payload: bytes, qos: int, retained: bool, durable: bool) -> None:
        self._heard(client, identifier, payload, qos, retained, durable)
        message = self.ledger.messages.get(payload)
        if message is None or message.topic not in TOPICS or not client.startswith(b"k"):
            return
        if self._calm and qos == 1 and message in self._acked:
            self._require_lost(client, message)
        self._require_order_at(client, message)
        if message in self._came:
            return
        self._came[message] = None
        if self._ordered and message.qos == 1 and not message.again and not self.rules._excluded(message):
            last = self._last.get(message.key[:2])
            if last is not None and last.number > message.number:
                raise Violation(f"in order: {message} came to {client.decode()} for the first time, and {last} had come")
            self._last[message.key[:2]] = message

    def _require_lost(self, client: bytes, message: Message) -> None:
        """It comes again, so an acknowledgement is on its way or was lost, or its publisher had to send it again: then it is stored more
        than once, and each copy is acknowledged."""
        long_ago_us = self.world.now_us - ACKED_LONG_US
        arrived = [
            acked_us
            for acked_us, wire in self._acked[message]
            if acked_us < long_ago_us and (wire.broken_us < 0 or wire.broken_us > acked_us + ACKED_LONG_US)
        ]
        if len(arrived) >= max(1, len(message.copies)):
            raise Violation(f"its own: {message} came to {client.decode()} and was acknowledged at {arrived}")

    def _require_order_at(self, client: bytes, message: Message) -> None:
        if not self._ordered or message.again or self.rules._excluded(message) or (client, message) in self._came_to:
            return
        self._came_to[client, message] = None
        line = (client, *message.key[:2])
        last = self._last_at.get(line)
        if last is not None and last.number > message.number and last.qos == message.qos:
            raise Violation(f"in order at each: {message} came to {client.decode()} for the first time, and {last} had come there")
        self._last_at[line] = message

    # ------------------------------------------------------------------ at the end

    def _owed(self) -> Iterator[tuple[Subscription, Message]]:
        yield from self._missing()
        subs = [sub for client in self._members for sub in self.ledger.of(client.key)]
        steady = next((sub for sub in subs if sub.client == b"k0" and sub.open), None)
        if steady is None:
            return
        all_stay = all(sub.until_us < 0 for sub in subs)
        for publisher in PUBLISHERS:
            for topic in TOPICS:
                for qos in (1, 2):
                    for message in self.ledger.streams.get((publisher.encode(), topic, qos), ()):
                        owed = qos == 1 or all_stay or max(max(sub.granted) for sub in subs) < 2
                        if message not in self._came and owed and self.rules.owed(steady, message):
                            yield steady, message

    def drain(self) -> None:
        super().drain()
        for shard, disk in enumerate(self.broker.disks):
            for family in (DELIVERY, OUTCOME):
                left = disk.engine.scan(HOME_FAMILY, family, successor(family), 10_000)
                if left:
                    raise Violation(f"comes: {len(left)} rows {family!r} of deliveries are left in shard {shard}: {left[0]}")
