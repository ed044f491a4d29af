"""One TCP port at which links are accepted, each with its TLS before anything else is heard of it.

The handshake of each is awaited here, so that what is wrong with the other end can be said; servers of asyncio keep it to themselves.

Always holds: at most STRANGERS_MAX are in their handshake; while there are so many, nobody is accepted, and the system lets them wait.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import structlog

from actors.endpoints import Endpoint
from actors.link import HANDSHAKE_SECONDS
from actors.wire import Wire, said_of

STRANGERS_MAX = 256
"""Connections of one server that have not proved the secret yet; a further one is closed, and dials again."""
BACKLOG = 128
EXHAUSTED_SECONDS = 0.5
"""How long nobody is accepted when there is no descriptor left."""

log = structlog.get_logger(__name__)


class TurnedAway(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class TcpDoor:
    """Life cycle: made -> open -> closed."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        accept: Callable[[], asyncio.Protocol],
        refused: Callable[[str, str], None],
    ) -> None:
        """refused: told who, and why, when the handshake of one fails."""
        self._endpoint = endpoint
        self._wire = wire
        self._accept = accept
        self._refused = refused
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._shaking: set[asyncio.Task[None]] = set()
        self._room = asyncio.Event()

    @property
    def port(self) -> int:
        """0: it is not open."""
        return int(self._socket.getsockname()[1]) if self._socket is not None and self._socket.fileno() >= 0 else 0

    async def open(self) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._endpoint.host, self._endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        self._socket = socket.create_server(cast("tuple[str, int]", address[:2]), family=family, backlog=BACKLOG)
        self._socket.setblocking(False)
        self._accepting = loop.create_task(self._run(self._socket))

    async def close(self) -> None:
        """When it returns, the port is free."""
        tasks = [*self._shaking, *([self._accepting] if self._accepting is not None else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Not before: the loop watched it.
        if self._socket is not None:
            self._socket.close()

    async def _run(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while len(self._shaking) >= STRANGERS_MAX:
                self._room.clear()
                await self._room.wait()
            try:
                taken, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("link.not_accepted", at=str(self._endpoint), cause=str(error))
                await asyncio.sleep(EXHAUSTED_SECONDS)
                continue
            task = loop.create_task(self._shake(taken, str(Endpoint(host=address[0], port=address[1]))))
            self._shaking.add(task)
            task.add_done_callback(self._shaken)

    def _shaken(self, task: asyncio.Task[None]) -> None:
        self._shaking.discard(task)
        self._room.set()

    async def _shake(self, taken: socket.socket, peer: str) -> None:
        self._wire.look()
        limit = HANDSHAKE_SECONDS if self._wire.server is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._accept, taken, ssl=self._wire.server, ssl_handshake_timeout=limit
            )  # fmt: skip
        except OSError as error:
            taken.close()
            self._refused(peer, said_of(error))
