"""Duels: two connections of one client at the same moment, at two gateways; one of them wins, and only one.

``python -m tests.gates.duel_load PORT PORT --duels 500`` prints one JSON object. Each duel is fought by a client with a durable session
and a connection from the duel before. When it is over, exactly one of the three connections must be open, the loser must have been
refused in its CONNACK or told 0x8E, and a message that is published then must arrive at the winner, and at nobody else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from tests.broker import wire
from tests.broker.client import Client
from tests.broker.history import History, parse_payload
from tests.gates.takeover_load import quantiles
from tests.gates.takeovers import TAKEN_OVER

CLIENTS = 25
OVER_S = 10.0


@dataclass(slots=True)
class Result:
    duels: int
    refused: int = 0
    told: int = 0
    by_gateway: list[int] = field(default_factory=lambda: [0, 0])
    over_ms: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Wrong(Exception):
    """What a duel must not be like."""


class Duellist(asyncio.Protocol):
    """One connection: CONNACK, messages, end."""

    def __init__(self, client_id: str, gateway: int, changed: asyncio.Event) -> None:
        self.client_id = client_id
        self.gateway = gateway
        self.connack: wire.Connack | None = None
        self.reason = 0
        self.open = True
        self.numbers: set[int] = set()
        self.subscribed = False
        self.transport: asyncio.Transport | None = None
        self._changed = changed
        self._packets = wire.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        connect = wire.connect(5, self.client_id, clean=False, keep_alive_s=60, expiry_s=wire.EXPIRY_NEVER, receive_maximum=100)
        self.transport.write(connect)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._changed.set()

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        for packet in self._packets.feed(data):
            if packet.kind == wire.CONNACK:
                self.connack = wire.read_connack(5, packet.body)
            elif packet.kind == wire.DISCONNECT:
                self.reason = packet.body[0] if packet.body else 0
            elif packet.kind == wire.SUBACK:
                self.subscribed = True
            elif packet.kind == wire.PUBLISH:
                message = wire.read_publish(5, packet.flags, packet.body)
                key = parse_payload(message.payload)
                assert key is not None
                self.numbers.add(key[1])
                self.transport.write(wire.answer(wire.PUBACK, message.packet_id))
        self._changed.set()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def alive(self) -> bool:
        return self.open and self.connack is not None and not self.connack.code

    @property
    def beaten(self) -> bool:
        """Ended in one of the two ways that are right."""
        return not self.open and (self.reason == TAKEN_OVER or (self.connack is not None and self.connack.code >= 0x80))


class Fighter:
    """One client id and all its duels."""

    def __init__(self, client_id: str, ports: list[int], publisher: Client, result: Result, over_ns: list[int]) -> None:
        self.client_id = client_id
        self._topic = f"duel/{client_id}"
        self._ports = ports
        self._publisher = publisher
        self._result = result
        self._over_ns = over_ns
        self._changed = asyncio.Event()

    async def fight(self, rounds: int) -> None:
        holder = await self._open(0)
        await self._until(lambda: holder.alive)
        assert holder.transport is not None
        holder.transport.write(wire.subscribe(5, 1, self._topic, 1))
        await self._until(lambda: holder.subscribed)
        for number in range(rounds):
            try:
                holder = await self._duel(number, holder)
            except Wrong as wrong:
                self._result.wrong.append(f"duel {number} of {self.client_id}: {wrong}")
                break
        holder.close()

    async def _duel(self, number: int, before: Duellist) -> Duellist:
        """The winner."""
        began = time.monotonic_ns()
        both = await asyncio.gather(self._open(number % 2), self._open(1 - number % 2))
        three = [before, *both]
        if not await self._until(lambda: sum(each.alive for each in three) == 1 == sum(each.open for each in three)):
            raise Wrong(f"not decided after {OVER_S:.0f} s: {[(each.open, each.reason, each.connack) for each in three]}")
        self._over_ns.append(time.monotonic_ns() - began)
        winner = next(each for each in three if each.alive)
        if winner is before:
            raise Wrong("the older connection won")
        loser = both[1] if winner is both[0] else both[0]
        if not loser.beaten or before.reason != TAKEN_OVER:
            raise Wrong(f"ended with {loser.reason:#04x}, {loser.connack}, and {before.reason:#04x}")
        self._result.told += loser.reason == TAKEN_OVER
        self._result.refused += loser.reason != TAKEN_OVER
        self._result.by_gateway[winner.gateway] += 1
        sent = await self._publisher.publish(self._topic, 1)
        if not await self._until(lambda: sent in winner.numbers):
            raise Wrong("the winner does not get what is published")
        if not winner.alive or sent in loser.numbers or sent in before.numbers:
            raise Wrong("a message came to a connection that had lost")
        return winner

    async def _open(self, gateway: int) -> Duellist:
        duellist = Duellist(self.client_id, gateway, self._changed)
        await asyncio.get_running_loop().create_connection(lambda: duellist, "127.0.0.1", self._ports[gateway])
        return duellist

    async def _until(self, holds: Callable[[], bool]) -> bool:
        try:
            async with asyncio.timeout(OVER_S):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True


async def run(options: argparse.Namespace) -> Result:
    result = Result(options.duels)
    over_ns: list[int] = []
    publisher = Client(options.ports[0], "duel-publisher", History(), version=5, window=CLIENTS)
    await publisher.start()
    fighters = [Fighter(f"fighter-{n}", options.ports, publisher, result, over_ns) for n in range(CLIENTS)]
    await asyncio.gather(*(each.fight(options.duels // CLIENTS) for each in fighters))
    await publisher.stop()
    result.over_ms = quantiles(over_ns)
    result.wrong = result.wrong[:5]
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.duel_load")
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--duels", type=int, default=500)
    parser.add_argument("--cpu", action="append", default=[], help="taken and not used")
    options = parser.parse_args(arguments)
    print(json.dumps(asdict(uvloop.run(run(options)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
