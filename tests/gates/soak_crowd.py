"""The clients of a soak: publishers, and durable sessions that each live in another way.

    steady     stays, and comes back whenever its connection ends
    mover      tears itself from one gateway to the other every second or three, its older connection open for a while
    sleeper    is away for up to 20 s, now with DISCONNECT and now without, and comes back to what it has missed
    changer    has one filter for ever and a second one that it subscribes and unsubscribes all the time
    passing    comes under a new name, subscribes, and never comes back: its session expires, and nothing of it may stay

Each speaks 3.1.1 or 5, at QoS 1 or 2, with a literal, a ``+`` or a ``#`` filter. What came of it is in the ledger.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress

from tests.broker import wire
from tests.broker.client import Client, Connection
from tests.broker.wire import Version
from tests.gates.soak_ledger import Ledger
from tests.gates.traffic import Publisher

AREAS, PLACES = 3, 4
"""Topics: soak/AREA/PLACE."""
STEADY, MOVERS, SLEEPERS, CHANGERS = 6, 6, 6, 4
FILTERS = ("soak/#", "soak/+/1", "soak/1/#", "soak/2/3", "soak/0/+")
STABLE, CHANGING = "soak/1/#", ("soak/2/+", "soak/0/2")
ANSWER_S = 15.0
SUBSCRIBE_S = 60.0
AWAY_S = (1.0, 20.0)
HERE_S = (1.0, 8.0)
MOVE_S = (0.5, 3.0)
ABANDONED_S = 1.0
PASSING_EVERY_S, PASSING_STAYS_S, PASSING_EXPIRY_S = (1.0, 5.0), 2.0, 5
CHANGE_ID = 65_000

Ports = Callable[[], list[int]]


def topics() -> list[str]:
    return [f"soak/{area}/{place}" for place in range(PLACES) for area in range(AREAS)]


class Changer(Client):
    """A client whose second filter comes and goes; SUBACK and UNSUBACK of it are read here."""

    def __init__(self, port: int, client_id: str, ledger: Ledger, *, version: Version) -> None:
        super().__init__(port, client_id, ledger, version=version)
        self._answer_came = asyncio.Event()
        self._waiting = 0
        self._answer_ns = 0

    async def change(self, ledger: Ledger, topic_filter: str, qos: int, stay_s: float) -> None:
        """Subscribe, stay, unsubscribe; each until it is answered, over as many connections as that takes."""
        reader = ledger.add(self.client_id, topic_filter, qos, 2**63)
        await self._ask(wire.SUBACK, lambda number: wire.subscribe(self.version, number, topic_filter, qos))
        reader.terms.since_ns = self._answer_ns
        await asyncio.sleep(stay_s)
        reader.leaving_ns = time.monotonic_ns()
        await self._ask(wire.UNSUBACK, lambda number: unsubscribe(self.version, number, topic_filter))
        reader.gone_ns = self._answer_ns

    async def _ask(self, kind: int, packet: Callable[[int], bytes]) -> None:
        deadline = time.monotonic() + SUBSCRIBE_S
        while time.monotonic() < deadline:
            await self.connected.wait()
            self._answer_came.clear()
            self._waiting = kind
            if self._writer is not None:
                self._writer.write(packet(CHANGE_ID))
            try:
                async with asyncio.timeout(2.0):
                    await self._answer_came.wait()
                return
            except TimeoutError:
                continue  # the connection has ended, or the shard is away: ask again, the same is answered the same
        raise TimeoutError(f"{self.client_id}: no answer of kind {kind} within {SUBSCRIBE_S:.0f} s; last refusals {self.refusals[-3:]}")

    def _handle(self, packet: wire.Packet, connection: Connection, now: int) -> None:
        if packet.kind == self._waiting and packet.body[:2] == struct.pack(">H", CHANGE_ID):
            refused = packet.kind == wire.SUBACK and wire.read_suback(self.version, packet.body)[1][0] >= 0x80
            if not refused:
                self._waiting, self._answer_ns = 0, now
                self._answer_came.set()
        else:
            super()._handle(packet, connection, now)


def unsubscribe(version: Version, packet_id: int, topic_filter: str) -> bytes:
    return wire.packet(0xA2, struct.pack(">H", packet_id) + (b"\x00" if version == 5 else b"") + wire.text(topic_filter))


class Crowd:
    """All clients of one soak."""

    def __init__(self, port: int, own_ports: Ports, ledger: Ledger, chance: random.Random, publishers: int, per_second: float) -> None:
        self.ledger = ledger
        self.publishers = [
            Publisher(Client(port, f"publisher-{n}", ledger, version=5 if n % 2 else 4, window=100), 1 + n // 2 % 2, per_second, topics())
            for n in range(publishers)
        ]
        self.sessions: dict[str, Client] = {}
        self.ending = False
        self._port = port
        self._own_ports = own_ports
        self._chance = chance
        self._lives: list[asyncio.Task[None]] = []
        self._awake = asyncio.Event()

    async def begin(self) -> None:
        for at in range(STEADY):
            await self._session(f"steady-{at}", at)
        for at in range(MOVERS):
            self._live(self._move(await self._session(f"mover-{at}", at)))
        for at in range(SLEEPERS):
            self._live(self._sleep(await self._session(f"sleeper-{at}", at)))
        for at in range(CHANGERS):
            changer = Changer(self._port, f"changer-{at}", self.ledger, version=5 if at % 2 else 4)
            await self._subscribed(changer, STABLE, 1 + at // 2)
            self._live(self._change(changer, 1 + at // 2))
        self._live(self._passers_by())
        for publisher in self.publishers:
            await publisher.begin()

    async def end(self, timeout_s: float) -> None:
        """Nobody moves any more and everybody is here; publishers wait for their last acknowledgements."""
        self.ending = True
        self._awake.set()
        async with asyncio.timeout(timeout_s + SUBSCRIBE_S):
            await asyncio.gather(*self._lives)
        await asyncio.gather(*(publisher.finish(timeout_s) for publisher in self.publishers))

    async def leave(self) -> None:
        for life in self._lives:
            life.cancel()
        for publisher in self.publishers:
            publisher.cease()
        await asyncio.gather(*(each.stop() for each in self.clients), return_exceptions=True)

    @property
    def clients(self) -> list[Client]:
        return [*self.sessions.values(), *(publisher.client for publisher in self.publishers)]

    def forget(self) -> None:
        """What clients note down about each connection would fill the memory in hours."""
        for client in self.clients:
            del client.connections[:-2], client.refusals[:-5]
            for connection in client.connections:
                del connection.acknowledgements[:-50]

    def broken(self) -> list[str]:
        """What ended a client's life though it should not have ended."""
        tasks = [*self._lives, *(publisher.task for publisher in self.publishers)]
        return [repr(task.exception()) for task in tasks if task is not None and task.done() and not task.cancelled() and task.exception()]

    def online_s(self, client_id: str) -> float:
        """How long this client has been connected now; 0 when it is not."""
        client = next(each for each in self.clients if each.client_id == client_id)
        return (time.monotonic_ns() - client.connections[-1].accepted_ns) / 1e9 if client.connected.is_set() else 0.0

    # ------------------------------------------------------------------- lives

    def _live(self, life: Coroutine[None, None, None]) -> None:
        self._lives.append(asyncio.get_running_loop().create_task(life))

    async def _session(self, name: str, at: int) -> Client:
        client = Client(self._port, name, self.ledger, version=4 if at % 3 == 0 else 5)
        await self._subscribed(client, FILTERS[at % len(FILTERS)], 1 + at % 2)
        return client

    async def _subscribed(self, client: Client, topic_filter: str, qos: int) -> None:
        self.sessions[client.client_id] = client
        await client.start(SUBSCRIBE_S)
        await client.subscribe(topic_filter, qos, ANSWER_S)

    async def _pause(self, bounds: tuple[float, float]) -> None:
        try:
            async with asyncio.timeout(self._chance.uniform(*bounds)):
                await self._awake.wait()
        except TimeoutError:
            pass

    async def _move(self, client: Client) -> None:
        while not self.ending:
            await self._pause(MOVE_S)
            ports = [port for port in self._own_ports() if port != client.port] or [self._port]
            abandoned = client.tear(self._chance.choice(ports))
            try:
                async with asyncio.timeout(ABANDONED_S):
                    await client.connected.wait()
            except TimeoutError:
                client.port = self._port  # that gateway may be away, and its port may be another when it comes back
            if abandoned is not None:
                abandoned.transport.abort()
        client.port = self._port

    async def _sleep(self, client: Client) -> None:
        while not self.ending:
            await self._pause(HERE_S)
            if self._chance.random() < 0.5:
                await client.stop()
            else:
                await client.vanish()
            await self._pause(AWAY_S)
            await client.start(SUBSCRIBE_S)

    async def _change(self, changer: Changer, qos: int) -> None:
        at = 0
        while not self.ending:
            await changer.change(self.ledger, CHANGING[at % len(CHANGING)], qos, self._chance.uniform(0.2, 4.0))
            at += 1
            await self._pause((0.05, 1.0))

    async def _passers_by(self) -> None:
        """Nothing is promised to them and nothing of theirs is checked but the rows of the homes."""
        number = 0
        while not self.ending:
            await self._pause(PASSING_EVERY_S)
            number += 1
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await self._pass_by(f"passing-{number}")

    async def _pass_by(self, name: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(wire.connect(5, name, clean=True, keep_alive_s=60, expiry_s=PASSING_EXPIRY_S, receive_maximum=10))
            writer.write(wire.subscribe(5, 1, "soak/#", 1) + wire.subscribe(5, 2, f"passing/{name}", 2))
            await asyncio.sleep(PASSING_STAYS_S)
            await reader.read(65536)
        finally:
            writer.transport.abort()
