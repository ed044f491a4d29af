"""Very many connected subscribers in one process, which acknowledge what they get and count it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.broker import wire
from tests.gates.gate import GateFailed

AT_ONCE = 64
PATIENCE_S = 300.0
RECEIVE_MAXIMUM = 100


class Readers:
    """got: messages at QoS 1 that all of them have got together."""

    def __init__(self) -> None:
        self.got = 0
        self._wanted = 0
        self._there = asyncio.Event()
        self._closed = ""

    async def have(self, count: int) -> None:
        """So many have come, since they were there."""
        self._wanted = count
        while self.got < count and not self._closed:
            self._there.clear()
            await asyncio.wait_for(self._there.wait(), PATIENCE_S)
        if self._closed:
            raise GateFailed(f"{self._closed} was let go")

    def count(self, more: int) -> None:
        self.got += more
        if self.got >= self._wanted:
            self._there.set()

    def lost(self, client: str) -> None:
        self._closed = client
        self._there.set()


class _Reader(asyncio.Protocol):
    def __init__(self, readers: Readers, client: str, topic_filter: str, version: wire.Version) -> None:
        self.subscribed = asyncio.get_running_loop().create_future()
        self._readers = readers
        self._client = client
        self._filter = topic_filter
        self._version = version
        self._packets = wire.Reader()
        self._transport: asyncio.Transport | None = None
        self._leaving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        options = {"clean": False, "keep_alive_s": 0, "expiry_s": wire.EXPIRY_NEVER, "receive_maximum": RECEIVE_MAXIMUM}
        transport.write(wire.connect(self._version, self._client, **options) + wire.subscribe(self._version, 1, self._filter, 1))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        answers: list[bytes] = []
        for packet in self._packets.feed(data):
            if packet.kind == wire.PUBLISH:
                answers.append(wire.answer(wire.PUBACK, wire.read_publish(self._version, packet.flags, packet.body).packet_id))
            elif packet.kind == wire.SUBACK:
                self.subscribed.set_result(None)
        if answers and self._transport is not None:
            self._transport.write(b"".join(answers))
            self._readers.count(len(answers))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._leaving:
            self._readers.lost(self._client)

    def leave(self) -> None:
        self._leaving = True
        assert self._transport is not None
        self._transport.write(wire.disconnect())
        self._transport.close()


@asynccontextmanager
async def reading(port: int, wanted: Sequence[tuple[str, str]], version: wire.Version = 5) -> AsyncIterator[Readers]:
    """Durable sessions of these clients, each subscribed to its filter at QoS 1, connected until the end."""
    readers = Readers()
    left = iter(wanted)
    there: list[_Reader] = []

    async def some() -> None:
        for client, topic_filter in left:
            loop = asyncio.get_running_loop()
            _, one = await loop.create_connection(lambda: _Reader(readers, client, topic_filter, version), "127.0.0.1", port)  # noqa: B023  # called at once
            there.append(one)
            await asyncio.wait_for(one.subscribed, PATIENCE_S)

    await asyncio.gather(*[some() for _ in range(AT_ONCE)])
    try:
        yield readers
    finally:
        for one in there:
            one.leave()
