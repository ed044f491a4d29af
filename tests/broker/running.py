"""The one fixture's engine: starts a broker as an operator would, by the command line, and leaves nothing behind.

Knows the operator's interface (``holdfast up|down|status``) and no module of the
broker.  Waiting for a broker is left to ``up --detach``, which returns when a
CONNECT succeeds.

What always holds: after ``close`` no process of this broker is alive.  When one
had to be killed for that, or a process was running that ``status`` did not list,
``close`` raises ``LeftBehind``.  To know its processes even when they are not in any
status, the broker's environment carries a mark that every descendant inherits.
No process of it has ended in a library either: ``close`` looks into what actors leave beside their logs.
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
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

UP_DEADLINE_S = 100
DOWN_DEADLINE_S = 100
STATUS_DEADLINE_S = 60
GONE_DEADLINE_S = 60
READY_DEADLINE_S = 60
UNLISTED_S = 20
TOO_SLOW = "no CONNECT succeeded within"
MARK = "HOLDFAST_TEST_BROKER"
LAUNCHER_ROLE = "launcher"
CRASH = b"Fatal Python error"
"""What Python's fault handler writes when a signal ends a process in a library."""
QUIET_RAY = {"ray.dashboard": "false", "admin.enable": "false"}
"""Settings of a broker that is tested neither for its dashboard nor for what its admin process serves: starting these costs more than
starting the broker."""
EACH_ALONE = {"profile": "spread"}
"""Parts are killed one by one here, on any number of cores; a test of the other profile says so."""


PORTS = range(20000, 30000)
_next_port = random.choice(PORTS)
"""Not the same in two processes: others run beside this one."""


class CommandFailed(Exception):
    """A ``holdfast`` command ended with another code than 0, or not in time."""


class LeftBehind(Exception):
    """Processes were alive after ``down``, ran without being listed, or ended in a library."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to start a broker: what goes after ``--set``, a configuration file, additions to the environment."""

    settings: Mapping[str, str] = field(default_factory=dict)
    config: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    role: str
    name: str


@dataclass(frozen=True, slots=True)
class Listener:
    gateway: str
    kind: str
    host: str
    port: int
    shared: bool


@dataclass(frozen=True, slots=True)
class Status:
    """What ``holdfast status --json`` printed."""

    ready: bool
    data_dir: Path
    listeners: tuple[Listener, ...]
    processes: tuple[Process, ...]

    def pids(self, role: str = "") -> list[int]:
        return [process.pid for process in self.processes if role in ("", process.role)]

    def own_port(self, gateway: str) -> int:
        """The port on which only this gateway listens."""
        return next(each.port for each in self.listeners if each.gateway == gateway and not each.shared)


def parse_status(text: str) -> Status:
    """Strict on purpose: scripts of operators rely on these keys."""
    data = json.loads(text)
    return Status(
        ready=bool(data["ready"]),
        data_dir=Path(data["data_dir"]),
        listeners=tuple(
            Listener(str(each["gateway"]), str(each["kind"]), str(each["host"]), int(each["port"]), bool(each["shared"]))
            for each in data["listeners"]
        ),
        processes=tuple(Process(int(each["pid"]), str(each["role"]), str(each["name"])) for each in data["processes"]),
    )


def free_port() -> int:
    """As `free_run`."""
    return free_run(1)


def free_run(count: int) -> int:
    """The first of so many ports in a row on which nobody listens, below the range from which outgoing connections take theirs.

    One comes after the other, so none is given a second time before all others were: of three brokers that were made before the first of
    them listened, two had the same.
    """
    global _next_port
    for _ in range(1000):
        first = _next_port if _next_port + count <= PORTS.stop else PORTS.start
        _next_port = first + count
        with contextlib.suppress(OSError), contextlib.ExitStack() as taken:
            for port in range(first, first + count):
                taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError(f"no {count} free ports in a row between {PORTS.start} and {PORTS.stop}")


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not collected by its parent does not.

    The main thread of a killed process can be a zombie while others still end, and its sockets close with the last one.
    """
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[int]:
    """Living processes that were started with MARK=``mark`` in their environment, or by one that was."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            bears = wanted in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if bears and alive(int(entry.name)):
            found.append(int(entry.name))
    return found


def describe(pid: int) -> str:
    """A process for people: its pid and how it was called."""
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        command = "ended"
    return f"{pid} ({command[:80]})"


class RunningBroker:
    """One broker: created → up → (killed or down → up)* → closed."""

    def __init__(self, options: Options | None = None, *, data_dir: Path | None = None, executable: Path | None = None) -> None:
        self.options = options or Options()
        # A short path: the broker and Ray keep sockets somewhere near, and a socket's path has 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="hf-"))
        self.data_dir = data_dir or self.directory / "data"
        self.executable = executable or Path(sys.prefix) / "bin" / "holdfast"
        self.port = free_port()
        self.mark = uuid.uuid4().hex
        self.killed_s = 0.0
        """When all of it was killed last."""
        self._seen: dict[int, float] = {}
        self._last: Status | None = None

    # ------------------------------------------------------------------ commands

    def up(self, deadline_s: float = UP_DEADLINE_S) -> Status:
        """Start it; returns when it answers a CONNECT."""
        try:
            said = self.begin(deadline_s=deadline_s)
        except CommandFailed as error:
            if TOO_SLOW not in str(error):
                raise
            # On a machine that others use too. It has left nothing behind, so it may be tried again.
            said = self.begin(deadline_s=deadline_s)
        # One of several sites goes on starting.
        return self.ready_status() if TOO_SLOW in said else self.status()

    def begin(self, *more: str, deadline_s: float = UP_DEADLINE_S) -> str:
        """What `up --detach`, with these words more, prints."""
        command = ["up", "--detach", "--data-dir", str(self.data_dir), "--port", str(self.port), *more]
        for key, value in {**EACH_ALONE, **self.options.settings}.items():
            command += ["--set", f"{key}={value}"]
        if self.options.config is not None:
            command += ["--config", str(self.options.config)]
        return self._run(command, deadline_s, {**self.options.environment, MARK: self.mark})

    def status(self) -> Status:
        status = parse_status(self._run(["status", "--json", "--data-dir", str(self.data_dir)], STATUS_DEADLINE_S, {}))
        self._last = status
        self._remember(status.pids())
        return status

    def ready_status(self) -> Status:
        """When it says that it is ready; a gateway that does not answer one look within half a second may only be waiting for its turn."""
        deadline = time.monotonic() + READY_DEADLINE_S
        while not (status := self.status()).ready:
            if time.monotonic() > deadline:
                raise CommandFailed(f"`holdfast status` says not ready for {READY_DEADLINE_S} s: {status}")
        return status

    def command(self, *words: str) -> str:
        """`holdfast ... --data-dir` of this one; what it prints."""
        return self._run([*words, "--data-dir", str(self.data_dir)], STATUS_DEADLINE_S, {})

    def down(self) -> None:
        """Stop it gracefully; returns when its processes are gone."""
        self._run(["down", "--data-dir", str(self.data_dir)], DOWN_DEADLINE_S, {})

    def kill_all(self) -> list[int]:
        """SIGKILL to every process of a fresh status, one right after the other; returns when they are gone."""
        pids = self.status().pids()
        for pid in pids:
            self.kill(pid, wait=False)
        self.killed_s = time.monotonic()
        self._wait_gone(pids)
        return pids

    def kill(self, pid: int, *, wait: bool = True) -> None:
        self.signal(pid, signal.SIGKILL)
        if wait:
            self._wait_gone([pid])

    def signal(self, pid: int, number: signal.Signals) -> None:
        """To a process that a status listed, and to no other: a pid may have been given away since."""
        if pid not in self._seen:
            raise ValueError(f"pid {pid} was in no status of this broker")
        if self._is_ours(pid):
            # One of several that are killed may follow the others by itself, between these two lines too.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # ------------------------------------------------------------------- its end

    def close(self, *, keep: bool = False) -> None:
        """End everything. Raises LeftBehind when ``down`` did not do it alone, or when a process had ended in a library. ``keep`` leaves
        its directory for reading."""
        unlisted: list[str] = []
        down_failed = ""
        try:
            if self.data_dir.exists() and (self._marked() or self._alive_of_seen()):
                try:
                    listed = set(self.status().pids())
                    unlisted = [describe(pid) for pid in self._marked() if pid not in listed and alive(pid)]
                    self.down()
                except CommandFailed as error:
                    down_failed = str(error)
        finally:
            left = sorted(set(self._alive_of_seen()) | set(self._marked()))
            described = [describe(pid) for pid in left]
            for pid in left:
                _kill_tolerantly(pid)
            _wait(left)
        problems = [
            *([f"`down` failed: {down_failed}"] if down_failed else []),
            *([f"alive after `down`: {', '.join(described)}"] if described else []),
            *([f"running but not in `status`: {', '.join(unlisted)}"] if unlisted else []),
            *([f"a library ended processes, as these say: {', '.join(crashed)}"] if (crashed := self._crashed()) else []),
        ]
        if problems:
            raise LeftBehind(f"{'; '.join(problems)} (directory kept: {self.directory})")
        if not keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close(keep=error is not None)
        except LeftBehind as left:
            if error is None:
                raise
            # The first failure is the story; this one is added to it.
            error.add_note(str(left))
        if error is not None:
            error.add_note(f"log of commands: {self.directory / 'commands.log'}")

    def _abandon(self) -> None:
        left = sorted(set(self._alive_of_seen()) | set(self._marked()))
        for pid in left:
            _kill_tolerantly(pid)
        _wait(left)

    # ------------------------------------------------------------------ processes

    def runs(self) -> bool:
        """Whether anything of it is alive."""
        return bool(self._marked())

    def unlisted(self) -> list[str]:
        """Processes of this broker that its status does not list; a command of ours that is ending may be among them for a moment."""
        deadline = time.monotonic() + UNLISTED_S
        while True:
            listed = set(self.status().pids())
            found = [pid for pid in self._marked() if pid not in listed and alive(pid)]
            if not found or time.monotonic() > deadline:
                return [describe(pid) for pid in found]
            time.sleep(0.1)

    def _marked(self) -> list[int]:
        return marked(self.mark)

    def _remember(self, pids: Iterable[int]) -> None:
        for pid in pids:
            try:
                self._seen[pid] = psutil.Process(pid).create_time()
            except psutil.NoSuchProcess:
                self._seen.setdefault(pid, 0.0)

    def _is_ours(self, pid: int) -> bool:
        try:
            return bool(psutil.Process(pid).create_time() == self._seen.get(pid))
        except psutil.NoSuchProcess:
            return False

    def _crashed(self) -> list[str]:
        """Files with stacks of processes that a library ended. Ray makes each anew, so nothing else says it."""
        return [str(path) for path in sorted(self.data_dir.glob("logs/*.err*")) if CRASH in path.read_bytes()]

    def _alive_of_seen(self) -> list[int]:
        return [pid for pid in self._seen if self._is_ours(pid) and alive(pid)]

    def _wait_gone(self, pids: Iterable[int]) -> None:
        deadline = time.monotonic() + GONE_DEADLINE_S
        left = list(pids)
        while left := [pid for pid in left if self._is_ours(pid) and alive(pid)]:
            if time.monotonic() > deadline:
                raise LeftBehind(f"alive {GONE_DEADLINE_S} s after SIGKILL: {', '.join(map(describe, left))}")
            time.sleep(0.01)

    def _run(self, arguments: list[str], deadline_s: float, environment: Mapping[str, str]) -> str:
        """Its output goes through files: a detached child that kept our pipe would hold us for ever."""
        log = self.directory / "commands.log"
        output = self.directory / f"output-{uuid.uuid4().hex[:8]}"
        shown = f"holdfast {' '.join(arguments)}"
        began = time.monotonic()
        try:
            with output.open("wb") as out, log.open("ab") as err:
                err.write(f"\n--- {shown}\n".encode())
                err.flush()
                command = [str(self.executable), *arguments]
                done = subprocess.run(
                    command,
                    env={**os.environ, **environment},
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    timeout=deadline_s,
                )
            text = output.read_text(errors="replace")
            if arguments[0] != "status":
                with log.open("a") as err_text:
                    err_text.write(text)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"`{shown}` had not ended after {deadline_s:.0f} s; {self._tail(log)}") from None
        except OSError as error:
            raise CommandFailed(f"`{shown}` could not be started: {error}") from None
        finally:
            output.unlink(missing_ok=True)
        if done.returncode != 0:
            raise CommandFailed(f"`{shown}` ended with code {done.returncode} after {time.monotonic() - began:.1f} s; {self._tail(log)}")
        return text

    @staticmethod
    def _tail(log: Path) -> str:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip() and not line.startswith("---")]
        return f"last words: {' | '.join(lines[-5:])[-600:]} (log: {log})" if lines else f"no output (log: {log})"


def _kill_tolerantly(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _wait(pids: Iterable[int]) -> None:
    deadline = time.monotonic() + GONE_DEADLINE_S
    left = list(pids)
    while (left := [pid for pid in left if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
