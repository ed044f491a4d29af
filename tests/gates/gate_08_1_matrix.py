"""Gate 1 of issue 8: the matrix of faults, on one machine: nothing acknowledged is lost, and the copies are equal.

Three sites with a Ray each, three etcds, durable sessions and publishers at QoS 1 and 2 that move between the sites' gateways. The faults
of tests/sites/matrix.py follow each other; quick: those that `make test` has time for. At the end the sites are stopped and their logs are
compared, entry by entry. Then three sites in one Ray cluster lose nodes, a raylet and the head (tests/sites/one_ray.py).
"""

from __future__ import annotations

import asyncio
import random

from tests.gates.gate import GateFailed, Scale
from tests.sites.campaign import campaign
from tests.sites.copies import unequal
from tests.sites.matrix import MATRIX, QUICK, survive
from tests.sites.one_ray import survive_in_one_ray
from tests.sites.running import SeveralSites, several

LIMIT_S = 3600


async def require_equal_copies(sites: SeveralSites) -> None:
    """Stops them."""
    for site in sites.sites:
        await asyncio.to_thread(site.down)
    stores = [site.data_dir / "shards" for site in sites.sites]
    found = await asyncio.to_thread(unequal, stores, 0)
    if found is not None:
        raise GateFailed(found)


async def run(scale: Scale) -> str:
    names = list(QUICK if scale.quick else MATRIX)
    async with several(3, etcd_count=3, more={"chaos.enabled": "true"}) as sites:
        async with campaign(sites, "g81") as running:
            slowest = await survive(running, names, random.Random(81))
            judged = await running.judge(f"after {', '.join(names)}")
        await require_equal_copies(sites)
    if not scale.quick:
        judged = f"{judged}; {await survive_in_one_ray()}"
    times = ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest.items())
    return f"{len(names)} faults; {judged}; copies equal; seconds until everything flowed again, at the most: {times}"
