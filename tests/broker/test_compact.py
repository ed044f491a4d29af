"""A broker of the profile `compact`: shard, session actor and gateway are one process, which may be killed like any."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path

import pytest

from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import QUIET_RAY, CommandFailed, Options, RunningBroker, alive
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, require_sessions_kept

pytestmark = pytest.mark.parametrize("broker", [Options({**QUIET_RAY, "profile": "compact"})], indirect=True, ids=["compact"])

PARTS = ("shard", "session", "gateway")
BACK_S = 20.0
SETTLE_S = 60.0
PER_SECOND = 40.0
WOKEN_MAX = 40.0


def test_its_parts_are_listed_by_name_and_have_one_pid(broker: RunningBroker) -> None:
    """Scripts find each as before; its log is one."""
    status = broker.ready_status()
    assert [len(status.pids(role)) for role in PARTS] == [1, 1, 1]
    assert len({pid for role in PARTS for pid in status.pids(role)}) == 1
    assert {process.name for process in status.processes if process.role in PARTS} == {"shard-0", "session-0", "gateway-0"}
    log = (broker.data_dir / "logs" / "compact-0.log").read_text()
    assert all(f"event={each} who=compact-0" in log for each in ("shard.started", "session.started", "gateway.started"))


async def test_its_one_process_killed_costs_seconds_and_no_message(broker: RunningBroker) -> None:
    """SIGKILL while publishers at QoS 1 and 2 send: nothing acknowledged is missing, in order, QoS 2 once, sessions kept."""
    (pid,) = (await asyncio.to_thread(broker.status)).pids("gateway")
    history = History()
    ids = client_ids("compact", 6, 1)
    sessions = [Client(broker.port, name, history, version=5 if n else 4) for n, name in enumerate(ids[:2])]
    publishers = [
        Publisher(Client(broker.port, name, history, version=5 if n % 2 else 4), 1 + n // 2, PER_SECOND, [f"k/{n}", "k/all"])
        for n, name in enumerate(ids[2:])
    ]
    for session, qos in zip(sessions, (1, 2), strict=True):
        await session.start()
        await session.subscribe("k/#", qos)
    async with at_work(publishers, sessions):
        await everything_flows(publishers, sessions, history, time.monotonic() + BACK_S)
        await asyncio.to_thread(broker.kill, pid)
        await everything_flows(publishers, sessions, history, time.monotonic() + BACK_S)
        for publisher in publishers:
            await publisher.finish(BACK_S)
        await settled(history, SETTLE_S)
        require_sessions_kept([*sessions, *(publisher.client for publisher in publishers)])
    assert history.acknowledged_count() > 0
    assert faults(history) == []
    after = await asyncio.to_thread(broker.ready_status)
    assert not alive(pid) and len({each for role in PARTS for each in after.pids(role)} - {pid}) == 1


def test_with_several_gateways_it_is_refused_in_one_sentence(broker: RunningBroker) -> None:
    """They would share one loop."""
    other = RunningBroker(Options({**QUIET_RAY, "profile": "compact", "gateway.count": "2"}))
    with pytest.raises((CommandFailed, subprocess.SubprocessError), match=r'profile.*"auto" or "spread" while gateway.count is 2'), other:
        raise AssertionError("it started")


def test_the_main_thread_of_each_process_rests(broker: RunningBroker) -> None:
    """Ray wakes it up a hundred times a second (actors.main_thread); and new settings, which it has to hear of, are taken all the same."""
    status = broker.ready_status()
    pids = {pid for role in (*PARTS, "controller", "admin") for pid in status.pids(role)}
    assert pids
    deadline = time.monotonic() + SETTLE_S
    while (woken := max(_woken_a_second(pids))) > WOKEN_MAX:
        assert time.monotonic() < deadline, f"a main thread was woken up {woken:.0f} times a second"
    broker.command("reload")


def _woken_a_second(pids: set[int]) -> list[float]:
    """How often the main thread of each process gave its processor back, within two seconds."""
    began, before = time.monotonic(), {pid: _sleeps(pid) for pid in pids}
    time.sleep(2)
    return [(_sleeps(pid) - before[pid]) / (time.monotonic() - began) for pid in pids]


def _sleeps(pid: int) -> int:
    lines = Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("voluntary_ctxt_switches")).split()[1])
