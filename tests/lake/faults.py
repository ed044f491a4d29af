"""Which faults come in which order, and how each is done: by SIGKILL to a process of Spark or of the broker, or by cutting a connection.

worker    a Python process that Spark started: one that reads, one that plans, or the one that forks the others
driver    the program that holds the query; its JVM ends with it
jvm       Spark itself
reader    the broker's process for bulk reading
shard     one that holds messages
gateway   one that publishers are connected to
cut       the connection between Spark and the reader, after so many bytes of an answer
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tests.broker.running import Status, alive
from tests.gates.gate import GateFailed, Watched
from tests.lake.proxy import CuttingProxy
from tests.lake.supervisor import Supervisor

Fault = Literal["worker", "driver", "jvm", "reader", "shard", "gateway", "cut"]
FAULTS: tuple[Fault, ...] = ("worker", "driver", "jvm", "reader", "shard", "gateway", "cut")
READER_ROLE = "reader"
VICTIM_S = 120.0
CUT_S = 120.0
CUT_BYTES = (1, 1_000_000)
"""Drawn so that each power of two is as likely as the next: the head of a frame is cut as often as its middle."""


def drawn(count: int, chance: random.Random) -> list[Fault]:
    """Each of them as often as the others, in any order."""
    found: list[Fault] = []
    while len(found) < count:
        deck = list(FAULTS)
        chance.shuffle(deck)
        found += deck
    return found[:count]


def bytes_drawn(chance: random.Random) -> int:
    low, high = CUT_BYTES
    return int(low * (high / low) ** chance.random())


@dataclass(slots=True)
class Injector:
    """Does one fault after the other; returns what was done, in words."""

    watched: Watched
    supervisor: Supervisor
    proxy: CuttingProxy
    chance: random.Random

    async def inject(self, fault: Fault) -> str:
        match fault:
            case "worker" | "driver" | "jvm":
                return await self._of_spark(fault)
            case "reader" | "shard" | "gateway":
                return await self._of_the_broker(fault)
            case "cut":
                return await self._cut()

    async def _of_spark(self, part: Literal["worker", "driver", "jvm"]) -> str:
        deadline = time.monotonic() + VICTIM_S
        while time.monotonic() < deadline:
            found = self.supervisor.pids(part)
            if found:
                pid = self.chance.choice(found)
                try:
                    self.supervisor.kill(pid)
                except ProcessLookupError:
                    continue  # it ended by itself
                return f"{part} {pid}"
            await asyncio.sleep(0.05)
        raise GateFailed(f"there was no {part} of Spark to kill for {VICTIM_S:.0f} s")

    async def _of_the_broker(self, role: Literal["reader", "shard", "gateway"]) -> str:
        deadline = time.monotonic() + VICTIM_S
        while time.monotonic() < deadline:
            status: Status = await self.watched.status()
            found = sorted((each.name, each.pid) for each in status.processes if each.role == role and alive(each.pid))
            if found:
                name, pid = self.chance.choice(found)
                await asyncio.to_thread(self.watched.broker.kill, pid)
                return f"{name} {pid}"
            await asyncio.sleep(0.2)
        raise GateFailed(f"status listed no living {role} for {VICTIM_S:.0f} s")

    async def _cut(self) -> str:
        after, reset = bytes_drawn(self.chance), self.chance.random() < 0.5
        cut = self.proxy.cut_after(after, reset=reset)
        deadline = time.monotonic() + CUT_S
        while not cut.done.is_set():
            if time.monotonic() > deadline:
                raise GateFailed(f"no connection between Spark and the reader passed {after} bytes within {CUT_S:.0f} s")
            await asyncio.sleep(0.02)
        return f"cut after {after} bytes{' with a reset' if reset else ''}"


def told(stories: Sequence[str]) -> str:
    """The last ones, for people."""
    return "; ".join(stories[-6:])
