"""One broker with two gateways and two shards, under light load: any process may go, and nobody has to do anything."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.broker.wire import Version
from tests.gates.traffic import Publisher, at_work, client_ids, everything_flows, require_sessions_kept

STORES = "stores"
"""Beside the data directory: where the broker is started."""
OPTIONS = Options(
    {**QUIET_RAY, "gateway.count": "2", "durable_storage.messages.data_dir": STORES},
    environment={"HOLDFAST__DURABLE_STORAGE__MESSAGES__N_SHARDS": "2"},
)
pytestmark = pytest.mark.parametrize("broker", [OPTIONS], indirect=True, ids=["2x2"])

BACK_S = 20.0
SETTLE_S = 60.0
PER_SECOND = 40.0


@pytest.mark.parametrize("version", [4, 5])
async def test_a_client_is_taken_over_from_one_gateway_by_the_other(broker: RunningBroker, version: Version) -> None:
    """The older connection ends, with 0x8E where the version has it; its session goes on at the new one and misses nothing."""
    history = History()
    status = broker.status()
    ports = [listener.port for listener in status.listeners if not listener.shared]
    assert len(ports) == 2 and broker.port not in ports
    name = f"taken-{version}"
    first, second = (Client(port, name, history, version=version, reconnect=False) for port in ports)
    publisher = Client(ports[0], f"{name}-publisher", history, version=version)
    await first.start()
    await first.subscribe(f"{name}/#", 2)
    await publisher.start()
    for n in range(30):
        await publisher.publish(f"{name}/{n % 3}", 2)
    second.inherit(first)
    connection = await second.start()
    assert connection.session_present
    for n in range(30):
        await publisher.publish(f"{name}/{n % 3}", 2)
    await publisher.acknowledged(SETTLE_S)
    await settled(history, SETTLE_S)
    assert not first.connected.is_set() and second.connected.is_set()
    # It may also have written into the closed socket.
    assert [said for said in first.refusals if said.startswith("DISCONNECT")] == (["DISCONNECT 0x8e"] if version == 5 else [])
    assert faults(history) == []
    await second.stop()
    await publisher.stop()


@pytest.mark.parametrize("role", ["gateway", "session", "shard", "controller", "raylet"])
async def test_one_killed_process_costs_seconds_and_no_message(broker: RunningBroker, role: str) -> None:
    """SIGKILL while publishers at QoS 1 and 2 send: all flows again within 20 s, nothing acknowledged is missing, in order, QoS 2 once."""
    status = await asyncio.to_thread(broker.status)
    pid = next(each.pid for each in status.processes if role in (each.role, each.name))
    history = History()
    ids = client_ids(f"k-{role}", 6, 2)
    sessions = [Client(broker.port, name, history, version=5 if n else 4) for n, name in enumerate(ids[:2])]
    publishers = [
        Publisher(Client(broker.port, name, history, version=5 if n % 2 else 4), 1 + n // 2, PER_SECOND, [f"k/{role}/{n}", f"k/{role}/all"])
        for n, name in enumerate(ids[2:])
    ]
    for session, qos in zip(sessions, (1, 2), strict=True):
        await session.start()
        await session.subscribe(f"k/{role}/#", qos)
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


def test_stores_are_as_many_as_was_said_and_where(broker: RunningBroker) -> None:
    """The number by a variable of the environment, the place by the command line; nothing of them is in the data directory."""
    assert len(broker.ready_status().pids("shard")) == 2
    assert sorted(path.parent.name for path in (broker.directory / STORES).glob("*/CURRENT")) == ["0", "1"]
    assert not list(broker.data_dir.rglob("CURRENT"))
