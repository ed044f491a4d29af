"""`python -m benchmarks.retained`: a subscriber to `#` is given a million retained messages, and nobody else suffers for it.

Publishes them, then subscribes to `#` and counts what comes, while two other clients go on sending each other messages. Printed: whether
each message came once, how long it took, by how much the shard and the gateway grew, and the others' p99 before and meanwhile. Fails when
one is missing or comes twice, when either grows by more than --grow-mib, or when p99 gets more than twice as large.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.brokers import Holdfast, ended_from_outside
from benchmarks.meter import measure
from benchmarks.workers import RunFailed
from mqtt.decode import Decoder
from mqtt.encode import encode
from mqtt.packets import MQTT_5, Ack, AckKind, Connack, Connect, Item, Publish, PublishRun, Subscribe, Subscription

PACKET_BYTES_MAX = 1 << 20
ECHO_EVERY_S = 0.01
WINDOW = 1_000


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
            data = await self._reader.read(1 << 18)
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
    waits_ms: list[float]

    @staticmethod
    async def begin(port: int) -> Echo:
        echo = Echo(await Peer.connect(port, "sender"), await Peer.connect(port, "taker"), [])
        await echo.taker.send(Subscribe(1, (Subscription(b"$echo/a"),)))
        await echo.taker.receive()
        return echo

    async def go_on(self) -> None:
        while True:
            began = time.perf_counter()
            await self.sender.send(Publish(0, 0, b"$echo/a", b"x"))
            await self.taker.receive()
            self.waits_ms.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(ECHO_EVERY_S)

    def p99_ms(self) -> float:
        waits, self.waits_ms = sorted(self.waits_ms), []
        return waits[len(waits) * 99 // 100] if waits else 0.0


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
                size -= 1 if isinstance(item, Ack) else len(item.packet_ids)  # type: ignore[union-attr]


async def read_all(port: int, count: int) -> tuple[int, int]:
    """How many came, and how many of them twice."""
    peer = await Peer.connect(port, "reader")
    await peer.send(Subscribe(1, (Subscription(b"#", 1),)))
    seen: set[bytes] = set()
    came = 0
    async with asyncio.timeout(600):
        while len(seen) < count:
            answers: list[Item] = []
            for item in await peer.receive():
                if isinstance(item, PublishRun):
                    came += len(item.topics)
                    seen.update(item.topics)
                    answers += [Ack(AckKind.PUBACK, number) for number in item.packet_ids if number]
            if answers:
                await peer.send(*answers)
    return came, came - len(seen)


async def watch(pids: Sequence[tuple[str, int]], most: dict[str, int]) -> None:
    while True:
        for role, pid in pids:
            most[role] = max(most[role], measure({role: [pid]})[role].pss_bytes)
        await asyncio.sleep(0.5)


async def run(broker: Holdfast, count: int) -> dict[str, object]:
    began = time.monotonic()
    await fill(broker.port, count)
    filled_s = time.monotonic() - began
    status = json.loads(broker._run(["status", "--json", "--data-dir", str(broker.data_dir)], 30))["processes"]
    pids = [(str(row["role"]), int(row["pid"])) for row in status if row["role"] in ("shard", "gateway")]
    before = {role: measure({role: [pid]})[role].pss_bytes for role, pid in pids}
    most = dict(before)
    echo = await Echo.begin(broker.port)
    going = asyncio.create_task(echo.go_on())
    await asyncio.sleep(10)
    quiet_ms = echo.p99_ms()
    watching = asyncio.create_task(watch(pids, most))
    began = time.monotonic()
    came, twice = await read_all(broker.port, count)
    read_s = time.monotonic() - began
    busy_ms = echo.p99_ms()
    for task in (going, watching):
        task.cancel()
    return {
        "messages": count, "came": came, "twice": twice, "fill_s": round(filled_s, 1), "read_s": round(read_s, 1),
        **{f"{role}_grew_mib": round((most[role] - before[role]) / 2**20, 1) for role in before},
        "p99_before_ms": round(quiet_ms, 2), "p99_meanwhile_ms": round(busy_ms, 2),
    }  # fmt: skip


def _measured(broker: Holdfast, count: int) -> dict[str, object]:
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
    grew = max(float(str(found["shard_grew_mib"])), float(str(found["gateway_grew_mib"])))
    slower = float(str(found["p99_meanwhile_ms"])) / max(float(str(found["p99_before_ms"])), 0.001)
    good = found["came"] == count and not found["twice"] and grew <= grow_mib and slower <= 2
    print(f"{'PASS' if good else 'FAIL'} each once: {found['came'] == count and not found['twice']}, grew {grew} MiB, p99 x {slower:.2f}")
    raise typer.Exit(0 if good else 1)


if __name__ == "__main__":
    typer.run(retained)
