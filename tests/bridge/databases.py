"""A PostgreSQL of a test's own: Debian's server on a socket in a temporary directory, by a user who is not root, ended by its pid."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.needs import find_program

STARTED_S = 60.0
_UNPRIVILEGED = "nobody"


class Cluster:
    """made -> started -> (killed -> started) -> ended."""

    def __init__(self) -> None:
        # Short: the path of a socket has 107 bytes at most.
        self.directory = Path(tempfile.mkdtemp(prefix="pg"))
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _UNPRIVILEGED if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self.directory, self._user)
        self.user = self._user or pwd.getpwuid(os.geteuid()).pw_name
        options = ["--auth=trust", "--no-instructions", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", "-D", self._data, "-U", self.user, *options)

    @property
    def _data(self) -> str:
        return str(self.directory / "data")

    @property
    def socket(self) -> str:
        return str(self.directory / ".s.PGSQL.5432")

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        program = find_program("postgres")
        assert program is not None
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "16MB",
            "max_connections": "20",
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "-D", self._data, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=self._user, cwd="/"
            )
        until = time.monotonic() + STARTED_S
        while "ready" not in self._status():
            assert self._process.poll() is None and time.monotonic() < until, (self.directory / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """As by kill -9 of all of it: the processes of its clients end by themselves when their parent is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _status(self) -> str:
        """The last line of the file of its pid says whether it takes connections."""
        try:
            lines = (self.directory / "data" / "postmaster.pid").read_text().split("\n")
        except OSError:
            return ""
        assert self._process is not None
        return lines[7] if len(lines) > 7 and lines[0] == str(self._process.pid) else ""

    def _run(self, name: str, *arguments: str) -> None:
        program = find_program(name)
        assert program is not None
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, user=self._user, check=False, cwd="/", text=True
        )
        assert done.returncode == 0, done.stderr
