"""Clients at gateways of three sites, while the processes that lead their shard are killed: the whole way, but for Ray."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from actors.gateway import GatewayServer
from actors.session import SessionServer
from actors.sites.whereabouts import SiteAt
from config.dump import dump_json
from config.load import load
from tests.actors.hand import Hand
from tests.actors.one_loop import PATIENT_MS, free_port
from tests.actors.replica.three_sites import HOSTS, NAMES, Site, ThreeSites
from tests.actors.steadfast import Steadfast, publish
from tests.actors.two_sites import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Whole(Site):
    """With a gateway and a session actor."""

    def __init__(self, name: str, directory: Path, register: str) -> None:
        super().__init__(name, directory, register)
        self.clients_port = free_port()
        sets = (f"listeners.tcp.bind=127.0.0.1:{self.clients_port}", "gateway.connect_timeout=60s", "access.deadline=60s")
        topology = replace(self.topology, n_gateways=1, config_json=dump_json(load(sets=sets, environ={})))
        self.session = SessionServer(topology, 0)
        self.gateway = GatewayServer(topology, 0)

    @property
    def at(self) -> SiteAt:
        return SiteAt(self.name, HOSTS[self.name], self.port, 1, up=True)

    async def begin(self) -> None:
        await self.session.start()
        await self.gateway.start()
        state = self.gateway._core._state
        state.options = replace(state.options, home_wait_ms=PATIENT_MS, suback_wait_ms=PATIENT_MS)

    async def end(self) -> None:
        await self.gateway.stop()
        await self.session.stop()


async def test_clients_lose_nothing_while_leaders_are_killed(tmp_path: Path) -> None:
    """Publishers, and who reads at QoS 1, stay connected; QoS 1 comes again only with DUP, QoS 2 once, in order."""
    async with ThreeSites(tmp_path, Whole) as sites:
        whole = [site for site in sites.sites.values() if isinstance(site, Whole)]
        await asyncio.gather(*(site.begin() for site in whole))
        await until(lambda: all(site.gateway._links.linked and site.gateway._core.ready() for site in whole))
        ports = [site.clients_port for site in whole]
        readers = [Steadfast(port, f"both{port}", 5) for port in ports] + [Steadfast(port, f"one{port}", 4, "t/1") for port in ports]
        reading = [asyncio.create_task(reader.run()) for reader in readers]
        for reader in readers:
            await reader.subscribed.wait()
        sent: dict[int, list[str]] = {1: [], 2: []}
        stop = asyncio.Event()
        publishers = [await Hand.connect(port, f"pub{port}", 5, clean=True, expiry_s=0) for port in ports[:2]]
        publishing = [asyncio.create_task(publish(hand, qos, sent[qos], stop)) for qos, hand in enumerate(publishers, 1)]

        async def go_on() -> None:
            before = {qos: len(each) for qos, each in sent.items()}
            await until(lambda: all(len(sent[qos]) > before[qos] + 20 for qos in sent) or any(task.done() for task in publishing))

        for stays_away in (True, False, True):
            await go_on()
            leader = sites.leader()
            assert leader is not None
            if stays_away:
                await leader.down()
            else:
                leader.kill()
            await go_on()
            leader.keep()
            await sites.in_sync()
        stop.set()
        await asyncio.gather(*publishing)
        await until(lambda: all(reader.has(sent) for reader in readers) or any(task.done() for task in reading))
        for task in reading:
            assert not task.done() or task.result() is None
            task.cancel()
        assert all(reader.has(sent) for reader in readers)
        assert [reader.connections for reader in readers[len(NAMES) :]] == [1] * len(NAMES)
        await asyncio.gather(*(site.end() for site in whole))
