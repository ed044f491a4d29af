"""Who was stopped goes on: when the command takes its fault back, when its time is up and the command is gone, when the broker stops."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from actors.chaos.faults import Fault, active_faults, write_fault, written_faults
from actors.chaos.injecting import CannotInject, Injector, disks_of, processes_of, sides_of
from actors.chaos.sweeping import sweep
from actors.processes import ProcessId, identify, stat
from actors.topology import Announcement, SitesPlan, announce
from tests.actors.places import topology_in


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


@pytest.fixture
def victim() -> Iterator[ProcessId]:
    child = sleeper()
    process = identify(child.pid)
    assert process is not None
    yield process
    child.kill()
    child.wait()


def stopped(process: ProcessId) -> bool:
    found = stat(process.pid)
    return found is not None and found.state == "T"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def pause(victim: ProcessId, seconds: float, id: str = "p") -> Fault:
    return Fault(id, "pause", ("shard-0",), time.monotonic() + seconds, "somebody", processes=(victim,))


def test_the_launcher_continues_what_a_command_left_stopped(tmp_path: Path, victim: ProcessId) -> None:
    """When its time is up, and not before."""
    os.kill(victim.pid, signal.SIGSTOP)
    until(lambda: stopped(victim))
    fault = pause(victim, 60)
    write_fault(tmp_path, fault)
    sweep(tmp_path)
    assert stopped(victim) and active_faults(tmp_path) == [fault]
    write_fault(tmp_path, replace(fault, until_s=time.monotonic()))
    sweep(tmp_path)
    until(lambda: not stopped(victim))
    assert written_faults(tmp_path) == []


def test_what_another_fault_keeps_stopped_stays_stopped(tmp_path: Path, victim: ProcessId) -> None:
    """And goes on with the end of the last one; when the broker stops, at once."""
    os.kill(victim.pid, signal.SIGSTOP)
    until(lambda: stopped(victim))
    write_fault(tmp_path, pause(victim, -1, "a"))
    write_fault(tmp_path, pause(victim, 60, "b"))
    sweep(tmp_path)
    assert stopped(victim)
    sweep(tmp_path, everything=True)
    until(lambda: not stopped(victim))
    assert written_faults(tmp_path) == []


async def test_a_pause_that_is_interrupted_ends_at_once(tmp_path: Path, victim: ProcessId) -> None:
    """Ctrl-C is a cancellation."""
    topology = replace(topology_in(tmp_path), chaos=True)
    announce(topology, Announcement("shard", "shard-0", victim.pid))
    paused = asyncio.create_task(Injector(topology).pause(processes_of(topology, ["shard"])[0], 600))
    while not stopped(victim):
        await asyncio.sleep(0.005)
        assert not paused.done(), paused.result()
    (fault,) = active_faults(topology.run_dir)
    assert fault.processes == (victim,)
    paused.cancel()
    await asyncio.wait([paused])
    until(lambda: not stopped(victim))
    assert written_faults(topology.run_dir) == []


@pytest.mark.slow
async def test_processes_of_a_role_are_killed_in_turn(tmp_path: Path) -> None:
    """The next one of those that are there, until the time is up; each is killed by its own identity."""
    topology = replace(topology_in(tmp_path, n_gateways=2), chaos=True)
    children = [sleeper() for _ in range(2)]
    for n, child in enumerate(children):
        announce(topology, Announcement("gateway", f"gateway-{n}", child.pid))
    killed = await Injector(topology).kill(processes_of(topology, ["gateway"])[0], 0.3, 0.2)
    assert killed == ["gateway-0", "gateway-1"] and [child.wait() for child in children] == [-signal.SIGKILL] * 2


async def test_nothing_is_broken_where_chaos_is_not_enabled(tmp_path: Path, victim: ProcessId) -> None:
    """Whoever asks, and whatever for."""
    topology = topology_in(tmp_path)
    announce(topology, Announcement("shard", "shard-0", victim.pid))
    injector, shard = Injector(topology), processes_of(topology, ["shard"])[0]
    for asked in (injector.pause(shard, 1), injector.kill(shard, 1, 1), injector.fill([shard], 1), injector.slow([shard], 1, 1),
                  injector.cut([shard, shard], 1, one_way=False)):  # fmt: skip
        with pytest.raises(CannotInject, match="chaos is not enabled"):
            await asked
    assert written_faults(topology.run_dir) == [] and not stopped(victim) and identify(victim.pid) == victim


def test_sites_are_named_by_their_ids_and_broken_where_they_are(tmp_path: Path) -> None:
    """This one is all of its processes; a link is cut at one of its ends."""
    here, there = f"site-{'0123456789abcdef'}", f"site-{'f' * 16}"
    plan = SitesPlan(3, 3, "127.0.0.1", 4000)
    topology = replace(topology_in(tmp_path), sites=plan)
    assert [str(each) for each in processes_of(topology, [here, "site"])] == ["all", "site"]
    assert [str(each) for each in sides_of(topology, [there.upper().replace("SITE", "site"), here])] == [there, here]
    assert [str(each) for each in sides_of(topology, ["gateway", there])] == ["gateway", there]
    with pytest.raises(CannotInject, match="is another site: say it there"):
        processes_of(topology, [there])
    with pytest.raises(CannotInject, match="the links of others are cut there"):
        sides_of(topology, [there, there])
    for wrong in ([here, "site"], [here, "site-1"], [here, "admin"]):
        with pytest.raises(CannotInject, match="cannot be broken like that: wanted is shard, session, gateway,"):
            sides_of(topology, wrong)
    with pytest.raises(CannotInject, match="cannot be broken like that: wanted is shard,"):
        disks_of(topology, [here])
