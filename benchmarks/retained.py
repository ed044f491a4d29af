"""`python -m benchmarks.retained`: a subscriber to `#` is given a million retained messages, and nobody else suffers for it.

Publishes them, then subscribes to `#` from a process of its own and counts what comes, while two other clients go on sending each other a
message every 10 ms. Printed: whether each message came once, how long it took, by how much the shard and the gateway grew, and the others'
median and p99 before and meanwhile. Fails when one is missing or comes twice, when either grows by more than --grow-mib, or when p99 gets
more than twice as large. Nothing waits for a time to pass: what comes no more for PROGRESS_S has failed.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.brokers import Holdfast, ended_from_outside
from benchmarks.meter import measure
from benchmarks.workers import RunFailed
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Ack, AckKind, AckRun, Connack, Connect, Item, Publish, PublishRun, Subscribe, Subscription

PACKET_BYTES_MAX: Final = 1 << 20
ECHO_EVERY_S: Final = 0.01
QUIET_ECHOES: Final = 1_000
"""Before the subscription."""
ECHOES_PER_LOOK: Final = 50
"""Between two looks at the memory of the processes."""
WINDOW: Final = 1_000
PROGRESS_S: Final = 60.0
ROLES: Final = ("shard", "gateway")


class Peer:
    """One MQTT 5 client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = Decoder(MQTT_5, PACKET_BYTES_MAX, role="client")

    @staticmethod
    async def connect(port: int, name: str) -> Peer:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        await peer.send(Connect(MQTT_5, name))
        (connack,) = await peer.receive()
        if not isinstance(connack, Connack) or connack.reason:
            raise RunFailed(f"{name}: {connack} in answer to CONNECT")
        return peer

    async def send(self, *packets: Item) -> None:
        self._writer.write(b"".join(encode(MQTT_5, packet) for packet in packets))
        await self._writer.drain()

    async def receive(self) -> list[Item]:
        """At least one packet."""
        while True:
            try:
                async with asyncio.timeout(PROGRESS_S):
                    data = await self._reader.read(1 << 18)
            except TimeoutError:
                raise RunFailed(f"nothing came for {PROGRESS_S:.0f} s") from None
            if not data:
                raise RunFailed("the broker has closed a connection")
            items = self._decoder.feed(data)
            if items:
                return items


@dataclass
class Echo:
    """Two clients: what one sends the other has after so long."""

    sender: Peer
    taker: Peer
    waits_ms: list[float] = field(default_factory=list)

    @staticmethod
    async def begin(port: int) -> Echo:
        echo = Echo(await Peer.connect(port, "sender"), await Peer.connect(port, "taker"))
        await echo.taker.send(Subscribe(1, (Subscription(b"$echo/a"),)))
        await echo.taker.receive()
        return echo

    async def rounds(self, count: int) -> None:
        for _ in range(count):
            began = time.perf_counter()
            await self.sender.send(Publish(0, 0, b"$echo/a", b"x"))
            await self.taker.receive()
            self.waits_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(ECHO_EVERY_S)

    def take_p50_p99_ms(self) -> tuple[float, float]:
        waits, self.waits_ms = sorted(self.waits_ms), []
        return waits[len(waits) // 2], waits[len(waits) * 99 // 100]


def topic(number: int) -> bytes:
    return b"site/%d/device/%d/state" % (number % 1_000, number)


async def fill(port: int, count: int) -> None:
    """QoS 1, a window at a time: what is acknowledged is there."""
    peer = await Peer.connect(port, "filler")
    for start in range(0, count, WINDOW):
        numbers = range(start, min(start + WINDOW, count))
        ids = [number - start + 1 for number in numbers]
        size = len(ids)
        await peer.send(PublishRun([3] * size, ids, [topic(number) for number in numbers], [b"\0" + b"v" * 50] * size))
        while size:
            for item in await peer.receive():
                size -= _acknowledged(item)


def _acknowledged(item: Item) -> int:
    match item:
        case AckRun(AckKind.PUBACK, packet_ids):
            return len(packet_ids)
        case Ack(AckKind.PUBACK, _, reason) if reason < 0x80:
            return 1
    raise RunFailed(f"{item} in answer to PUBLISH")


def read_all(port: int, count: int) -> tuple[int, int, float]:
    """How many came, how many of them twice, and how long it took; in a process of its own."""
    return asyncio.run(_read_all(port, count))


async def _read_all(port: int, count: int) -> tuple[int, int, float]:
    peer = await Peer.connect(port, "reader")
    began = time.monotonic()
    await peer.send(Subscribe(1, (Subscription(b"#", 1),)))
    seen: set[bytes] = set()
    came = 0
    while len(seen) < count:
        answers: list[Item] = []
        for item in await peer.receive():
            if isinstance(item, PublishRun):
                came += len(item.topics)
                seen.update(item.topics)
                answers += [Ack(AckKind.PUBACK, number) for number in item.packet_ids if number]
        if answers:
            await peer.send(*answers)
    return came, came - len(seen), time.monotonic() - began


async def run(broker: Holdfast, count: int) -> dict[str, float]:
    began = time.monotonic()
    await fill(broker.port, count)
    filled_s = time.monotonic() - began
    processes = {role: pids for role, pids in broker.roles().items() if role in ROLES}
    before = await asyncio.to_thread(measure, processes)
    most = {role: used.pss_bytes for role, used in before.items()}
    echo = await Echo.begin(broker.port)
    await echo.rounds(QUIET_ECHOES)
    quiet = echo.take_p50_p99_ms()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        reading = asyncio.get_running_loop().run_in_executor(pool, read_all, broker.port, count)
        while not reading.done():
            await echo.rounds(ECHOES_PER_LOOK)
            for role, used in (await asyncio.to_thread(measure, processes)).items():
                most[role] = max(most[role], used.pss_bytes)
        came, twice, read_s = reading.result()
    busy = echo.take_p50_p99_ms()
    return {
        "messages": count, "came": came, "twice": twice, "fill_s": round(filled_s, 1), "read_s": round(read_s, 1),
        **{f"{role}_grew_mib": round((most[role] - before[role].pss_bytes) / 2**20, 1) for role in processes},
        "p50_before_ms": round(quiet[0], 2), "p50_meanwhile_ms": round(busy[0], 2),
        "p99_before_ms": round(quiet[1], 2), "p99_meanwhile_ms": round(busy[1], 2),
    }  # fmt: skip


def _measured(broker: Holdfast, count: int) -> dict[str, float]:
    broker.start()
    try:
        return asyncio.run(run(broker, count))
    finally:
        broker.stop()


def retained(
    count: Annotated[int, typer.Option(help="Retained messages.")] = 1_000_000,
    grow_mib: Annotated[float, typer.Option(help="By how much the shard and the gateway may grow.")] = 100.0,
) -> None:
    """Fill a broker of its own, and read it all by one subscription."""
    try:
        with ended_from_outside(), tempfile.TemporaryDirectory(prefix="retained-") as work:
            found = _measured(Holdfast(Path(work)), count)
    except RunFailed as failure:
        print(f"FAIL retained: {failure}", file=sys.stderr)
        raise typer.Exit(2) from None
    print(json.dumps(found))
    grew = max(found[f"{role}_grew_mib"] for role in ROLES)
    slower = found["p99_meanwhile_ms"] / found["p99_before_ms"]
    good = found["came"] == count and not found["twice"] and grew <= grow_mib and slower <= 2
    print(f"{'PASS' if good else 'FAIL'} each once: {found['came'] == count and not found['twice']}, grew {grew} MiB, p99 x {slower:.2f}")
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(retained)
