"""Gate 4 of issue 7: 1,000 sessions that are connected, each with a filter of its own on one stream, and all on one filter.

With 1,000 different filters `dev/N/#` the shards take less than twice the CPU for a message that they take for a single session with
`dev/#`. A message that 1,000 sessions get and acknowledge makes the broker write at most 1.3 times the bytes of one that a single session
gets. Medians of five rounds over two brokers that take turns. What a delivery costs is printed beside mosquitto's.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from benchmarks.brokers import Mosquitto, find_mosquitto
from tests.broker.running import RunningBroker
from tests.gates.footprint import cpu_s
from tests.gates.gate import GateFailed, Scale, running, settings
from tests.gates.gate_01_6_first_speed import DATA_ROLES
from tests.gates.multitude import messages
from tests.gates.readers import Readers, reading

LIMIT_S = 3_000
SESSIONS = 1_000
SHARD_MORE = 2.0
WRITTEN_MORE = 1.3
ROUNDS = 5
OWN = 20_000
COMMON = 2_000
PAYLOAD = b"x" * 1024
WRITTEN_S = 12.0
"""After so long everything that was acknowledged is written."""


def written_bytes(pids: list[int]) -> int:
    """What these processes have given to the disk so far."""
    found = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                found += int(line.split()[1])
    return found


class Trial:
    """A broker with connected sessions: what a message costs it."""

    def __init__(self, broker: RunningBroker, readers: Readers, deliveries: int) -> None:
        self.shards = broker.status().pids("shard")
        self.data = [pid for role in DATA_ROLES for pid in broker.status().pids(role)]
        self._port = broker.port
        self._readers = readers
        self._deliveries = deliveries

    async def publish(self, topics: list[str]) -> None:
        wanted = self._readers.got + self._deliveries * len(topics)
        await messages(self._port, "publisher", topics, PAYLOAD)
        await self._readers.have(wanted)

    async def shard_us(self, topics: list[str]) -> float:
        before = sum(map(cpu_s, self.shards))
        await self.publish(topics)
        return (sum(map(cpu_s, self.shards)) - before) / len(topics) * 1e6

    async def written(self, topics: list[str]) -> tuple[float, float]:
        """(bytes of a message, us of CPU of a delivery)."""
        bytes_before, cpu_before = written_bytes(self.data), sum(map(cpu_s, self.data))
        await self.publish(topics)
        used = sum(map(cpu_s, self.data)) - cpu_before
        await asyncio.sleep(WRITTEN_S)
        return (written_bytes(self.data) - bytes_before) / len(topics), used / len(topics) / self._deliveries * 1e6


async def own_filters(scale: Scale) -> tuple[str, str]:
    """1,000 filters of which a message matches one, beside one filter that matches all."""
    count, published = scale.of(SESSIONS), scale.of(OWN)
    topics = [f"dev/{number % count}/state" for number in range(published)]
    async with AsyncExitStack() as stack:
        trials: list[Trial] = []
        for wanted in ([("all", "dev/#")], [(f"reader-{number}", f"dev/{number}/#") for number in range(count)]):
            broker = (await stack.enter_async_context(running(settings(1)))).broker
            readers = await stack.enter_async_context(reading(broker.port, wanted))
            trials.append(Trial(broker, readers, 1))
        # The structure of topics is learned, and what was learned is kept.
        for trial in trials:
            await trial.publish(topics)
        rounds = [[await trial.shard_us(topics) for trial in trials] for _ in range(scale.of(ROUNDS, 1))]
    one, many = (median(each) for each in zip(*rounds, strict=True))
    ratio = median(many / one for one, many in rounds)
    line = f"{count} filters: {many:.1f} us of the shard a message, one: {one:.1f}, {ratio:.2f} times"
    return line, f"{line}, wanted less than {SHARD_MORE}" if ratio >= SHARD_MORE else ""


async def one_filter(scale: Scale) -> tuple[str, str]:
    """1,000 sessions that all get each message, beside one."""
    count, published = scale.of(SESSIONS), scale.of(COMMON)
    topics = [f"news/{number % 10}" for number in range(published)]
    async with AsyncExitStack() as stack:
        trials: list[Trial] = []
        for sessions in (1, count):
            broker = (await stack.enter_async_context(running(settings(1)))).broker
            readers = await stack.enter_async_context(reading(broker.port, [(f"reader-{number}", "news/#") for number in range(sessions)]))
            trials.append(Trial(broker, readers, sessions))
        rounds = [[await trial.written(topics) for trial in trials] for _ in range(scale.of(ROUNDS, 1))]
        ratio = median(many / one for (one, _), (many, _) in rounds)
        us = median(us for _, (_, us) in rounds)
        beside = await _mosquitto_us(count, topics)
    line = (
        f"{median(many for _, (many, _) in rounds):.0f} bytes written for a message that {count} get, "
        f"{median(one for (one, _), _ in rounds):.0f} for one, {ratio:.2f} times; {us:.2f} us of CPU a delivery, mosquitto {beside}"
    )
    return line, f"{line}, wanted at most {WRITTEN_MORE}" if ratio > WRITTEN_MORE else ""


async def _mosquitto_us(sessions: int, topics: list[str]) -> str:
    program = find_mosquitto()
    if program is None:
        return "is not installed"
    with tempfile.TemporaryDirectory() as directory:
        mosquitto = Mosquitto(Path(directory), program)
        await asyncio.to_thread(mosquitto.start)
        try:
            async with reading(mosquitto.port, [(f"reader-{number}", "news/#") for number in range(sessions)]) as readers:
                (pid,) = mosquitto.groups()["all"]
                before = cpu_s(pid)
                await messages(mosquitto.port, "publisher", topics, PAYLOAD)
                await readers.have(sessions * len(topics))
                return f"{(cpu_s(pid) - before) / len(topics) / sessions * 1e6:.2f}"
        finally:
            await asyncio.to_thread(mosquitto.stop)


async def run(scale: Scale) -> str:
    lines, problems = [], []
    for part in (own_filters, one_filter):
        line, problem = await part(scale)
        lines.append(line)
        problems += [problem] if problem else []
    if problems:
        raise GateFailed(f"{'; '.join(problems)} (all: {'; '.join(lines)})")
    return "; ".join(lines)
