"""What commands say of a running broker, in lines and in JSON, and with which code they end; over the servers of one loop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.cli.test_leases import announce

pytestmark = [pytest.mark.slow]
_LOGGED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")


async def said(path: Path, *words: str, answer: str | None = None) -> Result:
    """The command, beside the loop of the broker."""
    return await asyncio.to_thread(CliRunner().invoke, app, [*words, "--data-dir", str(path)], input=answer)


def lines(result: Result) -> list[str]:
    """Without what the broker, which is in this process, has logged in between."""
    assert result.exit_code == 0, result.output
    return [line for line in result.stdout.splitlines() if not _LOGGED.match(line)]


async def told(path: Path, *words: str) -> Any:
    (line,) = [line for line in lines(await said(path, *words, "--json")) if line[:1] in "[{"]
    return json.loads(line)


async def prepared(broker: OneLoop) -> list[Hand]:
    """`away` has a session and is behind by 4 messages, `panel` is connected and has everything, `brief` is ephemeral."""
    away = await Hand.connect(broker.port, "away", 5, expiry_s=100_000)
    await away.subscribe("plant/+/temp", 1, 3)
    await away.close()
    panel = await Hand.connect(broker.port, "panel", 4)
    await panel.subscribe("plant/#", 1)
    brief = await Hand.connect(broker.port, "brief", 5, expiry_s=0)
    await brief.subscribe("note/+", 0)
    for number in range(4):
        await panel.published(f"plant/{number}/temp", "x", retain=number == 1)
        await panel.taken()
    await panel.published("plant/1/noise", "x")
    await panel.taken()
    await panel.alive()
    return [panel, brief]


async def test_lines_for_people_and_json_for_scripts(tmp_path: Path) -> None:
    """Columns with heads; the same facts in JSON under names that stay."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        announce(broker)
        hands = await prepared(broker)
        heads, *rows = lines(await said(tmp_path, "clients"))
        assert heads.split() == ["CLIENT", "STATE", "SESSION", "USER", "FROM", "GATEWAY", "SINCE"]
        assert sorted(tuple(row.split()[:3]) for row in rows) == [
            ("away", "away", "durable"), ("brief", "online", "ephemeral"), ("panel", "online", "durable"),
        ]  # fmt: skip
        assert [one["client"] for one in await told(tmp_path, "clients", "--away")] == ["away"]
        assert len(await told(tmp_path, "clients", "--limit", "2")) == 2
        one = await told(tmp_path, "clients", "panel")
        assert (one["connected"], one["protocol"], one["gateway"]) == (True, 4, "gateway-0") and one["connected_at"].endswith("Z")
        assert any(line.split() == ["expiry_s", "100000"] for line in lines(await said(tmp_path, "clients", "away")))

        found = {one["client"]: one for one in await told(tmp_path, "sessions", "ls")}
        assert {name: (one["subscriptions"], one["unfinished"]) for name, one in found.items()} == {"away": (1, 0), "panel": (1, 0)}
        heads, row = lines(await said(tmp_path, "sessions", "lag"))
        assert row.split()[:5] == ["away", "away", "4", "4", "0"] and row.split()[-1] == "7d"
        text, filter_line, *_ = lines(await said(tmp_path, "sessions", "lag", "away"))
        assert re.match(r"away is behind by 4 messages: 4 unread \(\d+ B\), 0 unfinished, the oldest of ", text)
        assert text.endswith("; loses some in 7d at the earliest") and filter_line.startswith("  plant/+/temp, shard ")
        assert lines(await said(tmp_path, "sessions", "lag", "panel")) == ["panel is not behind"]
        shown = await told(tmp_path, "sessions", "show", "away")
        assert shown["lag"]["messages"] == 4 and [one["filter"] for one in shown["subscribed"]] == ["plant/+/temp"]

        assert {(one["client"], one["filter"]) for one in await told(tmp_path, "subs", "--topic", "plant/7/temp")} == {
            ("away", "plant/+/temp"), ("panel", "plant/#"),
        }  # fmt: skip
        assert lines(await said(tmp_path, "subs", "--client", "brief"))[1].split() == ["brief", "note/+", "0", "ephemeral", "no"]
        assert [one["topic"] for one in await told(tmp_path, "retained", "plant/#")] == ["plant/1/temp"]
        for hand in hands:
            await hand.close()


async def test_topics_as_a_tree_and_what_a_wildcard_costs(tmp_path: Path) -> None:
    """Literal levels until many are seen, then +; counts of what is below each."""
    async with OneLoop(tmp_path, sets=("durable_storage.messages.capture=['#']",)) as broker:
        announce(broker)
        assert lines(await said(tmp_path, "topics")) == ["no messages are stored"]
        hand = await Hand.connect(broker.port, "p", 5)
        for number in range(15):
            await hand.published(f"plant/{number}/temp", "12345")
        await hand.published("site", "x")
        tree = lines(await said(tmp_path, "topics", "--filter", "plant/#"))
        assert tree[0].split()[:3] == ["plant", "15", "messages,"] and any(line.startswith("  +") for line in tree)
        below = next(line for line in tree if line.startswith("  +"))
        assert below.split()[1:3] == ["5", "messages,"], "ten are told apart, then they vary"
        assert len(lines(await said(tmp_path, "topics", "--depth", "1"))) == 2
        assert sum(one["messages"] for one in await told(tmp_path, "topics")) == 16

        first, generation, *streams = lines(await said(tmp_path, "topics", "explain", "plant/12/temp"))
        assert first == "plant/12/temp matches 1 message in 1 stream of 12"
        assert "1 stream of 12, 0 as a whole and 1 by the index; 1 of 16 messages" in generation
        assert streams == ["  plant/+/temp  by its level 2=12"]
        (whole,) = (await told(tmp_path, "topics", "explain", "plant/+/temp"))["generations"]
        assert (whole["read"], whole["whole"], whole["by_index"], whole["matching"]) == (11, 11, 0, 15)
        await hand.close()


async def test_a_session_is_ended_when_somebody_has_said_yes(tmp_path: Path) -> None:
    """First it is said what is lost; with a no everything stays."""
    async with OneLoop(tmp_path) as broker:
        announce(broker)
        hands = await prepared(broker)
        kept = await said(tmp_path, "sessions", "rm", "away", answer="n\n")
        assert kept.exit_code == 1 and "go 1 subscription, 4 messages that it has not finished" in kept.stdout
        assert "is as it was" in kept.stderr
        assert (await said(tmp_path, "sessions", "rm", "away", "--json")).exit_code == 2
        gone = await told(tmp_path, "sessions", "rm", "away", "--yes")
        assert gone == {"client": "away", "kicked": False, "subscriptions": 1, "messages": 4, "counted": True}
        assert (await said(tmp_path, "sessions", "rm", "away", "--yes")).exit_code == 1
        assert lines(await said(tmp_path, "sessions", "kick", "panel")) == ["panel is disconnected"]
        assert await hands[0].ended() == "closed"
        hands[0].drop()
        assert "it was disconnected" not in (await said(tmp_path, "sessions", "rm", "panel", "--yes")).stdout
        assert await told(tmp_path, "sessions", "ls") == []
        await hands[1].close()


async def test_what_cannot_be_is_one_sentence_and_what_is_missing_is_named(tmp_path: Path) -> None:
    """Exit 1 for what is not so, 2 for what makes no sense, 3 when somebody has not answered."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        announce(broker)
        for words, code, sentence in (
            (("clients", "nobody"), 1, "nobody is not connected and has no session."),
            (("clients", "--online", "--away"), 2, "nobody is both"),
            (("sessions", "show", "nobody"), 1, "nobody has no session"),
            (("sessions", "lag", "nobody"), 1, "nobody has no durable session."),
            (("sessions", "kick", "nobody"), 1, "nobody is not connected."),
            (("subs", "--topic", "a/+"), 2, "is no topic"),
            (("topics", "explain", "a/#/b"), 2, "is no topic filter"),
            (("retained", "a#"), 2, "is no topic filter"),
        ):
            result = await said(tmp_path, *words)
            assert (result.exit_code, sentence in result.stderr) == (code, True), (words, result.output)
        hand = await Hand.connect(broker.port, "c", 5)
        await broker.gateways[0]._links._server.stop()
        (Path(broker.topology.gateway_endpoint(0))).unlink(missing_ok=True)
        result = await said(tmp_path, "clients")
        assert result.exit_code == 3 and "not all is here: gateway-0 did not answer." in result.stderr
        assert "c " in result.stdout
        await hand.close()


def test_without_a_broker_they_say_so(tmp_path: Path) -> None:
    """One sentence, and code 1."""
    for words in (["clients"], ["sessions", "ls"], ["subs"], ["topics"], ["retained"], ["sessions", "kick", "c"]):
        result = CliRunner().invoke(app, [*words, "--data-dir", str(tmp_path)])
        assert result.exit_code == 1 and "nothing runs in" in result.stderr, words


def test_a_shell_completes_commands_and_what_they_take() -> None:
    """Those below a group as well, and the names of storages."""
    found = {}
    for typed in ("holdfast ", "holdfast sessions ", "holdfast ds join "):
        asked = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()))}
        program = "import sys; sys.argv[0] = 'holdfast'; from cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False
        )
        found[typed] = set(done.stdout.split())
    assert {"up", "clients", "sessions", "ds"} <= found["holdfast "]
    assert found["holdfast sessions "] == {"ls", "show", "lag", "kick", "rm", "peek", "skip", "rewind", "purge"} and found[
        "holdfast ds join "
    ] == {"messages", "all"}
