"""Clients that vanish, one after the other, each with a will that has to come."""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress

from tests.broker import wire
from tests.broker.history import History, payload_of

ANSWER_S = 10.0
PAUSE_S = 0.5
_CLEAN_WITH_WILL_AT_QOS_1 = 0x02 | 0x04 | 0x08


class Vanishing:
    """Connects with a will, is gone without a word, and so on, until it is cancelled; a will whose CONNECT was answered is due."""

    def __init__(self, port: int, prefix: str, history: History) -> None:
        self._port, self._prefix, self._history = port, prefix, history
        self.left = 0

    async def run(self) -> None:
        while True:
            name = f"{self._prefix}-vanishing-{self.left}"
            number = self._history.publish(name, f"{self._prefix}/will", 1, time.monotonic_ns())
            # The same one until it was taken: a CONNECT whose answer was lost may have left its will, too.
            taken = False
            while not taken:
                taken = await self._vanish(name, payload_of(name, number))
                await asyncio.sleep(PAUSE_S)
            self._history.acknowledged(name, number, time.monotonic_ns())
            self.left += 1

    async def _vanish(self, name: str, will: bytes) -> bool:
        body = wire.text("MQTT") + bytes([4, _CLEAN_WITH_WILL_AT_QOS_1]) + struct.pack(">H", 60)
        body += wire.text(name) + wire.text(f"{self._prefix}/will") + struct.pack(">H", len(will)) + will
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    writer.write(wire.packet(0x10, body))
                    answer = await reader.readexactly(4)
                finally:
                    writer.transport.abort()
            return answer == b"\x20\x02\x00\x00"
        return False
