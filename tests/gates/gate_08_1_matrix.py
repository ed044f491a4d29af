"""Gate 1 of issue 8: the matrix of faults, on one machine: nothing acknowledged is lost, and the copies are equal.

Three sites with a Ray each, three etcds, durable sessions and publishers at QoS 1 and 2 that move between the sites' gateways. The faults
of tests/sites/matrix.py follow each other; quick: those that `make test` has time for. At the end the sites are stopped and their logs are
compared, entry by entry. One site of three that is lost is made up for within ten seconds, or the gate fails. Then three sites in one Ray
cluster lose nodes, a raylet and the head (tests/sites/one_ray.py), and processes of a replica end at each step of what they write, before
it and after it (tests/actors/replica/fail_points.py).
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.actors.replica.fail_points import POINTS
from tests.actors.replica.walk import walk
from tests.gates.gate import GateFailed, Scale
from tests.sites.campaign import campaign
from tests.sites.copies import unequal
from tests.sites.matrix import MATRIX, QUICK, survive
from tests.sites.one_ray import survive_in_one_ray
from tests.sites.running import SeveralSites, several

LIMIT_S = 5400


@dataclass(frozen=True, slots=True)
class Figures:
    """slowest: seconds until everything flowed again, at the most, by fault.  points: of fail_points.py that were met."""

    acknowledged: int
    delivered: int
    judged: str
    slowest: dict[str, float]
    points: int


async def require_equal_copies(sites: SeveralSites) -> None:
    """Stops them."""
    for site in sites.sites:
        await asyncio.to_thread(site.down)
    stores = [site.data_dir / "shards" for site in sites.sites]
    found = await asyncio.to_thread(unequal, stores, 0)
    if found is not None:
        raise GateFailed(found)


async def matrix(names: Sequence[str], chance: random.Random, *, whole: bool) -> Figures:
    """These faults in this order, in a store of their own.  whole: and what is no fault of that table."""
    async with several(3, etcd_count=3, exposed=True, more={"chaos.enabled": "true"}) as sites:
        async with campaign(sites, "g81") as running:
            slowest = await survive(running, names, chance)
            judged = await running.judge(f"after {', '.join(names)}")
            counts = running.history.acknowledged_count(), running.history.delivery_count()
        await require_equal_copies(sites)
    if not whole:
        return Figures(*counts, judged, slowest, 0)
    print(in_one_ray := await survive_in_one_ray(), flush=True)
    with tempfile.TemporaryDirectory(prefix="hf-walk-") as directory:
        points = await walk(Path(directory), list(POINTS), chance, lambda line: print(line, flush=True))
    return Figures(*counts, f"{judged}; {in_one_ray}", slowest, points)


async def run(scale: Scale) -> str:
    found = await matrix(list(QUICK if scale.quick else MATRIX), random.Random(81), whole=not scale.quick)
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found.slowest.items())
    ends = f"; {found.points} ends of a replica's process at a step of a write" if found.points else ""
    return f"{len(found.slowest)} faults; {found.judged}; copies equal{ends}; seconds until everything flowed again, at the most: {times}"
