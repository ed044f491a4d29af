"""Gate 4 of issue 1: a gateway that stood still, and came back, spoils nothing. Two gateways, their watchdog off.

First, one gateway is stopped (SIGSTOP) for 1, 5 and 30 s while publishers hold sockets on both and sessions subscribe
through the other one: what is acknowledged after their SUBACK must reach them, whichever gateway it entered by.

Then clients are torn from one gateway to the other while the first one stands still, so that it holds, in its sockets and
its links, PUBLISHes and acknowledgements of connections that have been taken over; then it goes on. Nothing acknowledged is
missing, no QoS 2 message came twice, nothing came in another order.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psutil

from tests.broker.client import Client, settled
from tests.broker.history import History
from tests.broker.running import Status
from tests.gates.gate import SHARD_COUNTS, GateFailed, Scale, Watched, filters, require_no_faults, running, settings
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, part_of, require_sessions_kept

LIMIT_S = 1800
STOPS_S = (1, 5, 30)
TEARS = 10
PUBLISHERS = 8
PER_SECOND = 25.0
SUBACK_S = 20.0
BACK_S = 40.0
TORN_S = 2.0
SETTLE_S = 40.0


class Gateways:
    """The two gateways of one broker: their names, pids and own ports."""

    def __init__(self, watched: Watched, status: Status) -> None:
        self._broker = watched.broker
        names = sorted(each.name for each in status.processes if each.role == "gateway")
        if len(names) != 2:
            raise GateFailed(f"gateway.count=2, but status lists gateways {names}")
        self._pids = {each.name: each.pid for each in status.processes if each.role == "gateway"}
        try:
            self.ports = {name: status.own_port(name) for name in names}
        except StopIteration:
            raise GateFailed(f"status lists no listener of each gateway's own: {status.listeners}") from None
        self.names = names

    @asynccontextmanager
    async def stopped(self, name: str) -> AsyncIterator[None]:
        pid = self._pids[name]
        self._broker.signal(pid, signal.SIGSTOP)
        try:
            wait_stopped(pid)
            yield
        finally:
            self._broker.signal(pid, signal.SIGCONT)

    def still_the_same(self, status: Status) -> None:
        now = {each.name: each.pid for each in status.processes if each.role == "gateway"}
        if now != self._pids:
            raise GateFailed(f"gateways were replaced although the watchdog is off: {self._pids} became {now}")


def wait_stopped(pid: int) -> None:
    """The signal takes effect a moment after kill() returned; nothing else may happen in that moment."""
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.0005)


async def subscribed(port: int, history: History, name: str, topic_filter: str, qos: int) -> Client:
    client = Client(port, name, history, version=4 if qos == 1 else 5)
    await client.start()
    await client.subscribe(topic_filter, qos, SUBACK_S)
    return client


async def one_stop(
    gateways: Gateways, seconds: int, prefix: str, history: History, publishers: list[Publisher], sessions: list[Client]
) -> None:
    """Sessions subscribe through the second gateway while the first stands still."""
    still, other = gateways.names
    on_still = {each.client.client_id for each in publishers if each.client.port == gateways.ports[still]}
    async with gateways.stopped(still):
        began_ns = time.monotonic_ns()
        for which, topic_filter in enumerate(filters(prefix)):
            for qos in (1, 2):
                sessions.append(
                    await subscribed(gateways.ports[other], history, f"{prefix}-late{seconds}-{which}-{qos}", topic_filter, qos)
                )
        await asyncio.sleep(max(0.0, seconds - (time.monotonic_ns() - began_ns) / 1e9))
        # What was written to a stopped gateway's socket is read by it after this moment, so it is due to the new sessions.
        went_on_ns = time.monotonic_ns()
        for (publisher, _), sent in history.sent.items():
            if publisher in on_still and began_ns <= sent.seen_ns < went_on_ns:
                sent.seen_ns = went_on_ns
    await everything_flows(publishers, sessions[-2:], history, time.monotonic() + BACK_S)


async def one_tear(gateways: Gateways, number: int, publishers: list[Publisher], sessions: list[Client], history: History) -> None:
    """Everybody on the stopped gateway goes over to the other one; every second time the old sockets stay open meanwhile."""
    still, other = gateways.names if number % 2 == 0 else gateways.names[::-1]
    torn = [each for each in [*(p.client for p in publishers), *sessions] if each.port == gateways.ports[still]]
    async with gateways.stopped(still):
        await asyncio.sleep(0.1)  # so that the stopped gateway's sockets hold something
        abandoned = [each.tear(gateways.ports[other]) for each in torn]
        if number % 4 < 2:
            for writer in abandoned:
                if writer is not None:
                    writer.close()
        for each in torn:
            await asyncio.wait_for(each.connected.wait(), SUBACK_S)
        await asyncio.sleep(TORN_S)
    await everything_flows(publishers, sessions[-2:], history, time.monotonic() + BACK_S)
    for writer in abandoned:
        if writer is not None:
            writer.transport.abort()


async def stale(n_shards: int, scale: Scale) -> str:
    prefix = f"g4s{n_shards}"
    history = History()
    chosen = settings(n_shards, **{"gateway.count": "2", "gateway.watchdog": "false"})
    async with running(chosen) as watched:
        status = await watched.status()
        gateways = Gateways(watched, status)
        first, second = (gateways.ports[name] for name in gateways.names)
        sessions = [
            await subscribed(first if qos == 1 else second, history, f"{prefix}-early-{which}-{qos}", topic_filter, qos)
            for which, topic_filter in enumerate(filters(prefix))
            for qos in (1, 2)
        ]
        publishers = [
            Publisher(
                Client(first if at % 4 < 2 else second, name, history, version=4 if at < 4 else 5, window=50),
                1 + at % 2,
                PER_SECOND,
                part_of(prefix, at, PUBLISHERS),
            )
            for at, name in enumerate(client_ids(f"{prefix}-pub", PUBLISHERS, n_shards))
        ]
        async with at_work(publishers, sessions):
            await everything_flows(publishers, sessions[-2:], history, time.monotonic() + BACK_S)
            for seconds in STOPS_S[:2] if scale.quick else STOPS_S:
                await one_stop(gateways, seconds, prefix, history, publishers, sessions)
            for number in range(scale.of(TEARS, 2)):
                await one_tear(gateways, number, publishers, sessions, history)
            await asyncio.gather(*(publisher.finish(SETTLE_S) for publisher in publishers))
            await settled(history, SETTLE_S)
            require_sessions_kept([*sessions, *(each.client for each in publishers)])
            gateways.still_the_same(await watched.status())
        require_no_faults(history, f"n_shards={n_shards}")
    late = sum(len(history.due(name)) for name in history.sessions if "-late" in name)
    return f"n_shards={n_shards}: {history.acknowledged_count()} acknowledged, {late} due to sessions that subscribed during a stop"


async def run(scale: Scale) -> str:
    figures = [await stale(n_shards, scale) for n_shards in SHARD_COUNTS]
    stops = ", ".join(map(str, STOPS_S[:2] if scale.quick else STOPS_S))
    return f"stops of {stops} s and {scale.of(TEARS, 2)} tears: none missing, QoS 2 once, in order; {'; '.join(figures)}"
