"""Processes of replicas end at each step of what they write: ``python -m tests.actors.replica.walk [POINT ...]``, or all of them.

Three processes over real logs and stores, a producer that never waits, and for each point of fail_points.py: it is brought about, the
process ends there, by turns what was not synced is gone with it as after a power cut, it is started again, and the producer goes on.
After each situation all are killed, and what was acknowledged is there once, in order, in copies that are equal, entry by entry.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

from actors.replica.copy import DAMAGED, LOG
from actors.sites.keys import shard_key
from shards.replication.configuration import Configuration, site_of
from shards.replication.ports import Outcome
from shards.replication.promise import PROMISE_FILE
from shards.replication.register import Held, Register
from tests.actors.replica.fail_points import POINTS, FailPoint, NoSuchPoint, Situation, chosen
from tests.actors.replica.three_sites import NAMES, Producer, Site, ThreeSites, check_disks
from tests.faultdisk.control import FaultDisk
from tests.faultdisk.forget import forget_unsynced
from tests.sites.copies import unequal

MET_S = 40.0
"""Until a process has come to where it ends."""
MANY, LARGE = 16, 120_000
"""Messages unanswered and bytes of each, where much is to be written."""

_OPENED = b"replica.started"
"""In the log of a process that has its copy open."""
Say = Callable[[str], None]


class NotMet(AssertionError):
    """Nobody came to a point: it is not where the table says."""


class Watched(Site):
    """On a disk that ends its processes.  `queue`: the points at which the next ones end, one after the other."""

    def __init__(self, name: str, directory: Path, register: str) -> None:
        super().__init__(name, directory, register)
        self.disk = FaultDisk(self.directory, directory / f"disk-{name[0]}")
        self.environment = {**os.environ, **self.disk.environment()}
        self.queue: list[tuple[FailPoint, bool]] = []
        """With whether what was not synced is gone then."""
        self.met = 0
        self._powerless = False

    def arm(self, points: Sequence[tuple[FailPoint, bool]]) -> None:
        """From now on."""
        self.queue = list(points)
        self._next()

    async def ended(self) -> None:
        if self.met < self.disk.deaths():
            self.met = self.disk.deaths()
            self._forget(self._powerless)
            self._next()
        await super().ended()

    def _next(self) -> None:
        if self.queue:
            point, self._powerless = self.queue.pop(0)
            assert point.op is not None
            self.disk.end_at(point.op, point.pattern, after=point.after, times=point.times)

    def _forget(self, powerless: bool) -> None:
        if powerless:
            forget_unsynced(self.disk.root, self.disk.log)
            # What is left is on the disk, and nobody has it open.
            self.disk.log.write_bytes(b"")


class Interposed:
    """The register, and the process that asks it ends before its change of the record is made, or when it is made and not answered."""

    def __init__(self, register: Register, sites: WatchedSites) -> None:
        self._register = register
        self._sites = sites
        self.point: FailPoint | None = None

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        point = self.point
        if point is None or key != shard_key(0):
            return await self._register.cas(key, version, new)
        self.point = None
        asker = self._sites.sites[site_of(Configuration.unpack(new).leader)]
        outcome = await self._register.cas(key, version, new) if point.after else Outcome.UNKNOWN
        asker.kill()
        return outcome

    async def read(self, key: str) -> Held | None:
        return await self._register.read(key)

    async def list(self, prefix: str) -> dict[str, Held]:
        return await self._register.list(prefix)

    async def close(self) -> None:
        await self._register.close()


class WatchedSites(ThreeSites):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, Watched)

    def asked(self, register: Register) -> Register:
        self.interposed = Interposed(register, self)
        return self.interposed

    def watched(self, leads: bool) -> Watched:
        leader = self.leader()
        site = next(each for each in self.sites.values() if (each is leader) == leads)
        assert isinstance(site, Watched)
        return site

    def others(self, site: Site) -> list[Watched]:
        return [each for each in self.sites.values() if isinstance(each, Watched) and each is not site]


class Walk:
    """Through points of one situation, one after the other."""

    def __init__(self, sites: WatchedSites, producer: Producer, chance: random.Random) -> None:
        self._sites = sites
        self._producer = producer
        self._chance = chance

    async def through(self, situation: Situation, points: dict[str, FailPoint]) -> None:
        """Whoever is to end has ended at each of them, and everybody is in sync again.  Raises NotMet."""
        match situation:
            case "a checkpoint comes":
                await self._checkpoint_comes(points)
            case "a copy is erased and made":
                await self._erased(points)
            case "a damaged copy":
                await self._damaged(points)
            case _:
                for name, point in points.items():
                    await self._one(name, point)
                    await self._whole()

    async def _whole(self) -> None:
        self._producer.grow(8, 100)
        await self._producer.reaches(20)
        await self._sites.in_sync()

    def _cut(self, points: dict[str, FailPoint]) -> list[tuple[FailPoint, bool]]:
        return [(point, self._chance.random() < 0.5) for point in points.values()]

    async def _one(self, name: str, point: FailPoint) -> None:
        sites, points = self._sites, {name: point}
        site = sites.watched(point.situation in ("a leader at work", "much is written", "a checkpoint is made"))
        match point.situation:
            case "a follower at work" | "a leader at work":
                async with self._meets(site, points):
                    pass
            case "opened again":
                # Something that no sync has covered is there now and then only: with so many starts it is.
                async with self._meets(site, points) as over:
                    while not over():
                        await self._producer.reaches(5)
                        await self._opened_again(site, over)
            case "much is written":
                async with self._meets(site, points):
                    self._producer.grow(MANY, LARGE)
            case "a leader is followed":
                async with self._meets(site, points) as over:
                    while not over():
                        sites.watched(True).kill()
                        await asyncio.sleep(5)
            case "behind another leader":
                await self._behind_another(points)
            case "a checkpoint is made":
                away = await self._left_behind()
                async with self._meets(sites.watched(True), points):
                    away.keep()
            case "the register is changed":
                await self._register_changed(name, point)
            case _:
                raise AssertionError(point.situation)

    @asynccontextmanager
    async def _meets(self, site: Watched, points: dict[str, FailPoint]) -> AsyncIterator[Callable[[], bool]]:
        """At the end this site has met all of them.  What is given says whether it has."""
        wanted = site.disk.deaths() + len(points)
        site.arm(self._cut(points))
        yield lambda: site.disk.deaths() >= wanted
        deadline = time.monotonic() + MET_S
        last = site.disk.deaths()
        while site.disk.deaths() < wanted:
            await asyncio.sleep(0.02)
            if site.disk.deaths() > last:
                last, deadline = site.disk.deaths(), time.monotonic() + MET_S
            if time.monotonic() > deadline:
                site.disk.end_nowhere()
                raise NotMet(f"nobody came to {list(points)[len(points) - (wanted - last)]!r} within {MET_S:.0f} s")

    async def _opened_again(self, site: Watched, over: Callable[[], bool]) -> None:
        """Killed, and opened, however long a start takes on a busy machine; or it ends where it is to end."""
        opened, began = site.log.read_bytes().count(_OPENED), time.monotonic()
        site.kill()
        while site.log.read_bytes().count(_OPENED) == opened and not over():
            await asyncio.sleep(0.02)
            if time.monotonic() > began + MET_S:
                raise NotMet(f"{site.name} was not opened again within {MET_S:.0f} s")

    async def _behind_another(self, points: dict[str, FailPoint]) -> None:
        """It has entries that nobody else has, and another one has led since."""
        former = self._sites.watched(True)
        others = self._sites.others(former)
        last = former.says()["last"]
        await asyncio.gather(*(each.down() for each in others))
        await asyncio.sleep(0.3)
        await former.down()
        for each in others:
            each.keep()
        await self._producer.reaches(20)
        async with self._meets(former, points):
            former.keep()
        assert last > 0

    async def _left_behind(self) -> Watched:
        """A site that is away, and needs what the log has no more."""
        away = self._sites.watched(False)
        await away.down()
        self._producer.grow(MANY, LARGE)
        await self._producer.reaches(320)
        self._producer.grow(8, 100)
        return away

    async def _checkpoint_comes(self, points: dict[str, FailPoint]) -> None:
        """One behind the other: each leaves the copy where the next one can be met."""
        away = await self._left_behind()
        async with self._meets(away, points):
            away.keep()
        await self._whole()

    async def _register_changed(self, name: str, point: FailPoint) -> None:
        self._sites.interposed.point = point
        self._sites.watched(True).kill()
        deadline = time.monotonic() + MET_S
        while self._sites.interposed.point is not None:
            await asyncio.sleep(0.02)
            if time.monotonic() > deadline:
                raise NotMet(f"nobody came to {name!r} within {MET_S:.0f} s")

    async def _erased(self, points: dict[str, FailPoint]) -> None:
        """Its site is to have no copy, and then one again: each time from a copy that is whole."""
        for name, point in points.items():
            site = self._sites.watched(False)
            async with self._meets(site, {name: point}):
                await self._sites.target(*(each.name for each in self._sites.others(site)))
            await self._sites.target(*NAMES)
            await self._whole()

    async def _damaged(self, points: dict[str, FailPoint]) -> None:
        """One behind the other; the copy that is made in the end joins when its site has left."""
        site = self._sites.watched(False)
        await site.down()
        shutil.rmtree(site.directory / "shards" / "0" / DAMAGED, ignore_errors=True)
        (site.directory / "shards" / "0" / LOG / PROMISE_FILE).write_bytes(b"nonsense")
        async with self._meets(site, points):
            site.keep()
        await self._sites.target(*(each.name for each in self._sites.others(site)))
        await self._sites.target(*NAMES)
        await self._whole()


async def walk(directory: Path, names: Sequence[str], chance: random.Random, say: Say) -> int:
    """So many points were met.  Raises NotMet, AssertionError."""
    points = chosen(names)
    met = 0
    for situation, group in groupby(points, key=lambda name: points[name].situation):
        some = {name: points[name] for name in group}
        began = time.monotonic()
        within = directory / str(met)
        within.mkdir()
        await _one_situation(within, situation, some, chance)
        met += len(some)
        say(f"{situation}: {len(some)} points, {time.monotonic() - began:.0f} s")
        shutil.rmtree(within)
    return met


async def _one_situation(directory: Path, situation: Situation, points: dict[str, FailPoint], chance: random.Random) -> None:
    async with WatchedSites(directory) as sites, Producer(sites) as producer:
        await producer.reaches(50)
        await Walk(sites, producer, chance).through(situation, points)
        await producer.finish()
        await sites.whole()
        for site in sites.sites.values():
            await site.down()
    check_disks(sites, producer)
    found = await asyncio.to_thread(unequal, [site.directory / "shards" for site in sites.sites.values()], 0)
    assert found is None, found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.actors.replica.walk", description="Ends at each step of what a replica writes.")
    parser.add_argument("points", nargs="*", metavar="POINT", help="as fail_points.py calls them; none: all")
    parser.add_argument("--situation", default="", help="only points of this one")
    parser.add_argument("--seed", type=int, default=1, help="chooses where what was not synced is lost")
    given = parser.parse_args(arguments)
    names = given.points or [name for name, point in POINTS.items() if given.situation in ("", point.situation)]
    directory = Path(tempfile.mkdtemp(prefix="hf-walk-"))
    try:
        met = asyncio.run(walk(directory, names, random.Random(given.seed), lambda line: print(line, flush=True)))
    except NoSuchPoint as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{met} points met; nothing acknowledged is lost, nothing came twice, copies equal")
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
