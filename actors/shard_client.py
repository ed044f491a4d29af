"""A process's end of its link to one shard: numbered requests that are never lost, queries, feed control, beats.

Used by gateways, session actors and other shards.  What is asked is sent in order, again after every reconnect, and answered
in order; the numbers begin at 1 with the process's incarnation (PROTOCOLS 4).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from actors.endpoints import Endpoint
from actors.links import Carried, Link, LinkClient, taken
from actors.wire import Wire
from shards.frames import Answer, Ask, Beat, Entry, FeedTaken, FeedWant, Frame, Query, Refused, Reply, Result, decode, encode
from shards.numbered import NumberedSender

BEAT_SECONDS = 2.0
log = structlog.get_logger(__name__)
_BEAT = encode(Beat())


class ShardListener(Protocol):
    def shard_linked(self, shard: int) -> None: ...

    def shard_lost(self, shard: int) -> None: ...

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None: ...

    def shard_told(self, shard: int, frame: Frame) -> None:
        """Result, Feed, Work, Superseded or Live."""


class ShardClient:
    def __init__(self, shard: int, where: Callable[[], Endpoint | None], listener: ShardListener, wire: Wire, role: str, name: str) -> None:
        self.shard = shard
        self._listener = listener
        self._sender = NumberedSender()
        self._ids: deque[int] = deque()
        self._client = LinkClient(where, self, wire, role, name)
        self._beats: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._client.start()
        self._beat()

    def look_again(self) -> None:
        """The shard may be led elsewhere now; see LinkClient."""
        self._client.look_again()

    async def stop(self) -> None:
        for timer in (self._beats, self._retry):
            if timer is not None:
                timer.cancel()
        await self._client.stop()

    @property
    def backlog(self) -> int:
        return self._sender.backlog

    @property
    def linked(self) -> bool:
        return self._sender.connected

    # ------------------------------------------------------------------ asking

    def ask(self, id: int, entries: list[Entry]) -> None:
        self._ids.append(id)
        self._sender.send(entries)
        self._write()

    def query(self, id: int, ask: Ask) -> None:
        self._client.hand_on(Query(id, ask), encode)

    def feed(self, frame: FeedWant | FeedTaken) -> None:
        self._client.hand_on(frame, encode)

    def _write(self) -> None:
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        for request in self._sender.ready(now_ms):
            self._client.hand_on(request, encode)

    def _beat(self) -> None:
        self._client.send(_BEAT)
        self._beats = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._beat)

    # ------------------------------------------------------------------ LinkOwner

    def link_up(self, link: Link) -> None:
        self._sender.linked()
        self._listener.shard_linked(self.shard)
        self._write()

    def link_down(self, link: Link) -> None:
        self._sender.unlinked()
        self._listener.shard_lost(self.shard)

    def link_frame(self, link: Link, data: Carried) -> None:
        try:
            frame = taken(data, decode)
            if isinstance(frame, Answer):
                if self._sender.answered(frame.number) is not None:
                    self._listener.shard_replied(self.shard, self._ids.popleft(), frame.replies)
                    self._write()
                return
        except ValueError as error:
            link.close(str(error))
            return
        if isinstance(frame, Refused):
            loop = asyncio.get_running_loop()
            self._sender.refused(frame.number, int(loop.time() * 1000) + frame.retry_ms)
            self._retry = loop.call_later(frame.retry_ms / 1000 + 0.01, self._write)
            log.warning("shard.refused", shard=self.shard, frame=frame.number, retry_ms=frame.retry_ms)
            return
        self._listener.shard_told(self.shard, frame)


def look_again(clients: Iterable[ShardClient]) -> None:
    """Shards may be led elsewhere now."""
    for client in clients:
        client.look_again()


__all__ = ["Result", "ShardClient", "ShardListener", "look_again"]
