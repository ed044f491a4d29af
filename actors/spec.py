"""What `holdfast up` tells the launcher, and what the launcher tells the operator."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from actors.origin import Origin
from actors.topology import ADMIN, ListenerInfo, LogLevel, SitesPlan

CONTRACT = (
    "a PUBACK or PUBREC is sent after the message is on disk (fsync): kill -9 of everything or a power cut loses none of it; "
    "one copy, on this disk: losing the disk loses the store"
)


def contract(sites: SitesPlan | None) -> str:
    """What an acknowledgement promises."""
    if sites is None:
        return CONTRACT
    copies = sites.replication_factor
    if copies == 1:
        return CONTRACT.replace("on this disk: losing the disk loses the store", "on the disk of one site: losing it loses its shards")
    needed = copies // 2 + 1
    return (
        f"a PUBACK or PUBREC is sent after the message is on disk (fsync) at all sites with a copy in sync, {needed} of {copies} or more: "
        f"kill -9 of everything or a power cut loses none of it, and losing the disks of {needed - 1} loses none either"
    )


_SCHEMES = {"tcp": "mqtt", "tls": "mqtts"}


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """One start, with everything decided that the configuration decides."""

    data_dir: str
    """Absolute, with no symbolic link in it."""
    store_dir: str
    """Absolute; empty for the usual place."""
    config_json: str
    binds: dict[str, tuple[str, int]]
    """Host and port of each listener that has them and listens, by its name; port 0 for any free one."""
    n_shards: int | None
    """None for `auto`: what the store has, and for a new one `n_shards_new`."""
    n_shards_new: int
    n_sessions: int
    n_gateways: int
    watchdog_after: float | None
    """Seconds a gateway's loop may stand still; None: for ever."""
    ray_address: str
    ray_namespace: str
    ray_temp_dir: str
    """Of the node to join; empty: whichever is here."""
    dashboard: bool
    dashboard_port: int
    object_store_bytes: int
    reserve_bytes: int
    """The most that is kept for starting on a full disk (actors.reserve)."""
    log_level: LogLevel
    log_json: bool
    access: bool
    """Whether rules or passwords are wanted, which have to be good before anything is started."""
    secrets: dict[str, str]
    """What lies at the places that settings name (actors.access.secrets)."""
    table: str
    """`module:name` of the actors.deploy.Table to run: the product's, or one of a test."""
    start_within: float | None
    """Seconds until the first start must have succeeded; None: try for ever."""
    admin: tuple[str, int] | None = None
    """Host and port at which the admin process listens, port 0 for any free one; None: there is none."""
    chaos: bool = False
    """Whether it may be broken on purpose (actors.chaos)."""
    origin: Origin = field(default_factory=Origin)
    """Where the configuration was read, so that it can be read again."""
    sites: SitesPlan | None = None
    """None: one site."""
    sites_secret: str = ""
    """Of several sites: the place, among `secrets`, of the secret that they share."""
    compact: bool = False
    """Shards, session actors and gateways in one process (actors.compact)."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        binds = {name: (str(host), int(port)) for name, (host, port) in fields["binds"].items()}
        admin = (str(fields["admin"][0]), int(fields["admin"][1])) if fields["admin"] else None
        sites = SitesPlan(**fields["sites"]) if fields["sites"] else None
        return cls(**fields | {"binds": binds, "admin": admin, "origin": Origin.from_fields(fields["origin"]), "sites": sites})


def running_text(
    data_dir: Path,
    listeners: Iterable[ListenerInfo],
    dashboard: str,
    log_dir: Path,
    metrics: str = "",
    notices: Sequence[str] = (),
    sites: SitesPlan | None = None,
) -> str:
    """What `up` prints when the broker answers: a line for each thing an operator asks next."""
    ordered = sorted(listeners, key=lambda listener: (not listener.shared, listener.gateway))
    shared: dict[str, None] = {}
    own: list[str] = []
    for listener in ordered:
        if listener.kind == ADMIN:
            continue  # It is on its way, mostly: `metrics` says where it will be.
        if listener.shared or listener.kind == "unix":
            shared[f"{_SCHEMES.get(listener.kind, listener.kind)}://{listener.place}"] = None
        else:
            own.append(f"{listener.owner.replace('-', ' ')}: {listener.place}")
    lines = [f"Holdfast is up: {', '.join(shared) or 'no shared listener'}" + (f" ({'; '.join(own)})" if own else "")]
    lines.append(f"data directory: {data_dir} (logs: {log_dir})")
    if metrics.startswith("http"):
        # Beside them; where they cannot be yet, one line says it for both.
        lines.append(f"admin page: {metrics.removesuffix('metrics')}")
    if metrics:
        lines.append(f"metrics: {metrics}")
    if dashboard:
        lines.append(f"Ray dashboard: http://{dashboard}")
    lines.append(f"durability: {contract(sites)}")
    lines += [f"note: {notice}" for notice in notices]
    return "\n".join(lines)


def first_start_text(n_shards: int) -> str:
    """Said once in the life of a data directory, because it cannot be changed later."""
    return (
        f"new store with {n_shards} shard{'s' if n_shards > 1 else ''}: one shard is about one core of storage, "
        "and the number cannot be changed later (durable_storage.messages.n_shards)"
    )


def waiting_text(data_dir: Path, why_not: str) -> str:
    """What `up --detach` prints of one of several sites that was not ready in time."""
    return (
        f"Holdfast runs, and goes on starting, as one of several sites: {why_not}. "
        f"`holdfast status --data-dir {data_dir}` says when it is ready, and `holdfast down --data-dir {data_dir}` stops it."
    )
