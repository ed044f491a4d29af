"""The load of gate 4 of issue 2, in a process of its own: so many takeovers a second, open loop, beside steady publishing.

``python -m tests.gates.takeover_load PORT PORT --per-second 300 --seconds 60 [--cpu ROLE=PID,PID ...]`` prints one JSON object: what
it measured, and what was wrong.

The next takeover is due at a fixed time whatever became of the one before; the client is the one whose last takeover is longest
ago and answered. How late the load itself was is part of the result, and so is its own CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import uvloop

from tests.broker.client import Client, settled
from tests.broker.history import History, faults, summary
from tests.gates.footprint import cpu_s
from tests.gates.takeovers import Findings, Taken
from tests.gates.traffic import Publisher, client_ids

GROUPS = 10
OF_GROUP = 10
WILD_OF_GROUP = 2
"""100 clients in groups of 10; the first two of a group have a filter on all topics of the group, the others one of their own."""
PUBLISHERS = 4
CONNECTED_S = 20.0
SETTLE_S = 20.0
LATE_STOP_S = 5.0


@dataclass(slots=True)
class Result:
    takeovers: int = 0
    skipped: int = 0
    seconds: float = 0.0
    connack_ms: dict[str, float] = field(default_factory=dict)
    load_late_ms: dict[str, float] = field(default_factory=dict)
    closed_ms: dict[str, float] = field(default_factory=dict)
    cpu_share: dict[str, float] = field(default_factory=dict)
    cpu_us_each: dict[str, float] = field(default_factory=dict)
    acknowledged: int = 0
    delivered: int = 0
    late: int = 0
    came_again: int = 0
    stale_sent: int = 0
    wrong: list[str] = field(default_factory=list)
    wrong_count: int = 0


def quantiles(values_ns: Sequence[int]) -> dict[str, float]:
    """In milliseconds."""
    ordered = sorted(values_ns) or [0]
    found = {name: ordered[min(len(ordered) - 1, int(len(ordered) * part))] for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    return {name: round(value / 1e6, 1) for name, value in {**found, "max": ordered[-1]}.items()}


class Meter:
    """CPU time of roles, and of this process, between two looks."""

    def __init__(self, roles: dict[str, list[int]]) -> None:
        self._roles = roles
        self._at = self._look()

    def _look(self) -> dict[str, float]:
        return {**{role: sum(map(cpu_s, pids)) for role, pids in self._roles.items()}, "load": time.process_time(), "": time.monotonic()}

    def lap(self) -> tuple[dict[str, float], float]:
        """CPU seconds since the last look, and how long that is ago."""
        before, self._at = self._at, self._look()
        used = {role: self._at[role] - before[role] for role in self._at}
        return used, used.pop("")


RUN = f"{os.getpid()}"
"""In the names of clients and topics: sessions of an earlier run at the same broker have nothing to do with this one."""


def topic_of(group: int, member: int) -> str:
    return f"takeover-{RUN}/{group}/{member}"


async def prepare(ports: tuple[int, ...], history: History, findings: Findings, n_shards: int) -> list[Taken]:
    """Connect and subscribe, in groups: durable sessions on topics of their own, and some on a whole group."""
    clients = []
    for at, name in enumerate(client_ids(f"taken-{RUN}", GROUPS * OF_GROUP, n_shards)):
        group, member = divmod(at, OF_GROUP)
        taken = Taken(name, ports, 4 if at % 5 == 4 else 5, history, findings)
        await taken.take()
        await asyncio.wait_for(taken.idle.wait(), CONNECTED_S)
        topic_filter = f"takeover-{RUN}/{group}/+" if member < WILD_OF_GROUP else topic_of(group, member)
        await taken.subscribe(topic_filter, 1 + at // 2 % 2, CONNECTED_S)
        clients.append(taken)
    return clients


async def take_over(clients: list[Taken], per_second: float, seconds: float, result: Result) -> list[int]:
    """Open loop. Returns how late each CONNECT was begun."""
    loop = asyncio.get_running_loop()
    late: list[int] = []
    waiting = list(clients)
    began = loop.time()
    tasks: set[asyncio.Task[object]] = set()
    for n in range(int(per_second * seconds)):
        due = began + n / per_second
        if (pause := due - loop.time()) > 0:
            await asyncio.sleep(pause)
        chosen = next((at for at, each in enumerate(waiting) if each.coming is None), None)
        if chosen is None:
            result.skipped += 1
            await asyncio.sleep(0)
            continue
        taken = waiting.pop(chosen)
        waiting.append(taken)
        late.append(max(0, int((loop.time() - due) * 1e9)))
        task = loop.create_task(taken.take())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        result.takeovers += 1
    for each in clients:
        await asyncio.wait_for(each.idle.wait(), CONNECTED_S)
    result.seconds = loop.time() - began
    return late


async def run(options: argparse.Namespace, roles: dict[str, list[int]]) -> Result:
    history, findings, result = History(), Findings(), Result()
    clients = await prepare(tuple(options.ports), history, findings, options.n_shards)
    topics = [topic_of(group, member) for member in range(OF_GROUP) for group in range(GROUPS)]
    names = client_ids(f"publisher-{RUN}", PUBLISHERS, options.n_shards)
    publishers = [
        Publisher(Client(options.ports[at % 2], name, history, version=5, window=200), 1 + at // 2, options.messages / PUBLISHERS, topics)
        for at, name in enumerate(names)
    ]
    for publisher in publishers:
        await publisher.begin()
    await asyncio.sleep(1)
    meter = Meter(roles)
    await asyncio.sleep(options.quiet)
    quiet, quiet_s = meter.lap()
    late = await take_over(clients, options.per_second, options.seconds, result)
    used, took_s = meter.lap()
    await asyncio.gather(*(publisher.finish(SETTLE_S) for publisher in publishers))
    for each in clients:
        each.answer_held()
    await settled(history, SETTLE_S)
    await owed_came(clients)

    result.cpu_share = {role: round(spent / took_s, 3) for role, spent in used.items()}
    more = {role: spent - quiet[role] / quiet_s * took_s for role, spent in used.items()}
    result.cpu_us_each = {role: round(spent / max(1, result.takeovers) * 1e6) for role, spent in more.items()}
    result.connack_ms, result.load_late_ms = quantiles(findings.connack_ns), quantiles(late)
    result.closed_ms = quantiles(findings.closed_ns)
    result.acknowledged, result.delivered = history.acknowledged_count(), history.delivery_count()
    result.late, result.came_again, result.stale_sent = findings.late, findings.came_again, findings.stale_sent
    wrong = list(findings.wrong)
    if found := faults(history):
        wrong.append(summary(found))
    wrong += [
        f"{each.client_id}: {len(each.owed)} deliveries that were answered too late did not come again" for each in clients if each.owed
    ]
    ended = len(findings.closed_ns)
    if ended != result.takeovers:
        wrong.append(f"{result.takeovers} connections were taken over, {ended} of them were closed")
    result.wrong, result.wrong_count = wrong[:5], len(wrong)
    for each in clients:
        each.leave()
    await asyncio.gather(*(publisher.client.stop() for publisher in publishers))
    return result


async def owed_came(clients: list[Taken]) -> None:
    deadline = time.monotonic() + LATE_STOP_S
    # Spread over all clients, and over in a moment.
    while any(each.owed for each in clients) and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gates.takeover_load")
    parser.add_argument("ports", type=int, nargs=2)
    parser.add_argument("--per-second", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--messages", type=float, default=100.0, help="published per second")
    parser.add_argument("--n-shards", type=int, default=1)
    parser.add_argument("--quiet", type=float, default=3.0, help="seconds without takeovers, to know what the messages cost")
    parser.add_argument("--cpu", action="append", default=[], metavar="ROLE=PID,PID")
    options = parser.parse_args(arguments)
    roles = {role: [int(pid) for pid in pids.split(",")] for role, _, pids in (each.partition("=") for each in options.cpu)}
    print(json.dumps(asdict(uvloop.run(run(options, roles)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
