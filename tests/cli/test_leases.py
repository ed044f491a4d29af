"""`holdfast storage lease`, on a running broker: the servers of one loop, found by the run directory as those of any broker."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from actors.processes import identify
from actors.run import Run, boot_id, record_run
from cli.main import app
from tests.actors.one_loop import OneLoop

pytestmark = [pytest.mark.slow]


def announce(broker: OneLoop) -> None:
    """As the launcher does it."""
    launcher = identify(os.getpid())
    assert launcher is not None
    topology = broker.topology
    record_run(topology.data_dir, Run(topology.run_dir, launcher, boot_id(), False))
    (topology.run_dir / "topology.json").write_text(topology.to_json())


async def lease(path: Path, *words: str) -> Result:
    """The command, beside the loop of the broker."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["storage", "lease", *words, "--data-dir", str(path)])


async def said(path: Path, *words: str) -> Any:
    result = await lease(path, *words, "--json")
    assert result.exit_code == 0, result.output
    # The broker is in this process, too, and its log comes in between.
    (line,) = [line for line in result.stdout.splitlines() if line[:1] in "[{"]
    return json.loads(line)


async def test_a_lease_is_made_acknowledged_renewed_and_dropped(tmp_path: Path) -> None:
    """In every shard, each with its own place; all of it is there after a restart of a shard."""
    async with OneLoop(tmp_path, n_shards=2) as broker:
        announce(broker)
        made = await said(tmp_path, "create", "backup", "--filter", "a/#", "--ttl", "2h", "--max-bytes", "1GiB", "--start", "earliest")
        assert [row["shard"] for row in made] == [0, 1] and all(row["position"] == -1 for row in made)
        latest = await said(tmp_path, "create", "late", "--block")
        assert all(row["position"] >= 0 for row in latest)
        place = latest[1]["position"]
        assert await said(tmp_path, "ack", "backup", str(place), "--shard", "1") == [{"name": "backup", "shard": 1, "position": place}]
        assert (await said(tmp_path, "ack", "backup", "0", "--shard", "1"))[0]["position"] == place, "a place never goes back"
        await broker.restart_shard(1)
        again = await said(tmp_path, "renew", "backup")
        assert [row["position"] for row in again] == [-1, place]
        rows = {(row["name"], row["shard"]): row for row in await said(tmp_path, "ls")}
        assert set(rows) == {("backup", 0), ("backup", 1), ("late", 0), ("late", 1)}
        one = rows["backup", 1]
        assert (one["filters"], one["ttl_ms"], one["max_bytes"], one["block"]) == (["a/#"], 7_200_000, 1 << 30, False)
        assert 7_000_000 < one["left_ms"] <= 7_200_000 and one["losses"] == 0
        text = (await lease(tmp_path, "ls")).stdout
        assert "late, shard 0" in text and "whatever price" in text and "stores a/#" in text
        assert await said(tmp_path, "rm", "late") == {"name": "late"}
        assert {row["name"] for row in await said(tmp_path, "ls")} == {"backup"}
        assert broker.shards[0].counters()["leases"] == 1


async def test_what_a_lease_captures_is_stored_until_it_is_gone(tmp_path: Path) -> None:
    """Without a session that wants it; from the lease on, and no longer than it."""
    from tests.actors.hand import Hand

    async with OneLoop(tmp_path) as broker:
        announce(broker)
        hand = await Hand.connect(broker.port, "p", 5)
        stored = []
        for words in ((), ("create", "reader", "--filter", "a/+"), ("rm", "reader")):
            if words:
                await said(tmp_path, *words)
            await hand.published("a/1", "x")
            await hand.published("b", "x")
            stored.append(broker.shards[0].counters()["messages_stored"])
        assert stored == [0, 1, 1]
        await hand.close()


async def test_what_cannot_be_is_one_sentence(tmp_path: Path) -> None:
    """Exit 1 for what the broker refuses, 2 for what makes no sense."""
    async with OneLoop(tmp_path) as broker:
        announce(broker)
        assert (await lease(tmp_path, "create", "one")).exit_code == 0
        for words, code, sentence in (
            (("create", "one"), 1, "there is a lease one already"),
            (("renew", "two"), 1, "there is no lease two."),
            (("ack", "two", "5"), 1, "there is no lease two."),
            (("ack", "one", "5", "--shard", "7"), 2, "there is no shard 7"),
            (("rm", "two"), 1, "there is no lease two."),
            (("create", "a b"), 2, "no name for a lease"),
            (("create", "b", "--filter", "a/#/b"), 2, "no topic filter"),
            (("create", "b", "--ttl", "soon"), 2, "no duration"),
            (("create", "b", "--start", "noon"), 2, "no start"),
        ):
            result = await lease(tmp_path, *words)
            assert (result.exit_code, sentence in result.stderr) == (code, True), (words, result.stderr)


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    """A lease lives in a running broker."""
    result = CliRunner().invoke(app, ["storage", "lease", "ls", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1 and "nothing runs in" in result.stderr
