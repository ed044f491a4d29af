"""What the reader asks of the shards themselves: cuts, leases, what retention would do, and messages to be taken.

A port with two forms: links, from a process of its own (LinkSide), and a store in the same process, for tests. Asked from the threads of
connections; several shards are asked at once.

Errors are ShardAway: ask again later. Everything here may be asked twice.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from actors.asking import NotReached, Shards
from actors.topology import Topology
from shards.frames import Ask, Entry, Reply, Told
from shards.inbox import KEEPS_NOTHING

AWAY_AFTER_S = 15.0
BACKLOG_MAX = 64
"""Frames that may wait for one shard; further ones are not sent at all."""
T = TypeVar("T")


class ShardAway(Exception):
    """One sentence for people."""

    def __init__(self, shard: int, sentence: str) -> None:
        super().__init__(sentence)
        self.shard = shard


class ShardSide(Protocol):
    def query(self, shards: Iterable[int], ask: Ask) -> dict[int, Told]:
        """The same question to each of these. Raises ShardAway."""

    def ask(self, entries: Mapping[int, Entry]) -> dict[int, Reply]:
        """Answered when it is committed. Raises ShardAway; then it may have happened in any of them, or may yet."""


class LinkSide:
    """Over links, which live on the loop of the process."""

    def __init__(self, topology: Topology, loop: asyncio.AbstractEventLoop, within_s: float = AWAY_AFTER_S) -> None:
        """To be made on the loop."""
        self._loop = loop
        self._within_s = within_s
        # What it asks may be asked twice, so a shard need not remember who it was when it is gone.
        name = f"{KEEPS_NOTHING}reader:{os.getpid()}:{secrets.token_hex(8)}"
        self._shards = Shards(topology, within_s, role="reader", name=name)

    async def start(self) -> None:
        await self._shards.__aenter__()

    async def stop(self) -> None:
        await self._shards.__aexit__()

    def away(self) -> list[int]:
        return [shard for shard in range(self._shards.count) if not self._shards.linked(shard)]

    # ------------------------------------------------------------------ from threads

    def query(self, shards: Iterable[int], ask: Ask) -> dict[int, Told]:
        wanted = list(shards)
        found = self._run(self._all({shard: self._shards.query(shard, ask) for shard in wanted}))
        return dict(zip(wanted, found, strict=True))

    def ask(self, entries: Mapping[int, Entry]) -> dict[int, Reply]:
        found = self._run(self._all({shard: self._ask(shard, entry) for shard, entry in entries.items()}))
        return dict(zip(entries, found, strict=True))

    async def _ask(self, shard: int, entry: Entry) -> Reply:
        if self._shards.backlog(shard) > BACKLOG_MAX:
            raise NotReached(f"{BACKLOG_MAX} requests wait for shard {shard} already")
        return await self._shards.ask(shard, entry)

    async def _all(self, asked: Mapping[int, Coroutine[Any, Any, T]]) -> list[T]:
        return list(await asyncio.gather(*(_of(shard, one) for shard, one in asked.items())))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


async def _of(shard: int, asked: Coroutine[Any, Any, T]) -> T:
    try:
        return await asked
    except NotReached as error:
        raise ShardAway(shard, str(error)) from None
