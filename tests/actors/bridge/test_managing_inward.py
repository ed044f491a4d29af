"""Bridges inwards as people manage them: they say where what they bring waits, and leave no session behind."""

from __future__ import annotations

import json
from pathlib import Path

import aiomqtt
import pytest

from actors.bridge import managing
from actors.bridge.managing import Removed
from actors.inquiry.asking import Asking
from tests.actors.bridge.test_inward import mosquitto
from tests.actors.bridge.test_managing import asked_over_http, managed
from tests.broker.replaying import Replayer
from tests.cli.test_asked import lines, said, told
from tests.cli.test_leases import announce

pytestmark = [pytest.mark.slow, pytest.mark.needs("mosquitto")]


async def test_one_inwards_is_made_paused_and_ended_and_says_that_its_lag_is_not_known(tmp_path: Path) -> None:
    """While it is paused the other broker keeps what comes; where it is removed, its session there ends."""
    async with mosquitto(tmp_path / "there") as there, managed(tmp_path) as (loop, _):
        announce(loop)
        url = f"mqtt://127.0.0.1:{there.port}"
        words = ("filter=a/#", "direction=in", "type=mqtt", f"mqtt.url={url}", "mqtt.version=5")
        (line,) = lines(await said(tmp_path, "bridge", "add", "in", *words))
        assert line == "in is there: from now on what matches is kept for it by the other broker"
        reader = await Replayer.connect(loop.port, "reader", 5, expiry_s=300)
        await reader.replay("a/#")
        async with aiomqtt.Client("127.0.0.1", there.port) as writer:
            await writer.publish("a/1", "one", qos=1)
            assert (await reader.got()).payload == "one"
            (line,) = lines(await said(tmp_path, "bridge", "pause", "in"))
            assert line == "in is paused: what comes is kept for it by the other broker, for as long as that keeps its session"
            await writer.publish("a/1", "two", qos=1)
            (row,) = await told(tmp_path, "bridge", "ls")
            assert (row["state"], row["direction"], row["delivered"]) == ("paused", "in", None)
            await said(tmp_path, "bridge", "resume", "in")
            assert (await reader.got()).payload == "two"
        assert await managing.online(loop.topology, "in")
        shown = await told(tmp_path, "bridge", "show", "in")
        assert (shown["state"], shown["direction"], shown["lag"], shown["connections"]) == ("running", "in", None, 1)
        for verb in (("lag", "in"), ("skip", "in", "--to", "latest", "--yes"), ("rewind", "in", "--to", "earliest", "--yes")):
            refused = await said(tmp_path, "bridge", *verb)
            assert refused.exit_code == 1 and f"what in brings in waits at {url}" in refused.stderr
        async with asked_over_http(loop) as asked:
            assert (await asked("GET", "/in")).json["lag"] is None
            assert (await asked("POST", "/in/skip", {"to": "latest"})).status == 409
        async with Asking(loop.topology) as asking:
            assert await managing.remove(asking, "in") == Removed(True)
        same = await Replayer.connect(there.port, f"holdfast-{loop.topology.site}-in", 5)
        assert not same.present
        await same.close()


async def test_where_the_other_broker_is_away_its_removal_says_what_stays_there(tmp_path: Path) -> None:
    """And is done here."""
    async with managed(tmp_path) as (loop, _):
        announce(loop)
        async with mosquitto(tmp_path / "there") as there:
            url = f"mqtt://127.0.0.1:{there.port}"
            await said(tmp_path, "bridge", "add", "in", "filter=a/#", "direction=in", "type=mqtt", f"mqtt.url={url}")
        (line,) = lines(await said(tmp_path, "bridge", "rm", "in", "--yes"))
        assert line.startswith(f"bridge in has ended; its session holdfast-{loop.topology.site}-in is still there: {url} cannot be reached")
        assert json.loads((await said(tmp_path, "bridge", "ls", "--json")).stdout) == []
