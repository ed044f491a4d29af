"""Gate 1 of issue 11: a target is away for five minutes while the bridge and the broker are killed, and has everything when it is back.

A bridge to each kind of target carries the same 500 messages a second of 300 bytes, at QoS 1 and 2. Then all targets are away: servers
are killed with -9 (mosquitto is stopped, as it forgets what it acknowledged when it is killed), the directories of files are somewhere
else. The bridges' process is killed with -9 soon after, and at a third of the time once more, and all of the broker at half of it. When
the targets are back, of each one:

    all        every message that was acknowledged to its publisher is there
    order      first arrivals of one publisher and topic are in its order
    once       where docs/bridge-targets.md promises it: no message of the store is there twice, and none at QoS 2 by its payload;
               elsewhere what is there twice has the same identity, where it has one
    memory     of the bridges' process and of the broker's does not grow while messages wait, from when each bridge holds what it may

--quick: 20 s instead of five minutes.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.running import CommandFailed, Process
from tests.gates.bridge_ledger import check
from tests.gates.bridge_sinks import SINKS, Sink
from tests.gates.footprint import MB, own_bytes
from tests.gates.gate import GateFailed, Scale, Watched, running, settings
from tests.gates.traffic import Publisher, client_ids, part_of

LIMIT_S = 2400
AWAY_S = 300
MESSAGES_PER_S = 500
PUBLISHERS = 10
PAYLOAD_BYTES = 300
WARM_S = 10.0
STILL_S = 90.0
"""Without anything new arriving: longer than two of the longest pauses between tries."""
FAILING_S = 30.0
"""After the broker is up again each bridge has tried its target."""
DOUBLES_S = 3.0
SAMPLE_S = 2.0
SETTLING_S = 30.0
"""After so long a process that was started has what it needs."""
INFLIGHT_MAX = 2_000
"""What each bridge holds of its queue, which fills in four seconds."""
FILLED_S = 60.0
"""After its process was killed, each bridge holds as much."""
GROWN_BYTES_MAX = 12 * MB
"""Of one process while messages wait, which are 75,000 for each of six bridges then."""
WRITE_BUFFERS_BYTES = (4 * 16) << 20
"""Of a shard, whose write buffers (shards/rocks_options.py) fill with what is published, with bridges or without any (0.33 MB a second),
until they are written out."""
BRIDGES_BYTES_MAX = 300 * MB
"""Of the bridges' process, whenever: 130 MB of it are the program, with what it needs for all kinds of targets."""
ROLES = ("bridge", "gateway", "session", "shard", "controller")


@dataclass(slots=True)
class Memory:
    """samples: (when, bytes) of each process, by its name and pid; without the files it has mapped."""

    samples: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    async def watch(self, watched: Watched) -> None:
        """Until it is cancelled.  Asks who there is only when somebody has gone: that costs half a second of a core."""
        known: list[Process] = []
        everybody: set[str] = set()
        while True:
            sizes = [own_bytes(process.pid) for process in known]
            # While it starts, not all of them are there yet.
            if not known or not all(sizes) or {process.name for process in known} < everybody:
                try:
                    known = [process for process in (await watched.status()).processes if process.role in ROLES]
                except CommandFailed:  # It is being killed, or started.
                    known = []
                everybody |= {process.name for process in known}
            else:
                now = time.monotonic()
                for process, size in zip(known, sizes, strict=True):
                    self.samples[process.name, process.pid].append((now, size))
            await asyncio.sleep(SAMPLE_S)

    def grown(self, since: float, until: float) -> list[tuple[str, int]]:
        """By how much each process that lived in this time, and had settled, has grown in it; the most first."""
        found = []
        for (name, _), samples in self.samples.items():
            within = [size for at, size in samples if max(since, samples[0][0] + SETTLING_S) <= at <= until]
            if len(within) > 1:
                found.append((name, within[-1] - within[0]))
        return sorted(found, key=lambda each: -each[1])

    def course(self, name: str) -> str:
        """How many megabytes processes of this name had, each ten seconds or so."""
        of_name = [samples for (each, _), samples in self.samples.items() if each == name]
        return "; ".join(" ".join(f"{size / MB:.0f}" for _, size in samples[::5]) for samples in of_name)

    def most(self, role: str) -> int:
        return max((size for (name, _), samples in self.samples.items() if name.startswith(role) for _, size in samples), default=0)


async def command(watched: Watched, *words: str) -> str:
    return await asyncio.to_thread(watched.broker.command, *words)


async def kill_bridges(watched: Watched) -> None:
    for pid in (await watched.status()).pids("bridge"):
        await asyncio.to_thread(watched.broker.kill, pid)


async def require_filled(watched: Watched) -> None:
    deadline = time.monotonic() + FILLED_S
    while True:
        held = {row["name"]: row["inflight"] for row in json.loads(await command(watched, "bridge", "ls", "--json"))}
        if all(count == INFLIGHT_MAX for count in held.values()):
            return
        if time.monotonic() > deadline:
            raise GateFailed(f"{FILLED_S:.0f} s after their process was killed bridges hold {held}, {INFLIGHT_MAX} each were wanted")
        await asyncio.sleep(1)


async def absence(watched: Watched, sinks: Sequence[Sink], seconds: float) -> float:
    """When each bridge held what it may, of which there is too little in a short one."""
    began = filled = time.monotonic()
    await asyncio.gather(*(sink.away() for sink in sinks))
    await kill_bridges(watched)
    if seconds / 3 > FILLED_S:
        await require_filled(watched)
        filled = time.monotonic()
    await asyncio.sleep(began + seconds / 3 - time.monotonic())
    await kill_bridges(watched)
    await asyncio.sleep(began + seconds / 2 - time.monotonic())
    await watched.kill_all()
    await watched.up()
    await asyncio.sleep(began + seconds - time.monotonic())
    return filled


async def require_away(watched: Watched, sinks: Sequence[Sink], least: int) -> int:
    """All bridges say that they fail and how much waits for them; the least of it."""
    deadline = time.monotonic() + FAILING_S
    while True:
        rows = {row["name"]: row for row in json.loads(await command(watched, "bridge", "ls", "--json"))}
        others = [f"{sink.name} says {rows[sink.name]['state']}" for sink in sinks if rows[sink.name]["state"] != "failing"]
        if not others:
            break
        if time.monotonic() > deadline:
            raise GateFailed(f"while all targets are away {', '.join(others)}")
    waiting: list[int] = []
    for sink in sinks:
        waiting.append(json.loads(await command(watched, "bridge", "lag", sink.name, "--json"))["messages"])
        if waiting[-1] < least:
            raise GateFailed(f"{waiting[-1]} messages wait for {sink.name} whose target is away, {least} were acknowledged since")
    return min(waiting)


async def arrived(watched: Watched, sinks: Sequence[Sink], wanted: int) -> dict[str, float]:
    """Wait until each has so many; after how many seconds it had."""
    began = moved = time.monotonic()
    found: dict[str, float] = {}
    counts = dict.fromkeys([sink.name for sink in sinks], 0)
    while len(found) < len(sinks):
        for sink in sinks:
            count = await sink.count()
            if count > counts[sink.name]:
                counts[sink.name], moved = count, time.monotonic()
            if count >= wanted:
                found.setdefault(sink.name, time.monotonic() - began)
        if time.monotonic() - moved > STILL_S:
            rows = json.loads(await command(watched, "bridge", "ls", "--json"))
            said = {row["name"]: f"{row['state']}: {row['error']}" for row in rows if row["error"]}
            raise GateFailed(f"of {wanted} messages {counts} have come, and nothing for {STILL_S:.0f} s; {said}")
        await asyncio.sleep(0.5)
    return found


def require_flat(memory: Memory, since: float, until: float) -> str:
    grown = memory.grown(since, until)
    told = ", ".join(f"{name} {more / MB:+.1f} MB" for name, more in grown)
    for name, more in grown:
        if more > (WRITE_BUFFERS_BYTES if name.startswith("shard") else GROWN_BYTES_MAX):
            raise GateFailed(f"{name} has grown by {more / MB:.0f} MB while messages waited: {told}; MB of {name}: {memory.course(name)}")
    most = memory.most("bridge")
    if most > BRIDGES_BYTES_MAX:
        raise GateFailed(f"the bridges' process had {most / MB:.0f} MB")
    while_waiting = f"memory while they waited: {told}" if grown else "memory while they waited not judged, too short"
    return f"{while_waiting}; the bridges' process had {most / MB:.0f} MB at most"


async def run(scale: Scale) -> str:
    history, memory, seconds = History(), Memory(), scale.of(AWAY_S, 20)
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-sinks-")))
        sinks = [kind(directory) for kind in SINKS]
        for sink in sinks:
            stack.push_async_callback(sink.end)
            await sink.start()
        watched = await stack.enter_async_context(running(settings(2)))
        for sink in sinks:
            await command(watched, "bridge", "add", sink.name, "filter=g101/#", *sink.settings)
        publishers = [
            Publisher(
                Client(watched.broker.port, name, history, version=4, window=100), 1 + at % 2, MESSAGES_PER_S / PUBLISHERS,
                part_of("g101", at, PUBLISHERS), size=PAYLOAD_BYTES,
            )
            for at, name in enumerate(client_ids("g101-pub", PUBLISHERS, 2))
        ]  # fmt: skip
        watching = asyncio.create_task(memory.watch(watched))
        try:
            for publisher in publishers:
                await publisher.begin()
            await asyncio.sleep(WARM_S)
            before, began = history.acknowledged_count(), time.monotonic()
            filled = await absence(watched, sinks, seconds)
            kept = history.acknowledged_count() - before
            waited = await require_away(watched, sinks, kept // 2)
            until = time.monotonic()
            await asyncio.gather(*(sink.back() for sink in sinks))
            for publisher in publishers:
                await publisher.finish(120)
            taken = await arrived(watched, sinks, history.acknowledged_count())
            await asyncio.sleep(DOUBLES_S)
            repeats = {
                sink.name: check(
                    sink.name, await sink.arrivals(), history, exactly_once=sink.exactly_once, with_identity=sink.with_identity
                )
                for sink in sinks
            }
            flat = require_flat(memory, max(filled, began + SETTLING_S), until)
        finally:
            watching.cancel()
            for publisher in publishers:
                publisher.cease()
            await asyncio.gather(watching, *(publisher.client.stop() for publisher in publishers), return_exceptions=True)
    there = ", ".join(f"{name} {after:.0f} s ({repeats[name]} twice)" for name, after in taken.items())
    return (
        f"{history.acknowledged_count()} acknowledged messages; targets were away for {seconds} s, {waited} waited at least; all there, in "
        f"order, after {there}; {flat}"
    )
