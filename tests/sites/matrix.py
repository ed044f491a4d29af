"""The faults that a store of three sites has to survive, one after the other, under clients that live through all of them.

Each is a function of a campaign that breaks something, makes it whole again, and returns when everything flows; in between it may
require that everything flows already. What must hold in the end is the campaign's to judge, and that the copies are equal.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable

from tests.gates.gate import GateFailed
from tests.sites.campaign import Campaign

BACK_S = 40.0
"""Until everything flows; ten seconds are wanted of three machines (gate 8.1 prints what it was here)."""
SHARD = 0
OURS = ("shard", "session", "gateway", "controller", "site")

Fault = Callable[[Campaign, random.Random], Awaitable[None]]


async def leader_of(running: Campaign) -> int:
    return await asyncio.to_thread(running.sites.leader_of, SHARD)


async def pid_of(running: Campaign, site: int, name: str) -> int:
    status = await asyncio.to_thread(running.sites.sites[site].status)
    return next(process.pid for process in status.processes if process.name == name)


async def processes_killed(running: Campaign, chance: random.Random) -> None:
    """The leading shard process, one that follows, and any other process of a site."""
    for which in ("leader", "follower", "any", "leader"):
        leader = await leader_of(running)
        site = leader if which == "leader" else (leader + 1) % len(running.sites.sites)
        broker = running.sites.sites[site]
        status = await asyncio.to_thread(broker.status)
        names = sorted(
            process.name for process in status.processes if process.role in ("shard", "session", "gateway", "controller", "site")
        )
        name = f"shard-{SHARD}" if which != "any" else chance.choice(names)
        await asyncio.to_thread(broker.kill, await pid_of(running, site, name))
        await running.flows(BACK_S)


async def leader_site_lost(running: Campaign, chance: random.Random) -> None:
    """All of the site that leads, and it comes back."""
    leader = await leader_of(running)
    await running.lose(leader)
    await running.flows(BACK_S)
    await running.bring_back(leader)
    await running.flows(BACK_S)


async def two_sites_lost(running: Campaign, chance: random.Random) -> None:
    """Nothing is acknowledged below a majority; with the second one it goes on."""
    both = chance.sample(running.up, 2)
    for site in both:
        await running.lose(site)
    before = running.history.acknowledged_count()
    # What was under way when the second one went may still be answered.
    await asyncio.sleep(3)
    settled = running.history.acknowledged_count()
    await asyncio.sleep(5)
    if running.history.acknowledged_count() != settled:
        raise GateFailed(f"{running.history.acknowledged_count() - before} messages were acknowledged with one site of three")
    for site in both:
        await running.bring_back(site)
    await running.flows(BACK_S)


async def all_sites_lost(running: Campaign, chance: random.Random) -> None:
    """At once, as when the power of the room goes."""
    up = list(running.up)
    for site in up:
        await running.lose(site)
    await asyncio.gather(*(running.bring_back(site) for site in up))
    await running.flows(BACK_S)


async def leader_stands_still(running: Campaign, chance: random.Random) -> None:
    """SIGSTOP for 1, 5 and 15 s: shorter and longer than others wait for it."""
    for seconds in (1.0, 5.0, 15.0):
        leader = await leader_of(running)
        pid = await pid_of(running, leader, f"shard-{SHARD}")
        broker = running.sites.sites[leader]
        broker.signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            broker.signal(pid, signal.SIGCONT)
        await running.flows(BACK_S)


async def raylet_killed(running: Campaign, chance: random.Random) -> None:
    """Of the site that leads: its actors live on for a while beside those that are made anew."""
    leader = await leader_of(running)
    await asyncio.to_thread(running.sites.sites[leader].kill, await pid_of(running, leader, "raylet"))
    await running.flows(BACK_S)


async def chaos(running: Campaign, site: int, *words: str) -> None:
    await asyncio.to_thread(running.sites.sites[site].command, "chaos", *words, "--no-oracle")


async def partitioned(running: Campaign, chance: random.Random) -> None:
    """The site that leads hears nobody of the others and nobody hears it; then one way only; then on and off."""
    for words, seconds in (((), 8), (("--one-way",), 8), ((), 2), ((), 2), ((), 2)):
        leader = await leader_of(running)
        mine = await asyncio.to_thread(running.sites.name_of, leader)
        others = [await asyncio.to_thread(running.sites.name_of, site) for site in running.up if site != leader]
        cuts = [chaos(running, leader, "partition", f"site-{mine}", f"site-{other}", *words, "--for", f"{seconds}s") for other in others]
        await asyncio.gather(*cuts)
        await running.flows(BACK_S)


async def register_away(running: Campaign, chance: random.Random) -> None:
    """One etcd of three is killed, then two: who leads goes on. Whoever dies meanwhile is replaced when a majority is back."""
    etcds = running.sites.etcds
    etcds[0].kill()
    await running.flows(BACK_S)
    etcds[1].kill()
    await running.flows(BACK_S)
    leader = await leader_of(running)
    await asyncio.to_thread(running.sites.sites[leader].kill, await pid_of(running, leader, f"shard-{SHARD}"))
    await asyncio.sleep(5)
    for etcd in etcds[:2]:
        etcd.start()
    await running.flows(BACK_S)


async def register_slow(running: Campaign, chance: random.Random) -> None:
    """It stands still for 4 s, and a leader dies in the middle: answers come late, or not at all."""
    for etcd in running.sites.etcds:
        etcd.pause()
    leader = await leader_of(running)
    await asyncio.to_thread(running.sites.sites[leader].kill, await pid_of(running, leader, f"shard-{SHARD}"))
    await asyncio.sleep(4)
    for etcd in running.sites.etcds:
        etcd.resume()
    await running.flows(BACK_S)


async def disks(running: Campaign, chance: random.Random) -> None:
    """A follower whose disk is slow, one whose disk is full, and a leader whose disk is full."""
    leader = await leader_of(running)
    follower = next(site for site in running.up if site != leader)
    await chaos(running, follower, "slow-disk", f"shard-{SHARD}", "--delay", "200ms", "--for", "5s")
    await running.flows(BACK_S)
    await chaos(running, follower, "disk-full", f"shard-{SHARD}", "--for", "5s")
    await running.flows(BACK_S)
    await chaos(running, await leader_of(running), "disk-full", f"shard-{SHARD}", "--for", "5s")
    await running.flows(BACK_S)


async def rolling_restart(running: Campaign, chance: random.Random) -> None:
    """As an upgrade does it: each site is drained, stopped and started."""
    for site in list(running.up):
        broker = running.sites.sites[site]
        await asyncio.to_thread(broker.command, "node", "drain")
        running.up.remove(site)
        await asyncio.to_thread(broker.down)
        await running.flows(BACK_S)
        await running.bring_back(site)
        await running.flows(BACK_S)


async def head_of_ray_away(running: Campaign, chance: random.Random) -> None:
    """The GCS of the site that leads: messages go on without it."""
    leader = await leader_of(running)
    pid = await pid_of(running, leader, "gcs")
    await asyncio.to_thread(running.sites.sites[leader].kill, pid)
    await running.flows(BACK_S)


MATRIX: dict[str, Fault] = {
    "processes killed": processes_killed,
    "the site that leads lost": leader_site_lost,
    "the leader stands still": leader_stands_still,
    "two sites of three lost": two_sites_lost,
    "all sites lost": all_sites_lost,
    "raylet killed": raylet_killed,
    "partitioned": partitioned,
    "register away": register_away,
    "register slow": register_slow,
    "disks slow and full": disks,
    "head of Ray away": head_of_ray_away,
    "rolling restart": rolling_restart,
}
QUICK = ("processes killed", "the site that leads lost", "all sites lost")
"""What `make test` has time for."""


async def survive(running: Campaign, names: list[str], chance: random.Random) -> dict[str, float]:
    """Each of these faults, in this order; how long it took at the most, each time, until everything flowed again."""
    slowest: dict[str, float] = {}
    await running.flows(BACK_S)
    for name in names:
        running.took.clear()
        began = time.monotonic()
        try:
            await MATRIX[name](running, chance)
        except GateFailed as error:
            raise GateFailed(f"{name}, after {time.monotonic() - began:.0f} s: {error}") from None
        slowest[name] = max(running.took)
        print(f"{name}: {time.monotonic() - began:.0f} s, flowed again within {slowest[name]:.1f} s", flush=True)
    return slowest


__all__ = ["MATRIX", "QUICK", "survive"]
