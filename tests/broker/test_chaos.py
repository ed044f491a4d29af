"""One real broker that may be broken on purpose, and each way of breaking it under the loss oracle: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Any

import pytest

from tests.broker.client import Client, settled
from tests.broker.history import History
from tests.broker.running import QUIET_RAY, Options, RunningBroker

pytestmark = pytest.mark.parametrize("broker", [Options({**QUIET_RAY, "chaos.enabled": "true"})], indirect=True, ids=["enabled"])

WITHIN_S = 150
FELT_S = 1.5
"""Of a fault that lasts 2 s, and of which publishers notice."""


@dataclass(frozen=True, slots=True)
class Done:
    broken: dict[str, Any]
    verdict: dict[str, Any]


def command(broker: RunningBroker, *words: str) -> list[str]:
    return [str(broker.executable), *words, "--data-dir", str(broker.data_dir)]


def output(broker: RunningBroker, *words: str) -> str:
    return subprocess.run(command(broker, *words), capture_output=True, text=True, timeout=WITHIN_S, check=True).stdout


def chaos(broker: RunningBroker, *words: str) -> Done:
    """Under the oracle; it has to find everything as it should be, and to have judged everything."""
    asked = command(broker, "chaos", *words, "--json")
    done = subprocess.run(asked, cwd=broker.directory, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    facts = json.loads(done.stdout)
    verdict = facts["verdict"]
    assert not any(verdict["counts"].values()) and verdict["faults"] == []
    assert (verdict["unanswered"], verdict["absent"], verdict["left_behind"]) == (0, [], [])
    assert verdict["sent"] >= verdict["acknowledged"] > 100 and verdict["received"] > 4 * 100 and verdict["looks"] > 0
    return Done(facts["broken"], verdict)


def alarms(broker: RunningBroker) -> list[dict[str, str]]:
    facts = json.loads(output(broker, "status", "--json"))
    assert facts["notices"] == ["chaos is enabled: `holdfast chaos` may break this broker on purpose"]
    return [each for each in facts["alarms"] if each["kind"] == "chaos"]


def log(broker: RunningBroker, name: str) -> str:
    return (broker.data_dir / "logs" / f"{name}.log").read_text()


@pytest.mark.parametrize("role", ["shard", "session", "gateway", "controller"])
def test_a_killed_process_costs_no_message(broker: RunningBroker, role: str) -> None:
    """SIGKILL of each role; the command says whom it has killed, and so does its log."""
    before = broker.ready_status().pids(role)
    done = chaos(broker, "kill", role, "--for", "1s", "--every", "5s")
    assert done.broken == {"kind": "kill", "targets": [role], "for_ms": 1000, "how": "", "processes": [f"{role}-0"]}
    assert before != broker.ready_status().pids(role)
    assert f"killed_pid={before[0]}" in log(broker, "chaos")


def test_everything_killed_at_once_comes_back_by_itself_and_loses_no_message(broker: RunningBroker) -> None:
    """All but the launcher, Ray's own processes too."""
    before = broker.ready_status()
    done = chaos(broker, "kill", "all", "--for", "1s", "--every", "5s")
    assert set(done.broken["processes"]) >= {"shard-0", "session-0", "gateway-0", "controller-0"}
    after = broker.ready_status()
    assert set(before.pids()) & set(after.pids()) == set(before.pids("launcher"))


def test_a_shard_that_stands_still_keeps_everybody_waiting_and_loses_nothing(broker: RunningBroker) -> None:
    """For as long as it stands."""
    done = chaos(broker, "pause", "shard", "--for", "2s")
    assert done.broken["processes"] == ["shard-0"] and done.verdict["longest_silence_s"] > FELT_S


def test_a_slow_disk_makes_acknowledgements_late(broker: RunningBroker) -> None:
    """By what each sync takes more."""
    assert chaos(broker, "slow-disk", "shard-0", "--delay", "500ms", "--for", "2s").verdict["longest_silence_s"] > 0.5
    assert "chaos.began" in log(broker, "shard-0") and "chaos.ended" in log(broker, "shard-0")


def test_a_full_disk_that_gets_room_again_loses_nothing(broker: RunningBroker) -> None:
    """What it did not take is not acknowledged before."""
    assert chaos(broker, "disk-full", "shard", "--for", "2s").verdict["longest_silence_s"] > FELT_S
    assert "shard.disk_full" in log(broker, "shard-0") and "shard.disk_has_room" in log(broker, "shard-0")


@pytest.mark.parametrize("one_way", [(), ("--one-way",)], ids=["both ways", "one way"])
def test_a_gateway_that_is_cut_off_from_its_shard_loses_nothing(broker: RunningBroker, one_way: tuple[str, ...]) -> None:
    """Links are cut and refused, or are not read any more."""
    assert chaos(broker, "partition", "gateway", "shard", "--for", "2s", *one_way).verdict["longest_silence_s"] > FELT_S


def test_what_is_broken_is_whole_again_though_its_command_was_killed(broker: RunningBroker) -> None:
    """It is an alarm until then; the launcher continues what stands still."""
    broker.ready_status()
    asked = command(broker, "chaos", "pause", "shard", "--for", "4s", "--no-oracle")
    began = time.monotonic()
    with subprocess.Popen(asked, cwd=broker.directory, stdout=subprocess.DEVNULL) as running:
        while not (found := alarms(broker)):
            assert running.poll() is None, "it ended before status had shown it"
        running.send_signal(signal.SIGKILL)
    assert found[0]["name"] == "shard" and "shard is stopped (SIGSTOP)" in found[0]["cause"]
    while alarms(broker):
        assert time.monotonic() - began < WITHIN_S
    chaos(broker, "slow-disk", "shard", "--delay", "1ms", "--for", "1s")
    assert "chaos.swept" in log(broker, "launcher")


async def test_the_oracle_disturbs_nobody_and_leaves_nothing_behind(broker: RunningBroker) -> None:
    """Who has subscribed to everything gets nothing of it; when it has gone there are no sessions, groups and retained messages of it."""
    history = History()
    everything = Client(broker.port, "everything", history)
    await everything.start()
    await everything.subscribe("#", 2)
    await asyncio.to_thread(chaos, broker, "slow-disk", "shard", "--delay", "1ms", "--for", "1s")
    await everything.publish("last", 1)
    await everything.acknowledged(WITHIN_S)
    await settled(history, WITHIN_S)
    assert [each.topic for each in history.sessions["everything"].deliveries] == ["last"]
    await everything.stop()
    for words in (("sessions", "ls"), ("groups", "ls"), ("retained",)):
        assert "chaos" not in await asyncio.to_thread(output, broker, *words)
