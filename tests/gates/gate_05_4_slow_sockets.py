"""Gate 4 of issue 5: 5,000 sockets that are slow, that lie or that are silent cost memory below 100 MB, and honest clients little.

Three crowds, one after the other: a byte of a CONNECT each second; a CONNECT that claims 256 MB; a CONNECT header and silence. Who is
closed comes back. Meanwhile 20 honest clients go round at QoS 1: the 99th percentile of their round trips is at most twice that of
the time before. Memory is the PSS of all processes, the most of it while the crowd is there.
"""

from __future__ import annotations

import asyncio

from tests.broker.running import RunningBroker
from tests.gates.crowds import crowd, p99, round_trips
from tests.gates.footprint import MB, pss_bytes
from tests.gates.gate import GateFailed, Scale, running, settings

LIMIT_S = 900
SOCKETS = 5_000
WATCHED_S = 30.0
MORE_MB = 100
SLOWER = 2.0
CROWDS = ("drip", "claim", "silent")


async def most_held(broker: RunningBroker, pids: list[int], over: asyncio.Event) -> int:
    """PSS of all, the most of it until it is over."""
    most = 0
    while not over.is_set():
        most = max(most, await asyncio.to_thread(pss_bytes, pids))
        try:
            await asyncio.wait_for(over.wait(), 2.0)
        except TimeoutError:
            continue
    return most


async def run(scale: Scale) -> str:
    seconds = WATCHED_S if not scale.quick else 8.0
    lines, problems = [], []
    async with running(settings(1)) as watched:
        pids = (await watched.status()).pids()
        await round_trips(watched.broker.port, 3.0)
        for kind in CROWDS:
            before_ms = p99(await round_trips(watched.broker.port, seconds))
            before = pss_bytes(pids)
            over = asyncio.Event()
            async with crowd(watched.broker.port, kind, scale.of(SOCKETS)) as there:
                watching = asyncio.create_task(most_held(watched.broker, pids, over))
                came = await there.said()
                with_ms = p99(await round_trips(watched.broker.port, seconds))
                over.set()
                more_mb = (await watching - before) / MB
                left = await there.end()
            line = f"{kind}: {came.open} sockets, {left.closed} closed, {more_mb:+.0f} MB, p99 {before_ms:.1f} to {with_ms:.1f} ms"
            lines.append(line)
            if more_mb > MORE_MB or with_ms > SLOWER * before_ms:
                problems.append(line)
        if sorted((await watched.status()).pids()) != sorted(pids):
            raise GateFailed(f"a process ended: there were {pids}")
    if problems:
        raise GateFailed(f"wanted at most {MORE_MB} MB and {SLOWER:.0f} times; {'; '.join(problems)} (all: {'; '.join(lines)})")
    return "; ".join(lines)
