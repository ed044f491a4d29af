"""A broker that answers when a test says so: it holds each PUBACK back, by our own codec, and dies when it is told to."""

from __future__ import annotations

import asyncio
from typing import Self

from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import Ack, AckKind, Connack, Connect, Disconnect, Item, Pingreq, Pingresp, Properties, Publish, PublishRun
from mqtt.reason import ReasonCode


class HoldingBroker:
    """One connection at a time.  `held` are the packets without an answer, in the order in which they came."""

    def __init__(self, said: Properties | None = None, code: ReasonCode = ReasonCode.SUCCESS) -> None:
        self._said, self._code = said or Properties(), code
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.held: list[tuple[int, bytes]] = []
        """Packet identifier and payload."""
        self.publishes: list[Publish] = []
        self.answers_pings = True
        self.connects: list[Connect] = []
        self.disconnected = False
        self.url = ""
        self.delay_s: float | None = None
        """Answer each after so long, by itself."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"mqtt://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.die()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def die(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def holds(self, count: int) -> None:
        """Until so many wait for an answer."""
        async with asyncio.timeout(20):
            while len(self.held) < count:
                self._changed.clear()
                await self._changed.wait()

    def answer(self, count: int, reason: ReasonCode = ReasonCode.SUCCESS) -> None:
        """The first so many of those that wait."""
        now, self.held = self.held[:count], self.held[count:]
        for packet, _ in now:
            self._send(Ack(AckKind.PUBACK, packet, reason))

    def _send(self, item: Item) -> None:
        assert self._writer is not None
        version = self._decoder.version
        assert version is not None
        self._writer.write(encode(version, item))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writer, self._decoder, self.held = writer, Decoder(None, 2**28), []
        try:
            while data := await reader.read(65_536):
                for item in self._decoder.feed(data):
                    self._take(item)
                self._changed.set()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _take(self, item: Item) -> None:
        match item:
            case Connect():
                self.connects.append(item)
                self._send(Connack(False, self._code, self._said if item.version == 5 else Properties()))
            case PublishRun():
                rows = zip(item.flags, item.packet_ids, item.topics, item.bodies, strict=True)
                for flags, packet, topic, body in rows:
                    self._hold(Publish(flags, packet, topic, body[1:]))
            case Publish():
                self._hold(item)
            case Pingreq():
                if self.answers_pings:
                    self._send(Pingresp())
            case Disconnect():
                self.disconnected = True
            case _:
                raise AssertionError(item)

    def _hold(self, publish: Publish) -> None:
        self.publishes.append(publish)
        self.held.append((publish.packet_id, publish.payload))
        if self.delay_s is not None:
            asyncio.get_running_loop().call_later(self.delay_s, self.answer, 1)
