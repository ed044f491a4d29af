"""A campaign over three shard processes: everything of nemesis in an order of the seed, under a producer that never waits, then the disks.

What is checked: no process meets what no fault of the world leads to; after each stretch messages are acknowledged again and all copies
come into sync; in the end everything acknowledged is in all of them, once, in its order, and the copies are equal, rows and logs, entry by
entry.  So whatever was answered is in the log.

`python -m tests.actors.replica.campaign --seeds 10` runs so many; `--planted` the first seed that finds each planted fault; `--seed 3
--fault "no epoch check"` one.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import structlog

from shards.engine import StoreFailed
from tests.actors.replica import nemesis
from tests.actors.replica.faulty_sites import FaultySites
from tests.actors.replica.planted import FIVE
from tests.actors.replica.three_sites import Producer, check_disks
from tests.hunting import Misfit
from tests.sites.copies import unequal

FLOWS_S, IN_SYNC_S = 45, 60
"""After what has happened was mended."""
SEEDS_MAX = 12
"""Within so many each planted fault is found."""


class Ended(NamedTuple):
    """why: what was wrong; empty: nothing.  planted: something of the fault was run."""

    why: str
    planted: bool
    acknowledged: int
    happened: Counter[str]
    seconds: float

    def __str__(self) -> str:
        happened = ", ".join(f"{what} {times}" for what, times in sorted(self.happened.items()))
        return f"{self.acknowledged} acknowledged in {self.seconds:.0f} s; {happened}"


class Broken(Exception):
    """A promise."""


async def run(seed: int, fault: str = "", stretches: Sequence[nemesis.Stretch] = nemesis.ALL, keep: bool = False) -> Ended:
    """keep: the directory, when something was wrong."""
    directory = Path(tempfile.mkdtemp(prefix="hf-"))
    ended = await _run(directory, seed, fault, stretches)
    if keep and ended.why:
        print(f"kept in {directory}", flush=True)
    else:
        shutil.rmtree(directory, ignore_errors=True)
    return ended


async def found(fault: str, seeds: Sequence[int], stretches: Sequence[nemesis.Stretch] = nemesis.ALL) -> tuple[int, str]:
    """The first of these seeds that finds it, and how; -1: none.  Raises Misfit when nothing of it was run, and what a campaign itself
    raises: that is no catch."""
    ran = False
    for seed in seeds:
        ended = await run(seed, fault, stretches)
        ran = ran or ended.planted
        if ended.why and ended.planted:
            return seed, ended.why
    if not ran:
        raise Misfit(f"{fault}: nothing of it was run")
    return -1, "not found"


async def _run(directory: Path, seed: int, fault: str, stretches: Sequence[nemesis.Stretch]) -> Ended:
    began_s = time.monotonic()
    rng = Random(seed)
    sites = FaultySites(directory, fault)
    acknowledged, why = 0, ""
    try:
        async with sites:
            async with Producer(sites) as producer:
                try:
                    await _through(nemesis.World(sites, producer, rng), rng.sample(list(stretches), len(stretches)))
                finally:
                    acknowledged = len(producer.acknowledged)
            for site in sites.faulty.values():
                await site.down()
        await asyncio.to_thread(check_disks, sites, producer)
        if told := await asyncio.to_thread(unequal, [site.directory / "shards" for site in sites.faulty.values()], 0):
            raise Broken(told)
    except (Broken, AssertionError, TimeoutError, StoreFailed) as error:
        why = sites.wrong() or (str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}")
    planted = any(site.planted for site in sites.faulty.values())
    return Ended(why or sites.wrong(), planted, acknowledged, sites.happened, time.monotonic() - began_s)


async def _through(world: nemesis.World, stretches: Sequence[nemesis.Stretch]) -> None:
    for stretch in stretches:
        await world.producer.reaches(world.rng.randrange(20, 200), FLOWS_S)
        await stretch(world)
        await _mended(world, stretch.__name__)
    await _within(world, "everything is answered", world.producer.finish(), FLOWS_S)
    await _within(world, "all copies are equal", world.sites.whole(), IN_SYNC_S)


async def _mended(world: nemesis.World, after: str) -> None:
    await _within(world, f"after {after} messages are acknowledged", world.producer.reaches(20, FLOWS_S), FLOWS_S)
    await _within(world, f"after {after} all copies are in sync", world.sites.in_sync(IN_SYNC_S), IN_SYNC_S)


async def _within(world: nemesis.World, what: str, awaited: Coroutine[Any, Any, None], limit_s: float) -> None:
    """Raises Broken as soon as something is wrong."""
    task = asyncio.get_running_loop().create_task(awaited)
    until_s = time.monotonic() + limit_s
    try:
        while not task.done() and time.monotonic() < until_s:
            await asyncio.wait([task], timeout=1)
            if wrong := world.sites.wrong():
                raise Broken(wrong)
        if not task.done():
            raise TimeoutError
        task.result()
    except TimeoutError:
        raise Broken(f"not within {limit_s:g} s: {what}") from None
    finally:
        task.cancel()


async def _hunt(faults: Sequence[str], seeds: Sequence[int]) -> int:
    missed = 0
    for fault in faults:
        seed, why = await found(fault, seeds)
        missed += seed < 0
        print(f"{seed:>4}  {fault}: {why}", flush=True)
    return min(1, missed)


def main(words: list[str]) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    parser = argparse.ArgumentParser(description="campaigns over three shard processes")
    parser.add_argument("--seed", type=int, help="one")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--fault", default="", help="planted in all three")
    parser.add_argument("--planted", action="store_true", help="the first seed that finds each planted fault")
    parser.add_argument("--only", default="", help="this stretch alone")
    asked = parser.parse_args(words)
    if asked.planted:
        faults = [fault.name for fault in FIVE if asked.fault in fault.name]
        return asyncio.run(_hunt(faults, range(asked.first, asked.first + SEEDS_MAX)))
    stretches = [each for each in nemesis.ALL if asked.only in each.__name__]
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    failures = 0
    for seed in seeds:
        ended = asyncio.run(run(seed, asked.fault, stretches, keep=True))
        failures += bool(ended.why)
        print(f"{seed:>4}  {'FAIL ' + ended.why + '; ' if ended.why else ''}{ended}", flush=True)
    return min(1, failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
