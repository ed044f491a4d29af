"""Publishers of a lake: steady, at QoS 1 and 2, over sessions that outlive every connection; what they owe the lake is in the ledger.

What an outage kept a publisher from sending it makes up for within ``BEHIND_S``, so that the rate holds over a run of many faults.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.broker.client import Client, Outgoing
from tests.broker.wire import Version
from tests.gates.gate import GateFailed
from tests.gates.traffic import client_ids
from tests.lake.ledger import LakeLedger, lake_payload

TICK_S = 0.02
BEHIND_S = 20.0
WINDOW = 400
TOPICS_EACH = 10
KEPT_CONNECTIONS = 2
VERSIONS: tuple[Version, Version] = (4, 5)


class LakeClient(Client):
    """A client whose payloads say client, topic and number, and that tells the ledger what it sends again."""

    def __init__(self, port: int, client_id: str, ledger: LakeLedger, *, version: Version) -> None:
        super().__init__(port, client_id, ledger, version=version, window=WINDOW)
        self.ledger = ledger

    async def publish_next(self, qos: int) -> None:
        while len(self._outgoing) >= self._effective_window:
            self._room.clear()
            await self._room.wait()
        topic, at = self.ledger.next_of(self.client_id)
        number = self.ledger.publish(self.client_id, topic, qos, time.monotonic_ns())
        self.put(Outgoing(number, topic, lake_payload(self.client_id, topic, at), qos))

    async def drained(self) -> None:
        if self._writer is not None and self.connected.is_set():
            with suppress(OSError, RuntimeError):
                await self._writer.drain()

    def forget(self) -> None:
        """What is noted down about each connection and acknowledgement would fill the memory."""
        del self.connections[:-KEPT_CONNECTIONS], self.refusals[:-5]
        for connection in self.connections:
            del connection.acknowledgements[:-10]

    def _send(self, packet_id: int, message: Outgoing) -> None:
        if message.written and not message.received:
            self.ledger.sent_again(self.client_id, message.number)
        super()._send(packet_id, message)


class LakePublisher:
    """One client at a steady rate, in small bursts."""

    def __init__(self, client: LakeClient, qos: int, per_second: float) -> None:
        self.client = client
        self.qos = qos
        self._per_second = per_second
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        await self.client.start()
        self._task = asyncio.create_task(self._run(), name=f"publisher {self.client.client_id}")

    async def _run(self) -> None:
        began, done = time.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_S)
            due = (time.monotonic() - began) * self._per_second
            done = max(done, int(due - BEHIND_S * self._per_second))
            while done < due:
                await self.client.publish_next(self.qos)
                done += 1
            await self.client.drained()
            self.client.forget()

    def raise_if_broken(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()
        if self.client.sessions_lost:
            raise GateFailed(f"publisher {self.client.client_id}: session not present on reconnect {self.client.sessions_lost}")

    async def cease(self) -> None:
        """Publish nothing more. A message that is just being handed over is."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def finish(self, timeout_s: float) -> None:
        """Publish nothing more, and wait for what is under way."""
        self.raise_if_broken()
        await self.cease()
        await self.client.acknowledged(timeout_s)
        self.raise_if_broken()


def make_publishers(
    port: int, ledger: LakeLedger, count: int, n_shards: int, per_second: float, prefix: str = "lake"
) -> list[LakePublisher]:
    """So many clients, of both versions and both QoS, at home in all shards; together they publish so many messages a second."""
    found = []
    for at, name in enumerate(client_ids(f"{prefix}-pub", count, n_shards)):
        # One bit each for shard, QoS and version, so that all of them meet.
        qos, version = 1 + at // n_shards % 2, VERSIONS[at // (2 * n_shards) % 2]
        topics = [f"{prefix}/{at}/{number}" for number in range(TOPICS_EACH - 1)] + [f"{prefix}/all"]
        ledger.enrol(name, topics, qos)
        client = LakeClient(port, name, ledger, version=version)
        found.append(LakePublisher(client, qos, per_second / count))
    return found


@asynccontextmanager
async def publishing(publishers: list[LakePublisher]) -> AsyncIterator[None]:
    """All of them at work; at the end they leave, whatever happened."""
    try:
        for publisher in publishers:
            await publisher.begin()
        yield
    finally:
        for publisher in publishers:
            await publisher.cease()
        await asyncio.gather(*(publisher.client.stop() for publisher in publishers), return_exceptions=True)
