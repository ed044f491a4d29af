"""A Ray as its users start it, with `ray start --head`: on the loopback interface, with ports and a directory of its own.

It is ended by the ids of its processes, which bear a mark: `ray stop` would end the clusters of everybody on this machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actors import ROOT
from actors.processes import ProcessId, alive, marked
from tests.broker.running import free_port
from tests.cluster.loopback_ray import SINGLE_MACHINE

MARK = "HOLDFAST_TEST_RAY"
COMMAND_S = 150.0
GONE_S = 60.0


class SomebodysRay:
    """Made -> started -> (killed -> started)* -> left."""

    def __init__(self) -> None:
        # A short path: Ray keeps sockets below it, and a socket's path has 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="hr", dir="/tmp"))
        (self.directory / "token").write_text("ab" * 32)
        self.port, self.dashboard_port, self.agent_port, self.client_port, self.metrics_port = [free_port() for _ in range(5)]
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = {
            **others,
            "RAY_TMPDIR": str(self.directory),
            **SINGLE_MACHINE,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.directory / "token"),
            "RAY_WORKER_NICENESS": "0",
            # Else its processes write their titles over the environment that the mark is looked for in.
            "SPT_NOENV": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            MARK: str(self.directory),
        }

    def start(self) -> None:
        self.command(
            "start", "--head", "--node-ip-address=127.0.0.1", f"--port={self.port}", f"--dashboard-port={self.dashboard_port}",
            f"--dashboard-agent-listen-port={self.agent_port}", f"--ray-client-server-port={self.client_port}",
            f"--metrics-export-port={self.metrics_port}", "--num-cpus=1", "--disable-usage-stats",
        )  # fmt: skip

    def command(self, *words: str) -> str:
        """`ray ...`; what it prints. Through a file: what it leaves running would keep a pipe open."""
        with tempfile.TemporaryFile("w+") as output:
            command = [str(Path(sys.prefix) / "bin" / "ray"), *words]
            done = subprocess.run(
                command, env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=COMMAND_S, check=False,
            )  # fmt: skip
            output.seek(0)
            text = output.read()
        assert done.returncode == 0, f"ray {' '.join(words)}: {text[-2000:]}"
        return text

    def actors(self) -> list[dict[str, Any]]:
        """As `ray list actors` has them."""
        text = self.command("list", "actors", "--address", f"127.0.0.1:{self.port}", "--detail", "--format", "json")
        found: list[dict[str, Any]] = json.loads(text[text.index("[") : text.rindex("]") + 1])
        return found

    def processes(self) -> list[ProcessId]:
        """All that was started by it, actors of others among them."""
        return marked(MARK, str(self.directory))

    def kill(self, spare: list[int]) -> None:
        """SIGKILL to all of it, but to nobody of these."""
        deadline = time.monotonic() + GONE_S
        while left := [process for process in self.processes() if process.pid not in spare and alive(process)]:
            assert time.monotonic() < deadline, left
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill([])
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill([])
        if error is None:
            shutil.rmtree(self.directory, ignore_errors=True)
