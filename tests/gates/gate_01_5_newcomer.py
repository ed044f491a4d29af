"""Gate 5 of issue 1: what somebody meets who has just cloned the project, and what it costs to let it run.

``make run`` in a fresh clone must answer mosquitto_pub in under 3 minutes the first time and in under 20 s afterwards, and
Ctrl-C must leave nothing running. A started broker without data takes less than 50 MB of disk, and of memory (sum of PSS of
all processes) at most 1.5 GB with Ray's dashboard and 1.1 GB without; idle it uses less than 15 % of a core.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.broker.running import GONE_DEADLINE_S, MARK, Options, RunningBroker, describe, free_port, marked
from tests.gates.footprint import MB, cpu_share, disk_bytes, pss_bytes
from tests.gates.gate import GateFailed, Scale
from tests.needs import ROOT, find_program

LIMIT_S = 900
FIRST_S, AGAIN_S = 180.0, 20.0
DISK_MB = 50
PSS_MB = {True: 1500, False: 1100}
IDLE_SHARE = 0.15
IDLE_S = 20.0
SETTLE_S = 15.0


@dataclass(frozen=True, slots=True)
class Cost:
    """A started broker without clients."""

    disk_mb: float
    pss_mb: float
    idle_share: float


def answered(port: int, process: subprocess.Popen[bytes], deadline_s: float, log: Path) -> float:
    """Seconds until mosquitto_pub at QoS 1 ends with code 0."""
    program = find_program("mosquitto_pub")
    if program is None:
        raise GateFailed("mosquitto_pub is not installed: make system-deps")
    command = [program, "-h", "127.0.0.1", "-p", str(port), "-q", "1", "-t", "a/b", "-m", "hello"]
    began = time.monotonic()
    while True:
        tried = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=30, check=False)
        took = time.monotonic() - began
        if tried.returncode == 0:
            return took
        words = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])[-300:]
        if process.poll() is not None:
            raise GateFailed(f"`make run` ended with code {process.returncode} after {took:.0f} s: {words}")
        if took > deadline_s:
            raise GateFailed(f"mosquitto_pub had no answer {took:.0f} s after `make run`: {words}")
        time.sleep(0.1)


def make_run(clone: Path, port: int, deadline_s: float) -> float:
    """Start, measure, Ctrl-C, and look for what stayed behind."""
    mark = uuid.uuid4().hex
    log = clone.parent / "make.log"
    environment = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["make", "run", f"PORT={port}", "DATA_DIR=./data"],
            cwd=clone,
            env={**environment, MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        took = answered(port, process, deadline_s, log)
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does at Ctrl-C
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            raise GateFailed("`make run` was still there 60 s after Ctrl-C") from None
        deadline = time.monotonic() + GONE_DEADLINE_S
        while (left := marked(mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        if left:
            raise GateFailed(f"{len(left)} processes were alive {GONE_DEADLINE_S} s after Ctrl-C: {', '.join(map(describe, left[:3]))}")
        return took
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


async def cost(dashboard: bool, scale: Scale) -> Cost:
    broker = RunningBroker(Options(settings={"ray.dashboard": str(dashboard).lower()}))
    with broker:
        await asyncio.sleep(scale.of(int(SETTLE_S), 5))
        status = broker.status()
        share = await cpu_share(status.pids(), scale.of(int(IDLE_S), 8))
        return Cost(disk_bytes(status.data_dir) / MB, pss_bytes(broker.status().pids()) / MB, share)


def judged(found: Cost, dashboard: bool) -> list[str]:
    with_ = "with" if dashboard else "without"
    problems = []
    if found.disk_mb >= DISK_MB:
        problems.append(f"an empty store takes {found.disk_mb:.0f} MB of disk, wanted under {DISK_MB}")
    if found.pss_mb > PSS_MB[dashboard]:
        problems.append(f"{found.pss_mb:.0f} MB of PSS {with_} dashboard, wanted at most {PSS_MB[dashboard]}")
    if found.idle_share >= IDLE_SHARE:
        problems.append(f"{found.idle_share:.1%} of a core when idle {with_} dashboard, wanted under {IDLE_SHARE:.0%}")
    return problems


async def run(scale: Scale) -> str:
    costs = {dashboard: await cost(dashboard, scale) for dashboard in (True, False)}
    problems = [problem for dashboard, found in costs.items() for problem in judged(found, dashboard)]
    figures = [
        f"disk {costs[True].disk_mb:.0f} MB, PSS {costs[True].pss_mb:.0f} MB with dashboard and {costs[False].pss_mb:.0f} without, "
        f"idle {costs[True].idle_share:.1%} and {costs[False].idle_share:.1%} of a core"
    ]
    if scale.quick:
        figures.append("fresh clone left out")
    else:
        took = await asyncio.to_thread(fresh_clone)
        figures.insert(0, f"`make run` in a fresh clone answers after {took[0]:.0f} s, again after {took[1]:.1f} s")
        limits = zip(took, (FIRST_S, AGAIN_S), strict=True)
        problems += [f"`make run` answered after {seconds:.0f} s" for seconds, limit in limits if seconds >= limit]
    if problems:
        raise GateFailed(f"{'; '.join(problems)} ({'; '.join(figures)})")
    return "; ".join(figures)


def fresh_clone() -> tuple[float, float]:
    """Seconds of the first and of the second ``make run``; what is not committed is not in the clone."""
    directory = Path(tempfile.mkdtemp(prefix="hf-clone-"))
    try:
        clone = directory / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120, stdin=subprocess.DEVNULL)
        port = free_port()
        return make_run(clone, port, FIRST_S * 2), make_run(clone, port, AGAIN_S * 3)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
