"""A stop in the middle of a start."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.controller import ControllerServer
from actors.host import Host
from actors.topology import Role
from tests.actors.places import topology_in
from tests.actors.test_launcher import Cluster, FakeMember


class Slow(Cluster):
    """One member does not come to an end of its start."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    def create(self, role: Role, index: int) -> FakeMember:
        self.log.append(f"create {role}-{index}")
        return Hanging(self, f"{role}-{index}") if role == "session" else FakeMember(self, f"{role}-{index}")


class Hanging(FakeMember):
    async def begin(self, within: float) -> None:
        cluster = self._cluster
        assert isinstance(cluster, Slow)
        cluster.asked.set()
        await asyncio.Event().wait()


async def test_a_controller_that_waits_for_a_member_stops_all_of_them_in_order(tmp_path: Path) -> None:
    """They may serve already, as when a controller is made anew: killed with the rest of Ray, they would close on clients that wait."""
    cluster = Slow()
    host = Host(topology_in(tmp_path), "controller", 0, ControllerServer(topology_in(tmp_path), 0, cluster), restarted=True, leads=True)
    await cluster.asked.wait()
    await host.stop()
    assert [each for each in cluster.log if each.startswith("stop")] == ["stop gateway-0", "stop session-0", "stop shard-0"]
