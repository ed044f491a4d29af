"""A bridge of a real broker: what is acknowledged is in its file, once and in order, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.running import QUIET_RAY, Options, RunningBroker

WITHIN_S = 60.0
PUBLISHERS = 3
MESSAGES = 150


def lines(path: Path) -> list[dict[str, Any]]:
    """Those that are whole: one may be being written."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


async def until(path: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + WITHIN_S
    while len(found := lines(path)) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} lines after {WITHIN_S} s"
        await asyncio.sleep(0.1)
    return found


async def publish(clients: list[Client], parts: range) -> None:
    for n in parts:
        for number, client in enumerate(clients):
            await client.publish(f"b/{number}", 1 + number % 2, size=64)
            if n % 50 == 49:
                await client.acknowledged(WITHIN_S)
    for client in clients:
        await client.acknowledged(WITHIN_S)


async def test_everything_acknowledged_is_carried_once_when_its_process_and_the_broker_are_killed(broker: RunningBroker) -> None:
    """Added, paused, resumed by commands; kill -9 of the bridge process under load, then of everything; the settings are still there."""
    command, path = broker.command, Path(broker.data_dir) / "out.jsonl"
    said = await asyncio.to_thread(command, "bridge", "add", "out", "filter=b/#", "type=jsonl", "jsonl.path=out.jsonl")
    assert "from now on" in said
    clients = [Client(broker.port, f"p-{n}", History()) for n in range(PUBLISHERS)]
    for client in clients:
        await client.start()
    publishing = asyncio.create_task(publish(clients, range(MESSAGES)))
    await until(path, 20)
    status = await asyncio.to_thread(broker.status)
    (pid,) = status.pids("bridge")
    os.kill(pid, signal.SIGKILL)
    await publishing
    await until(path, PUBLISHERS * MESSAGES)

    assert "paused" in await asyncio.to_thread(command, "bridge", "pause", "out")
    await publish(clients, range(50))
    (row,) = json.loads(await asyncio.to_thread(command, "bridge", "ls", "--json"))
    assert row["state"] == "paused"
    lag = json.loads(await asyncio.to_thread(command, "bridge", "lag", "out", "--json"))
    assert lag["messages"] == PUBLISHERS * 50
    await asyncio.to_thread(command, "bridge", "resume", "out")
    publishing = asyncio.create_task(publish(clients, range(50)))
    await until(path, PUBLISHERS * MESSAGES + 10)
    await asyncio.to_thread(broker.kill_all)
    await asyncio.to_thread(broker.up)
    await publishing
    found = await until(path, PUBLISHERS * (MESSAGES + 100))
    await asyncio.sleep(1)
    found = lines(path)
    assert len({(each["shard"], each["position"]) for each in found}) == len(found)
    for number in range(PUBLISHERS):
        positions = [each["position"] for each in found if each["topic"] == f"b/{number}"]
        assert len(positions) >= MESSAGES + 100 and positions == sorted(positions)
    for client in clients:
        await client.stop()
    assert "has ended" in await asyncio.to_thread(command, "bridge", "rm", "out", "--yes")
    assert json.loads(await asyncio.to_thread(command, "bridge", "ls", "--json")) == []
    assert not (Path(broker.data_dir) / "bridges.toml").exists()
    sessions = json.loads(await asyncio.to_thread(command, "sessions", "ls", "--json"))
    assert [each["client"] for each in sessions if each["client"].startswith("$bridge/")] == []


async def test_a_restored_broker_has_the_bridges_that_commands_made(broker: RunningBroker, tmp_path: Path) -> None:
    """What is set is in a backup, and goes on with what is published there."""
    into = tmp_path / "backups"
    await asyncio.to_thread(broker.command, "bridge", "add", "kept", "filter=r/#", "type=jsonl", "jsonl.path=kept.jsonl")
    client = Client(broker.port, "before", History())
    await client.start()
    await client.publish("r/before", 1)
    await client.acknowledged(WITHIN_S)
    await client.stop()
    await until(Path(broker.data_dir) / "kept.jsonl", 1)
    await asyncio.to_thread(broker.command, "backup", str(into))
    await asyncio.to_thread(broker.command, "bridge", "rm", "kept", "--yes")

    restored = RunningBroker(Options(QUIET_RAY), data_dir=tmp_path / "new")
    assert "bridge kept goes on" in await asyncio.to_thread(restored.command, "restore", str(into))
    await asyncio.to_thread(restored.__enter__)
    try:
        (row,) = json.loads(await asyncio.to_thread(restored.command, "bridge", "ls", "--json"))
        assert (row["name"], row["filter"]) == ("kept", "r/#")
        client = Client(restored.port, "after", History())
        await client.start()
        await client.publish("r/after", 1)
        await client.acknowledged(WITHIN_S)
        deadline = time.monotonic() + WITHIN_S
        while "r/after" not in [each["topic"] for each in lines(tmp_path / "new" / "kept.jsonl")]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        await client.stop()
    finally:
        await asyncio.to_thread(restored.close)
