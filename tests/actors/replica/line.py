"""A line between two processes that can stand still, be cut, end in the middle of what was under way, and say something again.

One process dials it instead of the other.  What the first one says while the line is held is kept, however its process ends meanwhile,
and arrives late (`let_go`) or in part (`tear`), as the bytes of a dead machine may.  What the other one says passes as long as the line is
not cut.  A frame that has arrived may arrive once more (`say_again`): TCP does not do that, but replicas do not count on it.

Always holds: frames of one connection arrive in their order, without gaps, but for those that are said again.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from pathlib import Path
from struct import Struct

READ_BYTES = 1 << 16
REMEMBERED = 64
"""Frames of each connection, of those that are one whole message."""
_LENGTH = Struct(">I")
_BEAT = 0xFFFFFFFF
_HANDSHAKE = 2
"""Frames."""
_WHOLE = 1
"""How a frame begins that has all of a message (actors.replica.peers)."""


class Line:
    """Life cycle: made -> started -> stopped.  target: (host, port), or the path of a unix socket."""

    def __init__(self, target: tuple[str, int] | Path) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._flows: set[_Flow] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.held = self.closed = False

    async def start(self, path: Path | None = None) -> None:
        """path: of the socket where it is dialled; None: a port of its own on 127.0.0.1."""
        if path is not None:
            self._server = await asyncio.start_unix_server(self._accept, path)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def port(self) -> int:
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- what is done to it

    def hold(self) -> None:
        """Nothing more arrives until it is let go."""
        self.held = True

    def let_go(self) -> None:
        """What was kept arrives, and it is whole again."""
        self.held = self.closed = False
        for flow in list(self._flows):
            flow.give()

    def tear(self, rng: random.Random) -> None:
        """A part of what was kept arrives, and each connection ends there.  Nobody gets through until it is let go."""
        self.closed = True
        for flow in list(self._flows):
            flow.break_off(rng.random())
        self.held = False

    def say_again(self, rng: random.Random) -> None:
        """One of the messages that arrived last arrives once more, behind all others."""
        for flow in self._flows:
            flow.say_again(rng)

    def cut(self) -> None:
        """Each connection ends, and nobody gets through until it is let go."""
        self.closed = True
        for flow in list(self._flows):
            flow.end()

    # ---- within

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            if not self.closed:
                await self._serve(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self._target, Path):
            back, there = await asyncio.open_unix_connection(self._target)
        else:
            back, there = await asyncio.open_connection(*self._target)
        flow = _Flow(there)
        self._flows.add(flow)
        answering = asyncio.get_running_loop().create_task(_answers(back, writer))
        try:
            while not flow.over and (data := await reader.read(READ_BYTES)):
                flow.kept += data
                if not self.held:
                    flow.give()
                    await there.drain()
        except OSError:
            pass
        finally:
            flow.said = True
            if not self.held:
                flow.end()
            await asyncio.wait([answering])
            self._flows.discard(flow)


class _Flow:
    """What one connection has said.  said: it says no more."""

    def __init__(self, there: asyncio.StreamWriter) -> None:
        self._there = there
        self.kept = bytearray()
        self.said = self.over = False

        self._passed = 0
        self._last: deque[bytes] = deque(maxlen=REMEMBERED)

    def give(self) -> None:
        """What is whole of it arrives, frame by frame."""
        if self.over:
            return
        at = 0
        while len(self.kept) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self.kept, at)
            end = at + _LENGTH.size + (0 if length == _BEAT else length)
            if end > len(self.kept):
                break
            if length != _BEAT:
                self._passed += 1
                if self._passed > _HANDSHAKE and self.kept[at + _LENGTH.size] == _WHOLE:
                    self._last.append(bytes(self.kept[at:end]))
            at = end
        self._there.write(bytes(self.kept[:at]))
        del self.kept[:at]
        if self.said:
            self.end()

    def break_off(self, part: float) -> None:
        """So much of it arrives, and nothing more."""
        if not self.over:
            self._there.write(bytes(self.kept[: round(part * len(self.kept))]))
            self.end()

    def say_again(self, rng: random.Random) -> None:
        if self._last and not self.over:
            self._there.write(rng.choice(self._last))

    def end(self) -> None:
        """Behind what it was given."""
        self.over = True
        self._there.close()


async def _answers(back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends when the other process has hung up, and hangs up on the first then."""
    try:
        while data := await back.read(READ_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
