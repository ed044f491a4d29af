"""A Ray of our own: started with exactly what one broker on one machine needs, and nothing beside it.

What Ray starts by default that we leave out unless its dashboard is wanted: the autoscaler's monitor, the log monitor and the API server.
Measured on two cores: 170 MB of memory, and 5.3 s instead of 2.5 s until the first actor answers. That time is how long clients wait after
Ray itself was killed, so it is worth reaching into Ray for; where a later Ray has other names for these, nothing is left out and
everything still works.

Ray opens ports on all interfaces whatever it is told; every one of them asks for the token this module makes.
"""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from actors.topology import Topology, write_whole

CPUS = 2
"""Ours ask for none. With 0 Ray would start its workers one after the other."""


def start(topology: Topology) -> str:
    """Start Ray and connect to it. Returns the address of its dashboard, empty without one."""
    token = topology.run_dir / "token"
    write_whole(token, topology.secret.hex())
    directory = topology.run_dir / "r"
    _set_aside(directory)
    if not topology.ray.dashboard:
        _leave_out_what_is_not_needed()
    context = ray.init(
        address="local",
        num_cpus=CPUS,
        num_gpus=0,
        include_dashboard=topology.ray.dashboard,
        dashboard_host="127.0.0.1",
        dashboard_port=_free_from(topology.ray.dashboard_port) if topology.ray.dashboard else None,
        object_store_memory=topology.ray.object_store_bytes,
        namespace=topology.ray.namespace,
        log_to_driver=False,
        logging_level="ERROR",
        _temp_dir=str(directory),
        _node_ip_address="127.0.0.1",
    )
    return context.dashboard_url or "" if topology.ray.dashboard else ""


def _free_from(port: int) -> int:
    """The first port from this one on that nobody has on the loopback interface; 0 when there is none near."""
    for candidate in range(port, min(port + 50, 65536)):
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                attempt.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    return 0


def _set_aside(directory: Path) -> None:
    """Keep the logs of the Ray before this one, and of no earlier one."""
    before = directory.with_name(directory.name + ".before")
    if directory.exists():
        shutil.rmtree(before, ignore_errors=True)
        directory.rename(before)
    directory.mkdir(mode=0o700)


def _leave_out_what_is_not_needed() -> None:
    from ray._private import node, services, utils

    def nothing(*_arguments: object, **_options: object) -> None:
        return None

    for name in ("start_monitor", "start_log_monitor", "start_api_server"):
        if hasattr(node.Node, name):
            setattr(node.Node, name, nothing)
    # Says that the dashboard's requirements are missing. Finding out whether they are takes 0.2 s and 15 MB of imports.
    if hasattr(utils, "get_dashboard_dependency_error"):
        utils.get_dashboard_dependency_error = lambda: ImportError("not wanted")
    if hasattr(services, "get_node"):
        services.get_node = _look_often(services.get_node)


def _look_often(get_node: Callable[[str, str], Any]) -> Callable[[str, str], Any]:
    """Ray asks once a second whether its node has come up; this asks fifty times."""

    def get_node_soon(gcs_address: str, node_id: str) -> Any:  # it is Ray's dictionary, and stays Ray's
        from ray._raylet import GcsClient  # type: ignore[attr-defined]  # Ray's compiled part ships no types for it

        client = GcsClient(address=gcs_address)
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline and all(found.hex() != node_id for found in client.get_all_node_info()):
            time.sleep(0.02)
        return get_node(gcs_address, node_id)

    return get_node_soon
