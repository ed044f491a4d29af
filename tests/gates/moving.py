"""A relay before several gateways that moves clients between them: a client never connects to the same gateway twice in a row.

It reads the client id of a CONNECT and then only passes bytes on.  A client begins where the last newcomer did not, so clients
that meet for the first time are at different gateways; clients without an id count as newcomers.  A reset is passed on as a
reset and an end as an end, because a broker may treat them differently.  `moves` counts connections that came to another gateway than
the client's last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

_CONNECT_MAX = 1 << 16


def client_id_of(packet: bytes) -> bytes | None:
    """The client id of a CONNECT of MQTT 3.1.1 or 5; None while bytes are missing; empty for anything else."""
    start, shift, length = 1, 0, 0
    while True:
        if len(packet) <= start:
            return None
        byte = packet[start]
        length |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            break
        if shift > 21:
            return b""
    if packet[0] != 0x10 or length > _CONNECT_MAX:
        return b""
    if len(packet) < start + length:
        return None
    body = packet[start : start + length]
    at = 2 + int.from_bytes(body[:2], "big")
    version = body[at] if at < len(body) else 0
    at += 4
    if version == 5:
        # The length of the properties; nobody sends more than 127 bytes of them to this relay.
        at += 1 + (body[at] if at < len(body) and body[at] < 0x80 else 0)
    size = int.from_bytes(body[at : at + 2], "big")
    return body[at + 2 : at + 2 + size]


class Moving:
    """Listens on `port` of the loopback interface; `ports` says where the gateways listen by now."""

    def __init__(self, ports: Callable[[], Sequence[int]]) -> None:
        self._ports = ports
        self._last: dict[bytes, int] = {}
        self._newcomers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0
        self.moves = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def choose(self, client: bytes) -> int:
        """The index of the gateway for this connection."""
        count = len(self._ports())
        self.connections += 1
        last = self._last.get(client) if client else None
        if last is None:
            index = self._newcomers % count
            self._newcomers += 1
        else:
            index = (last + 1) % count
            self.moves += 1
        if client:
            self._last[client] = index
        return index

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except OSError:
            writer.transport.abort()
        except asyncio.CancelledError:
            pass  # The relay ends; nobody waits for this.
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        while (client := client_id_of(head)) is None:
            more = await reader.read(_CONNECT_MAX)
            if not more:
                return
            head += more
        there, here = await asyncio.open_connection("127.0.0.1", self._ports()[self.choose(client)])
        here.write(head)
        try:
            await asyncio.gather(_pass_on(reader, here), _pass_on(there, writer))
        finally:
            here.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
        if not target.is_closing():
            target.write_eof()
    except OSError:
        target.transport.abort()
