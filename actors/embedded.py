"""A Ray of our own: started with exactly what one broker on one machine needs, and nothing before it is needed.

By default Ray also starts an autoscaler's monitor and a log monitor, which have nothing to do here, and waits for its API server, which
only the dashboard needs. Left out, or started when the broker answers, that is 170 MB less and 2.5 s instead of 5.3 s until the first
actor answers (two cores). That time is how long clients wait after Ray itself was killed, so it is worth reaching into Ray for.

Told that this machine is 127.0.0.1, Ray would look up the address it has in the network and listen on all interfaces. We take that
look-up out: then every port of Ray is open to this machine only, and a change of its address while we run changes nothing. Each port
asks for the token this module makes, either way.

All of this reaches for names that are not Ray's interface. Where a later Ray has others, it starts everything and still works;
tests/cluster says so when that has happened.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import structlog

from actors.topology import Topology, write_whole

LOOPBACK = "127.0.0.1"
DASHBOARD_PAUSE_S = 5.0
CPUS = 2
"""Ours ask for none. With 0 Ray would start its workers one after the other."""
_START_API_SERVER: list[Callable[..., None]] = []
"""Ray's own way to start its dashboard, kept while it is left out."""


class EmbeddedRay:
    """Ray, started and connected to. It ends with this process."""

    def __init__(self, topology: Topology) -> None:
        self.dashboard_url = ""
        self._dashboard_due = False
        plan = topology.ray
        write_whole(topology.run_dir / "token", _token(topology))
        directory = topology.run_dir / "r"
        _set_aside(directory)
        _stay_on_loopback()
        port = 0
        if plan.dashboard:
            port = _free_from(plan.dashboard_port)
            self.dashboard_url = f"{LOOPBACK}:{port}"
            self._dashboard_due = _can_start_dashboard_later()
        _leave_out_what_is_not_needed(dashboard=plan.dashboard, later=self._dashboard_due)
        ray.init(
            address="local",
            num_cpus=CPUS,
            num_gpus=0,
            include_dashboard=plan.dashboard,
            dashboard_host=LOOPBACK,
            dashboard_port=port or None,
            object_store_memory=plan.object_store_bytes,
            namespace=plan.namespace,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=str(directory),
            _node_ip_address=LOOPBACK,
        )

    def start_dashboard(self) -> None:
        """Start what was put off. To be called once, when the broker answers."""
        if self._dashboard_due:
            self._dashboard_due = False
            threading.Thread(target=_keep_dashboard, name="dashboard", daemon=True).start()


def _can_start_dashboard_later() -> bool:
    from ray._private import node

    return hasattr(node.Node, "start_api_server")


def _keep_dashboard() -> None:
    """Start the dashboard, and start it again when it has ended. The kernel ends it with the thread that
    started it, so that is one of its own, which stays and may sleep."""
    from ray._private import worker

    ours = worker._global_node
    while True:
        try:
            _START_API_SERVER[0](ours, include_dashboard=True, raise_on_failure=False)
            for started in ours.all_processes.pop("dashboard", []):
                started.process.wait()
        except Exception:  # The broker is up and serves; it does so without a dashboard.
            structlog.get_logger().error("dashboard.failed", exc_info=True)
        time.sleep(DASHBOARD_PAUSE_S)


def _free_from(port: int) -> int:
    """The first port from this one on that nobody has on the loopback interface; 0 when there is none near."""
    for candidate in range(port, min(port + 50, 65536)):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind((LOOPBACK, candidate))
            except OSError:
                continue
            return candidate
    return 0


def _token(topology: Topology) -> str:
    """What the file `secret` of the data directory has; with several sites the secret of links is another."""
    if topology.sites is None:
        return topology.secret.hex()
    return (topology.data_dir / "secret").read_text(encoding="ascii").strip()


def _set_aside(directory: Path) -> None:
    """Keep the logs of the Ray before this one, and of no earlier one."""
    before = directory.with_name(directory.name + ".before")
    if directory.exists():
        shutil.rmtree(before, ignore_errors=True)
        directory.rename(before)
    directory.mkdir(mode=0o700)


def _stay_on_loopback() -> None:
    from ray._private import services

    def as_it_is(host: str) -> str:
        return host

    if hasattr(services, "resolve_ip_for_localhost"):
        services.resolve_ip_for_localhost = as_it_is


def _leave_out_what_is_not_needed(*, dashboard: bool, later: bool) -> None:
    from ray._private import node, services, utils

    def nothing(*_arguments: object, **_options: object) -> None:
        return None

    left_out = ["start_monitor", "start_log_monitor"]
    if later:
        _START_API_SERVER.append(node.Node.start_api_server)
    if later or not dashboard:
        left_out.append("start_api_server")
    for name in left_out:
        if hasattr(node.Node, name):
            setattr(node.Node, name, nothing)
    # Says that the dashboard's requirements are missing. Finding out whether they are takes 0.2 s and 15 MB of imports.
    if not dashboard and hasattr(utils, "get_dashboard_dependency_error"):
        utils.get_dashboard_dependency_error = lambda: ImportError("not wanted")
    if hasattr(services, "get_node"):
        services.get_node = _look_often(services.get_node)


def _look_often(get_node: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Ray asks once a second whether its node has come up; this asks fifty times."""

    def get_node_soon(gcs_address: str, node_id: str) -> Any:  # it is Ray's dictionary, and stays Ray's
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray's compiled part ships no types for it

        client = GcsClient(address=gcs_address)
        # Inside ray.init, which the driver calls before it has a loop; Ray's own version sleeps for a second here.
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline and all(found.hex() != node_id for found in client.get_all_node_info()):
            time.sleep(0.02)
        return get_node(gcs_address, node_id)

    return get_node_soon
