"""Gate 3 of issue 3: ten million messages in one shard.

The real shard in a process of its own, fed over its real link (benchmarks/shard): 256-byte bodies from 100,000 devices with three topics
each and ten hot topics, stored for one durable session that wants `#` and is away. For each million: the CPU of the process, RocksDB's
threads with it, and its memory. The tenth million is fed in turns with the first one of another shard that is new: a machine that has
neighbours changes by the minute, and so both have the same of it. Then the load goes on and the process is killed under it, three times;
the next one has to answer in time. Whoever feeds sends again what was not answered, under the same numbers, so in the end every message
must be there, once.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.meter import stored_bytes
from benchmarks.shard.feed import Feeder, Peer, want_everything
from benchmarks.shard.place import place
from benchmarks.shard.process import Host
from shards.engine_rocks import RocksEngine
from shards.options import StoreOptions
from shards.store import Store
from tests.gates.gate import GateFailed, Scale

LIMIT_S = 1200
MESSAGES = 10_000_000
PARTS = 10
QUICK_PARTS = 2
"""Fewer, as a merge is a large part of a small part."""
OPEN_S = 5.0
DEARER = 1.15
MEMORY_MIB = 400
"""What is bounded: the tail cache (64), block cache (64), write buffers (about 80), Python (60), and slack."""
KILLS = (60_000, 110_000, 160_000)
"""Messages between one kill and the next: the log that has to be read is never longer than some 190,000 of them."""
PER_FRAME, FRAMES = 500, 4
TURNS = 20
_READ_COUNT, _READ_BYTES = 5000, 4 << 20
_ALL = 1 << 62


def count_stored(path: Path) -> int:
    """Messages in a store that nobody has open."""
    engine = RocksEngine(str(path))
    try:
        store = Store.open(engine, StoreOptions())
        found = 0
        for generation, stream in store.streams(b"#", 0):
            place_, done = 0, False
            while not done:
                read = store.read(generation, stream, place_, _ALL, _READ_COUNT, _READ_BYTES, _ALL)
                found += len(read.messages)
                place_, done = read.place, read.done
        return found
    finally:
        engine.close()


@dataclass(frozen=True, slots=True)
class Part:
    """Of one part of the load: CPU in us per message, RocksDB's threads' part of it, memory in MiB at its end, messages per second."""

    cpu: float
    rocksdb: float
    memory: float
    rate: float


@dataclass(frozen=True, slots=True)
class Fed:
    """A shard in a process of its own, who feeds it, and where its store is."""

    host: Host
    feeder: Feeder
    store: Path

    async def load(self, messages: int) -> None:
        await self.feeder.feed(messages, PER_FRAME, FRAMES)


@asynccontextmanager
async def shard_with_a_session(directory: Path) -> AsyncIterator[Fed]:
    """Killed at the end, if it is still there."""
    topology = place(directory, ())
    host = Host(topology)
    try:
        await host.start()
        async with Peer(topology, "session") as reader, Peer(topology, "gateway") as gateway:
            await want_everything(reader)
            feeder = Feeder(gateway)
            await feeder.connect()
            yield Fed(host, feeder, topology.store_path(0))
    finally:
        await host.kill()


def part(before: dict[str, Any], after: dict[str, Any], messages: int) -> Part:
    cpu_s, rocksdb_s, seconds = (float(after[name] - before[name]) for name in ("cpu_s", "rocksdb_s", "now_s"))
    return Part(cpu_s / messages * 1e6, rocksdb_s / messages * 1e6, float(after["pss_mib"]), messages / seconds)


async def load_by_parts(fed: Fed, messages: int, parts: int) -> list[Part]:
    found = []
    before = await fed.host.ask()
    for _ in range(parts):
        await fed.load(messages)
        after = await fed.host.ask()
        found.append(part(before, after, messages))
        before = after
    return found


async def in_turns(old: Fed, new: Fed, messages: int) -> tuple[Part, Part]:
    """So many to each of them, a TURNS-th at a time; what RocksDB merges of one while the other is fed is on the bill of the one."""
    both = (old, new)
    before = [await each.host.ask() for each in both]
    for turn in range(TURNS):
        for each in both if turn % 2 else reversed(both):
            await each.load(messages // TURNS)
    after = [await each.host.ask() for each in both]
    late, early = [part(*asked, messages) for asked in zip(before, after, strict=True)]
    return late, early


async def kill_and_open(fed: Fed, after: int) -> tuple[float, int]:
    """Seconds from the start of the next process to the first answer, and the bytes of log that it found."""
    host, feeder = fed.host, fed.feeder
    load = asyncio.create_task(fed.load(after + 50_000))
    wanted = feeder.acknowledged + after
    while feeder.acknowledged < wanted:
        if load.done():
            await load
        await asyncio.sleep(0.01)
    await host.kill()
    log_bytes = sum(path.stat().st_size for path in fed.store.glob("*.log"))
    answered = feeder.acknowledged
    began = time.monotonic()
    await host.start()
    while feeder.acknowledged == answered:  # noqa: ASYNC110  # what is measured knows no event
        await asyncio.sleep(0.005)
    took = time.monotonic() - began
    await load
    return took, log_bytes


async def run(scale: Scale) -> str:
    directory, parts = Path(tempfile.mkdtemp(prefix="hf-")), scale.of(PARTS, QUICK_PARTS)
    each = scale.of(MESSAGES) // parts
    try:
        async with shard_with_a_session(directory / "old") as old:
            loaded = await load_by_parts(old, each, parts - 1)
            async with shard_with_a_session(directory / "new") as new:
                last, first = await in_turns(old, new, each)
            opened = [await kill_and_open(old, after) for after in KILLS]
            await old.host.end()
        fed = old.feeder.acknowledged
        size = stored_bytes(old.store)
        found = await asyncio.to_thread(count_stored, old.store)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    open_s, log_bytes = max(opened)
    ratio = last.cpu / first.cpu
    memory = max(part.memory for part in (*loaded, last))
    rates = [part.rate for part in loaded]
    figure = (
        f"{found} messages; open after kill -9 {open_s:.2f} s at the most ({log_bytes / 2**20:.0f} MiB of log); memory {memory:.0f} MiB at "
        f"the most of {MEMORY_MIB}; CPU per message {last.cpu:.1f} us in the last part and, taking turns, {first.cpu:.1f} us in the first, "
        f"{ratio:.2f} times, RocksDB's threads' part {last.rocksdb:.1f} and {first.rocksdb:.1f} (before: "
        f"{' '.join(f'{part.cpu:.1f}/{part.rocksdb:.1f}' for part in loaded)}); "
        f"{min(rates):.0f} to {max(rates):.0f} messages/s; {size / found:.0f} bytes on disk each"
    )
    if found != fed:
        raise GateFailed(f"{fed} messages were acknowledged and {found} are stored; {figure}")
    # Half a million is over before the first merges are: the quick form tells the ratio and does not judge it.
    if open_s >= OPEN_S or memory > MEMORY_MIB or (ratio > DEARER and not scale.quick):
        raise GateFailed(figure)
    return figure
