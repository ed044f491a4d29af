"""What is wrong with an installation, in sentences: looked for in the data directory, the machine, the configuration and the processes.

Only reads; nobody is asked over a link, so it says the same whether the broker runs, hangs or is stopped.
"""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import psutil

from actors.census import Census, take_census
from actors.datadir import DirectoryError, Site, read_site
from actors.known_stores import StoreMissing, require_store
from actors.quota import HARD, SOFT, quota_bytes
from actors.reserve import free_bytes, stored_bytes
from actors.run import read_run
from actors.shard_serving import SPACE_LOW_BYTES, SPACE_NONE_BYTES
from actors.topology import Topology, member_name
from config.schema import Config
from config.values import Size

OVER_A_NETWORK = frozenset(("nfs", "nfs4", "cifs", "smbfs", "smb3", "9p", "ceph", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "afs"))
IN_MEMORY = frozenset(("tmpfs", "ramfs"))
DESCRIPTORS_WANTED = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """about: directory, disk, store, machine, access, process, alarm, configuration.  serious: clients are hurt by it, or will be.

    sentence: what is found, and what to do."""

    about: str
    serious: bool
    sentence: str


def file_system(path: Path) -> str:
    """Its kind, by the longest mount point above it; empty when nobody knows."""
    mounts = [mount for mount in psutil.disk_partitions(all=True) if path.is_relative_to(mount.mountpoint)]
    return str(max(mounts, key=lambda mount: len(mount.mountpoint)).fstype) if mounts else ""


@dataclass(frozen=True, slots=True)
class Disks:
    """What is asked of the machine about places on its disks."""

    kind: Callable[[Path], str] = file_system
    free: Callable[[Path], int] = free_bytes


def look(data_dir: Path, stores: Path, config: Config, disks: Disks | None = None, *, inside: bool = False) -> list[Finding]:
    """All there is to say, the serious first.  stores: where the shards' are.  config: of the broker, by its file and the rest.
    inside: a process of this broker asks."""
    found: list[Finding] = []
    if not data_dir.is_dir():
        return [Finding("directory", True, f"{data_dir} is not there: name the data directory of the broker with --data-dir")]
    try:
        site = read_site(data_dir)
    except DirectoryError as error:
        return [Finding("directory", True, f"{error}")]
    found += _directory(data_dir)
    found += _disk(data_dir, stores, config, disks or Disks())
    found += _machine()
    found += _access(config)
    if site is None:
        found.append(
            Finding("directory", False, f"no broker was ever started in {data_dir}: `holdfast up --data-dir {data_dir}` makes one")
        )
    else:
        found += _stores(data_dir, stores, site)
        found += _processes(data_dir, inside)
    return sorted(found, key=lambda one: not one.serious)


# ---------------------------------------------------------------------------------------------------- what is on the disk


def _directory(data_dir: Path) -> Iterator[Finding]:
    for path in (data_dir, data_dir / "secret", data_dir / "pipeline.token"):
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if mode & 0o077:
            wanted = 0o700 if path == data_dir else 0o600
            what = "may be entered" if path == data_dir else "may be read"
            yield Finding("directory", path != data_dir, f"{path} {what} by others (mode {mode:04o}): `chmod {wanted:o} {path}`")
        if path.stat().st_uid != os.getuid():
            yield Finding(
                "directory", False, f"{path} belongs to user {path.stat().st_uid}, and this is user {os.getuid()}: the broker needs it"
            )


def _disk(data_dir: Path, stores: Path, config: Config, disks: Disks) -> Iterator[Finding]:
    for path in dict.fromkeys((data_dir, stores if stores.exists() else data_dir)):
        kind = disks.kind(path)
        if kind in OVER_A_NETWORK:
            yield Finding(
                "disk",
                True,
                f"{path} lies on {kind}: over a network nothing is certain to be on a disk when it is said to be; use a local one",
            )
        if kind in IN_MEMORY:
            yield Finding("disk", True, f"{path} lies in memory ({kind}): everything in it is gone after a reboot")
        free = disks.free(path)
        if free < SPACE_NONE_BYTES:
            yield Finding("disk", True, f"{Size(free)} are free at {path}: below {Size(SPACE_NONE_BYTES)} publishers wait unanswered")
        elif free < SPACE_LOW_BYTES:
            yield Finding("disk", True, f"{Size(free)} are free at {path}: below {Size(SPACE_LOW_BYTES)} new messages are refused")
    quota = quota_bytes(config, data_dir)
    taken = stored_bytes(stores)
    if quota and taken * 100 >= quota * SOFT:
        says = "new messages are refused" if taken * 100 >= quota * HARD else "at all of it new messages are refused"
        yield Finding(
            "disk", taken * 100 >= quota * HARD,
            f"the stores take {Size(taken)} of the {Size(quota)} of storage_quota: {says}; "
            "`holdfast storage retention --dry-run` says when some of it goes",
        )  # fmt: skip


def _stores(data_dir: Path, stores: Path, site: Site) -> Iterator[Finding]:
    for shard in range(site.n_shards):
        try:
            require_store(data_dir, stores / str(shard), shard)
        except StoreMissing as error:
            yield Finding("store", True, f"{error}")
        aside = stores / str(shard) / "quarantine"
        if aside.is_dir() and (parts := sorted(part.name for part in aside.iterdir())):
            yield Finding(
                "store", False,
                f"parts of shard {shard} were damaged and lie in {aside} ({', '.join(parts[:5])}): docs/operations.md says what that means",
            )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- what runs


def _machine() -> Iterator[Finding]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < DESCRIPTORS_WANTED:
        yield Finding(
            "machine", True,
            f"a process may have {hard} open files, and each client takes one: raise the hard limit (ulimit -Hn, LimitNOFILE of systemd)",
        )  # fmt: skip


def _access(config: Config) -> Iterator[Finding]:
    open_to_all = [name for name, one in config.listeners.all() if one.enable and one.anonymous == "yes" and _reachable(one.bind)]
    if open_to_all and not config.access.rules:
        yield Finding(
            "access", True,
            f"whoever reaches listener {' or '.join(open_to_all)} from another machine may do everything: it takes anonymous clients, and "
            "there are no rules (access.rules)",
        )  # fmt: skip
    plain = [name for name, one in config.listeners.all() if one.enable and one.type in ("tcp", "ws") and _reachable(one.bind)]
    if plain and config.access.password.file:
        yield Finding(
            "access",
            False,
            f"passwords cross the network in the clear at listener {' and '.join(plain)}: use one with TLS (docs/listeners.md)",
        )
    if config.admin.enable and _reachable(str(config.admin.listen)):
        yield Finding(
            "access", False,
            f"API keys cross the network in the clear at {config.admin.listen} (admin.listen): listen on loopback, behind a proxy with TLS",
        )  # fmt: skip


def _reachable(bind: str | None) -> bool:
    """From another machine."""
    host = bind.rpartition(":")[0].strip("[]") if bind else "127.0.0.1"
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def _processes(data_dir: Path, inside: bool) -> Iterator[Finding]:
    run = read_run(data_dir)
    if run is None or not run.launched():
        yield Finding("process", False, f"the broker does not run: `holdfast up --data-dir {data_dir}` starts it")
        return
    census = take_census(data_dir, inside=inside)
    for alarm in census.alarms:
        yield Finding("alarm", True, f"{alarm.name}: {alarm.cause}")
    missing = _missing(run.run_dir, census)
    if missing:
        yield Finding(
            "process", True,
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not there: they come back by themselves within seconds, or "
            f"{data_dir}/logs says why not",
        )  # fmt: skip
    elif not census.ready:
        yield Finding(
            "process", True, "every process is there, and not every listener answers a CONNECT: look into the logs of the gateways"
        )


def _missing(run_dir: Path, census: Census) -> list[str]:
    try:
        topology = Topology.from_json((run_dir / "topology.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return ["the driver"]
    there = {row.name for row in census.processes}
    return [name for name in (*(member_name(*member) for member in topology.members()), "controller-0") if name not in there]
