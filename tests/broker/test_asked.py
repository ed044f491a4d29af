"""One real broker with two shards and two gateways, asked by its commands: every figure is what clients have done."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from shards.slots import SlotTable
from tests.actors.hand import Hand
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize(
    "broker",
    [Options({**QUIET_RAY, "gateway.count": "2", "durable_storage.messages.n_shards": "2"})],
    indirect=True,
    ids=["two by two"],
)
HOMES = SlotTable.initial(2)


async def told(broker: RunningBroker, *words: str) -> Any:
    """In this process: what is asked is what runs, and loading the command once is enough.  What its links log stands in between."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json", "--data-dir", str(broker.data_dir)])
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line[:1] in "[{"]
    return json.loads(line)


async def test_clients_sessions_and_what_they_are_behind_by(broker: RunningBroker) -> None:
    """Three that are away, one that does not acknowledge, one that has everything, one that is ephemeral; over two gateways."""
    status = await asyncio.to_thread(broker.status)
    first, second = status.own_port("gateway-0"), status.own_port("gateway-1")
    for number in range(3):
        meter = await Hand.connect(first, f"meter-{number}", 5, expiry_s=100_000)
        await meter.subscribe("plant/+/temp", 1)
        await meter.close()
    stuck = await Hand.connect(first, "stuck", 5, receive_max=2)
    await stuck.subscribe("plant/#", 1)
    panel = await Hand.connect(second, "panel", 4)
    await panel.subscribe("plant/1/temp", 2)
    brief = await Hand.connect(second, "brief", 5, expiry_s=0)
    await brief.subscribe("note", 1, 9)
    publishers = [await Hand.connect(second, f"p{number}", 5, expiry_s=0) for number in range(4)]
    for number, publisher in enumerate(publishers):
        await publisher.published("plant/1/temp", *"abc", retain=number == 0)
        await publisher.published(f"plant/{number}/noise", "x")
    for _ in range(12):
        await panel.taken()
    await stuck.messages(2)
    await panel.alive()

    clients = {one["client"]: one for one in await told(broker, "clients")}
    assert {name: (one["connected"], one["session"], one["gateway"]) for name, one in clients.items()} == {
        **{f"meter-{number}": (False, "durable", None) for number in range(3)},
        **{f"p{number}": (True, "ephemeral", "gateway-1") for number in range(4)},
        "stuck": (True, "durable", "gateway-0"), "panel": (True, "durable", "gateway-1"), "brief": (True, "ephemeral", "gateway-1"),
    }  # fmt: skip
    assert all(one["home"] == HOMES.shard_of(name.encode()) for name, one in clients.items())
    sessions = {one["client"]: one for one in await told(broker, "sessions", "ls")}
    assert {name: one["subscriptions"] for name, one in sessions.items()} == dict.fromkeys(
        ["meter-0", "meter-1", "meter-2", "stuck", "panel"], 1
    )
    lags = await told(broker, "sessions", "lag")
    assert {one["client"]: (one["messages"], one["counted"]) for one in lags} == {
        "stuck": (16, True), **{f"meter-{number}": (12, True) for number in range(3)},
    }  # fmt: skip
    assert lags[0]["client"] == "stuck" and all(one["loss_in_ms"] == 7 * 86_400_000 for one in lags)
    assert {(one["client"], one["filter"]) for one in await told(broker, "subs", "--topic", "plant/2/noise")} == {("stuck", "plant/#")}
    assert [(one["topic"], one["publisher"]) for one in await told(broker, "retained")] == [("plant/1/temp", "p0")]
    assert sum(one["messages"] for one in await told(broker, "topics")) == 16
    read = (await told(broker, "topics", "explain", "plant/+/temp"))["generations"]
    assert sum(one["matching"] for one in read) == 12 and sum(one["messages"] for one in read) == 16

    assert await told(broker, "sessions", "kick", "stuck") == {"client": "stuck", "kicked": True}
    assert await stuck.ended() == "DISCONNECT 0x98"
    stuck.drop()
    assert (await told(broker, "clients", "stuck"))["connected"] is False
    gone = await told(broker, "sessions", "rm", "meter-1", "--yes")
    assert (gone["messages"], gone["subscriptions"], gone["kicked"]) == (12, 1, False)
    assert {one["client"] for one in await told(broker, "sessions", "ls")} == {"meter-0", "meter-2", "stuck", "panel"}
    back = await Hand.connect(first, "meter-1", 5, expiry_s=0)
    assert not back.present
    for hand in (back, panel, brief, *publishers):
        await hand.close()


def test_a_process_of_its_own_says_the_same(broker: RunningBroker) -> None:
    """As people type it: sites and replicas with all of them up, and a sentence with its code."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(broker.executable), *words, "--data-dir", str(broker.data_dir)]
        return subprocess.run(command, cwd=broker.directory, capture_output=True, text=True, timeout=60, check=False)

    site = json.loads((broker.data_dir / "site.json").read_text())["site"].upper()
    lines = run("ds", "info").stdout.splitlines()
    assert lines[:2] == ["THIS SITE:", site] and lines[4].endswith("'        up")
    assert lines[-2:] == [f"messages/{shard}                        {site}" for shard in range(2)]
    refused = run("sessions", "show", "nobody")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == "holdfast: nobody has no session that outlives its connection.\n"
