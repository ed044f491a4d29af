"""A bridge of a real broker: what is acknowledged is in its file, once and in order, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.broker.client import Client
from tests.broker.history import History
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.needs import ROOT

WITHIN_S = 60.0
PAGE = ROOT / "docs" / "bridge.md"
EXAMPLES = ROOT / "deploy" / "bridges"
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


@pytest.fixture
def own_targets(tmp_path: Path) -> Path:
    """What the page says of a target of one's own, as a file in a directory."""
    found = re.search(r"^```python own_target\.py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert found
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "own_target.py").write_text(found[1])
    return tmp_path / "targets"


async def test_a_target_of_ones_own_is_loaded_from_where_python_finds_it(own_targets: Path) -> None:
    """The example of the page, as it stands there; one that is not there, or is told nonsense, is said by `bridge ls`."""
    with RunningBroker(Options(QUIET_RAY, environment={"PYTHONPATH": str(own_targets)})) as broker:
        await added(broker, "files", "own_target:FilesTarget", {"directory": "files"})
        await added(broker, "absent", "not_there:Target", {})
        await added(broker, "nonsense", "own_target:FilesTarget", {})
        client = Client(broker.port, "p", History())
        await client.start()
        numbers = [await client.publish(f"own/{n % 3}", 1, size=64) for n in range(100)]
        await client.acknowledged(WITHIN_S)
        await client.stop()
        deadline = time.monotonic() + WITHIN_S
        while len(files := sorted((Path(broker.data_dir) / "files").glob("*[0-9]"), key=by_position)) < len(numbers):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert [int(path.read_bytes().split()[1]) for path in files] == numbers
        rows = await said(broker, "absent", "nonsense")
        assert rows["files"]["state"] == "running"
        assert rows["absent"]["error"] == "not_there:Target cannot be loaded: No module named 'not_there'"
        assert rows["nonsense"]["error"] == 'plugin.options has no "directory"'


async def said(broker: RunningBroker, *wrong: str) -> dict[str, dict[str, str]]:
    """All bridges, when these have said what is wrong: each says how it is once a second."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            rows = {row["name"]: row for row in json.loads(await asyncio.to_thread(broker.command, "bridge", "ls", "--json"))}
            if all(rows[name]["error"] for name in wrong):
                return rows


def by_position(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.name.split("-")))


async def added(broker: RunningBroker, name: str, target: str, options: dict[str, object]) -> None:
    words = ("filter=own/#", "type=plugin", f"plugin.target={target}", f"plugin.options={json.dumps(options)}")
    await asyncio.to_thread(broker.command, "bridge", "add", name, *words)


@pytest.mark.needs("kafka")
async def test_the_example_of_kafka_carries_to_it() -> None:
    """Over a time without it; in order for each topic."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    from tests.bridge.kafka_cluster import TOPIC, KafkaCluster

    cluster = KafkaCluster(partitions=3)
    with RunningBroker(Options(QUIET_RAY, environment={"PYTHONPATH": str(EXAMPLES)})) as broker:
        await added(broker, "log", "kafka_target:KafkaTarget", {"servers": cluster.servers, "topic": TOPIC, "timeout_ms": 2000})
        client = Client(broker.port, "p", History())
        await client.start()
        await publish_own(client, 100)
        cluster.down()
        await publish_own(client, 100)
        cluster.up()
        await client.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.servers, group_id=None, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, number) for number in range(3)])
        records: list[Any] = []
        deadline = time.monotonic() + WITHIN_S
        while len({record.value for record in records}) < 200:
            assert time.monotonic() < deadline, f"{len(records)} records have come"
            for some in (await consumer.getmany(timeout_ms=200)).values():
                records += some
        await consumer.stop()
    cluster.end()
    for topic in (b"own/0", b"own/1", b"own/2"):
        found = list(dict.fromkeys([int(record.value.split()[1]) for record in records if record.key == topic]))
        assert found == sorted(found) and len(found) > 60


async def publish_own(client: Client, count: int) -> None:
    for n in range(count):
        await client.publish(f"own/{n % 3}", 1, size=64)
    await client.acknowledged(WITHIN_S)
