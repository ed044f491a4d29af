"""Clients that go on whatever happens, and count: a subscriber that always comes back, a publisher that waits for each answer."""

from __future__ import annotations

import asyncio

from tests.actors.hand import Ended, Hand
from tests.broker import wire
from tests.broker.wire import Version


class Steadfast:
    """A subscriber with a durable session: whenever its connection ends it comes back to the same gateway, and it counts what it got."""

    def __init__(self, port: int, client: str, version: Version, topic_filter: str = "t/#") -> None:
        self.got: dict[int, list[str]] = {1: [], 2: []}
        self.repeats = 0
        self.connections = 0
        self.subscribed = asyncio.Event()
        self._port, self._client, self._version, self._filter = port, client, version, topic_filter
        self._unreleased: set[int] = set()

    def has(self, sent: dict[int, list[str]]) -> bool:
        """In order, each once but for repeats."""
        return self.got[1] == sent[1] and self.got[2] == (sent[2] if self._filter == "t/#" else [])

    async def run(self) -> None:
        while True:
            try:
                hand = await Hand.connect(self._port, self._client, self._version)
                self.connections += 1
                assert hand.present == (self.connections > 1), "its session was lost"
                if not hand.present:
                    await hand.subscribe(self._filter, 2)
                    self.subscribed.set()
                while True:
                    await self._take(hand)
            except (Ended, OSError, AssertionError) as end:
                if isinstance(end, AssertionError) and "CONNACK" not in str(end):
                    raise
                await asyncio.sleep(0.02)

    async def _take(self, hand: Hand) -> None:
        packet = await hand.packet()
        if packet.kind == wire.PUBREL:
            packet_id = wire.read_answer(packet.body)[0]
            self._unreleased.discard(packet_id)
            hand.acknowledge(wire.PUBCOMP, packet_id)
            return
        assert packet.kind == wire.PUBLISH, packet
        came = wire.read_publish(self._version, packet.flags, packet.body)
        payload = came.payload.decode()
        if came.qos == 2:
            if came.packet_id not in self._unreleased:
                self._unreleased.add(came.packet_id)
                self.got[2].append(payload)
            else:
                assert came.dup, f"{payload} came again without DUP"
            hand.acknowledge(wire.PUBREC, came.packet_id)
            return
        if payload in self.got[1]:
            # On another connection, what had just left when its actor ended may come as new.
            assert came.dup or self.connections > 1, f"{payload} came again without DUP"
            self.repeats += 1
        else:
            self.got[1].append(payload)
        hand.acknowledge(wire.PUBACK, came.packet_id)


async def publish(hand: Hand, qos: int, sent: list[str], stop: asyncio.Event) -> None:
    """One after the other, until it is to stop; sent: what was acknowledged."""
    while not stop.is_set():
        payload = f"q{qos}-{len(sent)}"
        await hand.published(f"t/{qos}", payload, qos=qos)
        sent.append(payload)
