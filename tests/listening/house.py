"""Doors on a loop of their own, whose owner answers each CONNECT and sends back what is published: no broker behind it."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from actors.connection import ClientConnection
from actors.listening.doors import Doors
from actors.listening.options import DoorOptions
from actors.topology import ListenerInfo
from gateway.persisting import joins
from mqtt.blocks import PropertyBlocks
from mqtt.packets import Connect, Item
from tests.listening.test_websocket import sent

CONNECT = bytes.fromhex("100d 0004 4d515454 04 02 003c 0001 63")
CONNACK = b"\x20\x02\0\0"
PING, PONG = b"\xc0\0", b"\xd0\0"
WITHIN_S = 60


class House:
    """A gateway's part towards its doors.  `here`: connections by number; `ends`: why they were lost."""

    bytes_received = 0
    connect_bytes_max = 1 << 20
    filters_max = 10
    topic_levels_max = 8
    user_properties_max = 10
    write_buffer_max = 1 << 20

    def __init__(self, run_dir: Path, gateway: int = 0) -> None:
        self.property_blocks = PropertyBlocks(joins)
        self.here: dict[int, ClientConnection] = {}
        self.ends: list[str] = []
        self.serials: list[str] = []
        self.changed = asyncio.Event()
        self.doors = Doors(self, gateway, run_dir, f"gateway-{gateway}")

    async def open(self, *options: DoorOptions, own_port: int | None = None) -> list[ListenerInfo]:
        return await self.doors.open(options, own_port)

    async def until(self, holds: Callable[[], object]) -> None:
        """Asked again whenever something happened here."""

        async def wait() -> None:
            while not holds():
                self.changed.clear()
                await self.changed.wait()

        await asyncio.wait_for(wait(), WITHIN_S)

    async def turns(self, holds: Callable[[], object] = lambda: True) -> None:
        """Turns of the loop, one at least, until this holds: for what tells nobody when it has happened."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WITHIN_S):
            while True:
                await loop.run_in_executor(None, str)
                if holds():
                    return

    async def until_looked(self) -> None:
        """Files of TLS have been looked at, as somebody asked for a moment ago."""
        looking = self.doors._contexts._looking
        assert looking is not None
        await asyncio.wait_for(looking, WITHIN_S)

    def close(self) -> None:
        self.doors.close()
        for connection in self.here.values():
            connection.close()

    # ------------------------------------------------------------------ DoorsOwner

    def opened(self, connection: ClientConnection) -> None:
        self.here[connection.socket] = connection
        self.changed.set()

    def received(self, connection: ClientConnection, items: list[Item]) -> None:
        for item in items:
            connection.write(CONNACK if isinstance(item, Connect) else PONG)

    def malformed(self, connection: ClientConnection, code: int, detail: str) -> None:
        self.ends.append(f"{code:#04x} {detail}")
        connection.close()
        self.changed.set()

    def lost(self, connection: ClientConnection, why: str) -> None:
        self.here.pop(connection.socket, None)
        self.ends.append(why)
        self.changed.set()

    def congested(self, connection: ClientConnection, full: bool) -> None:
        pass

    def revoked(self, serials: frozenset[str]) -> None:
        self.serials += sorted(serials)
        self.changed.set()


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(info: ListenerInfo, tls: ssl.SSLContext | None = None, first: bytes = b"") -> Streams:
    """first: what is sent before TLS begins."""
    if info.kind == "unix":
        return await asyncio.open_unix_connection(info.host)
    if not first:
        return await asyncio.open_connection("127.0.0.1", info.port, ssl=tls, server_hostname="localhost" if tls else None)
    raw = socket.create_connection(("127.0.0.1", info.port))
    raw.sendall(first)
    raw.setblocking(False)
    return await asyncio.open_connection(sock=raw, ssl=tls, server_hostname="localhost" if tls else None)


async def says(streams: Streams, data: bytes, answer: bytes) -> None:
    """This is sent, and that comes back."""
    reader, writer = streams
    writer.write(data)
    assert await asyncio.wait_for(reader.readexactly(len(answer)), WITHIN_S) == answer


async def ends(streams: Streams) -> bytes:
    """All that comes until the other side closes."""
    reader, writer = streams
    try:
        return await asyncio.wait_for(reader.read(), WITHIN_S)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def opens_web(streams: Streams, path: str = "/mqtt", headers: str = "") -> str:
    """The handshake of a WebSocket; its status line."""
    reader, writer = streams
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n{headers}\r\n".encode()
    )
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
    return answer.split(b"\r\n")[0].decode()


async def speaks_mqtt(streams: Streams, web: bool = False) -> None:
    """A CONNECT is answered, and so is a ping after it."""
    if not web:
        await says(streams, CONNECT, CONNACK)
        await says(streams, PING, PONG)
    else:
        assert await opens_web(streams) == "HTTP/1.1 101 Switching Protocols"
        await says(streams, sent(CONNECT[:5], fin=False) + sent(CONNECT[5:], 0), b"\x82\x04" + CONNACK)
        await says(streams, sent(PING), b"\x82\x02" + PONG)
