"""What starts brokers under test notices every way in which a broker can stay behind; shown with a stand-in for the command."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from tests.broker.running import CommandFailed, LeftBehind, Options, RunningBroker, alive, parse_status

pytestmark = [pytest.mark.slow]

# Keeps the operator's interface with processes that only sleep. `--set fault=...` names one way of misbehaving.
STAND_IN = """#!{python}
import json, os, pathlib, signal, subprocess, sys, time
words = sys.argv[1:]
directory = pathlib.Path(words[words.index("--data-dir") + 1])
state = directory / "state.json"
fault = next((word.removeprefix("fault=") for word in words if word.startswith("fault=")), "")
sleeper = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
if words[0] == "up":
    print("refusing" if fault == "refuse" else "starting")
    if fault == "hang":
        time.sleep(60)
    directory.mkdir(parents=True, exist_ok=True)
    pids = [subprocess.Popen(["sleep", "600"], **sleeper).pid for _ in range(3)]
    listed = pids[:-1] if fault == "hide" else pids
    processes = [dict(pid=pid, role="shard", name="shard-%d" % n) for n, pid in enumerate(listed)]
    state.write_text(json.dumps(dict(fault=fault, pids=pids, processes=processes)))
    sys.exit(fault == "refuse")
known = json.loads(state.read_text())
if words[0] == "status":
    print(json.dumps(dict(ready=True, data_dir=str(directory), listeners=[], processes=known["processes"])))
if words[0] == "down":
    ending = known["pids"][known["fault"] == "leave":]
    for pid in ending:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass
    def runs(pid):
        try:
            return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False
    while any(map(runs, ending)):
        time.sleep(0.01)
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # What a failed start leaves for reading goes with the test's own directory.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "holdfast"
    path.write_text(STAND_IN.replace("{python}", sys.executable))
    path.chmod(0o755)
    return path


def broker(command: Path, fault: str = "") -> RunningBroker:
    return RunningBroker(Options(settings={"fault": fault} if fault else {}), executable=command)


def test_a_broker_that_goes_down_leaves_nothing_and_says_nothing(command: Path) -> None:
    """Up, status, down: all processes are gone, and so is its directory."""
    with broker(command) as running:
        pids = running.status().pids()
        assert len(pids) == 3 and all(map(alive, pids)) and running.unlisted() == []
    assert not any(map(alive, pids)) and not running.directory.exists()


@pytest.mark.parametrize(("fault", "words"), [("leave", "alive after `down`"), ("hide", "not in `status`")])
def test_a_process_that_stays_or_hides_is_killed_and_fails_the_test(command: Path, fault: str, words: str) -> None:
    """One left by `down`, or running without being listed: LeftBehind, and it is dead afterwards."""
    running = broker(command, fault)
    running.up()
    pids = running._marked()
    assert len(pids) == 3
    with pytest.raises(LeftBehind, match=words):
        running.close()
    assert not any(map(alive, pids))


def test_killing_all_leaves_nothing_to_take_down_and_up_works_again(command: Path) -> None:
    """kill_all returns when every listed process is gone; closing after that finds nothing wrong."""
    with broker(command) as running:
        first = running.kill_all()
        assert len(first) == 3 and not any(map(alive, first))
        assert set(running.up().pids()).isdisjoint(first)
    with broker(command) as running:
        running.kill_all()


def test_a_start_that_fails_or_hangs_is_one_sentence_with_its_last_words(command: Path) -> None:
    """The code, the deadline and the output are in the message, and what had been started is gone."""
    running = broker(command, "refuse")
    with pytest.raises(CommandFailed, match=r"ended with code 1.*last words: refusing"), running:
        pass
    assert running._marked() == []
    hanging = broker(command, "hang")
    with pytest.raises(CommandFailed, match="had not ended after 1 s"):
        hanging.up(deadline_s=1)


def test_only_processes_of_the_broker_are_ever_signalled(command: Path) -> None:
    """A pid that no status listed is refused, this test's own included."""
    with broker(command) as running:
        with pytest.raises(ValueError, match="in no status"):
            running.kill(os.getpid())
        pid = running.status().pids()[0]
        running.signal(pid, signal.SIGSTOP)
        running.signal(pid, signal.SIGCONT)
        running.kill(pid)
        running.kill(pid)  # gone: nothing happens
        assert not alive(pid)


def test_a_status_without_an_agreed_key_is_refused() -> None:
    """Scripts of operators rely on the keys, so a missing one is an error here too."""
    good = '{"ready": true, "data_dir": "/d", "listeners": [], "processes": [{"pid": 1, "role": "shard", "name": "shard-0"}]}'
    assert parse_status(good).pids("shard") == [1]
    with pytest.raises(KeyError):
        parse_status(good.replace('"role"', '"kind"'))
