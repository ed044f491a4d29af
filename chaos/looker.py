"""Who subscribes to a retained topic for the first time, and what he gets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chaos.addresses import Login
from chaos.client import Client
from mqtt.packets import Publish
from mqtt.reason import ReasonCode


class Looker:
    """For one look; its session ends with its connection."""

    def __init__(self, client_id: str, login: Login, topic: str, first: int) -> None:
        self.client = Client(client_id, login, self, expiry_s=0, first=first)
        self.owed = -1
        """The newest number that was acknowledged before it subscribed."""
        self.subscribed = False
        self._topic = topic
        self._came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def look(self, newest: Callable[[], int]) -> bytes:
        """The value. Waits for it as long as it is let; raises what `Client.subscribe` raises."""
        self.client.start()
        await self.client.connected.wait()
        self.owed = newest()
        await self.client.subscribe(self._topic, 1)
        self.subscribed = True
        return await self._came

    # ------------------------------------------------------------------ Listener

    def arrived(self, client: Client, message: Publish) -> None:
        if message.retain and not self._came.done():
            self._came.set_result(message.payload)

    def sent_again(self, client: Client, number: int, *, as_new: bool) -> None:
        pass

    def acknowledged(self, client: Client, number: int) -> None:
        pass

    def refused(self, client: Client, number: int, reason: ReasonCode) -> None:
        pass

    def completed(self, client: Client, number: int) -> None:
        pass

    def forgotten(self, client: Client) -> None:
        pass
