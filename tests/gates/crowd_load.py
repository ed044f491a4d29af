"""Many sockets of one kind, held by a process of its own: peers that are slow, that lie, that are silent, or that just stay.

``python -m tests.gates.crowd_load PORT KIND --count N`` connects them all and prints one JSON object when they are there, holds them
until a line comes on stdin, and prints another one. A socket that the broker closes comes back some seconds later, so the crowd
stays as large as it was. It runs after whoever else wants a core: such peers have machines of their own, and what is measured beside
them is what they cost the broker.

    drip    a byte of a CONNECT each second      claim   a CONNECT header that claims 256 MB
    silent  a CONNECT header and nothing more    idle    connected, keep-alive 60, and pings to keep it
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import uvloop

from tests.conformance import packets

KINDS = ("drip", "claim", "silent", "idle")
BACK_S = (5.0, 15.0)
"""How much later a socket comes back."""
AT_ONCE = 64
KEEP_ALIVE_S = 60
CLAIM = b"\x10\xff\xff\xff\x7f"
HALF = b"\x10\x40\x00\x04MQTT"


@dataclass(slots=True)
class Told:
    """What the process says of itself."""

    open: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    closed: int = 0
    """How often the broker has closed a socket."""
    failed: list[str] = field(default_factory=list)


class Socket(asyncio.Protocol):
    def __init__(self, crowd: Crowd, number: int) -> None:
        self._crowd = crowd
        self._number = number
        self._sent = 0
        self._whole = packets.connect(5, f"crowd-{crowd.prefix}-{number}", keep_alive=KEEP_ALIVE_S)
        self._transport: asyncio.Transport | None = None
        self.there = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's are Transports in everything but the class
        self._crowd.open[self._number] = self
        self.speak()
        if self._crowd.kind != "idle":
            self.there.set_result(True)

    def speak(self) -> None:
        """What this kind says now; called each second."""
        kind, transport = self._crowd.kind, self._transport
        if transport is None:
            return
        if kind == "drip":
            transport.write(self._whole[self._sent : self._sent + 1])
        elif kind == "idle" and self._sent:
            if self._sent % (KEEP_ALIVE_S // 2) == 0:
                transport.write(b"\xc0\x00")
        elif not self._sent:
            transport.write({"claim": CLAIM, "silent": HALF, "idle": self._whole}[kind])
        self._sent += 1

    def data_received(self, data: bytes) -> None:
        if not self.there.done():
            self.there.set_result(data[:1] == b"\x20" and data[3] == 0)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.there.done():
            self.there.set_result(False)
        self._crowd.gone(self._number)

    def leave(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class Crowd:
    """So many sockets, by number; `ending`: none comes back any more."""

    def __init__(self, port: int, kind: str, count: int) -> None:
        self.port, self.kind, self.count = port, kind, count
        self.prefix = random.getrandbits(32)
        self.open: dict[int, Socket] = {}
        self.told = Told()
        self.ending = False

    async def gather(self) -> None:
        began, cpu_s = time.monotonic(), time.process_time()
        numbers = iter(range(self.count))

        async def some() -> None:
            for number in numbers:
                await self._connect(number)

        await asyncio.gather(*[some() for _ in range(AT_ONCE)])
        self.told.seconds, self.told.cpu_s = time.monotonic() - began, time.process_time() - cpu_s

    async def _connect(self, number: int) -> None:
        try:
            _, socket = await asyncio.get_running_loop().create_connection(lambda: Socket(self, number), "127.0.0.1", self.port)
            if not await socket.there:
                self.told.failed.append(f"socket {number} was refused")
        except OSError as error:
            if not self.ending:
                self.told.failed.append(str(error))

    def gone(self, number: int) -> None:
        self.open.pop(number, None)
        if self.ending:
            return
        self.told.closed += 1
        loop = asyncio.get_running_loop()
        loop.call_later(random.uniform(*BACK_S), lambda: self.ending or loop.create_task(self._connect(number)))

    async def hold(self) -> None:
        """Speak each second, until a line comes."""
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        line = asyncio.create_task(reader.readline())
        while not line.done():
            for socket in list(self.open.values()):
                socket.speak()
            await asyncio.wait([line], timeout=1.0)

    def say(self) -> None:
        self.told.open = len(self.open)
        self.told.failed = self.told.failed[:3]
        print(json.dumps(asdict(self.told)), flush=True)

    def end(self) -> None:
        self.ending = True
        for socket in list(self.open.values()):
            socket.leave()


async def crowd(port: int, kind: str, count: int) -> None:
    found = Crowd(port, kind, count)
    await found.gather()
    found.say()
    await found.hold()
    found.say()
    found.end()


def yield_to_others() -> None:
    """The lowest priority, also where the kernel shares out by sessions first."""
    os.setsid()
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, default=2_500)
    chosen = parser.parse_args()
    yield_to_others()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most < chosen.count + 100:
        raise SystemExit(f"{most} files may be open, {chosen.count} sockets are wanted")
    uvloop.run(crowd(chosen.port, chosen.kind, chosen.count))


if __name__ == "__main__":
    main()
