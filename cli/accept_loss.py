"""`holdfast storage accept-loss`: the operator's word that the store of a shard is gone for good, and a new one in its place.

The broker has to be stopped. In this order, so that after a crash in between the broker does not start and the command can be said again:
site.json has the loss and a new incarnation; the new store is made beside its place; it is renamed into its place.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from typing import Annotated

import structlog
import typer

from actors.clocks import read_clocks
from actors.datadir import DirectoryError, hold, record_loss, sync_directory, told_of_copies
from actors.known_stores import is_empty, known_stores
from actors.logs import open_log
from actors.settings import store_options
from cli.paths import data_path
from cli.stores import ConfigFile, DataDir, Sets, load_or_refuse, refuse, site_of, store_paths
from shards.backends import open_backend
from shards.engine import StoreFailed
from shards.replacement import Route, fill_replacement, routes_of_home


def accept(
    shard: Annotated[int, typer.Option("--shard", metavar="N", help="The shard whose store is lost.")],
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
) -> None:  # fmt: skip
    """Go on without the store of a shard that is gone: its sessions, retained messages and stored messages are lost."""
    loaded = load_or_refuse(data_dir, config, set_)
    directory = data_path(loaded.data_dir)
    site = site_of(directory)
    paths = store_paths(loaded, site)
    if not 0 <= shard < site.n_shards:
        refuse(f"there is no shard {shard}: the shards are 0 to {site.n_shards - 1}.", 2)
    if why := told_of_copies(site, shard):
        refuse(f"{why}.")
    path = paths[shard]
    with ExitStack() as stack:
        try:
            stack.enter_context(hold(directory))
        except DirectoryError as error:
            refuse(f"{error}; stop it first (holdfast down).")
        if not is_empty(path):
            refuse(f"the store of shard {shard} is at {path}; nothing is lost.")
        if shard not in known_stores(directory):
            refuse(f"shard {shard} has never had a store: there is nothing to lose, `holdfast up` makes it.")
        messages = loaded.durable_storage.messages
        routes: list[Route] = []
        for other, beside in enumerate(paths):
            if other == shard or is_empty(beside):
                continue
            try:
                engine = open_backend(messages.backend, str(beside), messages.on_damage)
            except StoreFailed as error:
                refuse(f"the store of shard {other}, whose sessions read shard {shard}, cannot be read: {error}.")
            routes += routes_of_home(engine)
            engine.close()
        now = read_clocks()
        incarnation = record_loss(directory, shard)
        made = path.with_name(f"{path.name}.new")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        engine = open_backend(messages.backend, str(made), messages.on_damage)
        fill_replacement(engine, incarnation, store_options(loaded), routes, now.wall_ms)
        engine.close()
        if path.exists():
            # What it still holds is not ours to remove.
            path.rename(path.with_name(f"{path.name}.before-{incarnation}"))
        made.rename(path)
        sync_directory(path.parent)
        open_log(directory / "logs" / "launcher.log", "info", as_json=loaded.log.format == "json", who="accept-loss")
        structlog.get_logger().error("store.loss_accepted", shard=shard, incarnation=incarnation, routes=len(routes), path=str(path))
    print(
        f"shard {shard} begins anew at {path}: its sessions, retained messages and stored messages are lost; "
        f"{len(routes)} subscriptions of sessions in other shards go on in it"
    )
