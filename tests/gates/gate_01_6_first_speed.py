"""Gate 6 of issue 1: what a stored and a drained message cost the broker in CPU.

Measured by the project's own load generator (agreed with the neutral meter by ``make bench``): 4 publishers with 512
outstanding messages of 256 bytes to an offline session, which then drains them; and the same store for one offline session
and for 1,000 on one wildcard. CPU is that of the processes a message passes (gateway, shard, session, controller); the figure
for all processes, Ray's included, is printed beside it. CPU per message is the gate because rates depend on the disk; they are
printed where the disk is fast enough to say something about the broker.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from statistics import median

from tests.broker.programs import run_program
from tests.broker.running import Options, RunningBroker, Status
from tests.gates.gate import GateFailed, Scale

LIMIT_S = 1500
STORE_US, DRAIN_US = 30.0, 20.0
MANY_SESSIONS_MORE = 1.10
REPEATS = 3
MESSAGES = 50_000
FAST_DISK_MS = 0.3
RUN_DEADLINE_S = 240.0
DATA_ROLES = ("gateway", "session", "shard", "controller")


@dataclass(frozen=True, slots=True)
class Measured:
    """One result of the load generator, as far as this gate looks at it."""

    sessions: int
    store_us: float
    store_all_us: float
    drain_us: float
    acked_per_s: float
    drained_per_s: float
    fdatasync_ms: float
    wrong: str


def read(line: str) -> Measured:
    record = json.loads(line)
    result = record["result"]
    wrong = {key: result[key] for key in ("lost", "duplicated", "out_of_order", "misrouted", "refused") if result[key]}
    return Measured(
        sessions=int(result["sessions"]),
        store_us=float(result["cost"]["data"]["cpu_us"]),
        store_all_us=float(result["cost"]["all"]["cpu_us"]),
        drain_us=float(result["drain_cost"].get("data", {}).get("cpu_us", 0.0)),
        acked_per_s=float(result["acked_per_s"] or 0),
        drained_per_s=float(result["drained_per_s"] or 0),
        fdatasync_ms=max(float(record["fdatasync_p50_ms"]["before"]), float(record["fdatasync_p50_ms"]["after"])),
        wrong=f"{wrong} {' '.join(result['stories'])}".strip() if wrong or result["stories"] else "",
    )


async def load(scenario: str, broker: RunningBroker, status: Status, *options: str) -> list[Measured]:
    """One run of the generator, in a process of its own."""
    data = [str(pid) for role in DATA_ROLES for pid in status.pids(role)]
    everything = [str(pid) for pid in status.pids()]
    command = [sys.executable, "-m", "benchmarks.load", scenario, "--port", str(broker.port), "--data-dir", str(broker.data_dir)]
    command += ["--cpu", f"data={','.join(data)}", "--cpu", f"all={','.join(everything)}"]
    command += ["--publishers", "4", "--window", "512", "--payload-bytes", "256", *options]
    ran = await run_program(f"the load generator's {scenario}", command, RUN_DEADLINE_S)
    found = [read(line) for line in ran.out.decode().splitlines() if line.startswith("{")]
    if not found:
        raise GateFailed(f"the load generator's {scenario} has no result: {ran.last_words}")
    wrong = [each.wrong for each in found if each.wrong]
    if wrong:
        raise GateFailed(f"{scenario}: {wrong[0]}")
    return found


async def run(scale: Scale) -> str:
    count = str(scale.of(MESSAGES))
    offline: list[Measured] = []
    one: list[Measured] = []
    many: list[Measured] = []
    with RunningBroker(Options(settings={"ray.dashboard": "false"})) as broker:
        status = broker.status()
        for _ in range(scale.of(REPEATS, 1)):
            offline += await load("offline", broker, status, "--messages", count)
            # One session first, then many: the two lines of one run.
            few, thousand = await load("sessions", broker, status, "--messages", count, "--sessions", str(scale.of(1000)))
            one.append(few)
            many.append(thousand)
    store, drain = median(each.store_us for each in offline), median(each.drain_us for each in offline)
    ratio = median(b.store_us / a.store_us for a, b in zip(one, many, strict=True))
    disk_ms = median(each.fdatasync_ms for each in offline)
    rates = f"{median(each.acked_per_s for each in offline):.0f} stored/s, {median(each.drained_per_s for each in offline):.0f} drained/s"
    store_all = median(each.store_all_us for each in offline)
    figure = (
        f"store {store:.1f} us and drain {drain:.1f} us of broker CPU per message (the store {store_all:.1f} us with Ray's own "
        f"processes), {many[0].sessions} sessions cost {ratio:.2f} times one per stored message; "
        + (f"{rates}, fdatasync p50 {disk_ms:.2f} ms" if disk_ms <= FAST_DISK_MS else f"fdatasync p50 {disk_ms:.2f} ms, too slow for rates")
    )
    problems = [
        *([f"store {store:.1f} us, wanted at most {STORE_US:.0f}"] if store > STORE_US else []),
        *([f"drain {drain:.1f} us, wanted at most {DRAIN_US:.0f}"] if drain > DRAIN_US else []),
        *([f"many sessions {ratio:.2f} times, wanted at most {MANY_SESSIONS_MORE}"] if ratio > MANY_SESSIONS_MORE else []),
    ]
    if problems:
        raise GateFailed(f"{'; '.join(problems)} ({figure})")
    return figure
