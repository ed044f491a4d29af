"""`holdfast restore`: a backup into an empty data directory (docs/backup.md). The broker that served it before is stopped, or gone."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import structlog
import typer

from actors.logs import open_log
from cli.asked import Json, amount, number, print_json
from cli.paths import data_path
from cli.progress import Shown
from cli.stores import ConfigFile, DataDir, Sets, load_or_refuse, refuse
from config.load import ConfigError, load
from shards.backends import check_backend


def restore(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A backup, or what holds some: the newest of them.", show_default=False)],
    check_only: Annotated[bool, typer.Option("--check", help="Look whether all of it is as it was copied; change nothing.")] = False,
    shard: Annotated[int | None, typer.Option("--shard", min=0, metavar="N", help="The store of this shard only.")] = None,
    nothing_since: Annotated[
        bool, typer.Option("--nothing-since", help="The broker was stopped for the backup and has not run since, so nothing is lost.")
    ] = False,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Put a backup into the data directory, which has to be empty."""
    from actors.backup.manifest import BackupError, find_backup
    from actors.backup.one_shard import restore_shard
    from actors.backup.restoring import Target, check
    from actors.backup.restoring import restore as put_back

    began = time.monotonic()
    try:
        found = find_backup(data_path(str(source)))
        manifest = found.manifest
        if check_only:
            with Shown("looked at") as shown:
                check(found, shown.done)
            _say(as_json, f"{found.path} is as it was copied: {amount(manifest.bytes)} in {number(len(manifest.files), 'file')}",
                 {"backup": str(found.path), "files": len(manifest.files), "bytes": manifest.bytes})  # fmt: skip
            return
        loaded = load_or_refuse(data_dir, config, set_)
        messages = loaded.durable_storage.messages
        if check_backend(messages.backend) != manifest.backend:
            refuse(f"{found.path} is of the backend {manifest.backend!r}, and the configuration says {messages.backend!r}.")
        if messages.n_shards != "auto" and messages.n_shards != manifest.n_shards:
            refuse(
                f"{found.path} has n_shards = {manifest.n_shards}, which cannot be changed, and the configuration asks for "
                f"{messages.n_shards}: say {manifest.n_shards} or auto."
            )
        directory = data_path(loaded.data_dir)
        stores = data_path(messages.data_dir) if messages.data_dir else directory / "shards"
        target = Target(directory, stores, messages.n_sites, messages.copies)
        if shard is not None and (nothing_since or shard >= manifest.n_shards):
            refuse(f"there is no shard {shard}." if not nothing_since else "--nothing-since is said of all shards, not of one.", 2)
        with Shown("restored") as shown:
            if shard is None:
                done = put_back(found, target, not nothing_since, progress=shown.done)
            else:
                done = restore_shard(found, target, shard, progress=shown.done)
    except BackupError as error:
        refuse(f"{error}.")
    (directory / "logs").mkdir(mode=0o700, exist_ok=True)
    open_log(directory / "logs" / "launcher.log", "info", as_json=loaded.log.format == "json", who="restore")
    structlog.get_logger().warning(
        "store.restored", shard=shard, backup=str(found.path), made=manifest.made, incarnation=done.incarnation, bytes=done.bytes
    )  # fmt: skip
    _say(
        as_json,
        f"{directory if shard is None else f'shard {shard} of {directory}'} is as it was at {manifest.made}: "
        f"{number(manifest.n_shards if shard is None else 1, 'shard')}, {amount(done.bytes)}, "
        f"in {time.monotonic() - began:.1f} s; `holdfast up` starts it{_bridges(str(directory), config, set_)}",
        {"backup": str(found.path), "made": manifest.made, "data_dir": str(directory), "site": manifest.site,
         "incarnation": done.incarnation, "shards": manifest.n_shards if shard is None else 1, "bytes": done.bytes},
    )  # fmt: skip


def _bridges(directory: str, config: Path | None, sets: list[str] | None) -> str:
    """Which of them go on, as those of the broker that the backup is of may do as well."""
    try:
        found = load(config, sets=sets or (), data_dir=directory).bridges
    except ConfigError:
        return ""  # The start will say it.
    names = [name for name, bridge in found.items() if not bridge.paused]
    if not names:
        return ""
    who = f"bridge {names[0]} goes on" if len(names) == 1 else f"bridges {', '.join(names)} go on"
    return f"; {who} when it starts, and would carry everything twice beside a broker that still has them"


def _say(as_json: bool, sentence: str, facts: dict[str, object]) -> None:
    if as_json:
        print_json(facts)
    else:
        print(sentence)
