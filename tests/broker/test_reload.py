"""One real broker whose settings change while it runs, by `holdfast reload` and by SIGHUP, with processes killed before and after."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.actors.hand import Ended, Hand
from tests.broker.running import QUIET_RAY, Options, RunningBroker

WITHIN_S = 60.0
LENGTH = "durable_storage.messages.generation_length"
LAYOUT = "durable_storage.messages.layout.type"


@dataclass(frozen=True, slots=True)
class Configured:
    """A broker, and the file that it was started with."""

    broker: RunningBroker
    file: Path

    def write(self, length: str, layout: str, **more: str) -> None:
        lines = [
            f"{LENGTH} = {length!r}",
            f"{LAYOUT} = {layout!r}",
            *(f"{key.replace('__', '.')} = {value}" for key, value in more.items()),
        ]
        self.file.write_text("".join(f"{line}\n" for line in lines))

    def reload(self) -> subprocess.CompletedProcess[str]:
        return self.run("reload")

    def generations(self) -> list[tuple[int, str]]:
        """Their numbers and layouts, the current one last."""
        (shard,) = json.loads(self.run("storage", "info", "--json").stdout)
        return [(row["generation"], row["layout"]) for row in shard["generations"]]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.broker.executable), *words, "--data-dir", str(self.broker.data_dir)]
        return subprocess.run(command, cwd=self.broker.directory, capture_output=True, text=True, timeout=60, check=False)

    def pid(self, name: str) -> int:
        return next(process.pid for process in self.broker.status().processes if process.name == name)

    def log(self, name: str) -> str:
        """Nothing, as long as there is none."""
        path = self.broker.data_dir / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    file = tmp_path_factory.mktemp("reload") / "holdfast.toml"
    settings = {**QUIET_RAY, "durable_storage.messages.n_shards": "1", "mqtt.max_inflight": "50"}
    made = Configured(RunningBroker(Options(settings, config=file)), file)
    made.write("1d", "skipstream")
    with made.broker:
        yield made


async def until(found: Callable[[], bool], story: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not await asyncio.to_thread(found):
        assert time.monotonic() < deadline, f"{story}: not within {WITHIN_S} s"
        await asyncio.sleep(0.2)


async def connected(port: int, expiry_s: int) -> Hand:
    """As soon as there is a gateway."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return await Hand.connect(port, f"few-{expiry_s}", 5, expiry_s=expiry_s)
        except (AssertionError, Ended, OSError):
            assert time.monotonic() < deadline, f"no gateway within {WITHIN_S} s"
            await asyncio.sleep(0.2)


@dataclass(slots=True)
class Publisher:
    """Publishes numbers, spread over some topics."""

    hand: Hand
    last: int = 0

    async def some(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            await self.hand.published(f"of/{self.last % 3}", str(self.last))

    async def until(self, found: Callable[[], bool], story: str) -> None:
        """A generation without a message goes on."""
        deadline = time.monotonic() + WITHIN_S
        while not await asyncio.to_thread(found):
            assert time.monotonic() < deadline, f"{story}: not within {WITHIN_S} s"
            await self.some(1)


async def test_a_layout_that_is_changed_while_messages_come_is_that_of_the_next_generation(configured: Configured) -> None:
    """From skipstream to record_batch and back: a session that was away reads everything, in the order of each topic, and a shard
    that is killed afterwards goes on with the settings that are in force, not with those it was first started with."""
    port = configured.broker.port
    sub = await Hand.connect(port, "away", 5)
    await sub.subscribe("of/+", 1)
    await sub.close()
    publisher = Publisher(await Hand.connect(port, "busy", 5))
    await publisher.some(20)
    assert configured.generations() == [(1, "skipstream")]

    configured.write("1s", "record_batch")
    done = await asyncio.to_thread(configured.reload)
    assert done.returncode == 0, done.stderr
    assert f'{LAYOUT}: "skipstream" -> "record_batch"' in done.stdout and f'{LENGTH}: "1d" -> "1s"' in done.stdout
    await publisher.until(lambda: len(configured.generations()) >= 2, "the shorter generation")
    await publisher.some(20)
    assert {layout for number, layout in configured.generations() if number > 1} == {"record_batch"}

    shard = configured.pid("shard-0")
    await asyncio.to_thread(configured.broker.kill, shard)
    await publisher.some(1)
    before = configured.generations()[-1][0]
    await publisher.until(lambda: configured.generations()[-1][0] > before, "the shorter generation of the next process")
    assert configured.generations()[-1][1] == "record_batch"

    configured.write("1s", "skipstream")
    assert (await asyncio.to_thread(configured.reload)).returncode == 0
    await publisher.until(lambda: configured.generations()[-1][1] == "skipstream", "the former layout")
    await publisher.some(5)

    sub = await Hand.connect(port, "away", 5, receive_max=60_000)
    assert sub.present
    got = []
    for _ in range(publisher.last):
        got.append(await sub.taken())
    await sub.alive()
    numbers = [int(one.payload) for one in got]
    assert sorted(numbers) == list(range(1, publisher.last + 1))
    for topic in range(3):
        of_topic = [number for number in numbers if number % 3 == topic]
        assert of_topic == sorted(of_topic)


async def test_what_cannot_be_used_changes_nothing_and_what_needs_a_restart_is_named(configured: Configured) -> None:
    """One sentence for each mistake and exit 1, also for what is fixed; exit 3 when the rest is in force."""
    configured.write("1h", "skipstream", durable_storage__messages__n_shards="3")
    wrong = await asyncio.to_thread(configured.reload)
    assert wrong.returncode == 0, "--set of the start comes later than the file, as at the start"
    configured.write("2h", "record_bunch")
    wrong = await asyncio.to_thread(configured.reload)
    assert wrong.returncode == 1 and 'type = "record_bunch"' in wrong.stderr and "nothing was changed" in wrong.stderr
    configured.write("2h", "skipstream", durable_storage__messages__n_sites="1", gateway__count="2")
    partly = await asyncio.to_thread(configured.reload)
    assert partly.returncode == 3
    assert f'{LENGTH}: "1h" -> "2h"' in partly.stdout and 'gateway.count: "auto" -> 2' in partly.stdout.partition("restarted")[2]
    again = await asyncio.to_thread(configured.reload)
    assert again.returncode == 3 and LENGTH not in again.stdout and 'gateway.count: "auto" -> 2' in again.stdout


async def test_processes_that_are_away_have_the_settings_when_they_are_back(configured: Configured) -> None:
    """Killed right before: the controller, which brings them, and a gateway, which takes them. The command waits for both."""
    pids = [configured.pid(name) for name in ("controller-0", "gateway-0")]
    for pid in pids:
        await asyncio.to_thread(configured.broker.kill, pid)
    configured.write("3h", "skipstream", mqtt__max_subscriptions="1")
    done = await asyncio.to_thread(configured.reload)
    assert done.returncode == 0 or "away at the moment" in done.stdout, done.stdout
    for expiry_s in (0, 60):
        # The gateway counts those of sessions that end with their connection, and the session actor the others.
        hand = await connected(configured.broker.port, expiry_s)
        await hand.subscribe("one/+", 1)
        assert await hand.subscribed(hand.ask("two/+", 1)) == b"\x97"
        await hand.close()


async def test_sighup_reloads_and_does_not_stop(configured: Configured) -> None:
    """As `systemctl reload` sends it; twice at once is one or two reloads, and never an end."""
    launcher = configured.pid("launcher")
    configured.write("3h", "skipstream")
    await asyncio.to_thread(configured.reload)
    configured.write("4h", "skipstream")
    for _ in range(2):
        configured.broker.signal(launcher, signal.SIGHUP)
    await until(lambda: '"3h" -> "4h"' in configured.log("reload").replace("\\", ""), "the reload")
    assert "nothing differs" in (await asyncio.to_thread(configured.reload)).stdout
    assert configured.pid("launcher") == launcher
