"""Bridges as people manage them: over HTTP and by command, while the broker runs."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from actors.admin.app import make_app
from actors.admin.broker import Broker
from actors.admin.guard import BY
from actors.admin.health import Health
from actors.admin.survey import Survey
from actors.bridge import managing
from actors.bridge.managing import Refused, Removed
from actors.bridge.server import BridgeServer
from actors.inquiry.asking import Asking
from actors.metrics.of_survey import of_survey
from actors.origin import Origin, write_origin
from actors.snapshot import settings_in_force
from config.admin import Admin
from config.load import BRIDGES_FILE, load
from tests.actors.bridge.carried import Bridges, until
from tests.actors.one_loop import OneLoop
from tests.admin.asked import Answer, ask
from tests.broker.replaying import Replayer
from tests.cli.test_asked import lines, said, told
from tests.cli.test_leases import announce

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


@asynccontextmanager
async def asked_over_http(loop: OneLoop) -> AsyncIterator[Callable[..., Awaitable[Answer]]]:
    """(method, path below that of bridges, body) -> what the admin process answers to somebody with a key."""
    broker = Broker(loop.topology, load(environ={}))
    health = Health(broker)
    app = make_app(broker, health)

    async def keyed(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, BY: "key:ops"}, receive, send)

    async def asked(method: str, target: str = "", body: Any = None) -> Answer:
        parts = [json.dumps(body).encode() if body is not None else b""]
        return await ask(keyed, f"/api/v5/bridges{target}", method, {"content-type": "application/json"}, parts)

    try:
        yield asked
    finally:
        await health.stop()
        await broker.close()


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
            assert await managing.remove(asking, "out") == Removed(True)
            with pytest.raises(Refused, match="there is no bridge out"):
                await managing.remove(asking, "out")
        assert managing.bridges(topology) == [] and not (tmp_path / BRIDGES_FILE).exists()
        await writer.alive()


async def test_metrics_say_what_waits_for_a_bridge(tmp_path: Path) -> None:
    """Messages, bytes, seconds, and the time until something is lost, by its name; it is a durable session like others."""
    async with managed(tmp_path) as (broker, _):
        topology = broker.topology
        await managing.add(topology, "out", {"filter": "a/#", "type": "jsonl", "jsonl.path": "out.jsonl", "linger": "1ms"})
        assert await managing.online(topology, "out")
        await managing.set_paused(topology, "out", True)
        writer = await Replayer.connect(broker.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one", "two")
        survey = Survey(topology, Admin.model_validate({"survey_interval": "infinity"}))
        async with Asking(topology, within=60.0) as asking:
            found = await survey.survey(asking)
        assert found.sessions == 1 and not found.missing
        now_ms = found.began_at_ms + 1_000
        figures = {metric.name: value for metric, labels, value in of_survey(found, now_ms, name_clients=False) if labels == ("out",)}
        assert set(figures) == {f"holdfast_bridge_{word}" for word in ("lag_messages", "lag_bytes", "lag_seconds", "time_to_loss_seconds")}
        assert figures["holdfast_bridge_lag_messages"] == 2 and figures["holdfast_bridge_lag_bytes"] > len("onetwo")
        assert 0 <= figures["holdfast_bridge_lag_seconds"] < 60
        # The generation is still written to, so a whole retention period is left.
        assert figures["holdfast_bridge_time_to_loss_seconds"] >= 86_400
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


async def test_a_bridge_is_made_paused_moved_and_ended_over_http_and_by_command(tmp_path: Path) -> None:
    """What cannot be is one sentence, with the code of commands and of HTTP."""
    async with managed(tmp_path) as (loop, _):
        announce(loop)
        assert lines(await said(tmp_path, "bridge", "ls")) == ["there are no bridges"]
        (line,) = lines(await said(tmp_path, "bridge", "add", "out", "filter=a/#", "jsonl.path=out.jsonl", "linger=1ms"))
        assert line == "out is there: from now on what matches is kept for it"
        writer = await Replayer.connect(loop.port, "writer", 5, expiry_s=0)
        await writer.published("a/1", "one")
        await until(tmp_path, 1)
        for words, code, sentence in (
            (("add", "out", "filter=b"), 1, "there is a bridge out already"),
            (("add", "b", "filter=b"), 1, "bridges.b.jsonl.path"),
            (("add", "b", "filtre=b"), 2, "is no setting of a bridge"),
            (("rewind", "out", "--to", "noon", "--yes"), 2, "noon"),
            (("rm", "out", "--json"), 2, "say --yes"),
            (("show", "no"), 1, "there is no bridge no"),
            (("pause", "no"), 1, "there is no bridge no"),
            (("rm", "no", "--yes"), 1, "there is no bridge no"),
        ):
            refused = await said(tmp_path, "bridge", *words)
            assert refused.exit_code == code and sentence in refused.stderr, (words, refused.stderr)
        shown = await told(tmp_path, "bridge", "show", "out")
        assert shown["state"] == "running" and shown["settings"]["filter"] == "a/#" and shown["lag"]["messages"] == 0
        assert lines(await said(tmp_path, "bridge", "lag", "out")) == ["out is not behind"]
        assert (await told(tmp_path, "bridge", "rewind", "out", "--to", "earliest", "--yes"))["what"] == "rewind"
        assert [each["payload"] for each in await until(tmp_path, 2)] == ["one", "one"]
        assert (await told(tmp_path, "bridge", "skip", "out", "--to", "latest", "--yes"))["what"] == "skip"

        async with asked_over_http(loop) as asked:
            (listed,) = (await asked("GET")).json["data"]
            assert (listed["name"], listed["state"], listed["type"]) == ("out", "running", "jsonl")
            assert (await asked("GET", "/out")).json["lag"]["messages"] == 0
            assert (await asked("POST", "/out/pause")).json == {"paused": True}
            assert (await asked("GET", "/out")).json["state"] == "paused"
            assert (await asked("POST", "/out/resume")).json == {"paused": False}
            for method, target, body, status in (
                ("GET", "/no", None, 404), ("POST", "/no/pause", None, 404), ("POST", "/no/rewind", {"to": "1h"}, 404),
                ("POST", "/out/rewind", {"to": "noon"}, 400), ("POST", "", {"name": "b", "settings": {"filtre": "b"}}, 409),
                ("POST", "", {"name": "b", "settings": {"filter": "b", "jsonl.path": "x"}}, 409), ("DELETE", "/no", None, 404),
            ):  # fmt: skip
                answer = await asked(method, target, body)
                assert answer.status == status, (method, target, answer.json)
            assert (await asked("POST", "/out/rewind", {"to": "earliest"})).json["what"] == "rewind"
            assert (await asked("DELETE", "/out")).json == {"session_ended": True, "left_there": ""}
            assert (await asked("GET")).json["data"] == []
        await writer.close()
