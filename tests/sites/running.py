"""Several sites on this machine: an etcd, and one broker for each site, each with a Ray, a data directory and ports of its own.

A site is started and ended as an operator does it (tests.broker.running); losing its node is SIGKILL to all of its processes.

What always holds: after ``close`` nothing of it is alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actors.run import read_run
from actors.sites.whereabouts import SITES_FILE, Sites
from tests.actors.register.etcds import Etcd, etcds
from tests.broker.running import QUIET_RAY, Options, RunningBroker, Status, free_run
from tests.clockshim.control import Clocks
from tests.cluster.nodes import Nodes
from tests.sites.doors import Door

NAMES = "abcdefg"


@asynccontextmanager
async def several(*args: Any, exposed: bool = False, **options: Any) -> AsyncIterator[SeveralSites]:
    """SeveralSites that are up, for who has a loop that must not wait.  exposed: each with a door to the register and clocks of its own."""
    async with contextlib.AsyncExitStack() as stack:
        sites = SeveralSites(*args, **options)
        if exposed:
            endpoints = [member.endpoint for member in sites.etcds]
            doors = [await stack.enter_async_context(Door(endpoints)) for _ in sites.sites]
            sites.expose(doors, [Clocks(sites.directory / f"clocks-{index}") for index in range(len(sites.sites))])
        await asyncio.to_thread(sites.__enter__)
        try:
            yield sites
        except BaseException as error:
            await asyncio.to_thread(sites.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(sites.__exit__, None, None, None)


class SeveralSites:
    """Made -> up -> (a site killed -> up again)* -> closed.  etcd_count 0: the register is a file on the first site.

    nodes: all sites run in this Ray cluster, each on a worker of its own; else each has a Ray of its own.
    """

    def __init__(
        self, count: int = 3, *, n_shards: int = 1, etcd_count: int = 1, more: Mapping[str, str] | None = None, nodes: Nodes | None = None
    ) -> None:
        self._stack = contextlib.ExitStack()
        self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-sites-")))
        secret = self.directory / "secret"
        secret.write_text(os.urandom(32).hex() + "\n")
        secret.chmod(0o600)
        self.etcds: list[Etcd] = self._stack.enter_context(etcds(etcd_count)) if etcd_count else []
        self.listens = [f"127.0.0.1:{free_run(2 * n_shards + 4)}" for _ in range(count)]
        shared = {
            **QUIET_RAY,
            "durable_storage.messages.n_shards": str(n_shards),
            "durable_storage.messages.n_sites": str(count),
            "durable_storage.messages.replication_factor": str(min(3, count)),
            "cluster.secret": f"file://{secret}",
            **(more or {}),
        }
        if self.etcds:
            shared["register.endpoints"] = "[" + ",".join(f'"{member.endpoint}"' for member in self.etcds) + "]"
        else:
            shared["register.single_point"] = "accepted"
            shared["register.address"] = self.listens[0]
        places: list[dict[str, str]] = [{} for _ in range(count)]
        if nodes is not None:
            places = [{"ray.address": nodes.address, "ray.temp_dir": str(each.directory)} for each in nodes.workers.values()]
        environment = {} if nodes is None else nodes.environment
        self.sites = [
            RunningBroker(Options({**shared, "cluster.listen": listen, **place}, environment=environment))
            for listen, place in zip(self.listens, places, strict=True)
        ]
        self.doors: list[Door] = []
        self.clocks: list[Clocks] = []

    def expose(self, doors: list[Door], clocks: list[Clocks]) -> None:
        """One of each for each site, before it is up."""
        self.doors, self.clocks = doors, clocks
        for site, door, own in zip(self.sites, doors, clocks, strict=True):
            settings = {**site.options.settings, "register.endpoints": f'["{door.endpoint}"]'}
            site.options = replace(site.options, settings=settings, environment={**site.options.environment, **own.environment()})

    @property
    def ports(self) -> list[int]:
        return [site.port for site in self.sites]

    def up(self) -> list[Status]:
        """All at once: none of them takes clients before all are there."""
        with ThreadPoolExecutor(len(self.sites)) as starting:
            return list(starting.map(RunningBroker.up, self.sites))

    def known_by(self, site: int) -> Sites | None:
        """What this site says of all; None when it does not run."""
        run = read_run(self.sites[site].data_dir)
        try:
            return None if run is None else Sites.from_json((run.run_dir / SITES_FILE).read_text(encoding="utf-8"))
        except OSError:
            return None

    def name_of(self, site: int) -> str:
        """Its site id."""
        known = self.known_by(site)
        assert known is not None, f"site {site} does not run"
        return known.here

    def leader_of(self, shard: int, within_s: float = 30.0) -> int:
        """The index of the site that leads this shard and runs: as the newest epoch says that any site knows of."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            known = [each for each in map(self.known_by, range(len(self.sites))) if each is not None]
            led = max((each.leads[shard] for each in known if shard in each.leads), key=lambda each: each.epoch, default=None)
            for index, site in enumerate(self.sites):
                here = self.known_by(index)
                if led is not None and here is not None and here.here == led.site and site.runs():
                    return index
            time.sleep(0.1)
        raise AssertionError(f"nobody leads shard {shard}: {[self.known_by(index) for index in range(len(self.sites))]}")

    def close(self, *, keep: bool = False) -> None:
        try:
            with ThreadPoolExecutor(len(self.sites)) as ending:
                list(ending.map(lambda site: site.close(keep=keep), self.sites))
        finally:
            self._stack.close()

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close(keep=error is not None)
        except BaseException as left:
            if error is None:
                raise
            error.add_note(str(left))
