"""The launcher: the parent of everything, small enough never to be the one that fails.

Takes the data directory, starts what runs in it, keeps it running (actors.supervisor), and at the end leaves nothing running. Imports no
Ray and nothing of MQTT; whether the broker is well it learns by connecting to it.

Holds at every moment: all that runs of this broker descends from this process (it adopts orphans, PR_SET_CHILD_SUBREAPER) or bears its
marks, so "end all that was started" needs no names.

SIGHUP has the configuration read again (actors.reload, as a process of its own: what it takes to read one is not loaded here). When it
comes because the terminal is gone, it asks to stop, like SIGTERM and SIGINT.

    python -P -m actors.launcher SPEC_FD REPORT_FD

REPORT_FD 1: in the foreground; reports are printed for the operator. Otherwise one JSON object is written there, `{ok, text}`, when the
broker answers or cannot be started, and the descriptor is closed. One of several sites that does not answer in time goes on starting.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

import structlog

from actors.access.secrets import unpacked, write_secrets
from actors.datadir import DataDirectory, DirectoryError, open_data_directory, read_site
from actors.known_stores import StoreMissing, require_store
from actors.logs import open_log
from actors.origin import write_origin
from actors.reader.token import OWN, own_token
from actors.reserve import Reserve, free_bytes, give_back
from actors.spec import LaunchSpec, first_start_text, running_text, waiting_text
from actors.supervisor import Supervisor
from actors.topology import LOCAL_RAY, RayPlan, Topology, notices_of, read_dashboard, write_whole

OPEN_FILES = 1_048_576
COMPLAIN_AFTER_S = 3.0
HOPELESS = 3
"""A first start whose driver ended this often will not do better within the minute that somebody waits for it."""
_PR_SET_CHILD_SUBREAPER = 36


class CannotStart(Exception):
    """One sentence for the operator."""


class Reporter:
    """The way to whoever said `up`: a terminal, or the command that waits for one answer."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        self._foreground = descriptor == 1

    def say(self, text: str) -> None:
        """Something to know on the way; the waiting command does not show it before the end."""
        if self._foreground:
            os.write(1, f"{text}\n".encode())

    def close(self, ok: bool, text: str) -> None:
        """The outcome of the start. Nothing is said after it to a waiting command."""
        if self._foreground:
            os.write(1 if ok else 2, f"{text}\n".encode())
        elif self._descriptor is not None:
            try:
                os.write(self._descriptor, json.dumps({"ok": ok, "text": text}).encode() + b"\n")
                os.close(self._descriptor)
            except OSError:
                pass  # Nobody waits any more.
            self._descriptor = None


def main() -> int:
    # For all that is started from here as well.
    os.umask(0o077)
    spec_fd, report_fd = int(sys.argv[1]), int(sys.argv[2])
    with open(spec_fd, encoding="utf-8") as file:
        spec = LaunchSpec.from_json(file.read())
    reporter = Reporter(report_fd)
    try:
        return launch(spec, reporter)
    except (DirectoryError, StoreMissing, CannotStart) as error:
        reporter.close(False, f"Holdfast did not start: {error}.")
        return 1


def launch(spec: LaunchSpec, reporter: Reporter) -> int:
    """One run, from the lock to the last process."""
    signals = Signals()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _raise_open_files()
    path = Path(spec.data_dir)
    stores = Path(spec.store_dir) if spec.store_dir else path / "shards"
    n_sites, copies = (1, 1) if spec.sites is None else (spec.sites.n_sites, spec.sites.replication_factor)
    data = open_data_directory(
        path, n_shards=spec.n_shards, n_shards_new=_shards_of_new(spec, path), n_sites=n_sites, replication_factor=copies, stores=stores
    )
    try:
        open_log(path / "logs" / "launcher.log", spec.log_level, as_json=spec.log_json, who="launcher")
        for shard in range(data.site.n_shards):
            require_store(path, stores / str(shard), shard)
        keeps_reserve = stores if spec.store_dir else path
        given_back = data.given_back or give_back(keeps_reserve)
        if given_back:
            structlog.get_logger().error("reserve.given_back", bytes=given_back, free_bytes=free_bytes(keeps_reserve))
            reporter.say(f"the disk is full: {given_back >> 20} MiB of reserve were given back to start; make room, it is made again then")
        reserve = Reserve(keeps_reserve, stores, spec.reserve_bytes)
        _make_token(path)
        if data.new:
            reporter.say(first_start_text(data.site.n_shards))
        reserved, ports = _reserve_all(spec.binds)
        metrics = _metrics_at(spec.admin)
        try:
            data.begin_run(joined=spec.ray_address != LOCAL_RAY)
            topology = _topology(spec, data, ports)
            write_whole(topology.run_dir / "topology.json", topology.to_json())
            write_origin(topology.run_dir, spec.origin)
            write_secrets(topology.run_dir, spec.secrets)
            if spec.access:
                _publish_access(topology)
            return _supervise(spec, topology, reporter, signals, data.new, reserve, metrics)
        finally:
            for each in reserved:
                each.close()
            data.end_run()
    except OSError as error:
        raise CannotStart(f"the system refused ({error})") from error
    finally:
        data.close()


def _publish_access(topology: Topology) -> None:
    """Rules and passwords have to be good when a broker starts. Read by a process of its own, as by a reload: not loaded here."""
    command = [sys.executable, "-P", "-m", "actors.access.publishing", str(topology.run_dir)]
    done = subprocess.run(command, cwd=topology.data_dir, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise CannotStart(done.stdout or f"rules and passwords could not be read ({last[:300]})")


def _supervise(
    spec: LaunchSpec, topology: Topology, reporter: Reporter, signals: Signals, new: bool, reserve: Reserve, metrics: str
) -> int:  # fmt: skip
    log = structlog.get_logger()
    supervisor = Supervisor(topology, spec.table, spec.watchdog_after, signals.descriptor)
    began = time.monotonic()
    reported = False
    complained: set[str] = set()
    log.info("launcher.started", data_dir=str(topology.data_dir), run_dir=str(topology.run_dir), shards=topology.n_shards)
    try:
        supervisor.start()
        while not signals.stop:
            supervisor.step()
            if signals.take_reload():
                log.info("launcher.reload")
                _reload(topology)
            waited = time.monotonic() - began
            if supervisor.state == "running":
                reserve.tend()
            if topology.chaos:
                from actors.chaos.sweeping import sweep  # only what may be broken loads it

                sweep(topology.run_dir)
            if reported:
                continue
            if supervisor.state == "running":
                dashboard = read_dashboard(topology.run_dir)
                if dashboard and not topology.ray.joined:
                    dashboard += f" (it asks for a token: the contents of {topology.data_dir / 'secret'})"
                notices = notices_of(topology)
                listeners, sites = supervisor.listeners(), topology.sites
                text = running_text(topology.data_dir, listeners, dashboard, topology.log_dir, metrics, notices, sites)
                reporter.close(True, f"{first_start_text(topology.n_shards)}\n{text}" if new and spec.start_within else text)
                reported = True
            elif spec.start_within is not None and (supervisor.hopeless or supervisor.failures >= HOPELESS):
                raise CannotStart(_why_not(supervisor, topology, waited))
            elif spec.start_within is not None and waited > spec.start_within:
                if topology.sites is None:
                    raise CannotStart(_why_not(supervisor, topology, waited))
                # Others may have to come first, and if this one ended they would wait for it in turn.
                reporter.close(True, waiting_text(topology.data_dir, _why_not(supervisor, topology, waited)))
                reported = True
            elif waited > COMPLAIN_AFTER_S:
                for complaint in supervisor.complaints():
                    if complaint not in complained:
                        complained.add(complaint)
                        reporter.say(f"still starting; {complaint}")
    finally:
        log.info("launcher.stopping", signal=signals.stop)
        if topology.chaos:
            from actors.chaos.sweeping import sweep

            # What is stopped on purpose could not stop in good order.
            sweep(topology.run_dir, everything=True)
        supervisor.stop(hurry=supervisor.state != "running" or signals.count > 1)
        log.info("launcher.stopped")
    if not reported:
        reporter.close(False, "Holdfast was stopped before it had started.")
        return 1
    return 0


def _reload(topology: Topology) -> None:
    """It ends by itself and is buried with the others; what comes of it is in logs/reload.log."""
    try:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "actors.reload", str(topology.run_dir)],
            cwd=topology.data_dir,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        # The settings stay as they are; a broker does not end for that.
        structlog.get_logger().error("reload.not_begun", reason=str(error))


def _why_not(supervisor: Supervisor, topology: Topology, waited: float) -> str:
    reasons = supervisor.complaints()
    if not reasons:
        missing = supervisor.missing()
        reasons = [f"no sign of {', '.join(missing)}" if missing else "the listeners do not answer a CONNECT"]
    return f"no CONNECT succeeded within {waited:.0f} s ({'; '.join(reasons)}); the logs are in {topology.log_dir}"


def _shards_of_new(spec: LaunchSpec, path: Path) -> int:
    """A site that is new among several has as many as the others, whatever machine it is on."""
    if spec.sites is None or spec.n_shards is not None or read_site(path) is not None:
        return spec.n_shards_new
    from actors.sites.agreeing import NotAgreed, shards_of_cluster  # loads the configuration

    secrets = unpacked(spec.secrets)
    try:
        return shards_of_cluster(spec.config_json, secrets, secrets[spec.sites_secret], spec.sites, spec.n_shards_new)
    except NotAgreed as error:
        raise CannotStart(str(error)) from error


def _topology(spec: LaunchSpec, data: DataDirectory, ports: Mapping[str, int]) -> Topology:
    assert data.run_dir is not None
    config = json.loads(spec.config_json)
    for name, port in ports.items():
        # Where any free port was asked for it is chosen once, here, so that a gateway that comes back finds its clients at the same one.
        listener = config["listeners"][name]
        listener["bind"] = f"{listener['bind'].rpartition(':')[0]}:{port}"
    return Topology(
        data_dir=data.path,
        run_dir=data.run_dir,
        site=data.site.site,
        incarnation=data.site.incarnation,
        secret=data.secret if spec.sites is None else unpacked(spec.secrets)[spec.sites_secret],
        config_json=json.dumps(config),
        store_dir=Path(spec.store_dir) if spec.store_dir else data.path / "shards",
        n_shards=data.site.n_shards,
        # Of several sites session actor i and shard i move together.
        n_sessions=min(spec.n_sessions, data.site.n_shards) if spec.sites is None else data.site.n_shards,
        n_gateways=spec.n_gateways,
        ray=RayPlan(
            address=spec.ray_address,
            namespace=f"{spec.ray_namespace}-{data.site.site}",
            dashboard=spec.dashboard,
            dashboard_port=spec.dashboard_port,
            object_store_bytes=spec.object_store_bytes,
            temp_dir=spec.ray_temp_dir,
        ),
        log_level=spec.log_level,
        log_json=spec.log_json,
        sites=spec.sites,
        chaos=spec.chaos,
        compact=spec.compact,
    )


def _make_token(data_dir: Path) -> None:
    """There before clients are served, for whoever starts a broker and reads it next. A full disk stops nobody: the reader tries again."""
    try:
        own_token(data_dir)
    except OSError as error:
        structlog.get_logger().warning("token.not_made", path=str(data_dir / OWN), cause=str(error.strerror))


def _reserve_all(binds: Mapping[str, tuple[str, int]]) -> tuple[list[socket.socket], dict[str, int]]:
    """The sockets that keep the ports of all listeners, and the ports by the names of listeners."""
    reserved: list[socket.socket] = []
    ports: dict[str, int] = {}
    try:
        for name, (host, port) in binds.items():
            keeps, ports[name] = _reserve(host, port)
            reserved.append(keeps)
    except CannotStart:
        for each in reserved:
            each.close()
        raise
    return reserved, ports


def _metrics_at(admin: tuple[str, int] | None) -> str:
    """Where they will be. The admin process comes last, and listens alone: somebody else at its port keeps no broker from starting."""
    if admin is None:
        return ""
    host, port = admin
    if port == 0:
        return "at a free port, which `holdfast status` says"
    try:
        socket.create_server(admin, family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        return f"not yet, as the port {port} on {host} cannot be used: {os.strerror(error.errno or 0)} (admin.listen)"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"


def _reserve(host: str, port: int) -> tuple[socket.socket, int]:
    """Make sure nobody else has the port, and keep it ours while no gateway listens.

    Gateways share it by SO_REUSEPORT, and so could another broker of the same user, without anybody noticing. A socket without that
    option is refused when anybody has the port; one with it, bound and never listening, then keeps strangers out between two gateways.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind((host, port))
        reserved = socket.socket(family)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            # Without SO_REUSEADDR, or strangers with it could come beside us, as nobody listens here.
            reserved.bind((host, port))
        except OSError:
            # Old connections of another program linger at this port: then it is ours when the first gateway listens.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((host, port))
    except OSError as error:
        raise CannotStart(f"the port {port} on {host} cannot be used: {error.strerror}") from error
    return reserved, int(reserved.getsockname()[1])


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Signals:
    """SIGTERM and SIGINT ask to stop; asking twice means at once. SIGHUP asks to reload, or to stop when the terminal is gone with which
    this began. `descriptor` becomes readable at each that asks to stop."""

    def __init__(self) -> None:
        self.stop = ""
        self.count = 0
        self._reload = False
        self._had_terminal = _has_terminal()
        self.descriptor, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)
        signal.signal(signal.SIGHUP, self._hung_up)

    def take_reload(self) -> bool:
        """Whether it was asked for since the last call."""
        asked, self._reload = self._reload, False
        return asked

    def _asked(self, number: int, _frame: FrameType | None) -> None:
        self.stop = signal.Signals(number).name
        self.count += 1

    def _hung_up(self, number: int, frame: FrameType | None) -> None:
        if self._had_terminal and not _has_terminal():
            self._asked(number, frame)
            return
        self._reload = True
        # Nobody has to hurry for it. What is read is the numbers of the signals: those of others stay to be seen.
        try:
            found = os.read(self.descriptor, 4096)
        except BlockingIOError:
            return  # Another one was taken together with this.
        if others := bytes([each for each in found if each != signal.SIGHUP]):
            os.write(self._writer, others)


def _has_terminal() -> bool:
    """A terminal that controls us, and is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
