"""Joins a Ray that somebody else has started, and says in one sentence why that cannot be.

What is joined is a node of this machine: our actors run there. Nothing of that Ray is started, changed or ended here.

How long we do without its head is two settings of Ray, of which one is ours. Each process ends when it has not reached the head for
RECONNECT seconds, 60 where nothing else is said; ours are told to wait longer than anybody's raylet does (actors.environment). The raylet's
own is its starter's to set, and when it ends, our actors end: so what is too short there is said at each start.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import ray
import structlog

from actors.environment import RECONNECT, inherited
from actors.processes import ProcessId, all_pids, identify, stat
from actors.topology import Topology, write_whole

JOIN_S = 40.0
REACH_S = 5.0
RAYLET = "raylet"
RAYS_RECONNECT_S = 60
"""Ray's own, where nothing is said."""
SHORT_RECONNECT_S = 600
"""Less does not last until somebody has put a machine back."""
PAGE = "docs/clusters.md"
REFUSALS = (ray.exceptions.AuthenticationError,)
"""What Ray raises when it is not content with a token; elsewhere it only says so."""


class CannotJoin(Exception):
    """One sentence for the operator."""

    def __init__(self, sentence: str, *, final: bool = False) -> None:
        """final: trying again changes nothing before somebody does."""
        super().__init__(sentence)
        self.final = final


@dataclass(frozen=True, slots=True)
class Joined:
    """A Ray that was joined."""

    dashboard: str
    """Host and port; empty: it has none."""
    needed: dict[str, ProcessId]
    """The raylet of this machine. Our actors end with it, and what connects us to that Ray as well; the launcher begins anew then, until
    there is a Ray to join again."""
    notices: tuple[str, ...]
    """What the operator should know of it, a sentence each."""


def join(topology: Topology) -> Joined:
    """Connect this process. Raises CannotJoin; ends the process when Ray does not come back from it within JOIN_S."""
    address = topology.ray.address
    # Begun while that Ray itself is being started, it may never return.
    limit = threading.Timer(JOIN_S, _give_up, (topology,))
    limit.daemon = True
    limit.start()
    try:
        reach(address)
        there = ray.init(
            address=address,
            namespace=topology.ray.namespace,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=topology.ray.temp_dir or None,
        )
    except (OSError, RuntimeError, ray.exceptions.RayError) as error:
        raise why_not(address, error, inherited()) from error
    finally:
        limit.cancel()
    raylet = _raylet_here()
    needed = {} if raylet is None else {RAYLET: raylet}
    notices = tuple(about_head(_keeps_on_disk(), None if raylet is None else _reconnect_s(raylet.pid)))
    for notice in notices:
        structlog.get_logger().warning("ray.notice", notice=notice)
    return Joined(str(there.address_info["webui_url"] or ""), needed, notices)


def why_not(address: str, error: BaseException, environment: Mapping[str, str]) -> CannotJoin:
    """Ray's story, which runs over pages, as a sentence."""
    story = " ".join(str(each) for each in _causes(error))
    if "InvalidAuthToken" in story or any(isinstance(each, REFUSALS) for each in _causes(error)):
        return CannotJoin(wrong_token(address, environment), final=True)
    return CannotJoin(" ".join(str(error).split())[:300] or type(error).__name__)


def wrong_token(address: str, environment: Mapping[str, str]) -> str:
    """What is wrong with the token: Ray takes the first of three places that has one."""
    if environment.get("RAY_AUTH_MODE", "").lower() != "token":
        return (
            f"the Ray at {address} wants a token and was shown none: set RAY_AUTH_MODE=token, "
            "and RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN as for its `ray start`"
        )
    if environment.get("RAY_AUTH_TOKEN"):
        return f"the Ray at {address} does not take the token in RAY_AUTH_TOKEN: it was started with another"
    path = Path(environment.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        held = bool(path.read_text(encoding="utf-8", errors="replace").strip())
    except OSError as error:
        return f"the token of the Ray at {address} should be in {path}, which cannot be read: {error.strerror} (RAY_AUTH_TOKEN_PATH)"
    if not held:
        return f"the token of the Ray at {address} should be in {path}, which is empty (RAY_AUTH_TOKEN_PATH)"
    return f"the Ray at {address} does not take the token in {path}: it was started with another (RAY_AUTH_TOKEN_PATH)"


def about_head(on_disk: bool | None, reconnect_s: int | None) -> Iterator[str]:
    """What its head's end will mean. None: not known."""
    if on_disk is False:
        yield f"this Ray's head keeps nothing on disk: the broker ends with it, and starts anew when head and raylet are back ({PAGE})"
    elif on_disk and reconnect_s is not None and reconnect_s < SHORT_RECONNECT_S:
        yield (
            f"the raylet of this machine waits {reconnect_s} s for a head that is gone and then ends, and the broker with it: "
            f"set {RECONNECT}=86400 for its `ray start` ({PAGE})"
        )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def reach(address: str) -> None:
    """Raises CannotJoin when nobody is there. Ray itself would wait until it ends the process, and say so to nobody."""
    host, separator, port = address.rpartition(":")
    if separator:
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
        except OSError as error:
            cause = error.strerror or str(error)
            raise CannotJoin(
                f"no head of a Ray cluster answers at {address} ({cause}): it wants that of `ray start --head --port`"
            ) from error


def _give_up(topology: Topology) -> None:
    """The launcher starts another driver. Nothing is lost: this one has not made an actor yet."""
    sentence = f"the Ray at {topology.ray.address} could not be joined within {JOIN_S:.0f} s"
    structlog.get_logger().error("ray.not_joined", address=topology.ray.address, waited_s=JOIN_S)
    write_whole(topology.run_dir / "driver.error", sentence)
    os._exit(1)


def _raylet_here() -> ProcessId | None:
    here = ray.get_runtime_context().get_node_id()
    path = next((str(node["RayletSocketName"]) for node in ray.nodes() if node["NodeID"] == here), "")
    for pid in all_pids():
        about = stat(pid)
        if about is not None and about.name == RAYLET and path and path in _read(pid, "cmdline") and (process := identify(pid)) is not None:
            return process
    structlog.get_logger().warning("ray.raylet_not_found", socket=path)
    return None


def _reconnect_s(raylet: int) -> int | None:
    """How long this raylet does without its head; None when it is somebody else's, or says something that Ray would not take."""
    environment = _read(raylet, "environ")
    if not environment:
        return None
    for entry in environment.split("\0"):
        name, _, value = entry.partition("=")
        if name == RECONNECT:
            return int(value) if value.isdigit() else None
    return RAYS_RECONNECT_S


def _keeps_on_disk() -> bool | None:
    """Whether a head that comes back knows what it knew. A note that Ray makes for its own statistics, sent or not."""
    from ray.experimental.internal_kv import _internal_kv_get

    said = _internal_kv_get(b"extra_usage_tag_gcs_storage", namespace=b"usage_stats")
    return None if said is None else bool(said != b"memory")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""
