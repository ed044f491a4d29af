"""Gate 3 of issue 1: no PUBACK leaves before its message is on disk, shown by what the interposed library saw.

Publishers at QoS 1 and 2 send 1,000 messages with one outstanding and 100,000 with 512, while the library logs every write
and sync of the data directory and every send of the listening port. Then, in the same traffic, a sync of the log fails once
with EIO, and the disk is full for a while. order.py then proves for each PUBACK and PUBREC that a successful sync of the log
covered its message before it left. At the end everything is killed, what was not synced is forgotten, and the sessions must
still get everything.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from tests.broker.client import Client, Connection, settled
from tests.broker.history import History
from tests.gates.gate import SHARD_COUNTS, GateFailed, Scale, Watched, filters, require_no_faults, running, settings
from tests.gates.order import Proof, prove
from tests.gates.traffic import client_ids, part_of, require_sessions_kept

LIMIT_S = 1800
NARROW, WIDE = 1, 512
PUBLISHERS = 3
SPOILED_MESSAGES = 6_000
SPOILED_WINDOW = 64
FULL_S = 5.0
GOES_ON_S = 30.0
SETTLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Shown:
    """What one number of shards showed."""

    proof: Proof
    refused_writes: int
    goes_on_s: float
    forgotten_bytes: int


async def pump(client: Client, qos: int, chosen: list[str], count: int, window: int, timeout_s: float) -> None:
    """``count`` messages with so many outstanding."""
    client.narrow_to(window)
    for n in range(count):
        await client.publish(chosen[n % len(chosen)], qos, size=256)
    await client.acknowledged(timeout_s)


async def pump_all(clients: list[Client], prefix: str, total: int, window: int, timeout_s: float) -> None:
    parts = [part_of(prefix, at, len(clients)) for at in range(len(clients))]
    async with asyncio.timeout(timeout_s):
        await asyncio.gather(
            *(pump(each, 2 if at == 2 else 1, parts[at], total // len(clients), window, timeout_s) for at, each in enumerate(clients))
        )


async def spoil(watched: Watched, clients: list[Client], prefix: str, history: History, scale: Scale) -> float:
    """EIO once, then no space for a while, under traffic; returns how long after there was space everything was acknowledged."""
    disk = watched.disk
    assert disk is not None
    total = scale.of(SPOILED_MESSAGES)

    traffic = asyncio.create_task(pump_all(clients, prefix, total, SPOILED_WINDOW, 120.0))
    await _acknowledged(history, history.acknowledged_count() + total // 4, "before EIO", traffic)
    disk.fail_syncs(1, suffix=".log")
    await traffic
    if disk.spoiled().syncs_failed != 1:
        raise GateFailed(f"EIO: {disk.spoiled().syncs_failed} syncs of a log failed, wanted 1: the store does not sync files named *.log")

    traffic = asyncio.create_task(pump_all(clients, prefix, total, SPOILED_WINDOW, 120.0))
    await _acknowledged(history, history.acknowledged_count() + total // 4, "before ENOSPC", traffic)
    disk.fill()
    await asyncio.sleep(FULL_S)
    if traffic.done():
        raise GateFailed(f"full disk: all of {total} messages were acknowledged, {disk.spoiled().writes_failed} writes were refused")
    disk.free()
    freed = time.monotonic()
    try:
        await asyncio.wait_for(traffic, GOES_ON_S)
    except TimeoutError:
        left = {client.client_id: client.unacknowledged for client in clients}
        raise GateFailed(f"{GOES_ON_S:.0f} s after there was space again, unacknowledged: {left}") from None
    return time.monotonic() - freed


async def _acknowledged(history: History, wanted: int, when: str, traffic: asyncio.Task[None]) -> None:
    deadline = time.monotonic() + GOES_ON_S
    while history.acknowledged_count() < wanted:
        if traffic.done():
            traffic.result()
        if time.monotonic() > deadline:
            raise GateFailed(f"{when}: {history.acknowledged_count()} acknowledgements after {GOES_ON_S:.0f} s, wanted {wanted}")
        await asyncio.sleep(0.01)


async def shown(n_shards: int, scale: Scale) -> Shown:
    prefix = f"g3s{n_shards}"
    history = History()
    async with running(settings(n_shards), on_fault_disk=True, keep_logs=True, log_sockets=True) as watched:
        disk, port = watched.disk, watched.broker.port
        assert disk is not None
        sessions = [Client(port, f"{prefix}-sub-{n}", history, version=4 if n % 2 else 5) for n in range(3)]
        for session, topic_filter, qos in zip(sessions, filters(prefix), (1, 2, 2), strict=True):
            await session.start()
            await session.subscribe(topic_filter, qos)
            await session.stop()
        # 3.1.1, where a PUBACK has no reason code: each one is a promise.
        clients = [Client(port, name, history, window=NARROW) for name in client_ids(f"{prefix}-pub", PUBLISHERS, n_shards)]
        try:
            for client in clients:
                await client.start()
            await pump_all(clients, prefix, scale.of(1_000), NARROW, 180.0)
            await pump_all(clients, prefix, scale.of(100_000), WIDE, 600.0)
            goes_on_s = await spoil(watched, clients, prefix, history, scale)
            require_sessions_kept(clients)
        finally:
            for client in clients:
                await client.stop()

        await watched.kill_all()
        connections: list[tuple[str, Connection]] = [(client.client_id, each) for client in clients for each in client.connections]
        proof = await asyncio.to_thread(prove, disk.trace(), disk.kept, port, connections)
        if proof.unproven:
            raise GateFailed(f"n_shards={n_shards}: {len(proof.unproven)} of {proof.acknowledgements} unproven, first: {proof.unproven[0]}")
        spoiled = disk.spoiled()
        forgotten = await watched.cut_power()
        await watched.up()
        try:
            for session in sessions:
                await session.start()
            await settled(history, SETTLE_S)
            require_sessions_kept(sessions)
        finally:
            for session in sessions:
                await session.stop()
        require_no_faults(history, f"n_shards={n_shards}, after kill and loss of the page cache")
    return Shown(proof, spoiled.writes_failed, goes_on_s, sum(each.lost_bytes for each in forgotten))


async def run(scale: Scale) -> str:
    figures = []
    for n_shards in SHARD_COUNTS:
        each = await shown(n_shards, scale)
        figures.append(
            f"n_shards={n_shards}: {each.proof.acknowledgements} PUBACKs and PUBRECs, each after a sync that began after its record was "
            f"written ({each.proof.syncs} syncs, least lead {each.proof.least_lead_us} us), {each.proof.by_recovery} of them by the "
            f"recovery after EIO or a refused write; {each.refused_writes} writes refused while the disk was full, all acknowledged "
            f"{each.goes_on_s:.1f} s after there was space; {each.forgotten_bytes} unsynced bytes forgotten at the kill, nothing missing"
        )
    return "; ".join(figures)
