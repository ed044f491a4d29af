"""`holdfast backup`: a copy of everything that is stored, of a running broker or of a stopped one (docs/backup.md)."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from actors.asking import NotReached, running
from actors.datadir import DirectoryError, hold
from actors.run import read_run
from cli.asked import Json, amount, number, print_json
from cli.paths import data_path
from cli.progress import Shown
from cli.stores import ConfigFile, DataDir, Sets, load_or_refuse, refuse, site_of, store_paths
from cli.typed import size_or_none
from config.load import from_json
from config.schema import Config
from config.values import Size
from shards.backends import check_backend

if TYPE_CHECKING:
    from actors.backup.manifest import Backup
    from actors.backup.taking import Source

BESIDE_A_BROKER = "50MiB"
"""What one disk gives to both without the broker's syncs waiting much longer (docs/backup.md has figures)."""
Rate = Annotated[str | None, typer.Option("--rate", metavar="SIZE", help=f"Copy no more in a second; beside a broker {BESIDE_A_BROKER}.")]


def backup(
    into: Annotated[Path, typer.Argument(metavar="DIR", help="Holds the backups; made when it is not there.", show_default=False)],
    list_: Annotated[bool, typer.Option("--list", help="Say which backups are in DIR, and take none.")] = False,
    keep: Annotated[int | None, typer.Option("--keep", min=1, metavar="N", help="Then remove all but the newest N.")] = None,
    rate: Rate = None,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Copy all that is stored into DIR, while the broker runs or while it is stopped."""
    from actors.backup.manifest import BackupError  # loads what shards are made of

    into = data_path(str(into))
    try:
        if list_:
            _list(into, as_json)
        else:
            _take(into, keep, rate, load_or_refuse(data_dir, config, set_), as_json)
    except BackupError as error:
        refuse(f"{error}.")


def _take(into: Path, keep: int | None, rate: str | None, loaded: Config, as_json: bool) -> None:
    from actors.backup.copying import Pace
    from actors.backup.taking import prune, take

    began = time.monotonic()
    with ExitStack() as stack:
        bytes_per_s = _bytes_per_s(rate)
        source = _source(stack, data_path(loaded.data_dir), loaded)
        if bytes_per_s is None:
            bytes_per_s = int(Size.parse(BESIDE_A_BROKER)) if source.told else 0
        shown = stack.enter_context(Shown("copied"))
        taken = take(source, into, Pace(bytes_per_s), shown.done)
    gone = prune(into, keep) if keep else []
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            _facts(taken.backup)
            | {"copied_bytes": taken.copied_bytes, "linked_bytes": taken.linked_bytes, "seconds": round(seconds, 3)}
            | {"removed": [str(path) for path in gone]}
        )
        return
    linked = f", of which an earlier backup had {amount(taken.linked_bytes)}" if taken.linked_bytes else ""
    manifest = taken.backup.manifest
    print(f"{taken.backup.path}: {number(manifest.n_shards, 'shard')}, {amount(manifest.bytes)}{linked}, in {seconds:.1f} s")
    for path in gone:
        print(f"removed {path}")


def _bytes_per_s(rate: str | None) -> int | None:
    """0: no bound. None: nothing was said."""
    if rate is None:
        return None
    found = size_or_none(rate)
    if found == 0:
        refuse("--rate 0 would copy nothing: leave it out, or say infinity.", 2)
    return found or 0


def _source(stack: ExitStack, directory: Path, loaded: Config) -> Source:
    """Of the broker that runs, with what its shards have committed; else the directory is held until the end."""
    from actors.backup.asked import source_of
    from actors.backup.taking import Source

    site = site_of(directory)
    run = read_run(directory)
    if run is not None and run.launched():
        try:
            topology = running(directory)
            backend = _backend(from_json(topology.config_json).durable_storage.messages.backend)
            return source_of(topology, site, backend)
        except NotReached as error:
            refuse(f"{error}.")
    if site.n_sites > 1:
        refuse(
            f"{directory} is of one of {site.n_sites} sites, and it is stopped: what was acknowledged last may be with the others only, "
            "so a backup is taken of a site that runs."
        )
    try:
        stack.enter_context(hold(directory))
    except DirectoryError as error:
        refuse(f"{error}, and it is just starting or stopping: try again in a moment.")
    return Source(directory, site, store_paths(loaded, site), _backend(loaded.durable_storage.messages.backend), {})


def _backend(name: str) -> str:
    name = check_backend(name)
    if name != "rocksdb":
        refuse(f"the stores are of the backend {name!r}, of which nobody here can make a copy: stop the broker, and copy its directory.")
    return name


def _list(into: Path, as_json: bool) -> None:
    from actors.backup.manifest import BackupError, backups_in, read_backup

    whole: list[Backup] = []
    damaged: list[BackupError] = []
    paths = backups_in(into)
    for path in paths:
        try:
            whole.append(read_backup(path))
        except BackupError as error:
            damaged.append(error)
    if as_json:
        print_json([_facts(one) for one in whole])
    for one in [] if as_json else whole:
        manifest = one.manifest
        state = "of a stopped broker" if manifest.stopped else "of a running broker"
        print(f"{one.path}: made {manifest.made} {state}, {number(manifest.n_shards, 'shard')}, {amount(manifest.bytes)}")
    if not paths and not as_json:
        print(f"{into} holds no backup")
    for one_damaged in damaged:
        print(f"holdfast: {one_damaged}.", file=sys.stderr)
    if damaged:
        raise typer.Exit(1)


def _facts(backup: Backup) -> dict[str, Any]:
    manifest = backup.manifest
    return {
        "backup": str(backup.path), "number": manifest.number, "made": manifest.made, "stopped": manifest.stopped,
        "release": manifest.release, "site": manifest.site, "incarnation": manifest.incarnation, "shards": manifest.n_shards,
        "bytes": manifest.bytes,
    }  # fmt: skip
