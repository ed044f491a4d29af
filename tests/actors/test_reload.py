"""Settings that change while the broker runs: from the file to every process, whoever dies on the way."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

import actors.controller
from actors import ROOT
from actors.controller import ControllerServer
from actors.host import NOT_STARTED, Host
from actors.launcher import Signals
from actors.origin import Origin, read_origin, write_origin
from actors.ports import Unavailable
from actors.reload import reload, wait_until_taken
from actors.snapshot import Snapshot, Watched, confirm, read_snapshot, settings_in_force, taken, write_snapshot
from actors.topology import Announcement, Health, Topology, write_whole
from config.dump import dump_json
from config.load import ConfigError, load
from config.schema import Config
from tests.actors.places import topology_in
from tests.actors.test_launcher import Cluster


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """What is logged here is expected; the level is set for the whole process."""
    before = structlog.get_config()
    with structlog.testing.capture_logs():
        yield
    structlog.configure(**before)


class Started:
    """A run that nobody serves, with the file that its broker was started with."""

    def __init__(self, directory: Path, *sets: str, **environment: str) -> None:
        self.file = directory / "holdfast.toml"
        self.file.write_text("")
        self.origin = Origin(str(self.file), sets, str(directory / "data"), None, environment)
        self.topology = replace(topology_in(directory), config_json=dump_json(self.load()))
        write_whole(self.topology.run_dir / "topology.json", self.topology.to_json())
        write_origin(self.topology.run_dir, self.origin)

    def load(self) -> Config:
        origin = self.origin
        return load(Path(origin.file), sets=origin.sets, data_dir=origin.data_dir, port=origin.port, environ=origin.environment)

    @property
    def run_dir(self) -> Path:
        return self.topology.run_dir


# ---------------------------------------------------------------------- from the file to the snapshot


def test_what_the_broker_was_started_with_is_read_again(tmp_path: Path) -> None:
    """The file, and what came later than it at the start comes later again: environment and --set of then, not of now."""
    started = Started(tmp_path, "mqtt.max_inflight=7", HOLDFAST__MQTT__MAX_MQUEUE_LEN="8")
    assert read_origin(started.run_dir) == started.origin
    started.file.write_text("[mqtt]\nmax_inflight = 100\nmax_mqueue_len = 100\nmax_subscriptions = 9\n")
    reloaded = reload(started.run_dir)
    assert [change.key for change in reloaded.changes.found] == ["mqtt.max_subscriptions"] and reloaded.version == 1
    mqtt = settings_in_force(started.topology).mqtt
    assert (mqtt.max_inflight, mqtt.max_mqueue_len, mqtt.max_subscriptions) == (7, 8, 9)


@pytest.mark.parametrize(
    "text",
    [
        "[mqtt]\nmax_subscriptions = 0\n[log]\nlevel = 'debug'\n",
        "[log]\nlevel = 'debug'\n[durable_storage.messages]\nn_shards = 5\n",
        "[log]\nlevel = 'debug'\nlevel = 'info'\n",
    ],
    ids=["out of range", "fixed", "no TOML"],
)
def test_a_bad_file_changes_nothing(tmp_path: Path, text: str) -> None:
    """Not even what is good in it."""
    started = Started(tmp_path)
    started.file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        reload(started.run_dir)
    assert len(caught.value.problems) == 1
    assert read_snapshot(started.topology) == Snapshot(0, started.topology.config_json)


def test_versions_grow_only_when_something_is_put_in_force(tmp_path: Path) -> None:
    """What waits for a restart is named each time, and makes no version of its own."""
    started = Started(tmp_path)
    versions = []
    for text in ("[gateway]\ncount = 2", "[log]\nlevel = 'debug'", "[log]\nlevel = 'debug'", ""):
        started.file.write_text(text)
        versions.append(reload(started.run_dir).version)
    assert versions == [0, 1, 1, 2]
    assert settings_in_force(started.topology) == started.load()


def test_a_file_that_is_gone_is_a_sentence(tmp_path: Path) -> None:
    """It was there at the start; going on with nothing but defaults would be a surprise."""
    started = Started(tmp_path)
    started.file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        reload(started.run_dir)


def test_whoever_has_not_taken_it_is_named(tmp_path: Path) -> None:
    """Those that have an older version, and those that have not started."""
    started = Started(tmp_path)
    started.file.write_text("[log]\nlevel = 'debug'")
    reloaded = reload(started.run_dir)
    confirm(started.run_dir, "shard-0", 0)
    confirm(started.run_dir, "gateway-0", 1)
    assert taken(started.run_dir, "session-0") == -1
    assert wait_until_taken(reloaded, within=0.0) == ["shard-0", "session-0"]


def test_a_newer_snapshot_is_seen_once(tmp_path: Path) -> None:
    """Two that are written within one tick of the file system's clock are two files."""
    topology = topology_in(tmp_path)
    watched = Watched(topology)
    assert not watched.changed()
    for version in (1, 2, 3):
        write_snapshot(topology.run_dir, Snapshot(version, "{}"))
        assert watched.changed() and watched.snapshot.version == version and not watched.changed()


# ---------------------------------------------------------------------- from the snapshot to the processes


class Taking:
    """A server that writes down which settings it had, and waits to be let start."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self.levels: list[str] = []
        self.reading = asyncio.Event()
        self.go_on = asyncio.Event()

    async def start(self) -> Announcement:
        self.levels.append(settings_in_force(self._topology).log.level)
        self.reading.set()
        await self.go_on.wait()
        return Announcement("shard", "shard-0", 1)

    async def stop(self) -> None:
        pass

    async def health(self) -> Health:
        return Health(True, "")

    def reconfigure(self, config: Config) -> None:
        self.levels.append(config.log.level)


def at_level(level: str) -> str:
    return dump_json(load(sets=[f"log.level={level}"], environ={}))


async def test_settings_that_change_while_a_server_starts_reach_it(tmp_path: Path) -> None:
    """It has read the former ones; until it has started it is told to come again, and then takes each version once."""
    topology = replace(topology_in(tmp_path), config_json=at_level("info"))
    server = Taking(topology)
    host = Host(topology, "shard", 0, server, restarted=False)
    starting = asyncio.create_task(host.begin())
    await server.reading.wait()
    write_snapshot(topology.run_dir, Snapshot(1, at_level("debug")))
    assert await host.reconfigure(1, at_level("debug")) == NOT_STARTED and taken(topology.run_dir, "shard-0") == -1
    server.go_on.set()
    await starting
    assert taken(topology.run_dir, "shard-0") == 0
    assert [await host.reconfigure(1, at_level("debug")) for _ in range(2)] == [1, 1]
    assert server.levels == ["info", "debug"] and taken(topology.run_dir, "shard-0") == 1
    await host.stop()


async def test_a_process_that_is_started_again_has_the_newest_settings(tmp_path: Path) -> None:
    """Ray starts it with the topology of the first start."""
    topology = replace(topology_in(tmp_path), config_json=at_level("info"))
    write_snapshot(topology.run_dir, Snapshot(4, at_level("error")))
    server = Taking(topology)
    server.go_on.set()
    host = Host(topology, "shard", 0, server, restarted=True)
    await host.begin()
    assert server.levels == ["error"] and taken(topology.run_dir, "shard-0") == 4
    assert await host.reconfigure(3, at_level("info")) == 4 and server.levels == ["error"], "an older one comes late"
    await host.stop()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors.controller, "SETTINGS_EVERY_S", 0.001)


def said(cluster: Cluster) -> list[str]:
    """The admin process is told by whoever keeps it (actors.controller), sooner or later."""
    return [each for each in cluster.log if each.startswith("settings") and not each.endswith(" admin-0")]


async def told(cluster: Cluster, done: Callable[[list[str]], bool]) -> list[str]:
    async with asyncio.timeout(60):
        while not done(words := said(cluster)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    return words


@pytest.mark.usefixtures("impatient")
async def test_the_controller_brings_settings_until_everybody_has_them(tmp_path: Path) -> None:
    """One that does not answer, and one that is starting, are asked again; the others are asked once."""
    topology = topology_in(tmp_path)
    cluster = Cluster()
    controller = ControllerServer(topology, 0, cluster)
    await controller.start()
    await asyncio.sleep(0.01)
    assert not said(cluster)
    cluster.refusals["settings 1 shard-0"] = [Unavailable("it is restarting")]
    cluster.versions["gateway-0"] = NOT_STARTED
    write_snapshot(topology.run_dir, Snapshot(1, "{}"))
    await told(cluster, lambda words: words.count("settings 1 gateway-0") >= 3)
    del cluster.versions["gateway-0"]
    await told(cluster, lambda words: words.count("settings 1 gateway-0") >= 4)
    await asyncio.sleep(0.01)
    words = await told(cluster, bool)
    assert words.count("settings 1 shard-0") == 2 and words.count("settings 1 session-0") == 1
    await controller.stop()


@pytest.mark.usefixtures("impatient")
async def test_a_controller_that_is_started_anew_tells_everybody_again(tmp_path: Path) -> None:
    """The one before may have died between two of them."""
    topology = topology_in(tmp_path)
    write_snapshot(topology.run_dir, Snapshot(2, "{}"))
    cluster = Cluster()
    controller = ControllerServer(topology, 0, cluster)
    await controller.start()
    words = await told(cluster, lambda words: len(words) >= 3)
    assert sorted(words) == ["settings 2 gateway-0", "settings 2 session-0", "settings 2 shard-0"]
    await controller.stop()


# ---------------------------------------------------------------------- SIGHUP

PROGRAM = """
import os, select, sys
from actors.launcher import Signals

def say(text):
    try:
        os.write(1, f"{text}\\n".encode())
    except OSError:
        pass  # The terminal is gone.

signals = Signals()
say("ready")
poll = select.poll()
poll.register(signals.descriptor, select.POLLIN)
while not signals.stop:
    poll.poll(50)
    if signals.take_reload():
        say("reload")
say(f"{signals.stop} {signals.count}")
os._exit(5 if signals.stop == "SIGHUP" else 0)
"""


def test_sighup_asks_to_reload_and_sigterm_to_stop() -> None:
    """Without a terminal, as under a service manager. The wake-up of SIGTERM is not taken away by a SIGHUP just before."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            program.send_signal(signal.SIGHUP)
            assert program.stdout.readline() == "reload\n"
            program.send_signal(signal.SIGHUP)
            program.send_signal(signal.SIGTERM)
            rest = program.stdout.read().split("\n")
            assert rest[-2] == "SIGTERM 1" and program.wait(60) == 0
        finally:
            program.kill()


def test_a_terminal_that_is_closed_stops_what_was_started_in_it_and_kill_hup_does_not() -> None:
    """Both are SIGHUP; whoever closes a window means another thing than whoever types kill -HUP."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM])
    assert b"ready" in _until(terminal, b"ready")
    os.kill(pid, signal.SIGHUP)
    assert b"reload" in _until(terminal, b"reload")
    os.close(terminal)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(pid, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended[0] == pid and os.waitstatus_to_exitcode(ended[1]) == 5


def _until(terminal: int, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        found += os.read(terminal, 1024)
    return found


def test_signals_of_others_stay_to_be_seen() -> None:
    """What wakes the launcher up is one pipe for all signals: taking those of SIGHUP out must leave the others in."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    signals = Signals()
    try:
        os.write(signals._writer, bytes([signal.SIGHUP, signal.SIGTERM, signal.SIGHUP]))
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.take_reload() and not signals.take_reload() and not signals.stop
        assert os.read(signals.descriptor, 100) == bytes([signal.SIGTERM])
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_specification_says_where_the_configuration_was_read(tmp_path: Path) -> None:
    """It travels as JSON to the launcher, and by the launcher into the run directory."""
    origin = Origin("/etc/holdfast.toml", ("a=1", "b=2"), "/srv", 1883, {"HOLDFAST__LOG__LEVEL": "debug"})
    assert Origin.from_fields(json.loads(origin.to_json())) == origin
    write_origin(tmp_path, origin)
    assert read_origin(tmp_path) == origin
