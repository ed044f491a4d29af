"""A connection that breaks when a test says so: everything passes through, until it is cut, or answers are kept back."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """One port for its whole life, whatever is behind it.  `upstream`: a host and a port, or the path of a socket."""

    def __init__(self, upstream: tuple[str, int] | str) -> None:
        self._upstream = upstream
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.deaf = False
        """Answers of what is behind do not come through."""
        self.deaf_after = b""
        """They do not from when this has passed the other way."""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """All connections are gone, and no new one is taken."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._open):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.deaf, self.deaf_after = False, b""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        try:
            if isinstance(self._upstream, str):
                behind, behind_writer = await asyncio.open_unix_connection(self._upstream)
            else:
                behind, behind_writer = await asyncio.open_connection(*self._upstream)
            self._open.add(behind_writer)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pass(reader, behind_writer, False))
                    group.create_task(self._pass(behind, writer, True))
            finally:
                self._open.discard(behind_writer)
                behind_writer.transport.abort()
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        while data := await reader.read(65_536):
            self.deaf = self.deaf or bool(not answers and self.deaf_after and self.deaf_after in data)
            if not (answers and self.deaf):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
