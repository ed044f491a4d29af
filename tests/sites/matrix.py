"""The faults that a store of three sites has to survive, one after the other, under clients that live through all of them.

Each is a function of a campaign that breaks something, makes it whole again, and returns when everything flows; in between it may
require that everything flows already. What must hold in the end is the campaign's to judge, and that the copies are equal.

They need sites that are exposed (tests.sites.running) and may be broken on purpose (`chaos.enabled`). A process that ends exactly at one
step of what it writes, and a disk that forgets what was not synced, are in tests/actors/replica/fail_points.py; messages that are late,
repeated or in another order in tests/replication/simulation.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tests.broker.running import CommandFailed
from tests.gates.gate import GateFailed
from tests.sites import upgrading
from tests.sites.campaign import Campaign
from tests.sites.judging import converged

BACK_S = 40.0
"""Until everything flows, where several brokers and their Rays start on the cores that clients use too."""
LOST_S = 10.0
"""The same when one of three sites is gone, from the kill on."""
QUORUM_AWAY_S = 30.0
ANOTHER_S = 90.0
"""Until the launcher has started a Ray anew."""
COUNTED_S = 60.0
"""Until a copy that was made anew is in sync."""
HOUR_S = 3600.0
SHARD = 0
OURS = ("shard", "session", "gateway", "controller", "site")

Fault = Callable[[Campaign, random.Random], Awaitable[None]]


async def leader_of(running: Campaign) -> int:
    return await asyncio.to_thread(running.sites.leader_of, SHARD)


async def others_than_leader(running: Campaign) -> list[int]:
    leader = await leader_of(running)
    return [site for site in running.up if site != leader]


async def pid_of(running: Campaign, site: int, name: str) -> int:
    status = await asyncio.to_thread(running.sites.sites[site].status)
    for process in status.processes:
        if process.name == name:
            return process.pid
    raise GateFailed(f"site {site} lists no {name}: {[process.name for process in status.processes]}")


async def killed_and_back(running: Campaign, name: str) -> None:
    """A process of Ray, of the site that leads: everything flows, and then another one is there and everything flows still."""
    leader = await leader_of(running)
    broker = running.sites.sites[leader]
    former = await pid_of(running, leader, name)
    await asyncio.to_thread(broker.kill, former)
    await running.flows(BACK_S)
    await another(running, leader, name, former)
    await running.flows(BACK_S)


async def another(running: Campaign, site: int, name: str, former: int) -> None:
    """This site is ready, with another process of this name."""
    deadline = time.monotonic() + ANOTHER_S
    while time.monotonic() < deadline:
        with contextlib.suppress(CommandFailed):
            status = await asyncio.to_thread(running.sites.sites[site].status)
            if status.ready and any(each.name == name and each.pid != former for each in status.processes):
                return
        await asyncio.sleep(1)
    raise GateFailed(f"site {site} has no other {name} {ANOTHER_S:.0f} s after {former} was killed")


async def processes_killed(running: Campaign, chance: random.Random) -> None:
    """The leading shard process, one that follows, and any other process of a site."""
    for which in ("leader", "follower", "any", "leader"):
        leader = await leader_of(running)
        site = leader if which == "leader" else (leader + 1) % len(running.sites.sites)
        broker = running.sites.sites[site]
        status = await asyncio.to_thread(broker.status)
        names = sorted(process.name for process in status.processes if process.role in OURS)
        name = f"shard-{SHARD}" if which != "any" else chance.choice(names)
        await asyncio.to_thread(broker.kill, await pid_of(running, site, name))
        await running.flows(BACK_S)


async def leader_site_lost(running: Campaign, chance: random.Random) -> None:
    """All of the site that leads, and it comes back; then the next one."""
    for _ in range(2):
        leader = await leader_of(running)
        killed_s = await running.lose(leader)
        took_s = await running.flows(BACK_S, killed_s)
        if took_s > LOST_S:
            raise GateFailed(f"everything flowed again {took_s:.1f} s after one site of three was lost, wanted {LOST_S:.0f}")
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
    await asyncio.gather(*(running.lose(site) for site in up))
    await asyncio.gather(*(running.bring_back(site) for site in up))
    await running.flows(BACK_S)


async def eligible_comes_first(running: Campaign, chance: random.Random) -> None:
    """One after the other is lost; who was put out of the copies in sync last comes back first, then another, then the last that stood."""
    second, last = await others_than_leader(running)
    (first,) = set(running.up) - {second, last}
    await running.lose(first)
    await running.flows(BACK_S)
    await running.lose(second)
    await asyncio.sleep(5)
    await running.lose(last)
    await asyncio.gather(running.bring_back(second), running.bring_back(first))
    await running.flows(BACK_S)
    await running.bring_back(last)
    await running.flows(BACK_S)


async def stands_still(running: Campaign, name: str, seconds: float, flowing: bool) -> None:
    """A process of the site that leads gets SIGSTOP for so long.  flowing: everything flows again before it goes on."""
    leader = await leader_of(running)
    pid = await pid_of(running, leader, name)
    broker = running.sites.sites[leader]
    stopped_s = time.monotonic()
    broker.signal(pid, signal.SIGSTOP)
    try:
        if flowing:
            await running.flows(seconds, stopped_s)
        await asyncio.sleep(stopped_s + seconds - time.monotonic())
    finally:
        broker.signal(pid, signal.SIGCONT)
    await running.flows(BACK_S)


async def leader_stands_still(running: Campaign, chance: random.Random) -> None:
    """Shorter and longer than others wait for it."""
    for seconds in (1.0, 5.0, 30.0):
        await stands_still(running, f"shard-{SHARD}", seconds, seconds > BACK_S / 2)


async def raylet_stands_still(running: Campaign, chance: random.Random) -> None:
    """Long enough for its node to be given up, while its actors live on, and then it goes on beside whatever was made anew."""
    await stands_still(running, "raylet", 30.0, flowing=True)


async def raylet_killed(running: Campaign, chance: random.Random) -> None:
    """Of the site that leads: its actors live on for a while beside those that are made anew."""
    await killed_and_back(running, "raylet")


async def chaos(running: Campaign, site: int, *words: str) -> None:
    await asyncio.to_thread(running.sites.sites[site].command, "chaos", *words, "--no-oracle")


async def partitioned(running: Campaign, chance: random.Random) -> None:
    """The site that leads hears nobody of the others and nobody hears it; then one way only, and the other; then on and off."""
    for how, seconds in (("both", 8), ("out", 8), ("in", 8), ("both", 2), ("both", 2), ("both", 2)):
        leader = await leader_of(running)
        mine = await asyncio.to_thread(running.sites.name_of, leader)
        others = [site for site in running.up if site != leader]
        cuts = []
        for site in others:
            theirs = await asyncio.to_thread(running.sites.name_of, site)
            sides = [f"site-{theirs}", f"site-{mine}"] if how == "in" else [f"site-{mine}", f"site-{theirs}"]
            words = [*sides, *([] if how == "both" else ["--one-way"]), "--for", f"{seconds}s"]
            # Each side breaks its own ends.
            cuts += [chaos(running, at, "partition", *words) for at in (leader, site)]
        await asyncio.gather(*cuts)
        await running.flows(BACK_S)


async def cut_off_from_register(running: Campaign, chance: random.Random) -> None:
    """Who leads cannot ask the register and goes on; then it is killed, and another leads. A follower that cannot ask is no hindrance."""
    for killed in (False, True):
        leader = await leader_of(running)
        door = running.sites.doors[leader]
        await door.shut()
        try:
            await asyncio.sleep(5)
            if killed:
                await asyncio.to_thread(running.sites.sites[leader].kill, await pid_of(running, leader, f"shard-{SHARD}"))
            await running.flows(BACK_S)
        finally:
            door.open()
        await running.flows(BACK_S)
    follower = (await others_than_leader(running))[0]
    await running.sites.doors[follower].shut()
    try:
        await asyncio.sleep(5)
        await running.flows(BACK_S)
    finally:
        running.sites.doors[follower].open()
    await running.flows(BACK_S)


async def register_away(running: Campaign, chance: random.Random) -> None:
    """One etcd of three is killed, then two: who leads goes on. Whoever dies meanwhile is replaced when a majority is back."""
    etcds = running.sites.etcds
    etcds[0].kill()
    await running.flows(BACK_S)
    etcds[1].kill()
    lost_s = time.monotonic()
    while time.monotonic() < lost_s + QUORUM_AWAY_S:
        await running.flows(BACK_S)
        await asyncio.sleep(1)
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


async def copies_lost(running: Campaign, chance: random.Random) -> None:
    """A site that is away loses the directory of its copy, and then one finds another byte in it: each is made anew from the others, and
    counts again. Of a follower and of who leads."""
    names = [await asyncio.to_thread(running.sites.name_of, site) for site in running.up]
    for harm in (wiped, damaged):
        leader = await leader_of(running)
        for site in (chance.choice(await others_than_leader(running)), leader):
            await running.lose(site)
            await running.flows(BACK_S)
            harm(running.sites.sites[site].data_dir / "shards" / str(SHARD), chance)
            await running.bring_back(site)
            await running.flows(BACK_S)
            await converged(running.sites, site, names, COUNTED_S)


def wiped(copy: Path, chance: random.Random) -> None:
    shutil.rmtree(copy)


def damaged(copy: Path, chance: random.Random) -> None:
    """One byte somewhere in the first half of its newest segment: in the last record it could be taken for a write that was cut off."""
    segment = max((copy / "log").glob("*.seg"), key=lambda path: path.name)
    place = chance.randrange(segment.stat().st_size // 2)
    with segment.open("r+b") as file:
        file.seek(place)
        found = file.read(1)[0]
        file.seek(place)
        file.write(bytes([found ^ chance.randrange(1, 256)]))


async def rolling_upgrade(running: Campaign, chance: random.Random) -> None:
    """To a release that there is not, which those that come after it in the table then meet."""
    await upgrading.rolling_upgrade(running)


async def head_of_ray_away(running: Campaign, chance: random.Random) -> None:
    """The GCS of the site that leads: messages go on without it."""
    await killed_and_back(running, "gcs_server")


async def clocks_jump(running: Campaign, chance: random.Random) -> None:
    """An hour forth and an hour back, of the site that leads, of another, and of all."""
    leader = await leader_of(running)
    clocks = running.sites.clocks
    other = next(site for site in running.up if site != leader)
    for moved in ([clocks[leader]], [clocks[other]], clocks):
        for seconds in (HOUR_S, -2 * HOUR_S, HOUR_S):
            for each in moved:
                each.step(seconds)
            await asyncio.sleep(1)
            await running.flows(BACK_S)


MATRIX: dict[str, Fault] = {
    "processes killed": processes_killed,
    "the site that leads lost": leader_site_lost,
    "the leader stands still": leader_stands_still,
    "two sites of three lost": two_sites_lost,
    "all sites lost": all_sites_lost,
    "the eligible one comes first": eligible_comes_first,
    "raylet killed": raylet_killed,
    "raylet stands still": raylet_stands_still,
    "partitioned": partitioned,
    "cut off from the register": cut_off_from_register,
    "register away": register_away,
    "register slow": register_slow,
    "disks slow and full": disks,
    "copies lost and damaged": copies_lost,
    "head of Ray away": head_of_ray_away,
    "clocks jump": clocks_jump,
    "rolling restart": rolling_restart,
    "rolling upgrade": rolling_upgrade,
}
QUICK = ("processes killed", "the site that leads lost", "all sites lost")
"""What `make test` has time for."""


async def survive(running: Campaign, names: Sequence[str], chance: random.Random) -> dict[str, float]:
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
