"""The life cycle of a broker's processes under a real Ray: starting, dying in every way, coming back, stopping.

What is served is not the point, so the servers are those of tests.cluster.echoing. One broker for all tests that leave it running.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import actors.census
from actors import ROOT
from actors.census import Census, take_census
from actors.probe import mqtt_answers
from actors.processes import DATA_MARK, RUN_MARK, alive, identify, marked, start_time
from actors.run import read_run

START_S = 90.0
BACK_S = 60.0
"""How soon clients are served again is judged where there are clients: tests/broker/test_anything_killed.py."""
GONE_S = 60.0
PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class Broker:
    data_dir: Path
    port: int

    def command(self, manner: str, *sets: str, seconds: float = START_S) -> list[str]:
        return [sys.executable, "-m", "tests.cluster.starting", manner, str(seconds), str(self.data_dir), str(self.port), *sets]

    def up(self, *sets: str, seconds: float = START_S) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command("detach", *sets, seconds=seconds), cwd=ROOT, capture_output=True, text=True, timeout=150, check=False
        )

    def down(self) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli.main", "down", "--data-dir", str(self.data_dir)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)

    def status(self) -> Census:
        return take_census(self.data_dir)

    def pids(self) -> dict[str, int]:
        return {row.name: row.pid for row in self.status().processes}

    def wait_ready(self, before: dict[str, int], *killed: str) -> dict[str, int]:
        """Poll until everyone of before is there and answers, and those that were killed have come back as other processes."""
        deadline = time.monotonic() + BACK_S
        while time.monotonic() < deadline:
            status = self.status()
            pids = {row.name: row.pid for row in status.processes}
            if status.ready and before.keys() <= pids.keys() and all(pids[name] != before[name] for name in killed):
                return pids
            time.sleep(0.05)
        raise AssertionError(f"not back within {BACK_S} s: {self.status()}; log: {self.log('launcher')}")

    def log(self, name: str) -> str:
        return (self.data_dir / "logs" / f"{name}.log").read_text()[-2000:]

    def wait_empty(self) -> None:
        deadline = time.monotonic() + GONE_S
        while self.status().processes and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.status().processes == ()


def free_port() -> int:
    """Below the range of outgoing connections, so that it stays free until the broker takes it."""
    while True:
        port = random.randrange(20000, 30000)
        with contextlib.suppress(OSError), socket.socket() as attempt:
            attempt.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def a_broker(data_dir: Path) -> Iterator[Broker]:
    """A place for a broker; whatever is left in it at the end is killed, and is a failure."""
    broker = Broker(data_dir, free_port())
    try:
        yield broker
    finally:
        broker.down()
        if (run := read_run(data_dir)) is not None:
            # A killed launcher leaves it for the next `up`, which does not come here.
            shutil.rmtree(run.run_dir, ignore_errors=True)
        left = marked(DATA_MARK, str(data_dir))
        for process in left:
            os.kill(process.pid, signal.SIGKILL)
        assert not left


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that only waits for its turn is there."""
    monkeypatch.setattr(actors.census, "PROBE_S", PROBE_S)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with a_broker(tmp_path_factory.mktemp("broker").resolve() / "data") as broker:
        started = broker.up("gateway.count=2", "durable_storage.messages.n_shards=2")
        assert started.returncode == 0, started.stderr
        assert f"mqtt://127.0.0.1:{broker.port}" in started.stdout and str(broker.data_dir) in started.stdout and "fsync" in started.stdout
        yield broker


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Broker]:
    with a_broker(tmp_path.resolve() / "data") as broker:
        yield broker


def test_up_returns_when_a_client_can_connect_and_status_lists_everyone(running: Broker) -> None:
    """Shards, session actors, gateways and controller are different processes; Ray's, the driver and the launcher are listed as well."""
    status = running.status()
    assert status.ready and mqtt_answers("127.0.0.1", running.port, 60.0)
    names = [row.name for row in status.processes]
    own = ["shard-0", "shard-1", "session-0", "session-1", "gateway-0", "gateway-1", "controller-0", "driver", "launcher"]
    rays = ["gcs_server", "raylet", "dashboard_agent", "runtime_env_agent"]
    assert sorted(names) == sorted(own + rays)
    assert {row.role for row in status.processes if row.name in rays} == {"ray"}
    assert {row.pid for row in status.processes} == {process.pid for process in marked(DATA_MARK, str(running.data_dir))} | {
        running.pids()["launcher"]
    }


def test_a_shard_s_process_comes_up_beside_the_controller_s(place: Broker) -> None:
    """It was there before the controller had anything to do with it: clients wait for both one after the other otherwise."""
    assert place.up().returncode == 0
    run = read_run(place.data_dir)
    began = start_time(place.pids()["shard-0"])
    assert run is not None and began is not None
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    # The controller announces itself, and makes who is not there.
    assert booted_s + began / os.sysconf("SC_CLK_TCK") < (run.run_dir / "controller-0.json").stat().st_mtime


def test_status_is_json_with_the_promised_keys(running: Broker) -> None:
    """Scripts of operators rely on them."""
    command = [sys.executable, "-m", "cli.main", "status", "--json", "--data-dir", str(running.data_dir)]
    deadline = time.monotonic() + BACK_S
    answer: dict[str, Any] = {"ready": False}
    while not answer["ready"] and time.monotonic() < deadline:
        answer = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert answer.keys() == {"ready", "data_dir", "listeners", "processes", "alarms", "dashboard", "notices"} and answer["ready"] is True
    assert answer["alarms"] == [] and answer["dashboard"] == "" and answer["notices"] == []
    assert (
        all(each.keys() == {"gateway", "kind", "host", "port", "shared", "name", "plain"} for each in answer["listeners"])
        and len(answer["listeners"]) == 2
    )
    gateways = {each["name"] for each in answer["processes"] if each["role"] == "gateway"}
    assert {each["gateway"] for each in answer["listeners"]} == gateways, "a listener names its gateway as the list of processes does"
    assert all(each.keys() == {"pid", "role", "name"} for each in answer["processes"])


def test_ray_is_trimmed_and_listens_on_the_loopback_interface_only(running: Broker) -> None:
    """What actors.embedded does to Ray still has an effect: no monitors, no API server, no port open to the network."""
    inodes = set()
    for pid in running.pids().values():
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/{pid}/fd/{entry}")
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    open_to_all = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes and not fields[1].partition(":")[0].endswith("0100007F"):
                open_to_all.append(fields[1])
    assert inodes and open_to_all == []


def test_actors_run_at_normal_priority(running: Broker) -> None:
    """Ray would run its workers at nice 15 and offer them to the kernel first when memory is short."""
    for name, pid in running.pids().items():
        assert os.getpriority(os.PRIO_PROCESS, pid) == 0, name
        assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "0\n", name


@pytest.mark.parametrize("name", ["gateway-1", "shard-0", "session-0", "controller-0"])
def test_a_killed_actor_comes_back_alone(running: Broker, name: str) -> None:
    """Ray restarts its process, it starts itself, and nobody else is touched."""
    before = running.pids()
    os.kill(before[name], signal.SIGKILL)
    after = running.wait_ready(before, name)
    assert {each for each in before if after.get(each) != before[each]} == {name}


def test_actors_killed_together_with_the_controller_come_back(running: Broker) -> None:
    """A restarted actor needs nobody to start it, and a restarted controller finds everyone."""
    before = running.pids()
    killed = ("controller-0", "gateway-0", "shard-1")
    for name in killed:
        os.kill(before[name], signal.SIGKILL)
    after = running.wait_ready(before, *killed)
    assert {each for each in before if after.get(each) != before[each]} == set(killed)


@pytest.mark.parametrize("name", ["raylet", "gcs_server", "driver", "runtime_env_agent"])
def test_when_a_part_of_ray_dies_everything_is_started_again(running: Broker, name: str) -> None:
    """No old process lives beside the new ones: a worker that outlived its raylet would hold its store."""
    before = running.pids()
    old = [process for pid in before.values() if (process := identify(pid)) is not None]
    os.kill(before[name], signal.SIGKILL)
    after = running.wait_ready(before, name)
    assert after["launcher"] == before["launcher"]
    assert [process for process in old if alive(process) and process.pid != before["launcher"]] == []


@pytest.mark.parametrize("how", ["a loop that does not turn", "SIGSTOP"])
def test_a_gateway_that_stands_still_is_ended_and_comes_back(running: Broker, how: str) -> None:
    """The watchdog sees it from outside, whatever the process is stuck in."""
    before = running.pids()
    if how == "SIGSTOP":
        os.kill(before["gateway-0"], signal.SIGSTOP)
    else:
        (running.data_dir / "stick-0").mkdir()
    after = running.wait_ready(before, "gateway-0")
    assert {each for each in before if after.get(each) != before[each]} == {"gateway-0"}
    assert "gateway.stuck" in running.log("launcher")


def test_a_second_broker_in_the_same_directory_is_refused_in_one_sentence(running: Broker) -> None:
    """With the pid of the first, and without a scratch to it."""
    before = running.pids()
    refused = Broker(running.data_dir, free_port()).up()
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and "Traceback" not in refused.stderr
    assert f"in use by the broker with pid {before['launcher']}" in refused.stderr and running.pids() == before


def test_a_broker_on_the_same_port_is_refused_in_one_sentence(running: Broker, tmp_path: Path) -> None:
    """The kernel would let both share it."""
    refused = Broker(tmp_path / "other", running.port).up()
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1 and f"port {running.port}" in refused.stderr


def test_after_kill_9_of_everything_up_works_at_once(running: Broker) -> None:
    """Stale run file, lock, sockets and processes that were missed are nobody's work."""
    before = running.pids()
    old = [process for pid in before.values() if (process := identify(pid)) is not None]
    # One is left out, as if it had been started while the list was made.
    for name, pid in before.items():
        if name != "shard-1":
            os.kill(pid, signal.SIGKILL)
    started = running.up("gateway.count=2")
    assert started.returncode == 0, started.stderr
    assert running.status().ready and not any(alive(process) for process in old)


def test_down_stops_in_order_and_leaves_nothing_and_may_be_repeated(running: Broker) -> None:
    """Gateways first, shards last; then no process, no run directory, no run file. Temporary files of Ray's were in the run directory."""
    run_dir = Path(json.loads((running.data_dir / "run.json").read_text())["run_dir"])
    assert run_dir.exists()
    of_run = marked(RUN_MARK, str(run_dir))
    assert {process.pid for process in of_run} >= set(running.pids().values()) - {running.pids()["launcher"]}
    assert [process for process in of_run if process not in marked("TMPDIR", str(run_dir))] == []
    assert running.down().returncode == 0
    assert running.status().processes == () and not run_dir.exists() and not (running.data_dir / "run.json").exists()
    stopped = {kind: float((running.data_dir / f"stopped-{kind}-0").read_text()) for kind in ("gateway", "session", "shard")}
    assert stopped["gateway"] <= stopped["session"] <= stopped["shard"]
    assert running.down().returncode == 0
    assert running.up("gateway.count=2").returncode == 0


def test_when_the_launcher_is_killed_the_rest_stops_by_itself(place: Broker) -> None:
    """In good order, so that a service manager can start anew; `up` need not wait for that."""
    assert place.up().returncode == 0
    os.kill(place.pids()["launcher"], signal.SIGKILL)
    place.wait_empty()
    assert (place.data_dir / "stopped-shard-0").exists()


def test_ctrl_c_leaves_nothing_running(place: Broker) -> None:
    """The terminal sends SIGINT to the whole foreground group."""
    broker = subprocess.Popen(place.command("foreground"), cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert broker.stdout is not None
    lines = [broker.stdout.readline() for _ in range(4)]
    assert "up" in lines[1] and place.status().ready
    os.killpg(broker.pid, signal.SIGINT)
    assert broker.wait(GONE_S) == 0
    broker.stdout.close()
    assert place.status().processes == () and (place.data_dir / "stopped-shard-0").exists()


def test_a_start_that_does_not_succeed_says_why_and_leaves_nothing(place: Broker) -> None:
    """Within the time given, with exit code 1 and the words of the server that failed."""
    (place.data_dir / "break-gateway-0").mkdir(parents=True)
    failed = place.up(seconds=6.0)
    if "gateway-0: " not in failed.stderr:
        # A busy machine did not come so far.
        failed = place.up(seconds=40.0)
    assert failed.returncode == 1 and failed.stderr.count("\n") == 1
    assert "gateway-0: it was told to break" in failed.stderr and str(place.data_dir / "logs") in failed.stderr
    assert place.status().processes == ()


def test_any_free_port_is_taken_once_and_kept(place: Broker) -> None:
    """With port 0 the kernel chooses, and a gateway that was killed comes back at the same port."""
    anywhere = Broker(place.data_dir, 0)
    assert anywhere.up().returncode == 0
    (listener,) = place.status().listeners
    before = place.pids()
    assert listener.port != 0
    os.kill(before["gateway-0"], signal.SIGKILL)
    place.wait_ready(before, "gateway-0")
    assert place.status().listeners == (listener,)
