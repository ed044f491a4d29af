"""Gate 4 of issue 3: how long a shard's loop stands still over a roll, a seal, a fold, a drop.

The real shard in a process of its own (benchmarks/shard), with 100 live generations that hold 100,000 streams together, and again with
200 of them. Every fifteen seconds one generation is begun, one is sealed and folded, and one is dropped and erased, the first of these with
many data files, under a load of 3,000 messages a second. Every such call is timed in the process; so is each turn of the loop, and a probe
says how late the loop was for whatever reason. What counts is the time by the clock less the wait for a core (benchmarks/shard/stops.py).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from benchmarks.shard.aged import LENGTH_S, literal_topic, make_aged, retention_s
from benchmarks.shard.feed import Feeder, Peer, device_topic, want_everything
from benchmarks.shard.place import place
from benchmarks.shard.process import Host
from benchmarks.shard.stops import KINDS
from tests.gates.gate import GateFailed, Scale

LIMIT_S = 900
STOP_MS = 50.0
STREAMS = 100_000
LAYOUTS = ("pagestream", "skipstream", "record_batch")
SECONDS = 40
LARGE = 3
PER_FRAME, EVERY_S = 60, 0.02

Stops = dict[str, dict[str, float]]


async def stops_of(layout: str, generations: int, streams: int, seconds: int) -> tuple[Stops, float, int]:
    """The stops over so many seconds; memory in MiB after them; the live generations then."""
    directory = Path(tempfile.mkdtemp(prefix="hf-"))
    topology = place(
        directory,
        (
            f"durable_storage.messages.layout.type={layout}",
            f"durable_storage.messages.generation_length={LENGTH_S}s",
            f"durable_sessions.message_retention_period={retention_s(generations)}s",
        ),
    )
    host = Host(topology, "--watch")

    def topic(drawn: float) -> bytes:
        return device_topic(drawn * 2) if drawn < 0.5 else literal_topic(int((drawn - 0.5) * 2 * streams))

    try:
        await asyncio.to_thread(make_aged, topology.store_path(0), layout, generations, streams, LARGE)
        await host.start()
        async with Peer(topology, "session") as reader, Peer(topology, "gateway") as gateway:
            await want_everything(reader)
            feeder = Feeder(gateway, topic)
            await feeder.connect()
            await host.during(feeder.feed(int(seconds / EVERY_S) * PER_FRAME, PER_FRAME, 8, EVERY_S))
            told = await host.ask()
        await host.end()
        return told["stops"], float(told["pss_mib"]), int(told["generations"])
    finally:
        await host.kill()
        shutil.rmtree(directory, ignore_errors=True)


def told_of(stops: Stops) -> str:
    words = []
    for kind, of in stops.items():
        words.append(
            f"{kind} {of['longest_ms']:.0f} (of {of['count']:.0f}, median {of['median_ms']:.1f}, by the clock {of['clock_ms']:.0f})"
        )
    return ", ".join(words)


async def run(scale: Scale) -> str:
    figures, worst = [], 0.0
    for layout in LAYOUTS:
        for generations in (100, 200):
            stops, memory, live = await stops_of(layout, generations, STREAMS // generations, scale.of(SECONDS, 12))
            missing = [kind for kind in KINDS if kind not in stops and kind != "create_next"]
            if missing:
                raise GateFailed(
                    f"{layout}, {generations} generations: no {', '.join(missing)} in {scale.of(SECONDS, 12)} s: {told_of(stops)}"
                )
            if generations == 100:
                worst = max(worst, *(stops[kind]["longest_ms"] for kind in (*KINDS, "turn") if kind in stops))
            figures.append(f"{layout}, {live} live generations, {memory:.0f} MiB: {told_of(stops)}")
    figure = f"longest stop {worst:.0f} ms at 100 live generations; " + "; ".join(figures)
    if worst > STOP_MS:
        raise GateFailed(figure)
    return figure
