"""Three sites, an etcd, real clients: a site that leads is lost, and nothing that was acknowledged is."""

from __future__ import annotations

import asyncio

import pytest

from tests.sites.campaign import campaign
from tests.sites.running import several

BACK_S = 40.0
"""Ten seconds on a machine of its own; here three brokers and their Rays share two cores with other tests."""


@pytest.mark.needs("etcd", "ray", "rocksdict")
async def test_a_site_that_leads_is_lost_and_comes_back() -> None:
    """Clients of the other sites stay connected, those of the lost one connect elsewhere; then the next one is lost."""
    async with asyncio.timeout(380), several(3) as sites, campaign(sites, "lose") as running:
        await running.flows(BACK_S)
        for _ in range(2):
            leader = await asyncio.to_thread(sites.leader_of, 0)
            await running.lose(leader)
            await running.flows(BACK_S)
            await running.bring_back(leader)
            await running.flows(BACK_S)
        await running.judge("two sites lost, one after the other")
