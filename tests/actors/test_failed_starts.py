"""A start that fails leaves nothing open, so that the next one in the same process, which its host makes, is like the first."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from actors.admin.server import AdminServer
from actors.bridge.server import BridgeServer
from actors.host import Server
from actors.plugin.server import PluginServer
from actors.reader.server import ReaderServer
from actors.register.local import open_register
from actors.replica.server import ReplicaServer
from actors.shard import ShardServer
from actors.sites.whereabouts import Sites, shard_listens, tell_sites
from actors.topology import Topology
from tests.actors.one_loop import OneLoop
from tests.actors.places import in_the_way, topology_in
from tests.actors.replica.three_sites import NAMES, Site
from tests.actors.two_sites import until

pytestmark = pytest.mark.slow
GOES_ON = {"GatewayServer._beat", "Following._look", "ReplicaServer._look", "ReplicaShell._tick"}
"""Timers that set themselves again."""


def open_now() -> Counter[str]:
    """Files and sockets, tasks, and timers that never end by themselves."""
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = loop._scheduled  # type: ignore[attr-defined]
    called = [handle._callback.__qualname__ for handle in timers if not handle.cancelled() and hasattr(handle._callback, "__qualname__")]  # type: ignore[attr-defined]
    tasks = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
    return Counter([*_files(), *tasks, *[name for name in called if name in GOES_ON]])


def _files() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            at = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # of this very look
        # Segments of a log are closed when nobody reads them any more.
        if not at.endswith(".seg"):
            yield at.partition(":")[0]


async def fails(server: Server, why: str, times: int = 2) -> None:
    before = open_now()
    for _ in range(times):
        with pytest.raises(OSError, match=why):
            await server.start()
        # Whoever was at the other end of a link hears of its end a turn later.
        with suppress(TimeoutError):
            await until(lambda: open_now() <= before)
        left = open_now() - before
        assert not left, left


async def starts(server: Server) -> None:
    started = await server.start()
    assert started is await server.start()
    await server.stop()


@pytest.mark.parametrize("kept", ["s0.sock", "shard-0.json", "steady-clock.0"])
async def test_of_a_shard(tmp_path: Path, kept: str) -> None:
    """Its socket, or what it tells others, cannot be made; when that has passed, nothing else is in the way of its store."""
    topology = topology_in(tmp_path)
    server = ShardServer(topology, 0)
    with in_the_way(topology.run_dir / kept) as why:
        await fails(server, why)
    await starts(server)


async def test_of_a_copy_of_several_sites(tmp_path: Path) -> None:
    """As of a shard: the port for other copies is taken, or it cannot say that it is there; its copy is open once only."""
    site = Site(NAMES[0], tmp_path, "")
    tell_sites(site.topology.run_dir, Sites(site.name, 1, {site.name: site.at}))
    register = open_register(tmp_path / "register")
    server = ReplicaServer(site.topology, 0, register)
    [*_, reached] = shard_listens(site.topology, 0)
    with socket.create_server((reached.host, reached.port)):
        await fails(server, str(reached.port))
    with in_the_way(site.topology.run_dir / "shard-0.json") as why:
        await fails(server, why)
    await starts(server)
    await register.close()


async def test_of_a_session_actor(tmp_path: Path) -> None:
    """Its core, which a shard knows by then, is not served any more."""
    one = OneLoop(tmp_path)
    [shard], [server] = one.shards, one.sessions
    await shard.start()
    with in_the_way(one.topology.run_dir / "session-0.json") as why:
        await fails(server, why)
    await starts(server)
    await shard.stop()


async def test_of_a_gateway_whose_port_is_taken(tmp_path: Path) -> None:
    """Shards and session actors have no more gateways than there are, however often it was tried."""
    one = OneLoop(tmp_path)
    [shard], [session], [server] = one.shards, one.sessions, one.gateways
    await shard.start()
    await session.start()
    serving = session._serving
    assert serving is not None
    await until(lambda: not serving.away)
    with socket.create_server(("127.0.0.1", one.port)):
        await fails(server, str(one.port))
    with in_the_way(one.topology.run_dir / "gateway-0.json") as why:
        await fails(server, why)
    await starts(server)
    await session.stop()
    await shard.stop()


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (AdminServer, "admin.port"), (AdminServer, "admin-0.json"), (BridgeServer, "bridge-0.json"), (PluginServer, "plugin-0.json"),
        (ReaderServer, "reader.port"), (ReaderServer, "reader-0.json"),
    ],
)  # fmt: skip
async def test_of_what_stands_beside(tmp_path: Path, made: type[Server], kept: str) -> None:
    """Where they listen, and who they look at."""
    plugin = ("access.plugin.kind=holdfast", 'access.plugin.plugins=["tests.plugin.test_server:Odd"]') if made is PluginServer else ()
    async with OneLoop(tmp_path, sets=("admin.listen=127.0.0.1:0", "pipeline.listen=127.0.0.1:0", *plugin)) as one:
        server = _made(made, one.topology)
        with in_the_way(one.topology.run_dir / kept) as why:
            await fails(server, why)
        await starts(server)


def _made(made: type[Server], topology: Topology) -> Server:
    return made(topology, 0)  # type: ignore[call-arg]
