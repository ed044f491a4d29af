"""Plays a gateway to one shard: publishers that are connected and PUBLISH frames of them, a bounded number without an answer.

Bodies of 256 bytes that compress about as well as telemetry does. They are made ahead and used again, since the feeder shares the
machine with what it feeds.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence

from actors.endpoints import Endpoint
from actors.shard_client import ShardClient
from actors.topology import Topology
from actors.wire import Wire
from shards.frames import Connect, Connected, Entry, Frame, Publish, Published, Reply, Route

BODY_BYTES = 256
DEVICES = 100_000
HOT = 10
PUBLISHERS = 20
MESSAGES_PER_ENTRY = 50
_QOS_1 = bytes((2,))
_BODIES = 4096


class Wrong(Exception):
    """A message was not stored, or an answer is none to what was asked."""


class Peer:
    """One link, whose answers come in the order of what was asked. What a shard that was killed has not answered is sent to the next one
    under the same number, as every peer of a shard does it (actors.shard_client), so it happens once."""

    def __init__(self, topology: Topology, role: str) -> None:
        at = Endpoint(topology.shard_endpoint(0))
        self._client = ShardClient(0, lambda: at, self, Wire(topology.secret), role, f"{role}-0:{secrets.token_hex(8)}")
        self._up = asyncio.Event()
        self._waiting: deque[asyncio.Future[list[Reply]]] = deque()
        self._asked = 0

    async def __aenter__(self) -> Peer:
        self._client.start()
        await self._up.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.stop()

    def ask(self, entries: list[Entry]) -> asyncio.Future[list[Reply]]:
        self._asked += 1
        future: asyncio.Future[list[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._client.ask(self._asked, entries)
        return future

    # ---- ShardListener

    def shard_linked(self, shard: int) -> None:
        self._up.set()

    def shard_lost(self, shard: int) -> None:
        pass

    def shard_replied(self, shard: int, id: int, replies: list[Reply]) -> None:
        self._waiting.popleft().set_result(replies)

    def shard_told(self, shard: int, frame: Frame) -> None:
        pass


async def want_everything(peer: Peer) -> None:
    """A durable route for `#`, as one durable session makes it that is away from then on."""
    await peer.ask([Route([(1, b"#")], [], [b"reader"])])


def device_topic(drawn: float) -> bytes:
    """80 % from 100,000 devices with three topics each, 20 % from ten hot topics. drawn: evenly from 0 to 1."""
    if drawn < 0.2:
        return b"plant/hot/%d" % int(drawn * 5 * HOT)
    device = int((drawn - 0.2) / 0.8 * DEVICES * 3)
    return b"site/%d/device/%d/%s" % (device % 20, device // 3, (b"state", b"temperature", b"events")[device % 3])


class Feeder:
    def __init__(self, peer: Peer, topic: Callable[[float], bytes] = device_topic, seed: int = 1) -> None:
        self._peer = peer
        self._rng = random.Random(seed)
        self._topic = topic
        self._conns: list[tuple[bytes, int]] = []
        self._bodies = [_body(self._rng) for _ in range(_BODIES)]
        self.acknowledged = 0

    async def connect(self) -> None:
        clients = [b"publisher-%d" % n for n in range(PUBLISHERS)]
        replies = await self._peer.ask([Connect(client, True, 0, 5, None) for client in clients])
        for client, reply in zip(clients, replies, strict=True):
            assert isinstance(reply, Connected)
            self._conns.append((client, reply.conn))

    async def feed(self, messages: int, per_frame: int, frames: int, every_s: float = 0.0) -> None:
        """So many messages, ``per_frame`` in a frame, at most ``frames`` of them unanswered. every_s: the least between two frames.
        Returns when all are acknowledged as stored. Raises Wrong when one is not.
        """
        under_way: deque[asyncio.Future[list[Reply]]] = deque()
        due = time.monotonic()
        for _ in range(messages // per_frame):
            if every_s:
                due = max(due + every_s, time.monotonic() - 1.0)
                await asyncio.sleep(due - time.monotonic())
            under_way.append(self._peer.ask(self._frame(per_frame)))
            if len(under_way) >= frames:
                self._count(await under_way.popleft(), per_frame)
        while under_way:
            self._count(await under_way.popleft(), per_frame)

    def _count(self, replies: Sequence[Reply], per_frame: int) -> None:
        for reply in replies:
            if not isinstance(reply, Published) or reply.stale or reply.codes:
                raise Wrong(f"not everything of a frame was stored: {reply}")
        self.acknowledged += per_frame

    def _frame(self, messages: int) -> list[Entry]:
        entries: list[Entry] = []
        now_ms = time.time_ns() // 1_000_000
        while messages > 0:
            count = min(MESSAGES_PER_ENTRY, messages)
            messages -= count
            client, conn = self._conns[self._rng.randrange(len(self._conns))]
            bodies = self._rng.choices(self._bodies, k=count)
            topics = [self._topic(self._rng.random()) for _ in range(count)]
            entries.append(Publish(client, conn, False, now_ms, _QOS_1 * count, [*range(1, count + 1)], topics, bodies))
        return entries


def _body(rng: random.Random) -> bytes:
    """No properties, and text of which a half repeats."""
    text = b'{"v":%d,"t":%d,"q":"' % (rng.randrange(10**6), rng.randrange(10**9))
    filler = rng.randbytes((BODY_BYTES - len(text)) // 3).hex().encode() + b"0" * BODY_BYTES
    return b"\0" + (text + filler)[: BODY_BYTES - 1]
