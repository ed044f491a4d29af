"""The crowd processes of a gate (tests.gates.crowd_load), and honest clients beside them whose round trips are timed."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.conformance.peer import Peer
from tests.gates.gate import GateFailed
from tests.needs import ROOT

OF_ONE_PROCESS = 2_500
THERE_S = 120.0
HONEST = 20
EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Said:
    """What all processes of a crowd have said together."""

    open: int
    seconds: float
    cpu_s: float
    closed: int


class Crowd:
    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def said(self) -> Said:
        """Their next line; the slowest counts."""
        lines = []
        for process in self._processes:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), THERE_S)
            if not line:
                raise GateFailed("a process that holds sockets ended")
            lines.append(json.loads(line))
        failed = [word for line in lines for word in line["failed"]]
        if failed:
            raise GateFailed(f"a socket was not let in: {failed[0]}")
        return Said(
            sum(line["open"] for line in lines), max(line["seconds"] for line in lines),
            sum(line["cpu_s"] for line in lines), sum(line["closed"] for line in lines),
        )  # fmt: skip

    async def end(self) -> Said:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
        return await self.said()


@asynccontextmanager
async def crowd(port: int, kind: str, count: int) -> AsyncIterator[Crowd]:
    """Processes of OF_ONE_PROCESS sockets each; gone at the end."""
    processes = []
    pipe = asyncio.subprocess.PIPE
    try:
        for first in range(0, count, OF_ONE_PROCESS):
            words = [sys.executable, "-m", "tests.gates.crowd_load", str(port), kind, "--count", str(min(OF_ONE_PROCESS, count - first))]
            processes.append(await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdin=pipe, stdout=pipe))
        yield Crowd(processes)
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def round_trips(port: int, seconds: float) -> list[float]:
    """Milliseconds from PUBLISH to its delivery, of 20 honest clients at QoS 1 that do this ten times a second."""
    peers = [await Peer.connect(port, 5, f"honest-{number}", keep_alive=30) for number in range(HONEST)]
    until = time.monotonic() + seconds

    async def one(number: int, peer: Peer) -> list[float]:
        topic = f"honest/{number}"
        await peer.subscribe((topic, 1))
        found = []
        while time.monotonic() < until:
            began = time.monotonic()
            await peer.publish(topic, b"x" * 64)
            await peer.take()
            found.append((time.monotonic() - began) * 1_000)
            await asyncio.sleep(EVERY_S)
        await peer.leave()
        return found

    rows = await asyncio.gather(*[one(number, peer) for number, peer in enumerate(peers)])
    return [each for row in rows for each in row]


def p99(found: list[float]) -> float:
    return sorted(found)[len(found) * 99 // 100]
