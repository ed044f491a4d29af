"""Gate 2 of issue 1: any process is killed, one after the other, while traffic runs, and nobody has to do anything.

50 rounds of SIGKILL to a random process of ``status`` (Ray's included, the launcher excluded) under 500 messages a second
from publishers at QoS 1 and 2, with sessions on a literal, a ``+`` and a ``#`` filter online. After each kill every publisher
must get an acknowledgement and every ``#`` session a message, of what was published after the kill, within 20 s. At the
end: all roles are there again, nothing acknowledged is missing, the order holds, QoS 2 came once, no session was lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass

from tests.broker.client import Client, settled
from tests.broker.history import History
from tests.broker.running import LAUNCHER_ROLE, CommandFailed, Process, Status, alive
from tests.gates.gate import ROLES, SHARD_COUNTS, GateFailed, Scale, Watched, filters, require_no_faults, running, settings
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, part_of, require_sessions_kept

LIMIT_S = 3600
ROUNDS = 50
MESSAGES_PER_S = 500
PUBLISHERS = 8
BACK_S = 20.0
PAUSE_S = 0.5
SETTLE_S = 40.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """What the rounds with one number of shards showed."""

    killed: Counter[str]
    slowest_s: float
    slowest_role: str
    median_s: float
    acknowledged: int
    repeats: int


async def ready_status(watched: Watched, deadline: float) -> Status:
    """While things are coming back a status may fail or say that it is not ready."""
    last = ""
    while time.monotonic() < deadline:
        try:
            status = await watched.status()
            if status.ready:
                return status
            last = "it says that it is not ready"
        except CommandFailed as error:
            last = str(error)
        await asyncio.sleep(0.2)
    raise GateFailed(f"no good status: {last}")


async def rounds(n_shards: int, scale: Scale) -> Rounds:
    prefix = f"g2s{n_shards}"
    history = History()
    chance = random.Random(n_shards)
    killed: Counter[str] = Counter()
    took: list[tuple[float, str]] = []
    async with running(settings(n_shards)) as watched:
        port = watched.broker.port
        roles = Counter(each.role for each in watched.broker.status().processes if each.role in ROLES)
        sessions: list[Client] = []
        for which, topic_filter in enumerate(filters(prefix)):
            for qos in (1, 2):
                session = Client(port, f"{prefix}-sub-{which}-{qos}", history, version=4 if qos == 1 else 5)
                sessions.append(session)
                await session.start()
                await session.subscribe(topic_filter, qos)
        publishers = [
            Publisher(
                Client(port, name, history, version=4 if at % 4 < 2 else 5, window=100),
                1 + at % 2,
                MESSAGES_PER_S / PUBLISHERS,
                part_of(prefix, at, PUBLISHERS),
            )
            for at, name in enumerate(client_ids(f"{prefix}-pub", PUBLISHERS, n_shards))
        ]
        async with at_work(publishers, sessions):
            await everything_flows(publishers, sessions[-2:], history, time.monotonic() + BACK_S)
            for number in range(scale.of(ROUNDS)):
                status = await ready_status(watched, time.monotonic() + BACK_S)
                # Sorted by role and name, so that a seed means the same choices whatever the pids are.
                listed = [each for each in status.processes if each.role != LAUNCHER_ROLE and alive(each.pid)]
                victim = chance.choice(sorted(listed, key=lambda each: (each.role, each.name)))
                began = time.monotonic()
                await asyncio.to_thread(watched.broker.kill, victim.pid)
                try:
                    await everything_flows(publishers, sessions[-2:], history, began + BACK_S)
                except GateFailed as stuck:
                    raise GateFailed(f"{story(n_shards, number, victim)}: not back within {BACK_S:.0f} s: {stuck}") from None
                took.append((time.monotonic() - began, victim.role))
                killed[victim.role] += 1
                await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*(publisher.finish(SETTLE_S) for publisher in publishers))
            await settled(history, SETTLE_S)
            await all_roles_back(watched, roles)
            require_sessions_kept([*sessions, *(each.client for each in publishers)])
        require_no_faults(history, f"n_shards={n_shards}, after {killed.total()} kills of {dict(killed)}")
    slowest_s, slowest_role = max(took)
    repeats = sum(history.repeats(name) for name in history.sessions)
    return Rounds(killed, slowest_s, slowest_role, sorted(took)[len(took) // 2][0], history.acknowledged_count(), repeats)


async def all_roles_back(watched: Watched, wanted: Counter[str]) -> None:
    """A process whose work nobody noticed missing must have come back too."""
    deadline = time.monotonic() + BACK_S
    while True:
        status = await ready_status(watched, deadline)
        found = Counter(each.role for each in status.processes if each.role in ROLES and alive(each.pid))
        if found == wanted:
            return
        if time.monotonic() > deadline:
            raise GateFailed(f"after the rounds status lists {dict(found)} alive, at the start it was {dict(wanted)}")
        await asyncio.sleep(0.5)


def story(n_shards: int, number: int, victim: Process) -> str:
    return f"n_shards={n_shards}, round {number + 1}, {victim.role} {victim.name} (pid {victim.pid}) killed"


async def run(scale: Scale) -> str:
    figures = []
    for n_shards in SHARD_COUNTS:
        each = await rounds(n_shards, scale)
        roles = ", ".join(f"{role} {count}" for role, count in sorted(each.killed.items()))
        figures.append(
            f"n_shards={n_shards}: {each.killed.total()} kills ({roles}), back in {each.median_s:.1f} s (median) and "
            f"{each.slowest_s:.1f} s (slowest, {each.slowest_role}), {each.acknowledged} messages acknowledged, none missing, in order, "
            f"QoS 2 once, {each.repeats} repeats at QoS 1"
        )
    return "; ".join(figures)
