"""Ray is no part of the way of a message: nobody on it calls Ray, and it stays open while Ray stands still."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

import psutil

from actors import ROOT
from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import Options, RunningBroker, Status
from tests.cluster.counting import calls_file

PUBLISHERS = 4
MESSAGES = 10_000
CONTROL = ("gcs_server", "raylet", "driver", "controller-0")
DEADLINE_S = 60.0


def holdfast(directory: Path) -> Path:
    """A `holdfast` whose actors write down their calls of Ray."""
    path = directory / "holdfast"
    path.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m tests.cluster.counting "$@"\n')
    path.chmod(0o755)
    return path


def calls(status: Status, *roles: str) -> list[str]:
    """What the processes of these roles have called."""
    files = (calls_file(status.data_dir, process.pid) for process in status.processes if process.role in roles)
    return [line for file in files if file.exists() for line in file.read_text().splitlines()]


def wait_for_calls(status: Status, role: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not calls(status, role):
        assert time.monotonic() < deadline, f"the {role} is known to call Ray, and no call of it was counted"
        time.sleep(0.1)


async def publish_everything(port: int, history: History, own_ports: list[int]) -> None:
    """A session subscribes, its client is taken over through the other gateway, and 10,000 messages go to it."""
    session = Client(port, "session", history, version=5, receive_maximum=1000)
    publishers = [Client(port, f"publisher-{n}", history, version=5 if n % 2 else 4, window=250) for n in range(PUBLISHERS)]
    await session.start()
    await session.subscribe("a/#", 1)
    for port in own_ports:
        session.tear(port)
        await asyncio.wait_for(session.connected.wait(), DEADLINE_S)

    async def publish(publisher: Client, qos: int) -> None:
        await publisher.start()
        for n in range(MESSAGES // PUBLISHERS):
            await publisher.publish(f"a/{n % 100}", qos, size=64)
        await publisher.acknowledged(DEADLINE_S)

    await asyncio.gather(*(publish(publisher, 1 + n // 2) for n, publisher in enumerate(publishers)))
    await settled(history, DEADLINE_S)
    for client in (session, *publishers):
        await client.stop()


def test_ten_thousand_messages_pass_while_ray_stands_still_and_nobody_calls_it(tmp_path: Path) -> None:
    """Head, raylet, driver and controller are stopped (SIGSTOP): all is acknowledged and delivered, without one call of Ray."""
    settings = {"ray.dashboard": "false", "admin.enable": "false", "gateway.count": "2", "durable_storage.messages.n_shards": "2"}
    with RunningBroker(Options(settings), executable=holdfast(tmp_path)) as broker:
        status = broker.status()
        wait_for_calls(status, "controller")
        standing = [process.pid for process in status.processes if process.name in CONTROL]
        assert len(standing) == len(CONTROL)
        history = History()
        for pid in standing:
            broker.signal(pid, signal.SIGSTOP)
        try:
            own = [listener.port for listener in status.listeners if not listener.shared]
            asyncio.run(publish_everything(broker.port, history, own))
            assert {psutil.Process(pid).status() for pid in standing} == {psutil.STATUS_STOPPED}
        finally:
            for pid in standing:
                broker.signal(pid, signal.SIGCONT)
        assert history.acknowledged_count() == MESSAGES and len(history.due("session")) == MESSAGES
        assert faults(history) == []
        assert calls(status, "shard", "session", "gateway") == []
        assert broker.ready_status().processes == status.processes
