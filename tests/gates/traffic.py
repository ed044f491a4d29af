"""Steady traffic of our own clients, for the gates that break things while it runs.

A ``Traffic`` has publishers that each send so many messages a second and sessions that stay online. It
paces and waits; what went wrong is left to the checks of the history.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from tests.broker.client import Client
from tests.broker.history import History, parse_payload
from tests.gates.gate import GateFailed, topics


class Publisher:
    """One client that publishes at a steady rate; what an outage kept it from sending is not made up for."""

    def __init__(self, client: Client, qos: int, per_second: float, chosen: Iterable[str], *, size: int = 64) -> None:
        self.client = client
        self._qos = qos
        self._pause_s = 1 / per_second
        self._topics = list(chosen)
        self._size = size
        self.task: asyncio.Task[None] | None = None
        self.next_number = 0

    async def begin(self) -> None:
        await self.client.start()
        self.go_on()

    def go_on(self) -> None:
        """After it was made, or ceased."""
        self.task = asyncio.create_task(self._run(), name=f"publisher {self.client.client_id}")

    async def _run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self._pause_s, time.monotonic() - self._pause_s)
            await asyncio.sleep(due - time.monotonic())
            number = await self.client.publish(self._topics[self.next_number % len(self._topics)], self._qos, size=self._size)
            self.next_number = number + 1

    def cease(self) -> None:
        """Publish nothing more."""
        if self.task is not None:
            self.task.cancel()

    async def finish(self, timeout_s: float) -> None:
        """Publish nothing more, and wait for what is under way."""
        if self.task is not None and self.task.done():
            self.task.result()
        self.cease()
        await self.client.acknowledged(timeout_s)

    def newest_acknowledged(self) -> int:
        return max((each.acknowledgements[-1].number for each in self.client.connections[-2:] if each.acknowledgements), default=-1)


def slot_of(key: str) -> int:
    """The broker's published rule for the home of a client id; a gate uses it to reach every shard."""
    return hashlib.blake2b(key.encode(), digest_size=8).digest()[0]


def client_ids(prefix: str, count: int, n_shards: int) -> list[str]:
    """Ids whose homes go round the shards, so that each shard works."""
    found: list[str] = []
    n = 0
    while len(found) < count:
        name = f"{prefix}-{n}"
        n += 1
        if slot_of(name) % n_shards == len(found) % n_shards:
            found.append(name)
    return found


def part_of(prefix: str, at: int, parts: int) -> list[str]:
    """The topics of one of so many publishers: its share of the 500, with the one that the literal filter names between them."""
    every = topics(prefix)
    own = every[at * len(every) // parts : (at + 1) * len(every) // parts]
    return [topic for n, each in enumerate(own) for topic in ([each, f"{prefix}/3/7"] if n % 5 == 0 else [each])]


@asynccontextmanager
async def at_work(publishers: list[Publisher], sessions: list[Client]) -> AsyncIterator[None]:
    """Everybody connected and publishing; at the end everybody leaves, whatever happened."""
    try:
        for publisher in publishers:
            await publisher.begin()
        yield
    finally:
        for publisher in publishers:
            publisher.cease()
        await asyncio.gather(*(each.stop() for each in [*(p.client for p in publishers), *sessions]), return_exceptions=True)


def require_sessions_kept(clients: Iterable[Client]) -> None:
    """No client was told, on any reconnect, that it had no session."""
    lost = {client.client_id: client.sessions_lost for client in clients if client.sessions_lost}
    if lost:
        raise GateFailed(f"session not present on reconnect: {lost}")


async def everything_flows(publishers: list[Publisher], readers: list[Client], history: History, deadline: float) -> None:
    """Wait until each publisher got an acknowledgement, and each reader (on ``#``) a message, of what was published from now on."""
    marks = {publisher.client.client_id: publisher.next_number for publisher in publishers}
    waiting = list(publishers)
    unread = {reader.client_id: len(history.sessions[reader.client_id].deliveries) for reader in readers}
    while waiting or unread:
        await asyncio.sleep(0.02)
        waiting = [each for each in waiting if each.newest_acknowledged() < marks[each.client.client_id]]
        for name, at in list(unread.items()):
            fresh = history.sessions[name].deliveries[at:]
            unread[name] += len(fresh)
            keys = (parse_payload(each.payload) for each in fresh)
            if any(key is not None and key[1] >= marks.get(key[0], 2**63) for key in keys):
                del unread[name]
        if time.monotonic() > deadline:
            stuck = [each.client.client_id for each in waiting]
            refusals = [client.refusals[-1] for client in [*(each.client for each in waiting), *readers] if client.refusals]
            raise GateFailed(f"no acknowledgement for {stuck}, nothing read by {list(unread)}; last refusals: {refusals[:3]}")
