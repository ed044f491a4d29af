"""A Ray cluster of several nodes on this machine, each with all its ports given, as docs/clusters.md says them: a head that keeps what it
knows in RocksDB, and workers.

All of it is on the loopback interface. A machine of its own is played by a directory of its own; where Ray tells machines apart by the
processes it sees (a head that is started again finds raylets of its cluster), its note of the former start is taken away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from actors import ROOT
from actors.environment import RECONNECT
from actors.processes import ProcessId, alive, marked
from tests.broker.running import free_run
from tests.cluster.loopback_ray import SINGLE_MACHINE

MARK = "HOLDFAST_TEST_NODE"
COMMAND_S = 150.0
GONE_S = 60.0
WORKER_PORTS = 25
OF_EVERY_NODE = (
    "--node-manager-port", "--object-manager-port", "--dashboard-agent-listen-port", "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port", "--metrics-export-port",
)  # fmt: skip
OF_A_HEAD = ("--port", "--dashboard-port", "--ray-client-server-port")
BY_ENVIRONMENT = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")
"""Of a head too, which has no options for them."""
PATIENT = {RECONNECT: "86400"}
"""For the raylets of workers: they wait for their head."""


@dataclass(slots=True)
class Node:
    """Made -> started -> (killed -> started)*."""

    directory: Path
    environment: dict[str, str]
    options: list[str]
    ports: frozenset[int]
    """All at which this node may listen, those of workers among them."""

    def start(self) -> None:
        # What a machine of its own would not know.
        (self.directory / "ray_current_cluster").unlink(missing_ok=True)
        with tempfile.TemporaryFile("w+") as output:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "tests.cluster.loopback_ray", "start", *self.options],
                env=self.environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                timeout=COMMAND_S, check=False,
            )  # fmt: skip
            output.seek(0)
            assert done.returncode == 0, output.read()[-2000:]

    def processes(self) -> list[ProcessId]:
        """Those of Ray, and the actors of whoever runs on it."""
        return marked(MARK, str(self.directory))

    def kill(self) -> None:
        """SIGKILL to all of it, as when the machine is gone."""
        deadline = time.monotonic() + GONE_S
        while left := [process for process in self.processes() if alive(process)]:
            assert time.monotonic() < deadline, left
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.05)


class Nodes:
    """The cluster: a head, and workers by the names that are asked for."""

    def __init__(self, *workers: str) -> None:
        # A short path: Ray keeps sockets below it, and a socket's path has 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="hn", dir="/tmp"))
        token = self.directory / "token"
        token.write_text("ab" * 32)
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = {
            **others,
            **SINGLE_MACHINE,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_worker_niceness": "0",
            # Else its processes write their titles over the environment that the mark is looked for in.
            "SPT_NOENV": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        stored = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": str(self.directory / "gcs")}
        self.head, self.port = self._node("head", stored, [])
        self.address = f"127.0.0.1:{self.port}"
        self.workers = {name: self._node(name, PATIENT, [f"--address={self.address}", "--num-cpus=1"])[0] for name in workers}

    def _node(self, name: str, settings: dict[str, str], options: list[str]) -> tuple[Node, int]:
        """The node, and the first of its ports."""
        directory = self.directory / name
        directory.mkdir()
        names = OF_EVERY_NODE if options else (*OF_A_HEAD, *OF_EVERY_NODE)
        fixed = len(names) + len(BY_ENVIRONMENT)
        first = free_run(fixed + WORKER_PORTS)
        at = dict(zip((*names, *BY_ENVIRONMENT), range(first, first + fixed), strict=True))
        all_options = [
            *(options or ["--head", "--include-dashboard=false", "--num-cpus=0"]),
            "--node-ip-address=127.0.0.1", f"--temp-dir={directory}", "--disable-usage-stats", "--object-store-memory=100000000",
            *(f"{option}={at[option]}" for option in names),
            f"--min-worker-port={first + fixed}", f"--max-worker-port={first + fixed + WORKER_PORTS - 1}",
        ]  # fmt: skip
        environment = {
            **self.environment, **settings, MARK: str(directory), **{each: str(at[each]) for each in BY_ENVIRONMENT},
        }  # fmt: skip
        return Node(directory, environment, all_options, frozenset(range(first, first + fixed + WORKER_PORTS))), first

    def __enter__(self) -> Self:
        try:
            for node in (self.head, *self.workers.values()):
                node.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()
        if error is None:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self) -> None:
        for node in (self.head, *self.workers.values()):
            node.kill()
