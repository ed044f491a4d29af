"""Site processes of one cluster on one loop, each at an address of its own, with a real register; their replicas are played."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.register.chosen import asked_register
from actors.sites.formats import KNOWN, Known
from actors.sites.keys import copy_key, shard_key
from actors.sites.server import SiteServer
from actors.sites.whereabouts import SITES_FILE, Sites
from actors.topology import RayPlan, SitesPlan, Topology, write_whole
from actors.wire import Wire
from config.dump import dump_json
from config.load import load
from shards.replication.configuration import Configuration, Rid, rid_of
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import NO_VALUE, Register
from tests.actors.one_loop import free_port

LOOK_S = 0.02
PATIENCE_S = 30.0
SECRET = b"of the cluster"


def site_id(number: int) -> str:
    return f"{number:x}" * 16


@contextmanager
def topologies(directory: Path, count: int, n_shards: int = 2, factor: int = 3, endpoints: Sequence[str] = ()) -> Iterator[list[Topology]]:
    """Sites 1, 2, ... at 127.0.0.1, 127.0.0.2, ...  Without endpoints of an etcd the first has the register."""
    port = free_port()
    if endpoints:
        sets: tuple[str, ...] = (f"register.endpoints={json.dumps(list(endpoints))}",)
    else:
        sets = ("register.single_point=accepted", f"register.address=127.0.0.1:{port}", "register.request_timeout=1s")
    config = dump_json(load(sets=sets, environ={}))
    with tempfile.TemporaryDirectory(prefix="hf") as runs:
        found = []
        for number in range(1, count + 1):
            run, data = Path(runs) / str(number), directory / str(number)
            run.mkdir()
            data.mkdir()
            found.append(
                Topology(
                    data_dir=data,
                    run_dir=run,
                    site=site_id(number),
                    incarnation=1,
                    secret=SECRET,
                    config_json=config,
                    store_dir=data / "shards",
                    n_shards=n_shards,
                    n_sessions=n_shards,
                    n_gateways=1,
                    ray=RayPlan("local", "holdfast-test", False, 8265, 100 << 20),
                    sites=SitesPlan(count, factor, f"127.0.0.{number}", port),
                )
            )
        yield found


def server(topology: Topology, knows: Known = KNOWN) -> SiteServer:
    return SiteServer(topology, 0, look_s=LOOK_S, down_s=0.2, knows=knows)


async def begun(site: SiteServer) -> None:
    """As the controller begins it: once more when the register has not answered in its time."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await site.start()
                return
            except RegisterAway:
                continue


@asynccontextmanager
async def running(*of: Topology, knows: Known = KNOWN) -> AsyncIterator[list[SiteServer]]:
    """Started one after the other, the first one first: it may have the register.  knows: the formats of their release."""
    servers = [server(topology, knows) for topology in of]
    try:
        for each in servers:
            await begun(each)
        yield servers
    finally:
        for each in reversed(servers):
            await each.stop()


@asynccontextmanager
async def register_of(topology: Topology) -> AsyncIterator[Register]:
    """As a shard process of this site asks it."""
    register = asked_register(topology, Wire(SECRET), "shard-0:test")
    try:
        yield register
    finally:
        await register.close()


async def made(topology: Topology, shards: int) -> None:
    """The shard processes of this site have made their copies."""
    async with register_of(topology) as register:
        for shard in range(shards):
            rid = rid_of(topology.site, "c")
            assert await register.cas(copy_key(shard, topology.site), NO_VALUE, rid.encode()) is Outcome.DONE


async def changed(register: Register, shard: int, change: Callable[[Configuration], Configuration]) -> Configuration:
    """As a replica does it, that loses the race now and then."""
    while True:
        held = await register.read(shard_key(shard))
        assert held is not None
        new = change(Configuration.unpack(held.value))
        if await register.cas(shard_key(shard), held.version, new.pack()) is Outcome.DONE:
            return new


def says(topology: Topology, shard: int, **fields: Any) -> None:
    """The status file that a replica of this site writes."""
    row = {"shard": shard, "rid": rid_of(topology.site, "c"), "role": "follower", "epoch": 0, "leader": "", **fields}
    write_whole(topology.run_dir / f"replica-{shard}.json", json.dumps(row))


def told(topology: Topology) -> Sites:
    return Sites.from_json((topology.run_dir / SITES_FILE).read_text())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def rid(number: int) -> Rid:
    return rid_of(site_id(number), "c")


def moved(topology: Topology, number: int) -> Topology:
    """The same data directory at another address."""
    assert topology.sites is not None
    return replace(topology, sites=replace(topology.sites, host=f"127.0.0.{number}"))
