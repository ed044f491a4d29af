"""Retained topics that are set over and over, and new subscribers that look at them."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

from tests.broker import wire
from tests.broker.client import Client
from tests.broker.history import History, parse_payload
from tests.gates.gate import GateFailed
from tests.gates.traffic import Publisher

TOPICS = 10
LOOK_S = 10.0
FINISH_S = 60.0
TRIES = 6
_CLEAN = 0x02


class Keeper:
    """What was acknowledged last, by topic, is due to whoever subscribes afterwards; something newer may come."""

    def __init__(self, port: int, prefix: str) -> None:
        self.history = History()
        self._port, self._prefix = port, prefix
        topics = [f"{prefix}-kept/{at}" for at in range(TOPICS)]
        self.publisher = Publisher(Client(port, f"{prefix}-keeper", self.history, window=5, retain=True), 1, 5.0, topics)
        self.looks = 0

    def due(self) -> dict[str, int]:
        """By topic, the number of the newest that was acknowledged."""
        newest: dict[str, int] = {}
        for (_, number), sent in self.history.sent.items():
            if sent.acknowledged_ns is not None:
                newest[sent.topic] = max(number, newest.get(sent.topic, -1))
        return newest

    async def look(self) -> int:
        """As a client that nobody knows; a look that is broken off is begun anew. How many topics have what is due, or newer.

        Nothing is set meanwhile: what goes out live to a new subscriber need not come to it as retained, too, and would hide what is not
        there."""
        await self.publisher.finish(FINISH_S)
        try:
            return await self._look()
        finally:
            self.publisher.go_on()

    async def _look(self) -> int:
        for _ in range(TRIES):
            due = self.due()
            found = await self._found(set(due))
            if found is None:
                continue
            self.looks += 1
            behind = {topic: (found.get(topic), number) for topic, number in due.items() if found.get(topic, -1) < number}
            if behind:
                raise GateFailed(f"retained topics older than what was acknowledged (found, acknowledged): {behind}")
            return len(due)
        raise GateFailed(f"nobody could look at retained topics, {TRIES} times")

    async def _found(self, wanted: set[str]) -> dict[str, int] | None:
        """What came until all of these had come, or LOOK_S long; None: the connection did not last."""
        found: dict[str, int] = {}
        name = f"{self._prefix}-looking-{self.looks}"
        body = wire.text("MQTT") + bytes([4, _CLEAN]) + struct.pack(">H", 60) + wire.text(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                try:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                except OSError:
                    return None
                packets, subscribed = wire.Reader(), False
                try:
                    writer.write(wire.packet(0x10, body))
                    writer.write(wire.subscribe(4, 1, f"{self._prefix}-kept/#", 0))
                    while not (subscribed and wanted <= found.keys()):
                        data = await reader.read(65536)
                        if not data:
                            return None
                        for packet in packets.feed(data):
                            subscribed |= packet.kind == wire.SUBACK and packet.body[2] == 0
                            if packet.kind == wire.PUBLISH:
                                message = wire.read_publish(4, packet.flags, packet.body)
                                key = parse_payload(message.payload)
                                if key is not None:
                                    found[message.topic] = max(key[1], found.get(message.topic, -1))
                except OSError:
                    return None
                finally:
                    writer.transport.abort()
                    if not subscribed:
                        found.clear()
        return found if subscribed else None
