"""One real broker with two shards, backed up while it is used: a shard and the command itself are killed meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.actors.hand import Hand
from tests.actors.one_loop import OneLoop
from tests.actors.test_backup import in_order
from tests.broker.running import QUIET_RAY, Options, RunningBroker
from tests.cli.test_accept_loss import at_home

pytestmark = pytest.mark.parametrize(
    "broker", [Options({**QUIET_RAY, "durable_storage.messages.n_shards": "2"})], indirect=True, ids=["two shards"]
)
PAYLOAD = "x" * 4000
SLOWLY = "1MiB"
"""A second, so that something happens meanwhile, and some for those that are killed."""


def begun(broker: RunningBroker, *words: str | Path) -> subprocess.Popen[bytes]:
    command = [str(broker.executable), *map(str, words), "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


async def ended(command: subprocess.Popen[bytes]) -> dict[str, Any]:
    out, err = await asyncio.to_thread(command.communicate, None, 120)
    assert command.returncode == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


async def at_work(command: subprocess.Popen[bytes], into: Path, but: str = "") -> str:
    """The name under which a backup copies files."""
    while True:
        for part in into.glob("*.part"):
            if part.name != but and list(part.glob("shards/*/MANIFEST-*")):
                return part.name
        assert command.poll() is None, f"it ended before it was seen at work: {command.communicate()}"
        await asyncio.sleep(0.01)


async def test_a_backup_beside_clients_that_lives_through_the_death_of_a_shard_and_is_never_half(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """Every message that was acknowledged when it began is in what is restored, though the shard that had it was killed in the middle. Of a
    backup that was killed nothing is left that could be taken for one."""
    into = tmp_path / "backups"
    subs = [at_home(shard, "sub") for shard in (0, 1)]
    for sub in subs:
        hand = await Hand.connect(broker.port, sub, 5)
        await hand.subscribe("load/#", 1)
        await hand.close()
    acknowledged: dict[str, int] = {}
    done = asyncio.Event()

    async def publish(name: str) -> None:
        hand = await Hand.connect(broker.port, name, 5)
        for number in itertools.count(1):
            await hand.published(f"load/{name}/{number % 5}", f"{name}:{number}:{PAYLOAD}")
            acknowledged[name] = number
            if done.is_set():
                break
            await asyncio.sleep(0.002)
        await hand.close()

    publishers = [asyncio.create_task(publish(at_home(shard, "pub"))) for shard in (0, 1)]
    while len(acknowledged) < 2 or min(acknowledged.values()) < 200:  # noqa: ASYNC110
        await asyncio.sleep(0.05)

    slowly = ("backup", into, "--data-dir", broker.data_dir, "--rate", SLOWLY)
    killed = begun(broker, *slowly)
    half = await at_work(killed, into)
    killed.send_signal(signal.SIGKILL)
    await asyncio.to_thread(killed.communicate)
    assert sorted(path.name for path in into.iterdir()) == [half, "lock"] and not (into / half / "manifest.json").exists()

    promised = dict(acknowledged)
    command = begun(broker, *slowly)
    await at_work(command, into, but=half)
    await asyncio.to_thread(lambda: broker.kill(broker.status().pids("shard")[0]))
    said = await ended(command)
    assert not (into / half).exists() and not said["stopped"]
    done.set()
    await asyncio.gather(*publishers)

    new = tmp_path / "new"
    assert (await ended(begun(broker, "restore", into, "--data-dir", new)))["backup"] == said["backup"]
    async with OneLoop(new, 2) as restored:
        wanted = {f"{name}:{number}" for name, upto in promised.items() for number in range(1, upto + 1)}
        for sub in subs:
            hand = await Hand.connect(restored.port, sub, 5)
            assert hand.present
            got: list[str] = []
            while not wanted <= set(got):
                got.append((await hand.taken()).payload.removesuffix(f":{PAYLOAD}"))
            assert len(set(got)) == len(got) and in_order(got)
            await hand.close()
