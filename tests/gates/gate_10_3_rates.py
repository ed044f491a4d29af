"""Gate 3 of issue 11: how fast a bridge carries what waits, beside what people use now, in one run of this machine.

For each kind of target so many messages of 256 bytes wait, and are carried: by a bridge of Holdfast; and from a mosquitto, by its own
bridge to another one, or by a script on paho (tests.gates.paho_carrier) to the same file, table or server. In turns; the rate is that from
the first message that is there to the last, at least for half of them; who is slow is looked at for so long. They do not promise the same:
the table says what was safe before it was acknowledged.

No bar is set: the gate fails when a bridge of Holdfast leaves something out, or a figure cannot be had. What it prints goes into
docs/bridge-targets.md.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from benchmarks.brokers import Mosquitto, find_mosquitto
from tests.gates.bridge_sinks import SINKS, BrokerSink, JsonlSink, Lines, ParquetSink, PostgresqlSink, Receiver, Sink
from tests.gates.gate import GateFailed, Scale, Watched, running, settings
from tests.gates.multitude import messages, sessions
from tests.gates.paho_carrier import CLIENT
from tests.needs import find_program

LIMIT_S = 2700
ROUNDS = 3
MESSAGES = 60_000
QUICK_MESSAGES = 20_000
"""Of which the script's Parquet files have 10,000."""
WAITED_S = 40.0
"""So long a rate is looked at."""
STILL_S = 30.0
PUBLISHERS = 4
PAYLOAD = b"publisher 1 ".ljust(256, b".")
LOOK_S = 0.1

PROMISES = {
    "jsonl": ("synced", "flushed, not synced"),
    "parquet": ("synced", "in memory"),
    "postgresql": ("committed, 500 rows at once", "committed, one row"),
    "http": ("answered, 8 at once", "answered, one by one"),
    "mqtt5": ("PUBACK, 1,000 under way", "PUBACK, 1,000 under way"),
    "mqtt3": ("PUBACK, 1,000 under way", "PUBACK, 1,000 under way"),
}
"""What had become of a message before it was acknowledged to its source: by us, by the other."""
BRIDGE_OF_MOSQUITTO = """\
max_inflight_messages 1000
connection out
address 127.0.0.1:{port}
topic # out 1
cleansession false
restart_timeout 1
bridge_protocol_version {version}
"""
VERSIONS = {"5": "mqttv50", "3.1.1": "mqttv311"}

Count = Callable[[], Awaitable[int]]


async def command(watched: Watched, *words: str) -> str:
    return await asyncio.to_thread(watched.broker.command, *words)


async def rate_of(count: Count, wanted: int, *, all_of_it: bool) -> float:
    """Messages a second, of those that are there after it has begun."""
    began = moved = time.monotonic()
    first: tuple[float, int] | None = None
    there = 0
    while there < wanted and (all_of_it or time.monotonic() - (first or (time.monotonic(), 0))[0] < WAITED_S):
        before, there = there, await count()
        now = time.monotonic()
        if there > before:
            moved, first = now, first or (now, there)
        if now - moved > STILL_S:
            raise GateFailed(f"{there} of {wanted} messages were carried, and nothing for {STILL_S:.0f} s")
        await asyncio.sleep(LOOK_S)
    assert first is not None
    if there - first[1] >= wanted / 2:
        return (there - first[1]) / (moved - first[0])
    return there / (moved - began)


async def publish(port: int, prefix: str, count: int) -> None:
    topics = [[f"{prefix}/{number}/{n % 20}" for n in range(count // PUBLISHERS)] for number in range(PUBLISHERS)]
    await asyncio.gather(*(messages(port, f"{prefix}-{number}", some, PAYLOAD) for number, some in enumerate(topics)))


@asynccontextmanager
async def started(kind: type[Sink], directory: Path) -> AsyncIterator[Sink]:
    sink = kind(directory)
    try:
        if isinstance(sink, BrokerSink):
            # In C, so that it is no bound for anybody.
            program = find_program("mosquitto_sub")
            assert program is not None
            await sink.back()
            await sessions(sink.broker.port, ["receiver"], ["#"])
            words = [program, "-p", str(sink.broker.port), "-i", "receiver", "-c", "-q", "1", "-t", "#", "-F", "%p"]
            sink.subscriber = Receiver(words, sink.lines.path)
            sink.subscriber.start()
        else:
            await sink.start()
        yield sink
    finally:
        await sink.end()


async def by_bridge(watched: Watched, sink: Sink, count: int) -> float:
    prefix = f"g103/{sink.name}"
    await command(watched, "bridge", "add", sink.name, f"filter={prefix}/#", *sink.settings)
    await command(watched, "bridge", "pause", sink.name)
    await publish(watched.broker.port, prefix, count)
    resuming = asyncio.create_task(command(watched, "bridge", "resume", sink.name))
    rate = await rate_of(sink.count, count, all_of_it=True)
    await resuming
    await command(watched, "bridge", "rm", sink.name, "--yes")
    return rate


async def by_mosquitto(sink: BrokerSink, directory: Path, program: str, count: int) -> float:
    more = BRIDGE_OF_MOSQUITTO.format(port=sink.broker.port, version=VERSIONS[sink.version])
    source = Mosquitto(directory / "source", program, more)
    await asyncio.to_thread(source.start)
    try:
        # It has its own subscription once it was connected.
        await publish(source.port, "before", PUBLISHERS)
        await rate_of(sink.count, PUBLISHERS, all_of_it=True)
        await sink.away()
        await publish(source.port, "waits", count)
        await sink.back()
        return await rate_of(sink.count, count + PUBLISHERS, all_of_it=False)
    finally:
        await asyncio.to_thread(source.stop)


async def by_script(sink: Sink, directory: Path, program: str, count: int) -> float:
    place, counted = await _script_place(sink, directory)
    source = Mosquitto(directory / "source", program)
    await asyncio.to_thread(source.start)
    words = [sys.executable, "-m", "tests.gates.paho_carrier", sink.name, str(source.port), place]
    carrier = Receiver(words, directory / "carrier.log")
    try:
        await sessions(source.port, [CLIENT], ["#"])
        await publish(source.port, "waits", count)
        carrier.start()
        return await rate_of(counted, count, all_of_it=False)
    finally:
        await asyncio.to_thread(carrier.kill)
        await asyncio.to_thread(source.stop)


async def _script_place(sink: Sink, directory: Path) -> tuple[str, Count]:
    """Where the script carries to, and how many are there."""
    match sink:
        case JsonlSink():
            lines = Lines(directory / "by-script.jsonl")
            return str(lines.path), lambda: asyncio.to_thread(lines.count)
        case ParquetSink():
            return str(sink.place / "out"), sink.count
        case PostgresqlSink():
            await sink.rows("CREATE TABLE messages (topic text, payload bytea, qos smallint, retain boolean, received_at timestamptz)")
            return sink.url, lambda: _rows(sink)
        case _:
            return f"http://127.0.0.1:{sink.port}/in", sink.count  # type: ignore[attr-defined]  # there is no other kind


async def _rows(sink: PostgresqlSink) -> int:
    return int((await sink.rows("SELECT count(*) FROM messages"))[0][0])


def table(ours: dict[str, list[float]], others: dict[str, list[float]]) -> list[str]:
    lines = ["| Target | Holdfast | acknowledged when | Else | by | acknowledged when |", "|---|---|---|---|---|---|"]
    for name, rates in ours.items():
        by = "mosquitto's bridge" if name.startswith("mqtt") else "a paho script"
        own, other = PROMISES[name]
        lines.append(f"| {name} | {median(rates):,.0f}/s | {own} | {median(others[name]):,.0f}/s | {by} | {other} |")
    return lines


async def one_round(
    watched: Watched, kinds: Sequence[type[Sink]], directory: Path, program: str, count: int
) -> list[tuple[str, float, float]]:
    found = []
    for kind in kinds:
        for part in ("ours", "else"):
            (directory / kind.name / part).mkdir(parents=True)
        async with started(kind, directory / kind.name / "ours") as sink:
            ours = await by_bridge(watched, sink, count)
        other_place = directory / kind.name / "else"
        async with started(kind, other_place) as sink:
            if isinstance(sink, BrokerSink):
                other = await by_mosquitto(sink, other_place, program, count)
            else:
                other = await by_script(sink, other_place, program, count)
        found.append((kind.name, ours, other))
    return found


async def run(scale: Scale) -> str:
    program = find_mosquitto()
    if program is None:
        raise GateFailed("there is no mosquitto (make system-deps)")
    ours: dict[str, list[float]] = {}
    others: dict[str, list[float]] = {}
    count = scale.of(MESSAGES, QUICK_MESSAGES)
    async with running(settings(1)) as watched:
        for _ in range(scale.of(ROUNDS, 1)):
            with tempfile.TemporaryDirectory(prefix="hf-sinks-") as name:
                for kind, mine, other in await one_round(watched, SINKS, Path(name), program, count):
                    ours.setdefault(kind, []).append(mine)
                    others.setdefault(kind, []).append(other)
    print("\n".join(table(ours, others)), flush=True)
    rates = ", ".join(f"{name} {median(rates):,.0f} and {median(others[name]):,.0f}" for name, rates in ours.items())
    return f"{count} messages that waited, a second by a bridge and by what people use now: {rates}; load average {os.getloadavg()[0]:.1f}"
