"""Puts the store of one shard back, beside stores that are sound: only this shard returns to the time of the backup.

As for a store that is lost for good (cli.accept_loss), and in the same order, so that a crash leaves a broker that does not start and a
command that can be said again: the store is made beside its place and goes on as a new incarnation; site.json has that incarnation; the
other stores have the routes of the sessions that are back; it is renamed into its place.
"""

from __future__ import annotations

import shutil

from actors.backup.copying import Pace
from actors.backup.manifest import Backup, BackupError
from actors.backup.restoring import Progress, Restored, Target, advancing, opened, put_back, readable, require_room
from actors.clocks import read_clocks
from actors.datadir import DirectoryError, hold, read_site, record_incarnation, sync_directory, told_of_copies
from actors.known_stores import is_empty, note_store
from shards.engine import Engine
from shards.log_files import note_reached
from shards.replacement import Route, routes_of_home
from shards.restored import begin_incarnation, route_ops

_ROUTES_AT_ONCE = 1000


def restore_shard(
    backup: Backup, target: Target, shard: int, pace: Pace | None = None, progress: Progress = lambda done, total: None
) -> Restored:
    """Raises BackupError; then the data directory is as it was, or the command is to be said again."""
    readable(backup, later_lost=True)
    try:
        with hold(target.data_dir):
            return _restore(backup, target, shard, pace or Pace(), progress)
    except DirectoryError as error:
        raise BackupError(f"{error}; stop it first (holdfast down)") from error
    except OSError as error:
        raise BackupError(f"nothing was restored: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}") from error


def _restore(backup: Backup, target: Target, shard: int, pace: Pace, progress: Progress) -> Restored:
    manifest, site = backup.manifest, read_site(target.data_dir)
    if site is None:
        raise BackupError(f"{target.data_dir} has no site.json: restore all of the backup into an empty directory")
    if (site.site, site.n_shards) != (manifest.site, manifest.n_shards):
        raise BackupError(f"{backup.path} is of the site {manifest.site}, and {target.data_dir} is of {site.site}")
    if why := told_of_copies(site, shard):
        raise BackupError(why)
    path = target.stores / str(shard)
    if not is_empty(path):
        raise BackupError(f"the store of shard {shard} is at {path}: move it away, when it is to be replaced")
    others = [number for number in range(site.n_shards) if number != shard]
    for number in others:
        if is_empty(target.stores / str(number)):
            raise BackupError(f"the store of shard {number} is not there either: restore all of the backup into an empty directory")
    files = [file for file in manifest.files if file.name.startswith(f"shards/{shard}/")]
    size = sum(file.bytes for file in files)
    require_room(target.stores, size)
    made = path.with_name(f"{path.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o700)
    advance = advancing(size, progress)
    for file in files:
        put_back(backup, file, made / file.name.rpartition("/")[2], pace, advance)
    note_reached(str(made), manifest.shards[shard].sequence)
    routes: list[Route] = []
    for number in others:
        with opened(target.stores / str(number), number) as engine:
            routes += routes_of_home(engine)
    incarnation = record_incarnation(target.data_dir, manifest.incarnation)
    with opened(made, shard) as engine:
        begin_incarnation(engine, incarnation, routes, read_clocks().wall_ms)
        back = list(routes_of_home(engine))
    for number in others:
        with opened(target.stores / str(number), number) as engine:
            _add(engine, back)
    if path.exists():
        # Empty, but for what a file system has.
        path.rename(path.with_name(f"{path.name}.before-{incarnation}"))
    made.rename(path)
    sync_directory(path.parent)
    note_store(target.data_dir, path, shard)
    return Restored(incarnation, size)


def _add(engine: Engine, routes: list[Route]) -> None:
    ops = route_ops(routes)
    for at in range(0, len(ops), _ROUTES_AT_ONCE):
        engine.write(ops[at : at + _ROUTES_AT_ONCE])
    engine.sync()
