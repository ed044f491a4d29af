"""One of three sites alone: `up --detach` leaves it running, for the others to come."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.sites.running import SeveralSites

BEGUN_S = 60.0


@pytest.mark.needs("ray", "rocksdict")
async def test_a_site_that_waits_for_others_is_left_running() -> None:
    """If it ended, sites that are started one after the other would never meet."""

    def alone() -> None:
        sites = SeveralSites(3, etcd_count=0)
        try:
            first = sites.sites[0]
            said = first.begin("--within", "1")
            assert "Holdfast runs, and goes on starting, as one of several sites: no CONNECT succeeded within 1 s" in said
            deadline = time.monotonic() + BEGUN_S
            while not any(process.role == "site" for process in first.status().processes) and time.monotonic() < deadline:
                time.sleep(0.2)
            status = first.status()
            assert any(process.role == "site" for process in status.processes) and not status.ready
        finally:
            sites.close()

    async with asyncio.timeout(120):
        await asyncio.to_thread(alone)
