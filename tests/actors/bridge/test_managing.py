"""Bridges as people manage them: over HTTP and by command, while the broker runs."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from actors.bridge import managing
from actors.bridge.managing import Refused
from actors.bridge.server import BridgeServer
from actors.inquiry.asking import Asking
from actors.origin import Origin, write_origin
from actors.snapshot import settings_in_force
from config.load import BRIDGES_FILE
from tests.actors.bridge.carried import Bridges, until
from tests.actors.one_loop import OneLoop
from tests.broker.replaying import Replayer

pytestmark = [pytest.mark.slow]


@asynccontextmanager
async def managed(tmp_path: Path) -> AsyncIterator[tuple[OneLoop, BridgeServer]]:
    """A broker whose settings can be changed by command, as its controller would bring them."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        topology = broker.topology
        topology.log_dir.mkdir()
        write_origin(topology.run_dir, Origin(sets=broker._always, data_dir=str(tmp_path)))
        async with Bridges(broker) as server:
            task = asyncio.create_task(_bring(broker, server))
            yield broker, server
            task.cancel()


async def _bring(broker: OneLoop, server: BridgeServer) -> None:
    known = None
    while True:
        config = settings_in_force(broker.topology)
        if config != known:
            known = config
            server.reconfigure(config)
        await asyncio.sleep(0.02)


async def test_a_bridge_is_made_paused_moved_and_ended_while_the_broker_runs(tmp_path: Path) -> None:
    """What is set is in bridges.toml, and what is kept for it goes with it and not before."""
    async with managed(tmp_path) as (broker, _):
        topology = broker.topology
        await managing.add(topology, "out", {"filter": "a/#", "type": "jsonl", "jsonl.path": "out.jsonl", "linger": "1ms"})
        assert await managing.online(topology, "out")
        assert tomllib.loads((tmp_path / BRIDGES_FILE).read_text())["bridges"]["out"]["jsonl"] == {"path": "out.jsonl"}
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one")
        await until(tmp_path, 1)
        (one,) = managing.bridges(topology)
        assert (one.name, one.state, one.type, one.filter) == ("out", "running", "jsonl", "a/#")

        await managing.set_paused(topology, "out", True)
        await writer.published("a/1", "two")
        assert [each.state for each in managing.bridges(topology)] == ["paused"]
        await managing.set_paused(topology, "out", False)
        assert [each["payload"] for each in await until(tmp_path, 2)] == ["one", "two"]

        async with Asking(topology) as asking:
            assert await managing.remove(asking, "out")
            with pytest.raises(Refused, match="there is no bridge out"):
                await managing.remove(asking, "out")
        assert managing.bridges(topology) == [] and not (tmp_path / BRIDGES_FILE).exists()
        await writer.alive()


async def test_settings_that_cannot_be_change_nothing(tmp_path: Path) -> None:
    """Neither the file nor what is in force; the sentence names the key."""
    async with managed(tmp_path) as (broker, _):
        topology = broker.topology
        for settings, why in (
            ({"filter": "a/#"}, "bridges.b.jsonl.path"),
            ({"filter": "a/#/b", "jsonl.path": "x"}, "bridges.b.filter"),
            ({"filter": "a", "jsonl.path": "x", "transform.where": "a ="}, "bridges.b.transform.where"),
        ):
            with pytest.raises(Refused, match=why.replace(".", r"\.")):
                await managing.add(topology, "b", settings)
        assert managing.bridges(topology) == [] and not (tmp_path / BRIDGES_FILE).exists()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"filter": "a", "type": "jsonl", "jsonl.path": "x"}, "by a command on the broker's machine"),
        ({"filter": "a", "jsonl.path": "x"}, "by a command on the broker's machine"),
        ({"filter": "a", "type": "plugin", "plugin.target": "os:system"}, "by a command on the broker's machine"),
    ],
)
async def test_a_key_of_the_api_is_no_account_on_the_machine(tmp_path: Path, settings: dict[str, object], why: str) -> None:
    """No files, no code of others, no secrets but those that are meant for it."""
    async with managed(tmp_path) as (broker, _):
        with pytest.raises(Refused, match=why):
            await managing.add(broker.topology, "b", settings, from_afar=True)
