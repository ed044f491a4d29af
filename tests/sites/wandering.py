"""Clients that go from one site's gateway to another's all the time, though nothing is wrong with theirs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from tests.broker.client import Client

PAUSE_S = 0.5
STAYS_OPEN_S = 3.0


class Wandering:
    """Cancelled when it has been enough.  moved: how often a client has left."""

    def __init__(self, clients: Sequence[Client], chance: random.Random) -> None:
        self._clients, self._chance = clients, chance
        self.moved = 0

    async def run(self) -> None:
        """By chance the old connection is cut, or stays open beside the new one and is cut later, as when a phone changes its network."""
        left: list[asyncio.StreamWriter] = []
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(PAUSE_S)
                client = self._chance.choice(self._clients)
                if not client.connected.is_set():
                    continue
                old = client.tear()
                self.moved += 1
                if old is None:
                    continue
                if self._chance.random() < 0.5:
                    old.transport.abort()
                else:
                    left.append(old)
                    loop.call_later(STAYS_OPEN_S * self._chance.random(), old.transport.abort)
                    del left[:-20]
        finally:
            for writer in left:
                writer.transport.abort()
