"""The one place where servers become Ray actors: which class, under which name, with which options.

Every actor is detached and named, so that it outlives whoever made it and is found again; restarted by Ray for ever; a call is sent
once (`max_task_retries=0`), because only the caller knows whether it may be repeated. They ask for no CPUs: Ray's counting of
CPUs would only stand in the way of processes that have to be on this machine.

A host imports its server when it is made, so that each process loads what it runs and nothing else: the driver, the controller and every
actor read this module, and loading all servers in each takes 0.4 s of CPU and 15 MB a process, while clients wait for a restart.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass

import ray
from ray.actor import ActorClass

from actors import ROOT, main_thread
from actors.compact import COMPACT, PARTS, Compact
from actors.controller import ControllerServer
from actors.environment import patience
from actors.host import Host, Server
from actors.logs import keep_last_words, open_log
from actors.ports import RayMember
from actors.processes import DATA_MARK, RUN_MARK
from actors.snapshot import settings_in_force
from actors.topology import Role, Topology, member_name

MAX_CALLS = 64
NODE_ID_LABEL = "ray.io/node-id"
"""Ray gives it to each of its nodes."""


def actor_name(role: Role, index: int) -> str:
    """As `ray list actors` shows it, among everything else that runs in a cluster; the classes have telling names for the same reason."""
    return _called(member_name(role, index))


def _called(name: str) -> str:
    return f"holdfast/{name}"


def prepare(topology: Topology, name: str) -> bool:
    """What comes first in a new process: whose its files are, and its log. True when Ray runs the constructor again because the process
    before this one died."""
    # A Ray that we joined has that of whoever started it.
    os.umask(0o077)
    level = settings_in_force(topology).log.level
    open_log(topology.log_dir / f"{name}.log", level, as_json=topology.log_json, who=name)
    restarted = bool(ray.get_runtime_context().was_current_actor_reconstructed)
    # Behind what Ray says about being asked that.
    keep_last_words(topology.log_dir / f"{name}.err")
    return restarted


class HoldfastSite(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.sites.server import SiteServer

        super().__init__(topology, "site", index, SiteServer(topology, index), restarted=prepare(topology, member_name("site", index)))


class HoldfastShard(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        server: Server
        if topology.sites is None:
            from actors.shard import ShardServer

            server = ShardServer(topology, index)
        else:
            from actors.replica.server import ReplicaServer

            server = ReplicaServer(topology, index)
        super().__init__(topology, "shard", index, server, restarted=prepare(topology, member_name("shard", index)))


class HoldfastSession(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.session import SessionServer

        super().__init__(
            topology, "session", index, SessionServer(topology, index), restarted=prepare(topology, member_name("session", index))
        )


class HoldfastGateway(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.gateway import GatewayServer

        super().__init__(
            topology, "gateway", index, GatewayServer(topology, index), restarted=prepare(topology, member_name("gateway", index))
        )


class HoldfastReader(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.reader.server import ReaderServer, yield_to_others

        yield_to_others()
        super().__init__(
            topology, "reader", index, ReaderServer(topology, index), restarted=prepare(topology, member_name("reader", index))
        )


class HoldfastPlugin(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.plugin.server import PluginServer

        super().__init__(
            topology, "plugin", index, PluginServer(topology, index), restarted=prepare(topology, member_name("plugin", index))
        )


class HoldfastAdmin(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.admin.server import AdminServer

        super().__init__(topology, "admin", index, AdminServer(topology, index), restarted=prepare(topology, member_name("admin", index)))


class HoldfastCompact(Compact):
    """Shards, session actors and gateways in one process."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology, restarted=prepare(topology, COMPACT))


class HoldfastBridge(Host):
    def __init__(self, topology: Topology, index: int) -> None:
        from actors.bridge.server import BridgeServer

        super().__init__(
            topology, "bridge", index, BridgeServer(topology, index), restarted=prepare(topology, member_name("bridge", index))
        )


class HoldfastController(Host):
    def __init__(self, topology: Topology, index: int, table: str) -> None:
        server = ControllerServer(topology, index, RayDeployment(topology, table))
        super().__init__(topology, "controller", index, server, restarted=prepare(topology, member_name("controller", index)), leads=True)


# Asked for its context a process that is in no Ray yet would start one, with all that belongs to it.
if ray.is_initialized() and ray.get_runtime_context().worker.mode == ray.WORKER_MODE:
    # Ray reads this module in the main thread of an actor's process; a constructor runs in another one.
    main_thread.prepare()

SiteActor = ray.remote(HoldfastSite)
ShardActor = ray.remote(HoldfastShard)
SessionActor = ray.remote(HoldfastSession)
GatewayActor = ray.remote(HoldfastGateway)
ControllerActor = ray.remote(HoldfastController)
ReaderActor = ray.remote(HoldfastReader)
PluginActor = ray.remote(HoldfastPlugin)
AdminActor = ray.remote(HoldfastAdmin)
CompactActor = ray.remote(HoldfastCompact)
BridgeActor = ray.remote(HoldfastBridge)


@dataclass(frozen=True, slots=True)
class Table:
    """Which class plays which role; the others are the same in all."""

    shard: ActorClass
    session: ActorClass
    gateway: ActorClass


PRODUCT_TABLE = Table(shard=ShardActor, session=SessionActor, gateway=GatewayActor)


class RayDeployment:
    """Makes the actors of one topology, each at most once. `table` is `module:name`, so that it can travel to the controller."""

    def __init__(self, topology: Topology, table: str) -> None:
        self._topology = topology
        self._table_name = table
        module, _, name = table.partition(":")
        self._table: Table = getattr(importlib.import_module(module), name)

    def create(self, role: Role, index: int) -> RayMember:
        if role == "controller":
            return RayMember(
                ControllerActor.options(**self._options(member_name(role, index))).remote(self._topology, index, self._table_name)
            )
        if self._topology.compact and role in PARTS:
            # The first one asked for makes it, with all of them.
            whole = CompactActor.options(**self._options(COMPACT)).remote(self._topology)
            return RayMember(whole, member_name(role, index))
        alone = {"site": SiteActor, "reader": ReaderActor, "plugin": PluginActor, "admin": AdminActor, "bridge": BridgeActor}
        actor: ActorClass = alone.get(role) or getattr(self._table, role)
        return RayMember(actor.options(**self._options(member_name(role, index))).remote(self._topology, index))

    def find(self, role: Role, index: int) -> RayMember | None:
        try:
            if self._topology.compact and role in PARTS:
                return RayMember(ray.get_actor(_called(COMPACT), namespace=self._topology.ray.namespace), member_name(role, index))
            return RayMember(ray.get_actor(actor_name(role, index), namespace=self._topology.ray.namespace))
        except ValueError:
            return None

    def _options(self, name: str) -> dict[str, object]:
        options: dict[str, object] = {
            "name": _called(name),
            "namespace": self._topology.ray.namespace,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": -1,
            "max_task_retries": 0,
            "max_concurrency": MAX_CALLS,
            "num_cpus": 0,
        }
        if self._topology.ray.joined:
            # Somebody else's Ray: its workers know neither our code nor our marks, and might be on another machine.
            marks = {RUN_MARK: str(self._topology.run_dir), DATA_MARK: str(self._topology.data_dir)}
            # The driver's own, which the controller has of it: the head may be away for as long as for others of ours.
            options["runtime_env"] = {"env_vars": {**marks, **patience(), "PYTHONPATH": str(ROOT)}}
            # On the node where the data is, and on no other: each node bears its id as a label.
            options["label_selector"] = {NODE_ID_LABEL: ray.get_runtime_context().get_node_id()}
        return options
