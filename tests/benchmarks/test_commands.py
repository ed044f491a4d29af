"""The commands around the generator: what they read of others, and real runs against mosquitto."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.agree import agreement, comparisons, read_figure
from benchmarks.bench import main as bench
from benchmarks.brokers import status_groups
from benchmarks.conformance import PEER
from benchmarks.load import arguments, parse_group
from benchmarks.scenarios import SCENARIOS
from benchmarks.table import LINES
from benchmarks.turns import standard_set

STATUS = {
    "ready": True,
    "data_dir": "/d",
    "listeners": [],
    "processes": [
        {"pid": 1, "role": "launcher", "name": "launcher"},
        {"pid": 2, "role": "ray", "name": "raylet"},
        *(
            {"pid": 3 + n, "role": role, "name": f"{role}-0"}
            for n, role in enumerate(("gateway", "session", "shard", "controller", "driver"))
        ),
    ],
}


def test_the_processes_of_a_status_are_two_groups() -> None:
    """Those that carry messages, and all."""
    assert status_groups(json.dumps(STATUS)) == {"data": (3, 4, 5, 6), "all": (1, 2, 3, 4, 5, 6, 7)}


def test_groups_on_the_command_line_may_have_a_name() -> None:
    """`--cpu 1,2` and `--cpu shard=3`."""
    assert parse_group("1,2") == ("broker", (1, 2))
    assert parse_group("shard=3") == ("shard", (3,))


def test_every_scenario_can_be_asked_for_and_is_in_the_standard_set() -> None:
    """A scenario that nobody runs rots; a line of the table that no scenario fills is a lie."""
    assert {turn.scenario for turn in standard_set(quick=True, repeats=1)} == set(SCENARIOS)
    assert {line.scenario for line in LINES} <= set(SCENARIOS) | {"one-session"}
    for scenario in SCENARIOS:
        assert arguments().parse_args([scenario, "--window", "7"]).window == 7


def test_agreement_is_the_median_of_the_pairs() -> None:
    """A run that a neighbour disturbed on one side only decides nothing."""
    figure = comparisons(1, 1)[0].figures[0]
    found = agreement("fan-in", figure, [(100, 101), (50, 100), (102, 100), (None, 3)])
    assert found is not None
    assert found.ratio == pytest.approx(100 / 101)
    assert found.within(0.1)
    assert "agrees" in found.sentence(0.1)
    assert "DIFFERS" in found.sentence(0.001)
    assert agreement("fan-in", figure, [(None, 1)]) is None


def test_figures_of_the_meter_may_lie_within_an_object() -> None:
    """And may be missing."""
    assert read_figure({"e2e_ms": {"p50": 2}}, "e2e_ms.p50") == 2
    assert read_figure({"e2e_ms": None}, "e2e_ms.p50") is None


# A holdfast that writes down how it was called and lists two sleeping processes as its own.
FAKE = """#!/bin/bash
echo "$@" >>"{calls}"
case $1 in
  up) sleep 60 >/dev/null 2>&1 & echo $! >"{pids}"; sleep 60 >/dev/null 2>&1 & echo $! >>"{pids}" ;;
  down) kill $(cat "{pids}") ;;
  status) {python} -c '
import json, os
pids = [int(p) for p in open("{pids}").read().split()] if os.path.exists("{pids}") else []
def state(p):
    try: return open(f"/proc/{{p}}/stat").read().rpartition(")")[2].split()[0]
    except OSError: return "Z"
live = [p for p in pids if state(p) != "Z"]
print(json.dumps({{"processes": [{{"pid": p, "role": r, "name": r}} for p, r in zip(live, ("shard", "ray"))]}}))' ;;
esac
"""


@pytest.fixture
def peer(tmp_path: Path) -> Path:
    """The peer script beside a made-up environment."""
    script, binaries = tmp_path / "benchmarks" / "peers" / "holdfast.sh", tmp_path / ".venv" / "bin"
    script.parent.mkdir(parents=True)
    binaries.mkdir(parents=True)
    script.write_text(PEER.read_text())
    script.chmod(0o755)
    (binaries / "python").symlink_to(sys.executable)
    text = FAKE.format(calls=tmp_path / "calls", pids=tmp_path / "pids", python=shlex.quote(sys.executable))
    (binaries / "holdfast").write_text(text)
    (binaries / "holdfast").chmod(0o755)
    return script


def call(peer: Path, word: str, data: Path, **environment: str) -> str:
    return subprocess.run(
        [str(peer), word, str(data), "1"], check=True, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    ).stdout.strip()


@pytest.mark.slow
def test_the_peer_script_starts_kills_and_wipes(peer: Path, tmp_path: Path) -> None:
    """kill9 ends every process of the status, pid can leave out Ray's, and wipe refuses while something runs."""
    data = tmp_path / "data"
    all_pids = call(peer, "start", data, HOLDFAST_SET="a.b=1 c.d=2")
    assert f"up --detach --data-dir {data} --port 1 --set a.b=1 --set c.d=2" in (tmp_path / "calls").read_text()
    assert len(all_pids.split(",")) == 2
    assert call(peer, "pid", data) == all_pids
    assert call(peer, "pid", data, HOLDFAST_PIDS="data") == all_pids.split(",")[0]
    with pytest.raises(subprocess.CalledProcessError):
        call(peer, "wipe", data)
    restarted = call(peer, "restart9", data)
    assert not set(restarted.split(",")) & set(all_pids.split(","))
    call(peer, "kill9", data)
    assert call(peer, "pid", data) == ""
    call(peer, "wipe", data)
    assert not data.exists()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["start"], ["dance", "d", "1"], ["start", "", "1"]])
def test_the_peer_script_says_how_to_call_it(words: list[str]) -> None:
    """Without all three words it touches nothing."""
    done = subprocess.run([str(PEER), *words], capture_output=True, text=True)
    assert (done.returncode, done.stderr.startswith("usage: ")) == (2, True)


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("mqtt", ["3.1.1", "5"])
def test_mosquitto_is_measured(mqtt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real run stores, drains, delivers and counts, writes its file, prints the table, and loses nothing."""
    results = tmp_path / "r.json"
    words = ["--quick", "--brokers", "mosquitto", "--only", "offline", "--only", "pairs", "--only", "single"]
    assert bench([*words, "--mqtt", mqtt, "--dir", str(tmp_path), "--results", str(results)]) == 0
    records = json.loads(results.read_text())
    assert [record["result"]["scenario"] for record in records] == ["offline", "pairs", "single"]
    for record in records:
        result = record["result"]
        assert (result["lost"], result["duplicated"], result["out_of_order"], result["misrouted"], result["stories"]) == (0, 0, 0, 0, [])
        assert record["mqtt"] == mqtt
        assert record["broker_version"][0].isdigit()
        assert result["cost"]["data"]["cpu_us"] > 0
        assert record["fdatasync_p50_ms"]["before"] > 0
    assert records[0]["result"]["delivered"] == 20_000
    assert "| offline store, acked/s" in capsys.readouterr().out


def command_line(pid: str) -> str:
    try:
        return Path("/proc", pid, "cmdline").read_text(errors="replace")
    except OSError:
        return ""  # ended while we looked


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_a_benchmark_that_is_ended_leaves_no_broker(tmp_path: Path) -> None:
    """SIGTERM in the middle of a run: the broker's directory goes, and with it the broker."""
    words = ["--quick", "--brokers", "mosquitto", "--dir", str(tmp_path), "--results", str(tmp_path / "r.json")]
    command = [sys.executable, "-m", "benchmarks", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        first = running.stderr.readline()
        running.terminate()
        assert first.startswith("ingest")
        assert running.wait(120) == 143
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path) in command_line(pid)]
    assert not list(tmp_path.glob("bench-*"))
