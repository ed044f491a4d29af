"""Gate 4 of issue 2: 300 takeovers a second for 60 s, the same clients from two gateways in turn, and nothing goes wrong.

takeover_load.py does it, in a process of its own, beside publishers at QoS 1 and 2; takeovers.py says what shows that one
connection of a client is alive at a time. Then duels (duel_load.py): two connections of one client at the same moment, one at
each gateway, of which exactly one must win. At last, for the figures only, 1,000 a second, and 5,000 durable sessions that come
back at once. CPU per takeover is that of the broker's processes beyond what the messages cost them without takeovers: it says more
than a rate on a machine that others use too. With three shards on a small machine seven processes share its cores: there what goes
wrong is judged, and the times are printed.

A client that is taken over three times a second would soon have to wait, as two that fight for one id do (`access.takeovers_max`). Here
that is off: it is what takeovers do that is looked at.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.broker.programs import run_program
from tests.broker.running import Status
from tests.gates.gate import SHARD_COUNTS, GateFailed, Scale, Watched, running, settings

LIMIT_S = 900
PER_SECOND, SECONDS = 300, 60
WANTED_PER_SECOND, WANTED_SECONDS = 1000, 15
P99_MS = 500.0
CLOSED_MS = 1000.0
DUELS = 500
DUEL_MS = 2000.0
STORM = 5000
LOAD_DEADLINE_S = 200.0
ROLES = ("gateway", "shard", "session")
SKIPPED_MAX = 0.001
RATE_MIN = 0.95


async def load(module: str, status: Status, *options: str) -> dict[str, Any]:
    """One run of a load module against the two gateways; what it printed."""
    names = sorted(each.name for each in status.processes if each.role == "gateway")
    command = [sys.executable, "-m", module, *(str(status.own_port(name)) for name in names), *options]
    for role in ROLES:
        command += ["--cpu", f"{role}={','.join(map(str, status.pids(role)))}"]
    ran = await run_program(module, command, LOAD_DEADLINE_S)
    if ran.code:
        raise GateFailed(f"{module} broke: {ran.last_words}")
    found: dict[str, Any] = json.loads(ran.out)
    if found["wrong"]:
        raise GateFailed(f"{found.get('wrong_count', len(found['wrong']))} faults, the first ones: {'; '.join(found['wrong'])}")
    return found


def figure(found: dict[str, Any]) -> str:
    times, cpu = found["connack_ms"], found["cpu_us_each"]
    broker = sum(cpu[role] for role in ROLES)
    apart = ", ".join(f"{role} {cpu[role]}" for role in ROLES)
    return (
        f"{found['takeovers'] / found['seconds']:.0f} takeovers/s for {found['seconds']:.0f} s, CONNECT to CONNACK p50 {times['p50']} ms, "
        f"p99 {times['p99']} ms, max {times['max']} ms, {broker} us of broker CPU each ({apart}), load {cpu['load']} us each and "
        f"{found['cpu_share']['load']:.0%} of a core, begun late p99 {found['load_late_ms']['p99']} ms, "
        f"load average of the machine {os.getloadavg()[0]:.1f}"
    )


async def steady(watched: Watched, n_shards: int, seconds: int) -> str:
    """The gate itself."""
    options = ("--per-second", str(PER_SECOND), "--seconds", str(seconds), "--n-shards", str(n_shards))
    found = await load("tests.gates.takeover_load", await watched.status(), *options)
    where = f"n_shards={n_shards}"
    if n_shards == SHARD_COUNTS[0]:
        require_fast(found, where, seconds)
    return (
        f"{where}: {figure(found)}; older connections were closed within {found['closed_ms']['max']} ms of the newer CONNACK, "
        f"{found['came_again']} deliveries answered too late came again, {found['stale_sent']} messages published too late went nowhere, "
        f"{found['acknowledged']} acknowledged and {found['delivered']} delivered, none missing, QoS 2 once, in order"
    )


def require_fast(found: dict[str, Any], where: str, seconds: int) -> None:
    if found["skipped"] > SKIPPED_MAX * PER_SECOND * seconds:
        raise GateFailed(f"{where}: {found['skipped']} takeovers were left out because all clients waited: {figure(found)}")
    if found["takeovers"] / found["seconds"] < RATE_MIN * PER_SECOND:
        raise GateFailed(f"{where}: the load or the broker fell behind: {figure(found)}")
    if found["connack_ms"]["p99"] > P99_MS:
        raise GateFailed(f"{where}: p99 over {P99_MS:.0f} ms: {figure(found)}")
    if found["closed_ms"]["max"] > CLOSED_MS:
        raise GateFailed(f"{where}: an older connection was open for {found['closed_ms']['max']} ms after the newer one's CONNACK")


async def duels(status: Status, n_shards: int, count: int) -> str:
    found = await load("tests.gates.duel_load", status, "--duels", str(count))
    if found["over_ms"]["max"] > DUEL_MS:
        raise GateFailed(f"n_shards={n_shards}: a duel took {found['over_ms']['max']} ms")
    return (
        f"{found['duels']} duels, each with one winner after p50 {found['over_ms']['p50']} ms, max {found['over_ms']['max']} ms, "
        f"{found['refused']} losers refused and {found['told']} told 0x8E"
    )


async def run(scale: Scale) -> str:
    figures = []
    for n_shards in SHARD_COUNTS:
        async with running(settings(n_shards, **{"gateway.count": "2", "access.takeovers_max": "0"})) as watched:
            figures.append(await steady(watched, n_shards, scale.of(SECONDS if n_shards == SHARD_COUNTS[0] else SECONDS // 3)))
            figures.append(await duels(await watched.status(), n_shards, scale.of(DUELS, 100)))
            if n_shards == SHARD_COUNTS[0]:
                status = await watched.status()
                options = ("--per-second", str(WANTED_PER_SECOND), "--seconds", str(scale.of(WANTED_SECONDS, 5)))
                figures.append(f"wanted: {figure(await load('tests.gates.takeover_load', status, *options))}")
                victim = str(status.pids("session")[0])
                storm = await load("tests.gates.storm_load", status, "--sessions", str(scale.of(STORM)), "--kill", victim)
                figures.append(
                    f"{storm['sessions']} sessions that come back at once: CONNACK p50 {storm['connack_ms']['p50']:.0f} ms, all after "
                    f"{storm['seconds_until_connacks']} s, all that they missed read after {storm['seconds_until_drained']} s, "
                    f"all back {storm['seconds_after_kill']} s after their session actor was killed, "
                    f"{sum(storm['cpu_us_each'][role] for role in ROLES)} us of broker CPU each"
                )
    return "; ".join(figures)
