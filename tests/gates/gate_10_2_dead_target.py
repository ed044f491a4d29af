"""Gate 2 of issue 11: a dead target costs publishers and other bridges at most a tenth.

One bridge writes to a file. In turns there are, beside it, no others; and two whose targets are dead: a broker that refuses connections,
and a web server that takes them and never answers. Four publishers send as fast as they are acknowledged. What counts is the CPU that
gateways, session actors and shards take for a message, from the first one to when the file has the last one, and the rate at which the
file gets them; medians of rounds that alternate (A B B A ...). What the bridges' own process takes is printed beside it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.brokers import free_port
from tests.gates.bridge_sinks import JsonlSink
from tests.gates.footprint import cpu_s
from tests.gates.gate import GateFailed, Scale, Watched, running, settings
from tests.gates.multitude import messages

LIMIT_S = 1500
ROUNDS = 10
MESSAGES = 72_000
FILLING = 6_000
"""Before each round: more than what a bridge holds, so that those with dead targets have what they will ever have."""
PUBLISHERS = 4
PAYLOAD = b"publisher 1 ".ljust(256, b".")
CHANGE_MAX = 0.10
SETTLED_S = 1.5
WITHIN_S = 120.0
DATA_ROLES = ("gateway", "session", "shard")


@dataclass(frozen=True, slots=True)
class Figures:
    """cpu_us of the broker's processes and bridge_us of the bridges' for each message; rate: messages a second into the file."""

    cpu_us: float
    bridge_us: float
    rate: float


class Round:
    def __init__(self, watched: Watched, sink: JsonlSink, pids: Sequence[int], bridge: int) -> None:
        self._watched = watched
        self._sink = sink
        self._pids = pids
        self._bridge = bridge
        self._sent = 0

    async def publish(self, count: int) -> None:
        """Returns when the file has all of them."""
        port = self._watched.broker.port
        topics = [[f"g102/{number}/{n % 20}" for n in range(count // PUBLISHERS)] for number in range(PUBLISHERS)]
        self._sent += sum(map(len, topics))
        await asyncio.gather(*(messages(port, f"g102-{number}", some, PAYLOAD) for number, some in enumerate(topics)))
        deadline = time.monotonic() + WITHIN_S
        while (there := await self._sink.count()) < self._sent:
            if time.monotonic() > deadline:
                raise GateFailed(f"the bridge whose target lives has carried {there} of {self._sent} messages after {WITHIN_S:.0f} s")
            await asyncio.sleep(0.02)

    async def measured(self, count: int) -> Figures:
        await self.publish(min(FILLING, count))
        await asyncio.sleep(SETTLED_S)
        before, own, began = sum(map(cpu_s, self._pids)), cpu_s(self._bridge), time.monotonic()
        await self.publish(count)
        took = time.monotonic() - began
        # What is worked off afterwards is part of the price.
        await asyncio.sleep(SETTLED_S)
        return Figures(
            (sum(map(cpu_s, self._pids)) - before) / count * 1e6, (cpu_s(self._bridge) - own) / count * 1e6, count / took
        )  # fmt: skip


async def command(watched: Watched, *words: str) -> str:
    return await asyncio.to_thread(watched.broker.command, *words)


def middle(found: Sequence[Figures]) -> Figures:
    return Figures(*(median(getattr(each, name) for each in found) for name in Figures.__slots__))


def told(figures: Figures) -> str:
    return f"{figures.cpu_us:.1f} us of CPU a message (bridges' process {figures.bridge_us:.1f}), {figures.rate:.0f} carried/s"


async def run(scale: Scale) -> str:
    alone: list[Figures] = []
    dead: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="hf-sinks-") as name, closing(socket.create_server(("127.0.0.1", 0))) as silent:
        sink = JsonlSink(Path(name))
        async with running(settings(1)) as watched:
            await command(watched, "bridge", "add", "good", "filter=g102/#", *sink.settings)
            status = await watched.status()
            one = Round(watched, sink, [pid for role in DATA_ROLES for pid in status.pids(role)], status.pids("bridge")[0])
            refusing = ["type=mqtt", f"mqtt.url=mqtt://127.0.0.1:{free_port()}"]
            hanging = ["type=http", f"http.url=http://127.0.0.1:{silent.getsockname()[1]}/in"]
            await one.measured(scale.of(MESSAGES, 4_000))
            for turn in range(2 * scale.of(ROUNDS, 2)):
                with_dead = turn % 4 in (1, 2)
                if with_dead:
                    await command(watched, "bridge", "add", "refusing", "filter=g102/#", *refusing)
                    await command(watched, "bridge", "add", "hanging", "filter=g102/#", *hanging)
                (dead if with_dead else alone).append(await one.measured(scale.of(MESSAGES, 4_000)))
                if with_dead:
                    for each in ("refusing", "hanging"):
                        await command(watched, "bridge", "rm", each, "--yes")
    without, beside = middle(alone), middle(dead)
    more, less = beside.cpu_us / without.cpu_us - 1, 1 - beside.rate / without.rate
    figure = (
        f"alone {told(without)}; beside two dead targets {told(beside)}: {more:+.1%} CPU, {-less:+.1%} rate; load average "
        f"{os.getloadavg()[0]:.1f}"
    )
    if max(more, less) > CHANGE_MAX:
        raise GateFailed(f"{figure}; at most {CHANGE_MAX:.0%} was wanted")
    return figure
