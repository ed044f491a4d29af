"""The servers of two sites on one event loop, linked over TCP: gateways and session actors as they run, who leads a shard as the test says.

What replication does is left out: both sites open the same store, one after the other.  So a shard that moves has all that was committed,
as a copy that takes over has, and nothing else.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from actors.endpoints import Endpoint
from actors.gateway import GatewayServer
from actors.links import LinkServer
from actors.session import SessionServer
from actors.shard import ShardServer
from actors.sites.whereabouts import LedBy, SiteAt, Sites, tell_sites
from actors.topology import RayPlan, SitesPlan, Topology, write_whole
from actors.wire import Wire
from config.dump import dump_json
from config.load import load
from shards.slots import SlotTable
from tests.actors.one_loop import PATIENT_MS, free_port

N_SHARDS = 2
PATIENCE_S = 60
HOSTS = {"a" * 16: "127.0.0.2", "b" * 16: "127.0.0.3"}
A, B = HOSTS
_PORTS = 1 + 2 * N_SHARDS + 1


def _free_ports(host: str) -> int:
    """The first of as many as a site has, one after the other."""
    while True:
        with socket.socket() as first:
            first.bind((host, 0))
            port: int = first.getsockname()[1]
        if port + _PORTS < 65536 and all(_is_free(host, port + offset) for offset in range(_PORTS)):
            return port


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) != 0


class Site:
    """One of them; port: where its gateway listens for clients."""

    def __init__(self, site: str, data_dir: Path, store_dir: Path) -> None:
        self.site = site
        self.port = free_port()
        self.first_port = _free_ports(HOSTS[site])
        self._run = tempfile.TemporaryDirectory(prefix="hf")
        sets = (f"listeners.tcp.bind=127.0.0.1:{self.port}", "gateway.connect_timeout=60s", "access.deadline=60s")
        self.topology = Topology(
            data_dir=data_dir, run_dir=Path(self._run.name), site=site, incarnation=1, secret=b"secret",
            config_json=dump_json(load(sets=sets, environ={})), store_dir=store_dir, n_shards=N_SHARDS, n_sessions=N_SHARDS, n_gateways=1,
            ray=RayPlan("local", "holdfast-test", False, 8265, 100 << 20),
            sites=SitesPlan(2, 2, HOSTS[site], self.first_port),
        )  # fmt: skip
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())
        self.sessions = [SessionServer(self.topology, shard) for shard in range(N_SHARDS)]
        self.gateway = GatewayServer(self.topology, 0)

    @property
    def at(self) -> SiteAt:
        return SiteAt(self.site, HOSTS[self.site], self.first_port, 1, up=True)

    def serves(self, shard: int) -> bool:
        return self.sessions[shard]._serving is not None

    async def start(self) -> None:
        for session in self.sessions:
            await session.start()
        await self.gateway.start()

    async def stop(self) -> None:
        await self.gateway.stop()
        for session in self.sessions:
            await session.stop()
        self._run.cleanup()


class TwoSites:
    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self.sites = {site: Site(site, data_dir, data_dir / "shards") for site in HOSTS}
        self.epochs = [0] * N_SHARDS
        self.leaders: dict[int, str] = {}
        self.there = dict(self.sites)
        self._shards: dict[int, tuple[ShardServer, LinkServer]] = {}

    async def __aenter__(self) -> TwoSites:
        for shard in range(N_SHARDS):
            await self.lead(shard, A)
        self.tell(*HOSTS)
        await asyncio.gather(*(site.start() for site in self.sites.values()))
        for site in self.sites.values():
            state = site.gateway._core._state
            state.options = replace(state.options, home_wait_ms=PATIENT_MS, suback_wait_ms=PATIENT_MS)
        await until(self.settled)
        return self

    def settled(self) -> bool:
        """Every gateway is linked with everybody, and each shard's sessions are served where it is led and nowhere else."""
        linked = all(site.gateway._links.linked and site.gateway._core.ready() for site in self.sites.values())
        return linked and all(
            site.serves(shard) == (leader == name) for name, site in self.sites.items() for shard, leader in self.leaders.items()
        )

    async def lead(self, shard: int, site: str) -> None:
        """It is led there from now on.  Nobody is told."""
        await self.nobody_leads(shard)
        server = ShardServer(replace(self.sites[site].topology, sites=None), shard)
        await server.start()
        topology = self.sites[site].topology
        at = Endpoint(host=HOSTS[site], port=self.sites[site].first_port + 1 + shard)
        links = LinkServer([at], server, Wire.of(topology), "shard", f"shard-{shard}:{site}")
        await links.start()
        self._shards[shard] = server, links
        self.leaders[shard] = site
        self.epochs[shard] += 1

    async def nobody_leads(self, shard: int) -> None:
        if shard in self._shards:
            server, links = self._shards.pop(shard)
            await links.stop()
            await server.stop()
            del self.leaders[shard]

    def tell(self, *sites: str) -> None:
        """The processes of these sites are told what is so now."""
        leads = {shard: LedBy(self.epochs[shard], self.leaders.get(shard, "")) for shard in range(N_SHARDS)}
        for site in sites:
            known = {name: each.at for name, each in self.there.items()}
            tell_sites(self.sites[site].topology.run_dir, Sites(site, N_SHARDS, known, leads))

    async def __aexit__(self, *_: object) -> None:
        for site in self.sites.values():
            await site.stop()
        for shard in range(N_SHARDS):
            await self.nobody_leads(shard)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def at_home_in(shard: int, word: str) -> str:
    """A client id that begins so and is at home there."""
    slots = SlotTable.initial(N_SHARDS)
    return next(name for name in (f"{word}{number}" for number in range(1000)) if slots.shard_of(name.encode()) == shard)
