"""A door between one site and the register: open, or shut.  What a site that is cut off from etcd alone sees is behind a shut one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Door:
    """Listens on loopback; each connection goes to the first member that takes it.  Made -> open <-> shut -> closed."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._members = [endpoint.rpartition("//")[2].rsplit(":", 1) for endpoint in endpoints]
        self._is_shut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.endpoint = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._came, "127.0.0.1", 0)
        self.endpoint = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        await self.shut()

    async def shut(self) -> None:
        """Whoever is behind it hears nothing more, of what is under way either."""
        self._is_shut = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def open(self) -> None:
        self._is_shut = False

    async def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._is_shut:
                await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # Nobody waits for this.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for host, port in self._members:
            try:
                there, here = await asyncio.open_connection(host, int(port))
            except OSError:
                continue
            try:
                await asyncio.gather(_all_of(reader, here), _all_of(there, writer))
            finally:
                here.transport.abort()
            return


async def _all_of(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()
