"""Gate 3 of issue 8: 100 leaders killed in a row, and 20 reversals of who has copies, under load: no shard is stuck, all converges.

Four sites, three copies of each shard. First the process of the leading replica is killed, 100 times, each time when everything flows
again; it must flow within BACK_S, and each kill must have made a new epoch, or it was no leader that died. Then come 20 reversals: `ds
leave`, `join` or `set-replicas` at one site, and at another one, most often while the replicas are moving, what undoes it or wants
something else. Everything flows after each, and at the end replicas are where the last one said, all in sync, and the logs of the copies
are equal.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from actors.asking import running as topology_of
from actors.inquiry.sites import Sites
from actors.sites.asked import ask
from tests.gates.gate import GateFailed, Scale
from tests.sites.campaign import Campaign, campaign
from tests.sites.judging import converged, require_equal_copies, seen_by
from tests.sites.running import SeveralSites, several

LIMIT_S = 3600
KILLS, REVERSALS = 100, 20
BACK_S = 20.0
SETTLE_S = 120.0
HALFWAY_S = (0.0, 0.05, 0.2, 0.5, 1.0, 3.0)
N_SHARDS = 2


def kill_leader(sites: SeveralSites, shard: int) -> None:
    """A process that has just begun to lead may not be announced yet."""
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        leader = sites.sites[sites.leader_of(shard)]
        pid = next((process.pid for process in leader.status().processes if process.name == f"shard-{shard}"), None)
        if pid is not None:
            leader.kill(pid)
            return
        time.sleep(0.05)
    raise GateFailed(f"no process of a leader of shard {shard} was announced within {BACK_S:.0f} s")


async def kills(running: Campaign, count: int, chance: random.Random) -> list[float]:
    """How long it was after each until everything flowed."""
    before = epochs(await converged(running.sites, 0, await names_with_copies(running), SETTLE_S))
    running.took.clear()
    for number in range(count):
        shard = chance.randrange(N_SHARDS)
        await asyncio.to_thread(kill_leader, running.sites, shard)
        try:
            await running.flows(BACK_S)
        except GateFailed as stuck:
            raise GateFailed(f"kill {number + 1} of {count}, shard {shard}: not back within {BACK_S:.0f} s: {stuck}") from None
    took = sorted(running.took)
    after = epochs(await converged(running.sites, 0, await names_with_copies(running), SETTLE_S))
    if after - before < count:
        raise GateFailed(f"{count} leaders were to be killed, and there were {after - before} new epochs")
    return took


def epochs(seen: Sites) -> int:
    return sum([shard.epoch for shard in seen.shards])


async def names_with_copies(running: Campaign) -> set[str]:
    seen = await seen_by(running.sites.sites[0])
    if seen is None:
        raise GateFailed("`ds info` of the first site does not answer")
    return {replica.site.lower() for shard in seen.shards for replica in shard.replicas}


def command(names: Sequence[str], wanted: set[str], chance: random.Random) -> tuple[list[str], set[str]]:
    """A verb and its sites, by chance, and who has copies then."""
    out = [name for name in names if name not in wanted]
    verb = chance.choice(["set-replicas", *(["join"] if out else []), *(["leave"] if len(wanted) > 2 else [])])
    if verb == "join":
        site = chance.choice(out)
        return [verb, site], wanted | {site}
    if verb == "leave":
        site = chance.choice(sorted(wanted))
        return [verb, site], wanted - {site}
    chosen = set(chance.sample(list(names), 3))
    return [verb, *sorted(chosen)], chosen


def undone(words: list[str], before: set[str]) -> list[str]:
    """What takes it back."""
    return {"join": ["leave", *words[1:]], "leave": ["join", *words[1:]]}.get(words[0], ["set-replicas", *sorted(before)])


async def reversals(running: Campaign, names: Sequence[str], count: int, chance: random.Random) -> tuple[set[str], int]:
    """The sites that have copies at the end, as the last command wanted it; how many were turned back while replicas moved."""
    sites = running.sites.sites
    wanted, halfway = await names_with_copies(running), 0
    for number in range(count):
        before = wanted
        words, wanted = command(names, wanted, chance)
        # As an operator, who needs half a second to start a command; then without that half second, to meet it halfway.
        await asyncio.to_thread(chance.choice(sites).command, "ds", words[0], "messages", *words[1:])
        await asyncio.sleep(chance.choice(HALFWAY_S))
        asked = chance.choice(sites)
        seen = await seen_by(asked)
        halfway += seen is not None and any(shard.transitions for shard in seen.shards)
        if chance.random() < 0.5:
            again, wanted = undone(words, before), before
        else:
            again, wanted = command(names, wanted, chance)
        await ask(topology_of(asked.data_dir), *again)
        try:
            await running.flows(BACK_S)
        except GateFailed as stuck:
            raise GateFailed(f"reversal {number + 1} of {count}, {' '.join(words)} and then {' '.join(again)}: {stuck}") from None
        if chance.random() < 0.3:
            await converged(running.sites, 0, wanted, SETTLE_S)
    return wanted, halfway


async def run(scale: Scale) -> str:
    chance = random.Random(8)
    n_kills, n_reversals = scale.of(KILLS), scale.of(REVERSALS, 6)
    async with several(4, n_shards=N_SHARDS) as sites:
        names = [await asyncio.to_thread(sites.name_of, index) for index in range(len(sites.sites))]
        async with campaign(sites, "g83", n_shards=N_SHARDS) as running:
            await running.flows(60)
            took = await kills(running, n_kills, chance)
            wanted, halfway = await reversals(running, names, n_reversals, chance)
            seen = await converged(sites, 0, wanted, SETTLE_S)
            if halfway * 4 < n_reversals:
                raise GateFailed(f"only {halfway} of {n_reversals} reversals met replicas that moved")
            judged = await running.judge("after kills and reversals")
        await require_equal_copies(sites, seen, names)
    return (
        f"{n_kills} leaders killed in a row, back within {took[len(took) // 2]:.1f} s (median) and {took[-1]:.1f} (slowest); {n_reversals} "
        f"reversals, {halfway} while replicas moved, converged, copies in sync and equal; {judged}"
    )
