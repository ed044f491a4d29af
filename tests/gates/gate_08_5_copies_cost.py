"""Gate 5 of issue 8: what three copies cost beside one, in one run of this machine.

The same load against a broker with one copy and against three sites with three, in turns: stored messages of 256 bytes from 4 publishers
with 512 outstanding each, and one publisher at a steady rate for the times. CPU is that of the processes a message passes on all sites. All
three sites share this machine's cores and its disk, which three real machines would not: docs/replication.md has the estimate for these.
The plan that spreads leaders over the sites is off: it would give the shard away in the middle, which is a failover.

No bar is set: the gate fails when something is lost, or a figure cannot be had. What it prints goes into docs/replication.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.broker.programs import run_program
from tests.broker.running import Options, RunningBroker, Status
from tests.gates.gate import GateFailed, Scale
from tests.sites.running import SeveralSites

LIMIT_S = 1500
MESSAGES = 40_000
ROUNDS = 3
STEADY_PER_S = 500
STEADY_S = 10
RUN_DEADLINE_S = 240.0
DATA_ROLES = ("gateway", "session", "shard")


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one load: rate is acknowledged messages per second under 2,048 outstanding ones, cpu_us what one of them costs, p50 and p99 the
    milliseconds to an acknowledgement at STEADY_PER_S."""

    rate: float
    cpu_us: float
    leading_us: float
    p50_ms: float
    p99_ms: float


async def load(port: int, groups: dict[str, list[int]], scenario: str, *options: str) -> dict[str, object]:
    command = [sys.executable, "-m", "benchmarks.load", scenario, "--port", str(port), "--payload-bytes", "256", *options]
    for name, pids in groups.items():
        command += ["--cpu", f"{name}={','.join(map(str, pids))}"]
    ran = await run_program(f"the load generator's {scenario}", command, RUN_DEADLINE_S)
    found = [json.loads(line)["result"] for line in ran.out.decode().splitlines() if line.startswith("{")]
    if not found:
        raise GateFailed(f"the load generator's {scenario} has no result: {ran.last_words}")
    result: dict[str, object] = found[0]
    wrong = {key: result[key] for key in ("lost", "duplicated", "out_of_order", "misrouted", "refused", "stories") if result[key]}
    if wrong:
        raise GateFailed(f"{scenario}: {wrong}")
    return result


async def measured(port: int, leading: Status, others: Sequence[Status], scale: Scale) -> Figures:
    first = [pid for role in DATA_ROLES for pid in leading.pids(role)]
    every = first + [pid for status in others for role in DATA_ROLES for pid in status.pids(role)]
    groups = {"leading": first, "all": every}
    stored = await load(
        port, groups, "offline", "--messages", str(scale.of(MESSAGES)), "--publishers", "4", "--window", "512"
    )  # fmt: skip
    steady = await load(port, groups, "latency", "--rate-per-s", str(STEADY_PER_S), "--seconds", str(scale.of(STEADY_S, 3)))
    cost, times = stored["cost"], steady["ack_ms"]
    assert isinstance(cost, dict) and isinstance(times, dict) and isinstance(stored["acked_per_s"], float)
    return Figures(stored["acked_per_s"], cost["all"]["cpu_us"], cost["leading"]["cpu_us"], times["p50"], times["p99"])


def middle(found: Sequence[Figures]) -> Figures:
    return Figures(*(median(getattr(each, name) for each in found) for name in Figures.__slots__))


def told(figures: Figures) -> str:
    return (
        f"{figures.rate:.0f} stored/s, {figures.cpu_us:.1f} us of CPU a message ({figures.leading_us:.1f} on the site that leads), "
        f"acknowledged in p50 {figures.p50_ms:.1f} and p99 {figures.p99_ms:.1f} ms at {STEADY_PER_S}/s"
    )


async def run(scale: Scale) -> str:
    one: list[Figures] = []
    three: list[Figures] = []
    with (
        RunningBroker(Options(settings={"durable_storage.messages.n_shards": "1", "ray.dashboard": "false"})) as alone,
        SeveralSites(3, n_shards=1, more={"cluster.spread_leaders": "false"}) as sites,
    ):
        status = alone.status()
        leader = sites.leader_of(0)
        statuses = [site.status() for site in sites.sites]
        leading = statuses.pop(leader)
        for _ in range(scale.of(ROUNDS, 1)):
            one.append(await measured(alone.port, status, [], scale))
            three.append(await measured(sites.ports[leader], leading, statuses, scale))
        if sites.leader_of(0) != leader:
            raise GateFailed("another site leads than at the beginning: the figures are of a failover")
    single, triple = middle(one), middle(three)
    return (
        f"one copy: {told(single)}; three copies: {told(triple)}; {triple.cpu_us / single.cpu_us:.2f} times the CPU, "
        f"{triple.rate / single.rate:.2f} times the rate, on one machine and one disk"
    )
