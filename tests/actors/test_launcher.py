"""The parts of starting that need no Ray: what the launcher is told, the port it keeps, what it tells, who begins in which order."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

import actors.census
from actors import driver
from actors.census import take_census
from actors.controller import STOP_S, STOPPED_TOGETHER, ControllerServer
from actors.gateway import STOP_WITHIN_SECONDS
from actors.host import Host, RunEnded
from actors.launcher import CannotStart, _reserve
from actors.logs import BoundedFile
from actors.ports import Gone, Unavailable, first_line
from actors.probe import all_answer, mqtt_answers
from actors.processes import identify
from actors.run import Run, boot_id, record_run
from actors.spec import LaunchSpec, running_text
from actors.supervisor import STOP_DRIVER_S, pause_before_start
from actors.topology import Announcement, Health, ListenerInfo, Role, announce, read_announcements
from cli import down
from cli.up import launch_spec
from config.load import load
from config.schema import Config
from gateway.options import Options
from tests.actors.places import topology_in


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is logged here is expected, and printing tracebacks takes longer than the tests."""
    with structlog.testing.capture_logs():
        yield


def spec_of(*sets: str, cores: int = 2) -> LaunchSpec:
    return launch_spec(load(sets=sets, environ={}), cores=cores, start_within=None)


# ---------------------------------------------------------------------- what the launcher is told


def test_a_specification_reaches_the_launcher_unchanged() -> None:
    """It travels as JSON."""
    spec = spec_of("gateway.count=3")
    assert LaunchSpec.from_json(spec.to_json()) == spec


def test_two_cores_get_one_of_each() -> None:
    """The small machine of ARCHITECTURE: 1 shard, 1 session actor, 1 gateway; a larger one gets more shards."""
    small, large = spec_of(), spec_of(cores=64)
    assert (small.n_shards, small.n_shards_new, small.n_sessions, small.n_gateways) == (None, 1, 1, 1)
    assert (large.n_shards_new, large.n_sessions) == (16, 16)


def test_there_is_a_session_actor_for_each_gateway() -> None:
    """Several gateways hand in more than one session actor can hand out beside them; of many cores there are as many as ever."""
    assert [spec_of(f"gateway.count={count}").n_sessions for count in (1, 2, 4)] == [1, 2, 4]
    assert spec_of("gateway.count=2", cores=16).n_sessions == 4


def test_a_joined_ray_has_no_dashboard_of_ours() -> None:
    """It is somebody else's to start."""
    assert spec_of("ray.dashboard=true").dashboard
    assert not spec_of("ray.dashboard=true", "ray.address=auto").dashboard


def test_the_watchdog_can_be_told_to_look_away() -> None:
    """Gate 4 stops gateways for half a minute."""
    assert spec_of("gateway.watchdog_after=2s").watchdog_after == 2.0
    assert spec_of("gateway.watchdog=false").watchdog_after is None


def test_a_data_directory_has_one_name(tmp_path: Path) -> None:
    """By a symbolic link or not, every command means the same directory, and marks are compared as text."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert spec_of(f"data_dir={tmp_path}/link").data_dir == spec_of(f"data_dir={tmp_path}/real/../real").data_dir == str(tmp_path / "real")


# ---------------------------------------------------------------------- the port


def listening(port: int, *, shared: bool) -> socket.socket:
    found = socket.socket()
    if shared:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
        found.listen()
    except OSError:
        found.close()
        raise
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_somebody_listens_on_is_refused_even_if_it_could_be_shared(shared: bool) -> None:
    """SO_REUSEPORT would let two brokers of one user deal each other's clients out."""
    with listening(0, shared=shared) as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotStart, match=f"port {port} on 127.0.0.1"):
            _reserve("127.0.0.1", port)


def test_a_reserved_port_is_free_for_gateways_and_taken_for_strangers() -> None:
    """It stays ours while a gateway that was killed is not back yet, and connections go to gateways only."""
    reserved, port = _reserve("127.0.0.1", 0)
    with reserved:
        with pytest.raises(OSError):
            listening(port, shared=False)
        with listening(port, shared=True) as gateway, socket.create_connection(("127.0.0.1", port), timeout=60):
            gateway.settimeout(60)
            gateway.accept()[0].close()


# ---------------------------------------------------------------------- does it answer?


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    """A listener that answers whatever comes with these bytes and closes; None: never."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connections = []
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                break
            connections.append(connection)
            if answer is not None:
                # Whoever asked goes as soon as the first bytes are wrong.
                with suppress(OSError):
                    connection.recv(64)
                    connection.sendall(answer)
                    connection.shutdown(socket.SHUT_WR)
        for each in connections:
            each.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "alive"),
    [
        (b"\x20\x02\x00\x00", True),
        (b"\x20\x02\x00\x05", True),  # not authorized: it is at work
        (b"\x20\x02\x00\x03", False),  # server unavailable
        (b"\x20\x02", False),
        (b"", False),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False),
        (None, False),
    ],
)
def test_only_a_connack_is_an_answer(answer: bytes | None, alive: bool) -> None:
    """An open port, another protocol or silence is not a broker."""
    with answering(answer) as port:
        assert mqtt_answers("127.0.0.1", port, 60.0 if answer is not None else 0.05) is alive


def test_every_gateway_must_answer_for_itself() -> None:
    """Behind the shared port one gateway may hide that another is deaf."""
    with answering(b"\x20\x02\x00\x00") as good, answering(b"") as deaf:
        shared = [ListenerInfo(gateway, "tcp", "127.0.0.1", good, True) for gateway in (0, 1)]
        own = [ListenerInfo(0, "tcp", "127.0.0.1", good, False), ListenerInfo(1, "tcp", "127.0.0.1", deaf, False)]
        assert all_answer(shared, 60.0)
        assert not all_answer([*shared, *own], 60.0)
        assert not all_answer([], 60.0)


# ---------------------------------------------------------------------- status


def test_status_knows_who_is_there_and_who_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead shard's announcement makes nobody ready, and the dead are not listed."""
    monkeypatch.setattr(actors.census, "PROBE_S", 60.0)
    topology = topology_in(tmp_path)
    (topology.run_dir / "topology.json").write_text(topology.to_json())
    me = identify(os.getpid())
    assert me is not None
    record_run(topology.data_dir, Run(topology.run_dir, me, boot_id(), joined=False))
    with answering(b"\x20\x02\x00\x00") as port:
        names: list[tuple[Role, str]] = [
            ("shard", "shard-0"),
            ("session", "session-0"),
            ("controller", "controller-0"),
            ("gateway", "gateway-0"),
        ]
        children = {name: subprocess.Popen(["sleep", "600"], env={"HOLDFAST_DATA": str(topology.data_dir)}) for _, name in names}
        try:
            for role, name in names:
                listeners = (ListenerInfo(0, "tcp", "127.0.0.1", port, True),) if role == "gateway" else ()
                announce(topology, Announcement(role, name, children[name].pid, listeners))
            census = take_census(topology.data_dir)
            assert census.ready and [listener.port for listener in census.listeners] == [port]
            expected = {(os.getpid(), "launcher", "launcher"), *((children[name].pid, role, name) for role, name in names)}
            assert {(row.pid, row.role, row.name) for row in census.processes} == expected
            children["shard-0"].kill()
            children["shard-0"].wait()
            census = take_census(topology.data_dir)
            assert not census.ready and "shard-0" not in {row.name for row in census.processes}
        finally:
            for child in children.values():
                child.kill()
                child.wait()


def test_status_of_a_directory_without_a_broker_is_empty(tmp_path: Path) -> None:
    """Scripts ask before anything was started."""
    census = take_census(tmp_path / "nothing")
    assert (census.ready, list(census.listeners), list(census.processes)) == (False, [], [])


def test_up_says_where_to_connect_and_what_is_promised(tmp_path: Path) -> None:
    """Endpoint, data directory and contract, one line each."""
    listeners = [
        ListenerInfo(0, "tcp", "127.0.0.1", 1883, True),
        ListenerInfo(1, "tcp", "127.0.0.1", 1883, True),
        ListenerInfo(1, "tcp", "127.0.0.1", 40001, False),
    ]
    lines = running_text(tmp_path, listeners, "", tmp_path / "logs").splitlines()
    assert lines[0] == "Holdfast is up: mqtt://127.0.0.1:1883 (gateway 1: 127.0.0.1:40001)"
    assert str(tmp_path) in lines[1] and "fsync" in lines[2] and len(lines) == 3
    looked_at = running_text(tmp_path, listeners, "", tmp_path / "logs", "http://127.0.0.1:18083/metrics").splitlines()
    assert looked_at[2:4] == ["admin page: http://127.0.0.1:18083/", "metrics: http://127.0.0.1:18083/metrics"]
    assert "admin page" not in running_text(tmp_path, listeners, "", tmp_path / "logs", "not yet, as the port is taken")


# ---------------------------------------------------------------------- hosts


class Stubborn:
    """A server that fails to start some times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.log: list[str] = []
        self.tried = asyncio.Event()

    async def start(self) -> Announcement:
        self.log.append("start")
        self.tried.set()
        if self.failures:
            self.failures -= 1
            raise OSError("the port is taken")
        return Announcement("shard", "shard-0", os.getpid())

    async def stop(self) -> None:
        self.log.append("stop")

    async def health(self) -> Health:
        return Health(True, "well")

    def reconfigure(self, config: Config) -> None:
        self.log.append(f"level {config.log.level}")


async def test_a_server_that_fails_to_start_is_tried_again_and_its_reason_is_there_meanwhile(tmp_path: Path) -> None:
    """`up` can say why it takes so long; once it has started there is nothing to complain of."""
    topology = topology_in(tmp_path)
    server = Stubborn(failures=2)
    host = Host(topology, "shard", 0, server, restarted=False, first_pause=0.001)
    assert not (await host.health()).ready
    beginning = asyncio.create_task(host.begin())
    await server.tried.wait()
    await asyncio.sleep(0)
    assert (topology.run_dir / "shard-0.error").read_text() == "the port is taken"
    await beginning
    await host.begin()
    assert server.log == ["start"] * 3 and (await host.health()).ready and not (topology.run_dir / "shard-0.error").exists()
    await host.stop()


async def test_a_restarted_host_begins_by_itself(tmp_path: Path) -> None:
    """Ray calls the constructor and nothing else; with the controller dead nobody else would begin it."""
    server = Stubborn(failures=0)
    host = Host(topology_in(tmp_path), "shard", 0, server, restarted=True)
    await server.tried.wait()
    await host.begin()
    assert server.log == ["start"] and (await host.health()).ready
    await host.stop()


async def test_a_host_says_whose_it_is_also_when_it_could_not_be_made(tmp_path: Path) -> None:
    """Ray asks for that in the middle of a constructor that raises, and starts an actor again and again whose answer fails."""
    assert repr(Host.__new__(Host)) == "holdfast"
    topology = topology_in(tmp_path)
    assert repr(Host(topology, "shard", 3, Stubborn(0), restarted=False)) == f"shard-3 of {topology.data_dir}"


async def test_a_host_of_a_former_generation_refuses_to_exist(tmp_path: Path) -> None:
    """An exception in a constructor is what makes Ray give an actor up."""
    topology = topology_in(tmp_path)
    with pytest.raises(RunEnded, match="shard-0"):
        Host(replace(topology, generation="former"), "shard", 0, Stubborn(0), restarted=True)


async def test_nothing_is_started_after_stop(tmp_path: Path) -> None:
    """A stop between two attempts ends the attempts."""
    server = Stubborn(failures=100)
    host = Host(topology_in(tmp_path), "shard", 0, server, restarted=False, first_pause=60.0)
    beginning = asyncio.create_task(host.begin())
    await server.tried.wait()
    await host.stop()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    await host.begin()
    assert server.log == ["start"]


# ---------------------------------------------------------------------- the controller


class Cluster:
    """Deployment and members in one: writes down what it is asked, and fails as told."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.refusals: dict[str, list[Exception]] = {}
        self.versions: dict[str, int] = {}
        """What a member says to have, when that is not what it was told."""
        self.left = ""
        """One that a controller before has made."""

    def create(self, role: Role, index: int) -> FakeMember:
        self.log.append(f"create {role}-{index}")
        return FakeMember(self, f"{role}-{index}")

    def find(self, role: Role, index: int) -> FakeMember | None:
        return FakeMember(self, self.left) if self.left == f"{role}-{index}" else None


class FakeMember:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def _asked(self, what: str) -> None:
        self._cluster.log.append(f"{what} {self._name}")
        await asyncio.sleep(0)
        if refusals := self._cluster.refusals.get(f"{what} {self._name}"):
            raise refusals.pop(0)

    async def begin(self, within: float) -> None:
        await self._asked("begin")
        self._cluster.log.append(f"begun {self._name}")

    async def stop(self, within: float) -> None:
        await self._asked("stop")

    async def health(self, within: float) -> Health:
        await self._asked("health")
        return Health(True, "")

    async def reconfigure(self, version: int, config: str, within: float) -> int:
        await self._asked(f"settings {version}")
        return self._cluster.versions.get(self._name, version)

    def end(self) -> None:
        self._cluster.log.append(f"end {self._name}")


async def test_actors_are_made_together_and_begun_in_order(tmp_path: Path) -> None:
    """Their processes come up in parallel; a gateway begins when all sessions have, and those when all shards have."""
    cluster = Cluster()
    controller = ControllerServer(topology_in(tmp_path, n_shards=2, n_gateways=2), 0, cluster)
    await controller.start()
    log = cluster.log
    assert log[:5] == ["create shard-0", "create shard-1", "create session-0", "create gateway-0", "create gateway-1"]
    assert max(log.index(f"begun shard-{i}") for i in (0, 1)) < log.index("begin session-0")
    assert log.index("begun session-0") < min(log.index(f"begin gateway-{i}") for i in (0, 1))
    assert log.index("begin shard-1") < log.index("begun shard-0"), "shards begin together"
    await controller.stop()


async def test_gateways_are_stopped_first_and_shards_last_whatever_one_of_them_answers(tmp_path: Path) -> None:
    """Nothing new comes in while the rest finishes, and one that does not answer keeps nobody from stopping."""
    cluster = Cluster()
    cluster.refusals["stop gateway-0"] = [Unavailable("it hangs")]
    controller = ControllerServer(topology_in(tmp_path, n_shards=2), 0, cluster)
    await controller.start()
    cluster.log.clear()
    await controller.stop()
    log = [each for each in cluster.log if not each.endswith(" admin-0")]
    assert log == ["stop gateway-0", "stop session-0", "stop shard-0", "stop shard-1"]


def test_whoever_waits_for_others_to_stop_waits_longer_than_they_do() -> None:
    """A bound that is less than one beneath it takes away what the other still waits for: shards beneath a gateway, a driver from all."""
    one_after_another = sum(max(STOP_S[role] for role in roles) for roles in STOPPED_TOGETHER)
    assert Options().stop_wait_ms / 1000 < STOP_WITHIN_SECONDS < STOP_S["gateway"]
    assert one_after_another < driver.STOP_S < STOP_DRIVER_S < down.STOP_WITHIN_S
    assert {role for roles in STOPPED_TOGETHER for role in roles} == set(STOP_S) == {"reader", "gateway", "session", "shard", "site"}


async def test_an_actor_ray_has_given_up_is_made_anew_and_one_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    """Both may happen while the broker starts."""
    cluster = Cluster()
    cluster.refusals["begin shard-0"] = [Gone("killed for good"), Unavailable("restarting")]
    controller = ControllerServer(topology_in(tmp_path), 0, cluster, pause=0.0)
    await controller.start()
    assert cluster.log.count("create shard-0") == 2 and cluster.log.count("begin shard-0") == 3
    assert cluster.log.index("begun shard-0") < cluster.log.index("begin session-0")
    await controller.stop()


async def test_the_controller_announces_itself_before_the_others_begin(tmp_path: Path) -> None:
    """`status` shows it while a store that takes long is being opened; starting twice changes nothing."""
    topology = topology_in(tmp_path)
    seen: list[list[str]] = []

    class Looking(Cluster):
        def create(self, role: Role, index: int) -> FakeMember:
            seen.append([each.announcement.name for each in read_announcements(topology.run_dir)])
            return super().create(role, index)

    cluster = Looking()
    controller = ControllerServer(topology, 0, cluster)
    assert await controller.start() == await controller.start()
    assert seen[0] == ["controller-0"] and cluster.log.count("create shard-0") == 1
    await controller.stop()


# ---------------------------------------------------------------------- small things


def test_what_has_answered_is_started_again_at_once_and_what_has_not_waits_longer_each_time() -> None:
    """However often and soon Ray is killed under a broker that works, its clients wait for the start alone."""
    pauses = [0.0]
    for _ in range(8):
        pauses.append(pause_before_start(False, pauses[-1]))
    assert pauses == [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert pause_before_start(True, 10.0) == 0.0


def test_a_log_file_is_bounded(tmp_path: Path) -> None:
    """At most the file and the one before it, and no line is torn."""
    file = BoundedFile(tmp_path / "a.log", bytes_max=1000)
    for number in range(100):
        file.write(f"{number:049d}\n")
        file.flush()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2 and max(sizes) <= 1050
    assert (tmp_path / "a.log").read_text().splitlines()[-1] == f"{99:049d}"


def test_a_log_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """A full or missing disk is the store's business."""
    file = BoundedFile(tmp_path / "missing" / "a.log")
    file.write("lost\n")
    file.flush()


def test_rays_pages_of_error_become_one_line() -> None:
    """The operator reads a sentence."""
    assert first_line(RuntimeError("\n\n  The actor died.\n  File ...\n")) == "The actor died."
    assert first_line(RuntimeError()) == "RuntimeError"


@pytest.mark.slow
def test_the_launcher_and_status_import_no_ray() -> None:
    """They must start at once and stay small; one careless import would cost 40 MB and half a second."""
    program = "import sys, actors.launcher, cli.status, cli.main; sys.exit(not sys.modules.keys().isdisjoint(sys.argv[1:]))"
    heavy = ["ray", "rocksdict", "numpy", "config.schema", "cli.up"]
    assert subprocess.run([sys.executable, "-c", program, *heavy], check=False, cwd=Path(__file__).parents[2]).returncode == 0


@pytest.mark.slow
def test_gateways_and_sessions_do_not_load_what_stores_need() -> None:
    """Each process of every start would pay for it, in time and in memory."""
    program = "import sys, actors.gateway, actors.session; sys.exit(not sys.modules.keys().isdisjoint(sys.argv[1:]))"
    heavy = ["rocksdict", "numpy", "shards.layouts.registry"]
    assert subprocess.run([sys.executable, "-c", program, *heavy], check=False, cwd=Path(__file__).parents[2]).returncode == 0
