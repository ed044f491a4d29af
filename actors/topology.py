"""What every process of one run knows about the run: who there is, how many, and where each one listens.

Says nothing about how processes are started (actors.deploy) or kept alive (actors.launcher). Imports no Ray: `holdfast status`
reads announcements through here and must answer in a moment.

Always holds:
1. an endpoint is a function of the role and the index alone, so an actor that was restarted comes back where its peers look for it,
   and the data path never asks Ray where somebody is;
2. a file in the run directory is either absent or whole: it is written beside and renamed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from actors.processes import ProcessId, start_time

Role = Literal["site", "shard", "session", "gateway", "controller", "reader", "plugin", "admin", "bridge"]
LOCAL_RAY = "local"
PIPELINE = "pipeline"
"""The kind of listener at which the reader speaks its protocol; no MQTT client connects there."""
ADMIN = "admin"
"""The kind of listener at which the admin process speaks HTTP."""
OWNERS: dict[str, Role] = {PIPELINE: "reader", ADMIN: "admin"}
"""Kinds of listeners that are no gateway's."""
CHAOS_ENABLED = "chaos is enabled: `holdfast chaos` may break this broker on purpose"
LogLevel = Literal["debug", "info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class RayPlan:
    """The Ray to run in."""

    address: str
    """`local`: one of our own. Anything else: the one that runs there."""
    namespace: str
    """What Ray's names are ours within. Has the site id in it, since two brokers may share a cluster; the driver adds the generation."""
    dashboard: bool
    dashboard_port: int
    object_store_bytes: int
    temp_dir: str = ""
    """Of a Ray that is joined: that of the node to run on, among several on this machine; empty: whichever is here."""

    @property
    def joined(self) -> bool:
        return self.address != LOCAL_RAY


@dataclass(frozen=True, slots=True)
class SitesPlan:
    """Of a store that several sites share (docs/replication.md, "Processes")."""

    n_sites: int
    replication_factor: int
    host: str
    """Where other sites reach this one, and it listens for them; port: the first of a run of ports."""
    port: int
    tls_ca: str = ""
    """Paths; all empty: no TLS, on loopback only."""
    tls_cert: str = ""
    tls_key: str = ""


@dataclass(frozen=True, slots=True)
class Topology:
    """One run of one broker. Made by the launcher, handed down to every process, never changed."""

    data_dir: Path
    run_dir: Path
    site: str
    """Sixteen hex digits, given to a data directory once, for ever."""
    incarnation: int
    """Raised when a store is restored or its leadership forced, so that cursors ahead of it can be recognised."""
    secret: bytes
    """What a link shows before it is listened to. Lies in the data directory, readable by its owner only."""
    config_json: str
    """The whole configuration as `config` wrote it; each server reads its part."""
    store_dir: Path
    """Where the stores of the shards lie: `shards` in the data directory unless the configuration says otherwise."""
    n_shards: int
    n_sessions: int
    n_gateways: int
    ray: RayPlan
    log_level: LogLevel = "info"
    log_json: bool = False
    generation: str = ""
    """Which start of the driver this is. Ray restarts actors of a former one as well, and those must not come back: see `current`."""
    sites: SitesPlan | None = None
    """None: this site stands alone."""
    chaos: bool = False
    """Whether it may be broken on purpose (actors.chaos)."""
    compact: bool = False
    """Shards, session actors and gateways are parts of one process (actors.compact). Only where this site stands alone."""

    def shard_endpoint(self, index: int) -> str:
        return str(self.run_dir / f"s{index}.sock")

    def session_endpoint(self, index: int) -> str:
        return str(self.run_dir / f"e{index}.sock")

    def gateway_endpoint(self, index: int) -> str:
        return str(self.run_dir / f"g{index}.sock")

    def site_endpoint(self) -> str:
        return str(self.run_dir / "site.sock")

    def plugin_endpoint(self) -> str:
        return str(self.run_dir / "p0.sock")

    def session_of_shard(self, index: int) -> int:
        """The session actor that works for the sessions at home in this shard."""
        return index % self.n_sessions

    def store_path(self, index: int) -> Path:
        return self.store_dir / str(index)

    def engine_path(self, index: int) -> Path:
        """Of the engine in it.  Of several sites there is a log beside it (actors.replica.copy)."""
        return self.store_path(index) if self.sites is None else self.store_path(index) / "data"

    def heartbeat_path(self, index: int) -> Path:
        """Where gateway `index` counts the turns of its loop."""
        return self.run_dir / f"g{index}.beat"

    @property
    def log_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def generation_path(self) -> Path:
        """Names the present generation; gone while there is none."""
        return self.run_dir / "generation"

    def current(self) -> bool:
        """False for whoever was started by a driver that has been replaced, or in a run that has ended."""
        try:
            return self.generation_path.read_text(encoding="utf-8") == self.generation
        except OSError:
            return False

    def members(self) -> list[tuple[Role, int]]:
        """Everyone the controller starts, in the order in which they are started."""
        # First: where this site has the register for all, its shards ask it there.
        site: list[tuple[Role, int]] = [] if self.sites is None else [("site", 0)]
        shards: list[tuple[Role, int]] = [("shard", index) for index in range(self.n_shards)]
        sessions: list[tuple[Role, int]] = [("session", index) for index in range(self.n_sessions)]
        gateways: list[tuple[Role, int]] = [("gateway", index) for index in range(self.n_gateways)]
        return site + shards + sessions + gateways

    def to_json(self) -> str:
        fields = dataclasses.asdict(self) | {"secret": self.secret.hex()}
        return json.dumps({name: str(value) if isinstance(value, Path) else value for name, value in fields.items()})

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        for name in ("data_dir", "run_dir", "store_dir"):
            fields[name] = Path(fields[name])
        fields["secret"] = bytes.fromhex(fields["secret"])
        fields["ray"] = RayPlan(**fields["ray"])
        fields["sites"] = SitesPlan(**fields["sites"]) if fields["sites"] else None
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class ListenerInfo:
    """A port, or a path, that clients may connect to."""

    gateway: int
    kind: str
    """`tcp` for MQTT over plain TCP, `tls`, `ws`, `wss`, `unix`. PIPELINE, ADMIN: see there."""
    host: str
    """unix: the path of the socket."""
    port: int
    """unix: 0."""
    shared: bool
    """True when every gateway listens on this port and the kernel deals the connections out."""
    name: str = ""
    """Of the listener in the configuration; those of OWNERS have none."""
    plain: bool = True
    """A CONNECT that is sent at once is answered: no TLS, WebSocket or proxy is wanted before it."""

    @property
    def place(self) -> str:
        """As it is written: host and port, or the path."""
        if self.kind == "unix":
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def owner(self) -> str:
        """The process whose listener it is."""
        return member_name(OWNERS.get(self.kind, "gateway"), self.gateway)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server says that it has started."""

    role: Role
    name: str
    pid: int
    listeners: tuple[ListenerInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    ready: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Announced:
    """An announcement as somebody else reads it: the process may be gone by now."""

    announcement: Announcement
    process: ProcessId


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a file that readers see either not at all or whole. Not durable: the run directory need not survive a crash."""
    write_whole_bytes(path, text.encode(), mode=mode)


def write_whole_bytes(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """As `write_whole`."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(data)
    os.replace(beside, path)


def member_name(role: Role, index: int) -> str:
    return f"{role}-{index}"


def incarnation_name(role: Role, index: int) -> str:
    """The name of this process on links: another one for each start.  A later one is greater, as long as the wall clock was not
    set back between them; a shard takes a smaller one never for the successor of a greater one."""
    return f"{member_name(role, index)}:{time.time_ns():016x}{secrets.token_hex(4)}"


def incarnation_of(topology: Topology, role: Role, index: int) -> str:
    """As `incarnation_name`; of several sites with the site in the member's part: clocks of two machines are not compared."""
    plain = incarnation_name(role, index)
    if topology.sites is None:
        return plain
    member, _, incarnation = plain.partition(":")
    return f"{member_at(topology, topology.site, member)}:{incarnation}"


def member_at(topology: Topology, site: str, member: str) -> str:
    """The name of a member among those of all sites."""
    return member if topology.sites is None else f"{member}@{site}"


def announce(topology: Topology, announcement: Announcement) -> None:
    """Tell everyone who looks into the run directory that this process has started."""
    fields = dataclasses.asdict(announcement) | {"start_time": start_time(announcement.pid)}
    write_whole(topology.run_dir / f"{announcement.name}.json", json.dumps(fields))


def read_announcements(run_dir: Path) -> Iterator[Announced]:
    """Every announcement in the run directory, of processes alive or dead."""
    for path in sorted(run_dir.glob("*-*.json")):
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            started = fields.pop("start_time")
            fields["listeners"] = tuple(ListenerInfo(**listener) for listener in fields["listeners"])
            announcement = Announcement(**fields)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # Removed while we read, or left by another version: then it announces nothing.
        yield Announced(announcement, ProcessId(announcement.pid, started or 0))


def write_needed(run_dir: Path, needed: Mapping[str, ProcessId], dashboard: str, notices: Sequence[str] = ()) -> None:
    """The driver says which processes of Ray must live, and what should be known of that Ray."""
    processes = {name: dataclasses.asdict(process) for name, process in needed.items()}
    fields = {"needed": processes, "dashboard": dashboard, "notices": list(notices)}
    write_whole(run_dir / "driver.json", json.dumps(fields))


def read_needed(run_dir: Path) -> list[tuple[str, ProcessId]]:
    return [(name, ProcessId(**process)) for name, process in _driver_says(run_dir).get("needed", {}).items()]


def read_dashboard(run_dir: Path) -> str:
    return str(_driver_says(run_dir).get("dashboard", ""))


def read_notices(run_dir: Path) -> list[str]:
    return [str(each) for each in _driver_says(run_dir).get("notices", ())]


def notices_of(topology: Topology) -> list[str]:
    """What should be known of a broker that runs."""
    return [*read_notices(topology.run_dir), *([CHAOS_ENABLED] if topology.chaos else [])]


def _driver_says(run_dir: Path) -> dict[str, Any]:
    try:
        fields = json.loads((run_dir / "driver.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}
