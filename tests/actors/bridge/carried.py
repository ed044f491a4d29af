"""A bridge over real servers on one loop: its file, and what the tests expect to be in it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from actors.bridge.inward import InwardRunner
from actors.bridge.runner import Runner
from actors.bridge.server import BridgeServer
from actors.topology import Topology
from tests.actors.one_loop import OneLoop

Line = dict[str, Any]


def sets(name: str = "out", topic_filter: str = "a/#", *more: str) -> tuple[str, ...]:
    prefix = f"bridges.{name}."
    return (f"{prefix}filter={topic_filter}", f"{prefix}jsonl.path={name}.jsonl", f"{prefix}linger=1ms", *(prefix + each for each in more))


def lines(data_dir: Path, name: str = "out") -> list[Line]:
    """Those that are whole: one may be being written."""
    path = data_dir / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


async def until(data_dir: Path, count: int, name: str = "out", within_s: float = 60) -> list[Line]:
    """The lines, when there are so many."""
    deadline = time.monotonic() + within_s
    while len(found := lines(data_dir, name)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} lines after {within_s} s"
        await asyncio.sleep(0.02)
    return found


class Bridges:
    """The bridge process of a OneLoop, while the block lasts."""

    def __init__(self, broker: OneLoop | Topology) -> None:
        self.server = BridgeServer(broker.topology if isinstance(broker, OneLoop) else broker, 0)

    async def __aenter__(self) -> BridgeServer:
        await self.server.start()
        return self.server

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()


async def online(server: BridgeServer, name: str = "out", within_s: float = 60) -> None:
    deadline = time.monotonic() + within_s
    while name not in server._runners or not server._runners[name].online:
        assert time.monotonic() < deadline, f"{name} is not online after {within_s} s: {server._runners.get(name)}"
        await asyncio.sleep(0.01)


def outward(server: BridgeServer, name: str) -> Runner:
    runner = server._runners[name]
    assert isinstance(runner, Runner)
    return runner


def inward(server: BridgeServer, name: str) -> InwardRunner:
    runner = server._runners[name]
    assert isinstance(runner, InwardRunner)
    return runner


async def kill(server: BridgeServer) -> None:
    """The process dies at once: nothing that it still had to say is heard."""
    for runner in server._runners.values():
        await (_kill(runner) if isinstance(runner, Runner) else _kill_inward(runner))
    server._runners.clear()
    await server.stop()


async def _kill(runner: Runner) -> None:
    if runner._session is not None:
        runner._session.hang_up()
    tasks = [task for task in (runner._task, *runner._calls.values()) if task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for lane in list(runner._targets):
        runner._close(lane)
    await asyncio.gather(*runner._closing.values(), return_exceptions=True)
    if runner._timer is not None:
        runner._timer.cancel()


async def _kill_inward(runner: InwardRunner) -> None:
    crossing = runner._crossing
    if crossing is not None:
        crossing.publisher.hang_up()
        if crossing.source is not None and crossing.source._writer is not None:
            crossing.source._writer.transport.abort()
    assert runner._task is not None
    runner._task.cancel()
    await asyncio.gather(runner._task, return_exceptions=True)
