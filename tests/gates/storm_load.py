"""A reconnect storm: so many durable sessions lose their connections together and all come back at once.

``python -m tests.gates.storm_load PORT PORT --sessions 5000`` prints one JSON object: how long it took until every one had its
CONNACK, and until every one had what was published while it was away. Each session has a filter of its own and one that all
share; what comes is answered at once. The load's own CPU time is part of the result. With ``--kill PID`` that process, which should be
the session actor, is killed in the end while all are connected: its sessions are closed, come back, and are loaded from their rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from tests.broker import wire
from tests.broker.client import Client
from tests.broker.history import History
from tests.gates.takeover_load import Meter, quantiles

AT_ONCE = 100
MISSED = 3
COMMON = "storm/all"
DEADLINE_S = 120.0
RETRY_S = 0.2


@dataclass(slots=True)
class Result:
    sessions: int
    seconds_until_connacks: float = 0.0
    seconds_until_drained: float = 0.0
    connack_ms: dict[str, float] = field(default_factory=dict)
    cpu_us_each: dict[str, float] = field(default_factory=dict)
    tries_again: int = 0
    seconds_after_kill: float = 0.0
    wrong: list[str] = field(default_factory=list)


class Session(asyncio.Protocol):
    """One client id and its connection."""

    def __init__(self, client_id: str, port: int) -> None:
        self.client_id = client_id
        self._port = port
        self.accepted = asyncio.Event()
        self.ended = asyncio.Event()
        """The connection has ended; while it is being made also: it is accepted."""
        self.drained = asyncio.Event()
        self.subscribed = asyncio.Event()
        self.present = False
        self.got: set[bytes] = set()
        self.accepted_ns = 0
        self._transport: asyncio.Transport | None = None
        self._packets = wire.Reader()

    async def connect(self) -> int:
        """Connect, again and again when it is refused; returns how often it was tried."""
        tries = 0
        while True:
            tries += 1
            self.accepted.clear()
            self.ended.clear()
            self._packets = wire.Reader()
            try:
                await asyncio.get_running_loop().create_connection(lambda: self, "127.0.0.1", self._port)
                await self.ended.wait()
                if self.accepted.is_set():
                    self.ended.clear()
                    return tries
            except OSError:
                pass
            await asyncio.sleep(RETRY_S)

    async def come_back(self) -> int:
        """When the connection has ended."""
        await self.ended.wait()
        return await self.connect()

    async def subscribe(self) -> None:
        assert self._transport is not None
        self._transport.write(wire.subscribe(5, 1, f"storm/{self.client_id}/+", 1) + wire.subscribe(5, 2, COMMON, 1))
        await self.subscribed.wait()

    def tear(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        connect = wire.connect(5, self.client_id, clean=False, keep_alive_s=60, expiry_s=wire.EXPIRY_NEVER, receive_maximum=100)
        self._transport.write(connect)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        for packet in self._packets.feed(data):
            if packet.kind == wire.CONNACK:
                connack = wire.read_connack(5, packet.body)
                if not connack.code:
                    self.present = connack.session_present
                    self.accepted_ns = time.monotonic_ns()
                    self.accepted.set()
                    self.ended.set()
            elif packet.kind == wire.SUBACK and wire.read_suback(5, packet.body)[0] == 2:
                self.subscribed.set()
            elif packet.kind == wire.PUBLISH:
                message = wire.read_publish(5, packet.flags, packet.body)
                self.got.add(message.payload)
                self._transport.write(wire.answer(wire.PUBACK, message.packet_id))
                if len(self.got) == MISSED:
                    self.drained.set()


async def some_at_once(sessions: list[Session], at_once: int) -> int:
    """All connect, at most so many at a time; returns how many tries were too many."""
    room = asyncio.Semaphore(at_once)

    async def one(session: Session) -> int:
        async with room:
            return await session.connect() - 1

    return sum(await asyncio.gather(*map(one, sessions)))


async def run(options: argparse.Namespace, roles: dict[str, list[int]]) -> Result:
    result = Result(options.sessions)
    history = History()
    sessions = [Session(f"storm-{n}", options.ports[n % len(options.ports)]) for n in range(options.sessions)]
    async with asyncio.timeout(DEADLINE_S):
        await some_at_once(sessions, AT_ONCE)
        for start in range(0, len(sessions), AT_ONCE):
            await asyncio.gather(*(each.subscribe() for each in sessions[start : start + AT_ONCE]))
    for each in sessions:
        each.tear()
    publisher = Client(options.ports[0], "storm-publisher", history, version=5)
    await publisher.start()
    await asyncio.sleep(2)
    for _ in range(MISSED):
        await publisher.publish(COMMON, 1, size=64)
    await publisher.acknowledged(10)
    await publisher.stop()
    meter = Meter(roles)
    began = time.monotonic_ns()
    async with asyncio.timeout(DEADLINE_S):
        result.tries_again = await some_at_once(sessions, len(sessions))
        result.seconds_until_connacks = round((time.monotonic_ns() - began) / 1e9, 2)
        for each in sessions:
            await each.drained.wait()
    result.seconds_until_drained = round((time.monotonic_ns() - began) / 1e9, 2)
    used, _ = meter.lap()
    result.cpu_us_each = {role: round(spent / len(sessions) * 1e6) for role, spent in used.items()}
    result.connack_ms = quantiles([each.accepted_ns - began for each in sessions])
    if options.kill:
        began = time.monotonic_ns()
        os.kill(options.kill, signal.SIGKILL)
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.gather(*(each.come_back() for each in sessions))
        result.seconds_after_kill = round((time.monotonic_ns() - began) / 1e9, 2)
    if absent := [each.client_id for each in sessions if not each.present]:
        result.wrong.append(f"no session present for {len(absent)} clients, the first is {absent[0]}")
    for each in sessions:
        each.tear()
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.storm_load")
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--kill", type=int, default=0, metavar="PID")
    parser.add_argument("--cpu", action="append", default=[], metavar="ROLE=PID,PID")
    options = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    roles = {role: [int(pid) for pid in pids.split(",")] for role, _, pids in (each.partition("=") for each in options.cpu)}
    print(json.dumps(asdict(uvloop.run(run(options, roles)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
