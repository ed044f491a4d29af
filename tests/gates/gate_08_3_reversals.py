"""Gate 3 of issue 8: 100 leaders killed in a row, and 20 reversals of who has copies, under load: no shard is stuck, all converges.

Four sites, three copies of each shard. First the process of the leading replica is killed, 100 times, each time when everything flows
again; it must flow within BACK_S. Then `ds leave`, `ds join` and `ds set-replicas` follow each other, 20 times, each before the one before
has ended or after it, by chance; at the end the shards are where the last one said, and nothing is under way.
"""

from __future__ import annotations

import asyncio
import random
import re
import time

from tests.broker.running import CommandFailed
from tests.gates.gate import GateFailed, Scale
from tests.sites.campaign import Campaign, campaign
from tests.sites.running import several

LIMIT_S = 3600
KILLS, REVERSALS = 100, 20
BACK_S = 20.0
SETTLE_S = 120.0
SITE = re.compile(r"\b[0-9A-F]{16}\b")
N_SHARDS = 2


async def kills(running: Campaign, count: int, chance: random.Random) -> float:
    """The slowest recovery."""
    for number in range(count):
        shard = chance.randrange(N_SHARDS)
        leader = running.sites.sites[await asyncio.to_thread(running.sites.leader_of, shard)]
        pids = {process.name: process.pid for process in (await asyncio.to_thread(leader.status)).processes}
        await asyncio.to_thread(leader.kill, pids[f"shard-{shard}"])
        try:
            await running.flows(BACK_S)
        except GateFailed as stuck:
            raise GateFailed(f"kill {number + 1} of {count}, shard {shard}: not back within {BACK_S:.0f} s: {stuck}") from None
    return max(running.took)


async def reversals(running: Campaign, count: int, chance: random.Random) -> set[str]:
    """The sites that have copies at the end, as the last command wanted it."""
    sites = running.sites
    names = [await asyncio.to_thread(sites.name_of, index) for index in range(len(sites.sites))]
    wanted = set(names[:3])
    for _ in range(count):
        out = [name for name in names if name not in wanted]
        verb = chance.choice(("set-replicas", "join") if len(wanted) < len(names) else ("set-replicas", "leave"))
        if verb == "join":
            words, wanted = [verb, "messages", out[0]], wanted | {out[0]}
        elif verb == "leave":
            gone = chance.choice(sorted(wanted))
            words, wanted = [verb, "messages", gone], wanted - {gone}
        else:
            wanted = set(chance.sample(names, 3))
            words = [verb, "messages", *sorted(wanted)]
        await asyncio.to_thread(sites.sites[0].command, "ds", *words)
        await asyncio.sleep(chance.choice((0.0, 0.5, 3.0)))
        await running.flows(BACK_S)
    return wanted


async def converged(running: Campaign, wanted: set[str]) -> None:
    deadline = time.monotonic() + SETTLE_S
    last = ""
    while time.monotonic() < deadline:
        try:
            last = await asyncio.to_thread(running.sites.sites[0].command, "ds", "info")
        except CommandFailed as error:
            last = str(error)
        shards = last.partition("SHARDS:")[2]
        if "REPLICA TRANSITIONS" not in last and {each.lower() for each in SITE.findall(shards)} == wanted:
            return
        await asyncio.sleep(1)
    raise GateFailed(f"not settled {SETTLE_S:.0f} s after the last command: {last}")


async def run(scale: Scale) -> str:
    chance = random.Random(8)
    async with several(4, n_shards=N_SHARDS) as sites, campaign(sites, "g83", n_shards=N_SHARDS) as running:
        await running.flows(60)
        slowest = await kills(running, scale.of(KILLS), chance)
        wanted = await reversals(running, scale.of(REVERSALS, 4), chance)
        await converged(running, wanted)
        judged = await running.judge("after kills and reversals")
    return (
        f"{scale.of(KILLS)} leaders killed in a row, back within {slowest:.1f} s at the most; {scale.of(REVERSALS, 4)} reversals "
        f"converged; {judged}"
    )
