"""A broker in a cluster of several nodes: where it runs, at which ports, with which token; its node, another node and the head end.

The tests go on where the one before them ended: each start of a node or of a broker costs more than all that is asked of it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors import ROOT
from actors.environment import RECONNECT, RECONNECT_S
from actors.processes import alive
from tests.broker.client import Client, settled
from tests.broker.history import History, faults
from tests.broker.running import CommandFailed, Options, RunningBroker, Status, free_port
from tests.cluster.listening import listening
from tests.cluster.nodes import BY_ENVIRONMENT, OF_A_HEAD, OF_EVERY_NODE, Nodes

WITHIN_S = 120.0
HEAD_AWAY_S = float(os.environ.get("HOLDFAST_HEAD_AWAY_S", "15"))
"""Longer than anybody of Ray looks whether the head is there; docs/clusters.md has what longer runs gave."""
OURS = ("controller-0", "shard-0", "session-0", "gateway-0", "admin-0")
PUBLISHERS = 2


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with Nodes("here", "elsewhere") as started:
        yield started


def settings(nodes: Nodes) -> dict[str, str]:
    return {"ray.address": nodes.address, "ray.temp_dir": str(nodes.workers["here"].directory)}


@pytest.fixture(scope="module")
def broker(nodes: Nodes) -> Iterator[RunningBroker]:
    options = Options({**settings(nodes), "admin.listen": f"127.0.0.1:{free_port()}"}, environment=nodes.environment)
    with RunningBroker(options) as running:
        yield running


def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def by_name(status: Status) -> dict[str, int]:
    return {process.name: process.pid for process in status.processes}


def all_there(broker: RunningBroker) -> dict[str, int]:
    """Ready, and the admin process as well, which comes last; who is who."""
    found: list[Status] = []

    def there() -> bool:
        found[:] = [broker.status()]
        return found[0].ready and set(OURS) <= by_name(found[0]).keys()

    until(there, lambda: found)
    return by_name(found[0])


def environment_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def test_the_page_says_how_each_port_is_given() -> None:
    """As the nodes of these tests are started: no other port of theirs is open."""
    text = (ROOT / "docs/clusters.md").read_text()
    names = (*OF_EVERY_NODE, *OF_A_HEAD, *BY_ENVIRONMENT, "--min-worker-port", "--max-worker-port")
    assert [name for name in names if f"`{name}`" not in text] == []
    commands = re.findall(r"^ray start (.*?)(?<!\\)$", text, re.M | re.S)
    given = [set(re.findall(r"--[a-z-]+-port|--port", command)) for command in commands]
    every = {*OF_EVERY_NODE, "--min-worker-port", "--max-worker-port"}
    assert given == [every.union(OF_A_HEAD), every]


def test_it_runs_on_its_node_and_listens_where_it_was_told(nodes: Nodes, broker: RunningBroker) -> None:
    """Its actors are on the node that was named; each port of Ray and of the broker is one that is configured, none is open to others."""
    pids = all_there(broker)
    here = nodes.workers["here"]
    on_node = {process.pid for process in here.processes()}
    assert {pids[name] for name in OURS} <= on_node
    rays = {process.pid for node in (nodes.head, *nodes.workers.values()) for process in node.processes()}
    found = listening(rays | set(pids.values()))
    own = {broker.port, int(broker.options.settings["admin.listen"].rpartition(":")[2])}
    configured = own.union(nodes.head.ports, *(node.ports for node in nodes.workers.values()))
    places = {place for each in found.values() for place in each}
    assert [place for place in places if place[1] not in configured or not ipaddress.ip_address(place[0]).is_loopback] == []
    for name in (*OURS, "driver"):
        ports = {port for _, port in found[pids[name]]}
        assert len(ports & here.ports) == 1, f"{name} has one port of its node's workers"
    assert own <= {port for _, port in places}
    assert "note:" not in (broker.directory / "commands.log").read_text(), "nothing is wrong with this cluster"


def test_a_wrong_token_and_none_are_one_sentence_each(nodes: Nodes, tmp_path: Path) -> None:
    """And so is an address at which no head is."""
    wrong = tmp_path / "token"
    wrong.write_text("cd" * 32)
    once = {"RAY_NUM_REDIS_GET_RETRIES": "1"}
    cases = {
        f"the Ray at {nodes.address} does not take the token in {wrong}": ({"RAY_AUTH_TOKEN_PATH": str(wrong)}, nodes.address),
        f"the Ray at {nodes.address} wants a token and was shown none": ({"RAY_AUTH_MODE": ""}, nodes.address),
        "no head of a Ray cluster answers at 127.0.0.1:1 (Connection refused)": ({}, "127.0.0.1:1"),
    }
    for sentence, (environment, address) in cases.items():
        options = Options({**settings(nodes), "ray.address": address}, environment={**nodes.environment, **once, **environment})
        with pytest.raises(CommandFailed) as failed:
            RunningBroker(options, data_dir=tmp_path / "data").up()
        assert sentence in str(failed.value) and "Traceback" not in str(failed.value)


def test_a_node_without_shards_may_go(nodes: Nodes, broker: RunningBroker) -> None:
    """SIGKILL of all of it: the broker does not notice."""
    before = all_there(broker)
    nodes.workers["elsewhere"].kill()
    history = History()
    asyncio.run(one_round(broker.port, history, "at-first"))
    assert faults(history) == [] and all_there(broker) == before


async def one_round(port: int, history: History, name: str) -> None:
    """A new client subscribes, and gets what another new one publishes."""
    reader, writer = Client(port, f"{name}-reads", history, version=5), Client(port, f"{name}-writes", history)
    await reader.start()
    await reader.subscribe(f"{name}/#", 1)
    await writer.start()
    for n in range(20):
        await writer.publish(f"{name}/{n % 3}", 1)
    await writer.acknowledged(WITHIN_S)
    await settled(history, WITHIN_S)
    await reader.stop()
    await writer.stop()


async def serve_without_head(nodes: Nodes, broker: RunningBroker, history: History, before: dict[str, int]) -> None:
    """Clients go on, others come, the head goes and comes back, and with it a process of ours that was killed meanwhile."""
    session = Client(broker.port, "session", history, version=5, receive_maximum=100)
    publishers = [Client(broker.port, f"publisher-{n}", history, version=5 if n % 2 else 4) for n in range(PUBLISHERS)]
    for client in (session, *publishers):
        await client.start()
    await session.subscribe("a/#", 1)
    stop = asyncio.Event()

    async def publish(publisher: Client) -> None:
        n = 0
        while not stop.is_set():
            await publisher.publish(f"a/{n % 7}", 1)
            n += 1
            await asyncio.sleep(0.01)

    publishing = [asyncio.create_task(publish(publisher)) for publisher in publishers]
    await asyncio.to_thread(nodes.head.kill)
    gone = time.monotonic()
    await one_round(broker.port, history, "while-away")
    await asyncio.sleep(HEAD_AWAY_S - (time.monotonic() - gone))
    assert history.acknowledged_count() > PUBLISHERS * HEAD_AWAY_S
    status = await asyncio.to_thread(broker.ready_status)
    assert by_name(status) == before, "nobody ended"
    assert [len(client.connections) for client in (session, *publishers)] == [1, 1, 1]
    # Nobody makes another, and these clients, whose sessions are durable, wait for one.
    broker.kill(before["session-0"])
    assert "session-0" not in by_name(await asyncio.to_thread(broker.status))
    await asyncio.to_thread(nodes.head.start)
    await asyncio.to_thread(all_there, broker)
    stop.set()
    await asyncio.gather(*publishing)
    for publisher in publishers:
        await publisher.acknowledged(WITHIN_S)
    await settled(history, WITHIN_S)
    for client in (session, *publishers):
        await client.stop()


def test_messages_go_on_while_the_head_is_away_and_it_is_managed_again_when_it_is_back(nodes: Nodes, broker: RunningBroker) -> None:
    """SIGKILL of the head, machine and all; a new one takes up what it had on disk, and brings back what died meanwhile."""
    before = all_there(broker)
    for name in (*OURS, "driver"):
        assert f"{RECONNECT}={RECONNECT_S}".encode() in environment_of(before[name]), f"{name} would end without a head"
    history = History()
    asyncio.run(serve_without_head(nodes, broker, history, before))
    assert faults(history) == []
    after = all_there(broker)
    assert {name for name in before if after[name] != before[name]} == {"session-0"}
    broker.kill(after["gateway-0"])
    until(lambda: by_name(broker.status()).get("gateway-0", after["gateway-0"]) != after["gateway-0"], broker.status)
    asyncio.run(one_round(broker.port, history, "at-last"))
    assert faults(history) == []


def test_the_broker_is_back_with_its_node(nodes: Nodes, broker: RunningBroker) -> None:
    """SIGKILL of the raylet and of all on it: nobody calls `up` again, and nothing stored is lost."""
    before = all_there(broker)
    history = History()

    async def leave_behind() -> None:
        away, writer = Client(broker.port, "away", history, version=5), Client(broker.port, "writer", history)
        await away.start()
        await away.subscribe("b/#", 1)
        await away.stop()
        await writer.start()
        for n in range(50):
            await writer.publish(f"b/{n}", 1)
        await writer.acknowledged(WITHIN_S)
        await writer.stop()

    async def come_back() -> None:
        away = Client(broker.port, "away", history, version=5)
        await away.start()
        await settled(history, WITHIN_S)
        await away.stop()

    asyncio.run(leave_behind())
    nodes.workers["here"].kill()
    nodes.workers["here"].start()
    until(lambda: by_name(broker.status()).get("shard-0", before["shard-0"]) != before["shard-0"], broker.status)
    after = all_there(broker)
    assert after["launcher"] == before["launcher"]
    asyncio.run(come_back())
    assert faults(history) == []


def test_it_leaves_the_cluster_as_it_was(nodes: Nodes, broker: RunningBroker) -> None:
    """`down` ends our processes and no other."""
    own = set(all_there(broker).values())
    rays = [process for node in (nodes.head, nodes.workers["here"]) for process in node.processes() if process.pid not in own]
    broker.down()
    assert broker.status().processes == ()
    # Workers that stood ready may have come and gone.
    assert [process for process in rays if not alive(process) and os.path.exists(f"/proc/{process.pid}")] == []
