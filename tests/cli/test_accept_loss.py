"""`holdfast storage accept-loss`: a store that is lost is replaced by one that nobody takes for it."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actors import ROOT
from actors.datadir import open_data_directory, read_site
from cli.main import app
from shards.replacement import POSITIONS_PER_INCARNATION
from shards.slots import SlotTable
from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop

SLOTS = SlotTable.initial(2)


def at_home(shard: int, what: str) -> str:
    """A client, or the publisher of a message, whose home is this shard."""
    return next(name for name in (f"{what}-{number}" for number in range(100)) if SLOTS.shard_of(name.encode()) == shard)


def accept(data_dir: Path, shard: int) -> Result:
    return CliRunner().invoke(app, ["storage", "accept-loss", "--shard", str(shard), "--data-dir", str(data_dir)])


async def publish(broker: OneLoop, word: str) -> None:
    """One message from a client of each shard, to a topic of its own."""
    for shard in (0, 1):
        hand = await Hand.connect(broker.port, at_home(shard, "pub"), 5)
        await hand.published(f"of/{shard}", f"{word} {shard}")
        await hand.close()


async def test_sessions_of_other_shards_go_on_and_those_of_the_lost_one_begin_anew(tmp_path: Path) -> None:
    """They get what is published from then on in both shards, once, over another restart too; and nothing of the lost store is believed."""
    open_data_directory(tmp_path, n_shards=2, n_shards_new=2).close()
    subs = [at_home(shard, "sub") for shard in (0, 1)]
    async with OneLoop(tmp_path, n_shards=2) as broker:
        for sub in subs:
            hand = await Hand.connect(broker.port, sub, 5)
            await hand.subscribe("of/+", 1)
            await hand.close()
        await publish(broker, "before")
    shutil.rmtree(tmp_path / "shards" / "1")

    result = await asyncio.to_thread(accept, tmp_path, 1)
    assert result.exit_code == 0, result.output
    assert "1 subscriptions of sessions in other shards" in result.stdout
    site = read_site(tmp_path)
    assert site is not None and site.incarnation == 2
    assert [(loss.shard, loss.incarnation) for loss in site.losses] == [(1, 2)]
    assert "store.loss_accepted" in (tmp_path / "logs" / "launcher.log").read_text()

    for word in ("after", "later"):
        async with OneLoop(tmp_path, n_shards=2) as broker:
            await publish(broker, word)
            assert broker.shards[1]._core.watermark > POSITIONS_PER_INCARNATION
            for shard, sub in enumerate(subs):
                hand = await Hand.connect(broker.port, sub, 5)
                assert hand.present == (shard == 0 or word == "later")
                if hand.present:
                    of_word = [f"{word} 0", f"{word} 1"]
                    expected = ["before 0", *of_word] if (shard, word) == (0, "after") else of_word
                    got = [await hand.taken() for _ in expected]
                    assert sorted(one.payload for one in got) == sorted(expected)
                else:
                    await hand.subscribe("of/+", 1)
                await hand.alive()
                await hand.close()
    said = await asyncio.to_thread(CliRunner().invoke, app, ["storage", "losses", "--json", "--data-dir", str(tmp_path)])
    assert [(loss["client"], loss["shard"], loss["reason"]) for loss in json.loads(said.output)] == [(subs[0], 1, "store lost")]


async def test_what_is_not_lost_cannot_be_accepted_as_lost(tmp_path: Path) -> None:
    """A store that is there, one that never was, a shard that is not, a broker that runs: one sentence each, and nothing is changed."""
    directory = open_data_directory(tmp_path, n_shards=2, n_shards_new=2)
    before = (tmp_path / "site.json").read_bytes()
    assert "in use" in accept(tmp_path, 0).stderr
    directory.close()
    assert "never had a store" in accept(tmp_path, 0).stderr
    assert accept(tmp_path, 2).exit_code == 2
    async with OneLoop(tmp_path, n_shards=2):
        pass
    assert "nothing is lost" in accept(tmp_path, 1).stderr
    assert (tmp_path / "site.json").read_bytes() == before


@pytest.mark.parametrize("crash_after", [0, 1, 2])
def test_a_crash_in_the_middle_leaves_a_broker_that_does_not_start_and_a_command_that_works(tmp_path: Path, crash_after: int) -> None:
    """Killed before site.json, after it, and with half of a new store: the loss is accepted by saying it again."""
    open_data_directory(tmp_path, n_shards=1, n_shards_new=1).close()
    marks, store = tmp_path / "known-stores", tmp_path / "shards" / "0"
    marks.mkdir()
    (marks / "0").write_text("")
    if crash_after > 0:
        fields = json.loads((tmp_path / "site.json").read_text())
        (tmp_path / "site.json").write_text(
            json.dumps(fields | {"incarnation": 2, "losses": [{"shard": 0, "incarnation": 2, "accepted": "a moment ago"}]})
        )
    if crash_after > 1:
        half = tmp_path / "shards" / "0.new"
        half.mkdir(parents=True)
        (half / "CURRENT").write_text("half")
    result = accept(tmp_path, 0)
    assert result.exit_code == 0, result.output
    site = read_site(tmp_path)
    assert site is not None and site.incarnation == (3 if crash_after else 2)
    assert (store / "CURRENT").exists() and [each.name for each in (tmp_path / "shards").iterdir()] == ["0"]


def test_a_broker_whose_store_is_gone_does_not_start_and_says_which(tmp_path: Path) -> None:
    """One sentence from `up`, before anything is started, and nothing is made in the place of what is gone."""
    open_data_directory(tmp_path, n_shards=2, n_shards_new=2).close()
    (tmp_path / "known-stores").mkdir()
    (tmp_path / "known-stores" / "1").write_text("")
    command = [sys.executable, "-m", "cli.main", "up", "--detach", "--data-dir", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert f"the store of shard 1 is not at {tmp_path}/shards/1" in done.stderr
    assert not (tmp_path / "shards").exists() and not (tmp_path / "run.json").exists()


def test_of_several_sites_the_others_have_it_and_the_command_says_what_to_do(tmp_path: Path) -> None:
    """Nothing is changed: a store that stands alone would be put where a copy belongs."""
    open_data_directory(tmp_path, n_shards=2, n_shards_new=2, n_sites=3, replication_factor=3).close()
    before = (tmp_path / "site.json").read_bytes()
    result = accept(tmp_path, 1)
    assert result.exit_code == 1 and "3 sites share this store" in result.output and "holdfast up" in result.output
    assert "holdfast ds force-leader" in result.output
    assert (tmp_path / "site.json").read_bytes() == before and not (tmp_path / "shards").exists()
