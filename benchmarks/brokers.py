"""Starts and ends the brokers that are compared: Holdfast as an operator would, and Debian's mosquitto with a configuration of our own.

Each lives in a directory of its own on a free port of 127.0.0.1, and each tells which of its processes are to be measured, in two groups:
`data`, those a message passes through or that keep them going, and `all`. For mosquitto both are the one process.
Holds: `stop` ends what `start` began and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from benchmarks.tls import Shown, issue
from benchmarks.workers import RunFailed

DATA_ROLES: Final = frozenset({"gateway", "session", "shard", "controller"})
"""Roles of `holdfast status` that are not Ray's own and not the launcher."""

START_S: Final = 90
STOP_S: Final = 60

Groups = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Doors:
    """Listeners beside the plain one, each on a port of its own."""

    tls: int
    web: int
    shown: Shown

    @classmethod
    def planned(cls, directory: Path) -> Doors:
        """With free ports, and a certificate in this directory."""
        return cls(free_port(), free_port(), issue(directory))

    def settings(self) -> list[str]:
        """What `holdfast up` is told of them."""
        return [
            *("listeners.secure.type=tls", f"listeners.secure.bind=127.0.0.1:{self.tls}"),
            *(f"listeners.secure.tls.cert={self.shown.cert}", f"listeners.secure.tls.key={self.shown.key}"),
            *("listeners.web.type=ws", f"listeners.web.bind=127.0.0.1:{self.web}"),
        ]


class Broker(Protocol):
    """One broker to measure."""

    name: str
    version: str
    host: str
    port: int
    data_dir: Path
    doors: Doors | None

    def start(self) -> None:
        """Returns when a client can connect."""

    def groups(self) -> Groups:
        """Process ids by group, as they are now."""

    def stop(self) -> None:
        """Ends it; its directory stays."""


@contextmanager
def ended_from_outside() -> Iterator[None]:
    """Within it SIGTERM ends us as Ctrl-C does, through every `finally`; the default would leave our brokers running."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Holdfast:
    """This checkout's broker, by its command line."""

    def __init__(self, directory: Path, settings: Sequence[str] = (), doors: Doors | None = None) -> None:
        self.name, self.host, self.port = "holdfast", "127.0.0.1", free_port()
        self.data_dir = directory / "holdfast"
        self._command = str(Path(sys.executable).parent / "holdfast")
        self._settings = [*settings, *(doors.settings() if doors else ())]
        self.doors = doors
        self.version = _first_line([sys.executable, "-c", "from importlib.metadata import version; print(version('holdfast'))"])

    def start(self) -> None:
        words = ["up", "--detach", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        self._run([*words, *(word for setting in self._settings for word in ("--set", setting))], START_S)

    def groups(self) -> Groups:
        return status_groups(self._status())

    def roles(self) -> Groups:
        """Process ids by what `holdfast status` says that they are."""
        processes = json.loads(self._status())["processes"]
        roles = sorted({str(process["role"]) for process in processes})
        return {role: tuple(int(process["pid"]) for process in processes if process["role"] == role) for role in roles}

    def _status(self) -> str:
        return self._run(["status", "--json", "--data-dir", str(self.data_dir)], STOP_S)

    def stop(self) -> None:
        self._run(["down", "--data-dir", str(self.data_dir)], STOP_S)

    def _run(self, words: Sequence[str], timeout_s: float) -> str:
        try:
            # Its output goes to a file because a detached broker that inherits a pipe would keep us reading it for ever.
            log = self.data_dir.with_suffix(".out")
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("w+") as out:
                code = subprocess.run(
                    [self._command, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=timeout_s
                ).returncode
                out.seek(0)
                text = out.read()
        except FileNotFoundError:
            raise RunFailed(f"there is no {self._command}; `make env` makes it") from None
        except subprocess.TimeoutExpired:
            raise RunFailed(f"`holdfast {words[0]}` did not end within {timeout_s:.0f} s") from None
        if code:
            raise RunFailed(f"`holdfast {words[0]}` failed: {text.strip()[-500:] or f'exit code {code}'}")
        return text


def status_groups(text: str) -> Groups:
    """The two groups, of what `holdfast status --json` printed."""
    processes = json.loads(text)["processes"]
    return {
        "data": tuple(int(process["pid"]) for process in processes if process["role"] in DATA_ROLES),
        "all": tuple(int(process["pid"]) for process in processes),
    }


class Mosquitto:
    """Debian's mosquitto. Without the three limits below it would drop stored messages, and its rates would mean nothing."""

    CONFIGURATION: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {directory}/
max_queued_messages 0
max_queued_bytes 0
max_inflight_messages 1000
set_tcp_nodelay true
log_type error
log_dest stderr
"""

    doors: Doors | None = None

    def __init__(self, directory: Path, program: str, more: str = "") -> None:
        """more: lines of its configuration."""
        self._more = more
        self.name, self.host, self.port = "mosquitto", "127.0.0.1", free_port()
        self.data_dir = directory / "mosquitto"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self.version = _first_line([program, "-h"]).removeprefix("mosquitto version ")

    def start(self) -> None:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        configuration = self.data_dir.with_suffix(".conf")
        text = self.CONFIGURATION.format(port=self.port, directory=self.data_dir) + self._more
        if running_as_root():
            text += "user root\n"  # it would else become the user mosquitto, who may not write in our directory
        configuration.write_text(text)
        with self.data_dir.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "-c", str(configuration)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        wait_listening(self.host, self.port, 10)

    def groups(self) -> Groups:
        if self._process is None or self._process.poll() is not None:
            raise RunFailed(f"mosquitto is not running; its log is {self.data_dir.with_suffix('.log')}")
        return {"data": (self._process.pid,), "all": (self._process.pid,)}

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def find_mosquitto() -> str | None:
    """The program; Debian keeps it where an ordinary user's PATH does not look."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def running_as_root() -> bool:
    """Whether this process has the rights of root."""
    return os.geteuid() == 0


def wait_listening(host: str, port: int, timeout_s: float) -> None:
    """Returns when the port accepts a connection."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection((host, port), 1).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise RunFailed(f"nothing listens on {host}:{port} after {timeout_s:.0f} s: {error}") from error
            time.sleep(0.05)


def _first_line(command: Sequence[str]) -> str:
    found = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout.splitlines()
    return found[0].strip() if found else "unknown"
