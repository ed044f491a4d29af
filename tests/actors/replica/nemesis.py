"""What happens to three sites in a campaign: each function is one stretch of a world that fails, and mends everything it has done.

Each takes its moments and its victims from a random.Random, so that one seed gives one plan; when what happens is the machine's.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.actors.replica.faulty_sites import FaultySite, FaultySites
from tests.actors.replica.line import Line
from tests.actors.replica.three_sites import Producer

SMALL, LARGE, HUGE = (8, 100), (24, 40_000), (16, 400_000)
"""(unanswered publishes, bytes of each)."""
APPEARS_S, CHANGES_S, CHANGE_S = 10.0, 10.0, 0.5
"""So long a checkpoint is waited for, then its end, and then each change that it makes to the directory."""


@dataclass(frozen=True, slots=True)
class World:
    sites: FaultySites
    producer: Producer
    rng: Random

    async def passes(self, least_s: float, most_s: float) -> None:
        await asyncio.sleep(self.rng.uniform(least_s, most_s))

    async def led(self) -> tuple[FaultySite, list[FaultySite]]:
        """The leader and the others."""
        async with asyncio.timeout(30):
            while (leader := self.sites.leading()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        others = [site for site in self.sites.faulty.values() if site is not leader]
        self.rng.shuffle(others)
        return leader, others

    def some(self) -> list[FaultySite]:
        """One, two or all."""
        return self.rng.sample(list(self.sites.faulty.values()), self.rng.randint(1, 3))


async def killed(world: World) -> None:
    """Processes end, and come back sooner or later."""
    for site in world.some():
        site.fell(world.rng.choice((0.0, world.rng.uniform(0, 4))))
        await world.passes(0, 0.3)


async def without_power(world: World) -> None:
    """Disks are slow, and the power goes, of all at once as a rule; each is back at another time, the leader last as often as not."""
    leader, others = await world.led()
    last = world.rng.random() < 0.5
    for site in others if last else world.some():
        site.disk.delay_syncs(world.rng.randrange(50_000, 300_000))
    await world.passes(0.5, 2)
    for site in (leader, *others) if last or world.rng.random() < 0.5 else world.some():
        most_s = 1 if last and site is not leader else 5
        site.fell(
            world.rng.uniform(3, 5) if last and site is leader else world.rng.choice((0.0, world.rng.uniform(0, most_s))), power=False
        )
    for site in world.sites.faulty.values():
        site.disk.delay_syncs(0)


async def stood_still(world: World) -> None:
    """A process is stopped, mostly the leader's, for less or more than it takes to be replaced; what it said last arrives late."""
    leader, others = await world.led()
    site = world.rng.choice((leader, leader, others[0]))
    said = [world.sites.lines[site.name, other.name] for other in world.sites.faulty.values() if other is not site]
    for line in said:
        line.hold()
    try:
        await world.passes(0, 0.4)
        world.sites.happened["stopped"] += 1
        site.send(signal.SIGSTOP)
        await world.passes(*world.rng.choice(((0.5, 2.3), (2.3, 4.4), (2.3, 4.4))))
        if world.rng.random() < 0.5:
            site.send(signal.SIGCONT)
            await world.passes(0, 0.3)
    finally:
        for line in said:
            line.let_go()
        await world.passes(0, 0.3)
        site.send(signal.SIGCONT)


async def cut_off(world: World) -> None:
    """The leader is heard by nobody and hears nobody, long enough for another to lead; what it said meanwhile arrives late or in part."""
    leader, others = await world.led()
    lines = [world.sites.lines[pair] for site in others for pair in ((leader.name, site.name), (site.name, leader.name))]
    await _held(world, lines, 2.5, 8)


async def one_way(world: World) -> None:
    """One site is not heard by one or two others, for a while."""
    here, *there = world.rng.sample(list(world.sites.faulty.values()), world.rng.randint(2, 3))
    await _held(world, [world.sites.lines[here.name, site.name] for site in there], 0.5, 4.5)


async def no_register(world: World) -> None:
    """The register does not hear one or two sites, and hears late what they have proposed; meanwhile something else ends."""
    asking = world.rng.sample(list(world.sites.faulty.values()), world.rng.randint(1, 2))
    for site in asking:
        site.asks.hold()
    try:
        await world.passes(0, 1)
        world.some()[0].fell(world.rng.uniform(0, 3))
        await world.passes(1, 4)
    finally:
        for site in asking:
            site.asks.let_go()
    world.sites.happened["register away"] += 1


async def said_again(world: World) -> None:
    """What the leader has said a moment ago is heard once more; then it ends, as often as not."""
    world.producer.grow(*LARGE)
    await world.producer.reaches(30)
    leader, others = await world.led()
    for _ in range(world.rng.randint(1, 4)):
        await world.passes(0.1, 0.4)
        for site in others:
            world.sites.lines[leader.name, site.name].say_again(world.rng)
            world.sites.happened["said again"] += 1
    if world.rng.random() < 0.5:
        leader.fell(world.rng.uniform(3, 5))
        await world.passes(0, 1)
    world.producer.grow(*SMALL)


async def behind(world: World) -> None:
    """A site is away for longer than the log goes back; on its slow disk a checkpoint takes its place, and it ends there, several times."""
    _, (site, _) = await world.led()
    await site.down()
    world.producer.grow(*HUGE)
    await world.producer.reaches(120)
    world.producer.grow(*SMALL)
    site.keep()
    for _ in range(4):
        site.disk.delay_syncs(20_000)
        if not await _installing(world, site):
            break
        site.fell(0.0, power=world.rng.random() < 0.5)
        world.sites.happened["ended installing"] += 1
    site.disk.delay_syncs(0)


async def _held(world: World, lines: list[Line], least_s: float, most_s: float) -> None:
    for line in lines:
        line.hold()
    try:
        await world.passes(least_s, most_s)
        if world.rng.random() < 0.3:
            for line in lines:
                line.tear(world.rng)
    finally:
        for line in lines:
            line.let_go()
    world.sites.happened["held"] += 1


async def _installing(world: World, site: FaultySite) -> bool:
    """Until a checkpoint comes, or has come and has changed so much in the directory of the copy; False: none comes."""
    path = site.directory / "shards" / "0"
    # What the process before this one has left goes when the copy is opened.
    await _seen(lambda: not (path / "new.tmp").exists(), APPEARS_S)
    if not await _seen(lambda: (path / "new.tmp").exists(), APPEARS_S):
        return False
    if world.rng.random() < 0.2:
        await world.passes(0, 0.4)
        return True
    await _seen(lambda: not (path / "new.tmp").exists(), CHANGES_S)
    for _ in range(world.rng.randrange(12)):
        before = _names(path)
        if not await _seen(lambda before=before: _names(path) != before, CHANGE_S):  # type: ignore[misc]
            break
    return True


def _names(path: Path) -> list[str]:
    """Of a directory and that of the data in it."""
    try:
        return sorted(os.listdir(path)) + sorted(os.listdir(path / "data"))
    except FileNotFoundError:
        return []


async def _seen(true: Callable[[], bool], within_s: float) -> bool:
    until_s = asyncio.get_running_loop().time() + within_s
    while not true():
        if asyncio.get_running_loop().time() > until_s:
            return False
        await asyncio.sleep(0.001)
    return True


Stretch = Callable[[World], Awaitable[None]]
ALL: tuple[Stretch, ...] = (killed, without_power, stood_still, cut_off, one_way, no_register, said_again, behind)
