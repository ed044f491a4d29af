"""Shards, session actors and gateways of a site that stands alone as parts of one process: the profile `compact`.

A sparse message then wakes one process instead of one after the other, since links between parts are direct (actors.direct). What that
takes: they share one core's worth of loop, and whatever ends one part ends all of them. All that was acknowledged is on disk, as ever.

Each part is a host with its server, begun and stopped by the controller as if it had a process of its own, and announces itself so: several
have one pid then. What is of the whole process is here: its log, its figures (under the name COMPACT) and what chaos does to it.

Always holds: when Ray starts it again, gateways begin when shards and session actors have begun, or BEGIN_ORDERLY_S later. Opening a store
keeps the loop, and a gateway whose heart stands still meanwhile would be ended for it (actors.supervisor).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from actors import fatal
from actors.host import Host, RunEnded, Server
from actors.main_thread import Resting
from actors.metrics.meter import Meter
from actors.topology import Health, Role, Topology, member_name

if TYPE_CHECKING:
    from actors.chaos.exposure import Exposure

COMPACT: Final = "compact-0"
PARTS: Final[tuple[Role, ...]] = ("shard", "session", "gateway")
"""In the order in which they begin."""
BEGIN_ORDERLY_S: Final = 20.0


class Compact:
    """Runs the servers of these roles in this process."""

    _called = "holdfast"
    """Of the class too, as actors.host.Host has it."""

    def __init__(self, topology: Topology, *, restarted: bool) -> None:
        self._called = f"{COMPACT} of {topology.data_dir}"
        if not topology.current():
            raise RunEnded(f"{COMPACT} belongs to a run that has ended")
        members = [member for member in topology.members() if member[0] in PARTS]
        self._hosts = {member_name(*member): _host(topology, *member) for member in members}
        self._roles: dict[Role, list[str]] = {role: [member_name(*each) for each in members if each[0] == role] for role in PARTS}
        self._stopped: set[str] = set()
        self._beginning: asyncio.Task[None] | None = None
        self._exposure: Exposure | None = None
        self._meter = Meter(topology.run_dir, COMPACT, None)
        fatal.before_death.append(self._meter.write)
        self._meter.start()
        self._resting = Resting()
        self._resting.begin()
        if topology.chaos:
            from actors.chaos.installing import expose  # only what may be broken loads it

            self._exposure = expose(topology, list(self._hosts))
        if restarted:
            self._beginning = asyncio.get_running_loop().create_task(self._begin_all())

    def __repr__(self) -> str:
        return self._called

    async def begin(self, part: str) -> None:
        if self._beginning is not None:
            await asyncio.shield(self._beginning)
        await self._hosts[part].begin()

    async def health(self, part: str) -> Health:
        return await self._hosts[part].health()

    async def reconfigure(self, part: str, version: int, config: str) -> int:
        return await self._hosts[part].reconfigure(version, config)

    async def stop(self, part: str) -> None:
        self._resting.end()
        await self._hosts[part].stop()
        self._stopped.add(part)
        if self._stopped == self._hosts.keys():
            self._meter.stop()
            if self._exposure is not None:
                self._exposure.stop()

    async def _begin_all(self) -> None:
        for role in PARTS:
            begun = [asyncio.ensure_future(self._hosts[part].begin()) for part in self._roles[role]]
            _, late = await asyncio.wait(begun, timeout=BEGIN_ORDERLY_S)
            if late:
                structlog.get_logger().error("member.slow_to_start", member=role, waited_s=BEGIN_ORDERLY_S)


def _host(topology: Topology, role: Role, index: int) -> Host:
    return Host(topology, role, index, _server(topology, role, index), restarted=False, shares=True)


def _server(topology: Topology, role: Role, index: int) -> Server:
    # Loaded when they are made, as each process loads what it runs and nothing else (actors.deploy).
    if role == "shard":
        from actors.shard import ShardServer

        return ShardServer(topology, index)
    if role == "session":
        from actors.session import SessionServer

        return SessionServer(topology, index)
    assert role == "gateway", role
    from actors.gateway import GatewayServer

    return GatewayServer(topology, index)
