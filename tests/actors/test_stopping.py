"""A stop in the middle of a start, a stop that is asked for again, and one in which the controller dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

from actors.controller import ControllerServer
from actors.driver import stop_everyone
from actors.host import Host
from actors.ports import Gone, Unavailable
from actors.topology import Role
from tests.actors.places import topology_in
from tests.actors.test_launcher import Cluster, FakeMember, Stubborn

WITHIN_S = 60.0


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


class Served(Cluster):
    """All that a controller makes is there, by one before it."""

    def find(self, role: Role, index: int) -> FakeMember:
        return FakeMember(self, f"{role}-{index}")


async def test_a_controller_that_was_made_anew_stops_those_it_has_not_come_to_know(tmp_path: Path) -> None:
    """The stop may come first of all that it is asked. Those beside the others are ended as well; nobody is made."""
    cluster = Served()
    host = Host(topology_in(tmp_path), "controller", 0, ControllerServer(topology_in(tmp_path), 0, cluster), restarted=True, leads=True)
    await host.stop()
    stops = [each for each in cluster.log if each.startswith("stop")]
    assert sorted(stops[:2]) == ["stop gateway-0", "stop reader-0"] and stops[2:4] == ["stop session-0", "stop shard-0"]
    assert sorted(stops[4:]) == ["stop admin-0", "stop bridge-0", "stop plugin-0"]
    assert sorted(each for each in cluster.log if each.startswith("end")) == ["end admin-0", "end bridge-0", "end plugin-0"]
    assert not [each for each in cluster.log if each.startswith("create")]


class Leaving(Stubborn):
    """Takes its time to stop."""

    def __init__(self) -> None:
        super().__init__(failures=0)
        self.ending, self.may_end = asyncio.Event(), asyncio.Event()

    async def stop(self) -> None:
        self.log.append("stop")
        self.ending.set()
        await self.may_end.wait()


async def test_a_host_that_is_asked_twice_stops_once_and_both_wait_for_it(tmp_path: Path) -> None:
    """A controller that was made anew in the middle of a stop asks what the one before has asked; who asked first may be gone."""
    server = Leaving()
    host = Host(topology_in(tmp_path), "gateway", 0, server, restarted=False)
    await host.begin()
    first, second = asyncio.create_task(host.stop()), asyncio.create_task(host.stop())
    await server.ending.wait()
    first.cancel()
    await asyncio.sleep(0)
    assert not second.done()
    server.may_end.set()
    await asyncio.wait_for(second, WITHIN_S)
    await host.stop()
    assert server.log == ["start", "stop"]


async def test_a_controller_that_dies_meanwhile_is_asked_again() -> None:
    """Ray makes it anew, which takes a while in which it is unavailable; a driver that left would have all others killed."""
    cluster = Cluster()
    cluster.refusals["stop controller-0"] = [Unavailable("it died"), Unavailable("it comes up")]
    await asyncio.wait_for(stop_everyone(FakeMember(cluster, "controller-0"), WITHIN_S, pause=0), WITHIN_S)
    assert cluster.log == ["stop controller-0"] * 3


async def test_one_that_ray_has_given_up_or_that_never_answers_is_not_asked_for_ever() -> None:
    """The launcher would end the driver with what is left, and say that it does not stop."""
    cluster = Cluster()
    cluster.refusals["stop controller-0"] = [Gone("for good")]
    await asyncio.wait_for(stop_everyone(FakeMember(cluster, "controller-0"), WITHIN_S, pause=0), WITHIN_S)
    cluster.refusals["stop controller-0"] = [Unavailable("no")] * 1_000_000
    await asyncio.wait_for(stop_everyone(FakeMember(cluster, "controller-0"), 0.01, pause=0), WITHIN_S)
    assert len(cluster.log) > 1
