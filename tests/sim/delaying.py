"""Delayed messages, in worlds where everything else happens too: `$delayed/SECONDS/topic`, over crashes of whatever holds them.

    comes       acknowledged, it comes to whoever has subscribed since before it was due; nothing is left of it afterwards
    once        it enters the log once, unless its publisher has sent it again at QoS 1
    not early   not before its seconds have passed since it was first sent, to the millisecond in which shards count
    in order    of one publisher in the order in which they are due: the later one does not enter before the earlier one

The first is what every message is owed (tests.sim.rules).  Each has a topic of its own, in which nobody else is interested: there the
order of a stream says nothing.  The wall clock is not set in these worlds, since a reboot counts by it how long the machine was away.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from shards.engine import HOME_FAMILY
from shards.rows import DELAYED, successor
from tests.sim.broker import Plant
from tests.sim.client import Client
from tests.sim.ledger import Message
from tests.sim.rules import Violation
from tests.sim.shape import MESSAGES_PER_BURST, ClientShape, Shape, draw
from tests.sim.simulation import Simulation
from tests.sim.world import MS, SECOND

SECONDS = (0, 1, 2, 2, 5, 5, 12)
MESSAGES = 40
LATE = b"$late/%d"
LATE_FILTER = b"$late/#"
WEEK_S = 7 * 86_400
ROWS_MAX = 10_000
PUBLISHERS = ("d0", "d1")


def shape_of(seed: int) -> Shape:
    """Two who delay what they publish, one who comes back for it and one who must be there."""
    shape = draw(Random(seed))
    publisher = next(each for each in shape.clients if each.publishes and not each.temper.memory)
    subscriber = next(each for each in shape.clients if each.filters and each.temper.expiry_s and not each.temper.memory)
    rate = MESSAGES * SECOND / MESSAGES_PER_BURST / len(PUBLISHERS) / shape.safety_us
    delaying = [replace(publisher, name=name, publishes=rate) for name in PUBLISHERS]
    durable = replace(subscriber, name="w0", filters=(LATE_FILTER,), subscribes=0.0, publishes=0.0, qos=(2,))
    durable = replace(durable, temper=replace(durable.temper, expiry_s=WEEK_S))
    there = replace(durable, name="v0", temper=replace(durable.temper, expiry_s=0))
    faults = {kind: weight for kind, weight in shape.faults.items() if kind != "wall step"}
    return replace(shape, clients=(*shape.clients, *delaying, durable, there), faults=faults, messages_max=shape.messages_max + MESSAGES)


class Delaying(Simulation):
    def __init__(self, seed: int, plant: Plant | None = None, keep_all: bool = False) -> None:
        super().__init__(seed, shape_of(seed), plant, keep_all)
        self._others = self.crowd.message
        self._noted = self.ledger.written
        self._entered: dict[Message, None] = {}
        self.crowd.message = self._message  # type: ignore[method-assign]
        self.ledger.written = self._written  # type: ignore[method-assign]

    def _message(self, wanted: ClientShape, client: Client) -> Message:
        if wanted.name not in PUBLISHERS:
            return self._others(wanted, client)
        rng, number = self.world.rng, len(self.ledger.messages)
        payload = b"late%d-%s %s" % (number, client.key, b"." * rng.choice((0, 20, 200)))
        made = Message(payload, client.key, LATE % number, rng.choice(wanted.qos), False, delay_s=rng.choice(SECONDS))
        self.ledger.add(made)
        return made

    # ------------------------------------------------------------------ as it enters

    def _written(self, shard: int, position: int, payload: bytes) -> None:
        self._noted(shard, position, payload)
        message = self.ledger.messages.get(payload)
        if message is None or message.delay_s < 0:
            return
        due_us = message.sent_us + message.delay_s * SECOND
        if self.world.now_us < due_us - MS:
            raise Violation(f"not early: {message} enters {due_us - self.world.now_us} us before its {message.delay_s} s have passed")
        if len(message.copies) > 1 and (message.qos != 1 or not message.again):
            raise Violation(f"once: {message} is stored at {list(message.copies)}")
        self._in_order(message, shard, position)
        self._entered[message] = None

    def _in_order(self, message: Message, shard: int, position: int) -> None:
        """When it was taken is not known, but it was between its PUBLISH and its acknowledgement."""
        if message.acked_us < 0 or message.again:
            return
        latest_us = message.acked_us + message.delay_s * SECOND
        for other in self._entered:
            if other.publisher != message.publisher or other.again or other.sent_us + other.delay_s * SECOND <= latest_us:
                continue
            if any(at == shard and place < position for at, place in other.copies):
                raise Violation(f"in order: {other} of {other.delay_s} s came before {message} of {message.delay_s} s")

    # ------------------------------------------------------------------ at the end

    def drain(self) -> None:
        """What was taken last is due by then."""
        super().drain()
        self.world.run(self.world.now_us + (max(SECONDS) + 1) * SECOND)
        super().drain()
        for shard, disk in enumerate(self.broker.disks):
            left = disk.engine.scan(HOME_FAMILY, DELAYED, successor(DELAYED), ROWS_MAX)
            if left:
                raise Violation(f"comes: {len(left)} delayed messages are left in shard {shard}, and all are due")
