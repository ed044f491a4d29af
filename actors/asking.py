"""What a command asks of the shards of a running broker, over links of its own like every process's.

It finds the broker by its run directory, proves the secret as everybody does, and comes as `admin`.  One process, one question or two: it
keeps nothing, and what it asks to be changed has to be such that asking twice does no harm, since nobody remembers for it (shards.inbox).

Errors meant for people are NotReached, one sentence each.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self, TypeVar

from actors.run import read_run
from actors.shard_client import ShardClient, look_again
from actors.sites.following import Following, whereabouts_of
from actors.topology import Topology
from actors.wire import Wire
from shards.frames import Ask, Entry, Frame, Reply, Result, Told
from shards.inbox import KEEPS_NOTHING

WITHIN_SECONDS = 10.0
T = TypeVar("T")


class NotReached(Exception):
    """The broker does not run, or one of its shards does not answer."""


def running(data_dir: Path) -> Topology:
    """Of the broker that runs in this data directory."""
    run = read_run(data_dir)
    if run is None or not run.launched():
        raise NotReached(f"nothing runs in {data_dir}, and only a running broker can be asked")
    try:
        return Topology.from_json((run.run_dir / "topology.json").read_text(encoding="utf-8"))
    except OSError:
        raise NotReached(f"the broker in {data_dir} is starting or stopping") from None


class Shards:
    """Links to all shards, wherever they are led, as long as the context lasts."""

    def __init__(self, topology: Topology, within: float = WITHIN_SECONDS, role: str = "admin", name: str = "") -> None:
        name = name or f"{KEEPS_NOTHING}{os.getpid()}:{secrets.token_hex(8)}"
        self.count = topology.n_shards
        self._within = within
        self._ids = 0
        self._replies: dict[int, asyncio.Future[list[Reply]]] = {}
        self._told: dict[int, tuple[int, Ask, asyncio.Future[Told]]] = {}
        self._whereabouts = whereabouts_of(topology)
        self._following = Following(self._whereabouts, self._moved)
        wire = Wire.of(topology)
        self._clients = [
            ShardClient(shard, partial(self._whereabouts.shard, shard), self, wire, role, name) for shard in range(topology.n_shards)
        ]  # fmt: skip

    async def __aenter__(self) -> Self:
        for client in self._clients:
            client.start()
        self._following.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.stop()
        for client in self._clients:
            await client.stop()

    def _moved(self) -> None:
        look_again(self._clients)

    async def ask(self, shard: int, entry: Entry) -> Reply:
        """Answered when it is committed."""
        self._ids += 1
        future = self._replies[self._ids] = asyncio.get_running_loop().create_future()
        self._clients[shard].ask(self._ids, [entry])
        replies: list[Reply] = await self._wait(shard, future)
        return replies[0]

    async def ask_all(self, entry: Entry) -> list[Reply]:
        return list(await asyncio.gather(*(self.ask(shard, entry) for shard in range(self.count))))

    async def query(self, shard: int, ask: Ask) -> Told:
        self._ids += 1
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        id = self._ids
        self._told[id] = (shard, ask, future)
        if self._clients[shard].linked:
            self._clients[shard].query(id, ask)
        try:
            return await self._wait(shard, future)
        finally:
            self._told.pop(id, None)

    async def query_all(self, ask: Ask) -> Sequence[Told]:
        return await asyncio.gather(*(self.query(shard, ask) for shard in range(self.count)))

    def linked(self, shard: int) -> bool:
        return self._clients[shard].linked

    def backlog(self, shard: int) -> int:
        """Frames that this shard has not answered yet."""
        return self._clients[shard].backlog

    async def _wait(self, shard: int, future: asyncio.Future[T]) -> T:
        try:
            return await asyncio.wait_for(future, self._within)
        except TimeoutError:
            raise NotReached(f"shard {shard} does not answer; `holdfast status` says whether it runs") from None

    # ------------------------------------------------------------------ ShardListener

    def shard_linked(self, shard: int) -> None:
        for id, (of, ask, _) in self._told.items():
            if of == shard:
                self._clients[shard].query(id, ask)

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        future = self._replies.pop(id)
        # One that nobody waits for any more was given up.
        if not future.done():
            future.set_result(replies)

    def shard_told(self, shard: int, frame: Frame) -> None:
        if isinstance(frame, Result) and frame.told is not None and frame.id in self._told:
            future = self._told.pop(frame.id)[2]
            if not future.done():
                future.set_result(frame.told)
