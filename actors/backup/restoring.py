"""Puts a backup into an empty data directory, as a new incarnation of its site (shards.restored).

For one of several sites it is put where the copies of a site lie, as those with which a new cluster begins (shards.replication.seeding).

    restoring     in the data directory, from the first thing that is written into it to the last: what is found there is nobody's yet.
                  No broker starts there (actors.datadir), and the command can be said again, which begins by removing what it had made

Always holds: every sum is right before the data directory may be used; nothing is overwritten that was there before.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from actors.backup.copying import Pace, copy, sum_of
from actors.backup.manifest import BESIDE, Backup, BackupError, CopiedFile
from actors.clocks import read_clocks
from actors.datadir import (
    FORMAT_VERSION,
    FORMAT_VERSION_SITES,
    RESTORING,
    DirectoryError,
    Site,
    hold,
    sync_directory,
    write_durably,
    write_site,
)
from actors.known_stores import NAME, note_store
from actors.replica.copy import DATA, seed_copy
from actors.reserve import free_bytes
from actors.shard_serving import SPACE_LOW_BYTES
from config.values import Size
from shards.backends import open_backend
from shards.engine import HOME_FAMILY, Engine, StoreFailed
from shards.layouts.registry import UnknownLayout, layout_named
from shards.log_files import note_reached
from shards.replacement import Route, routes_of_home
from shards.replication.applying import APPLIED_ROW
from shards.replication.seeding import seed_op
from shards.restored import begin_incarnation

BACKEND = "rocksdb"
"""Of which there are backups."""
_NOT_OURS = frozenset(("lost+found", "lock"))
"""What an empty data directory may have: the first is of a file system that was just made, the second we make."""


@dataclass(frozen=True, slots=True)
class Target:
    """stores: the directory above those of the shards. n_sites, replication_factor: as the configuration has them."""

    data_dir: Path
    stores: Path
    n_sites: int = 1
    replication_factor: int = 1

    def engine(self, shard: int) -> Path:
        return self.stores / str(shard) if self.n_sites == 1 else self.stores / str(shard) / DATA


@dataclass(frozen=True, slots=True)
class Restored:
    incarnation: int
    bytes: int


Progress = Callable[[int, int], None]


def check(backup: Backup, progress: Progress = lambda done, total: None) -> None:
    """Raises BackupError when a file of it is not what was copied."""
    advance = advancing(backup.manifest.bytes, progress)
    for file in backup.manifest.files:
        try:
            found = sum_of(backup.path / file.name, advance)
        except OSError as error:
            raise BackupError(f"{backup.path / file.name} cannot be read: {error.strerror}") from error
        if found != (file.bytes, file.sha256):
            raise _damaged(backup, file.name)


def restore(
    backup: Backup, target: Target, later_lost: bool = True, pace: Pace | None = None, progress: Progress = lambda done, total: None
) -> Restored:
    """Raises BackupError; then the data directory is as it was, or says of itself that a restore into it has not ended."""
    readable(backup, later_lost)
    try:
        target.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold(target.data_dir):
            _make_empty(target)
            require_room(target.stores, backup.manifest.bytes)
            write_durably(target.data_dir / RESTORING, json.dumps({"backup": str(backup.path), "stores": str(target.stores)}), mode=0o600)
            return _restore(backup, target, later_lost, pace or Pace(), progress)
    except DirectoryError as error:
        raise BackupError(f"{error}") from error
    except OSError as error:
        raise BackupError(f"nothing was restored: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}") from error


def readable(backup: Backup, later_lost: bool) -> None:
    manifest = backup.manifest
    if manifest.backend != BACKEND:
        raise BackupError(f"{backup.path} is of the backend {manifest.backend!r}, and only {BACKEND} can be restored")
    if not later_lost and not manifest.stopped:
        raise BackupError(f"{backup.path} was taken while its broker ran: what came after it is lost")
    for shard in manifest.shards:
        for layout in shard.layouts:
            try:
                layout_named(layout)
            except UnknownLayout as error:
                raise BackupError(f"shard {shard.shard} of {backup.path} cannot be read by this Holdfast: {error}") from error


# ---------------------------------------------------------------------------------------------------- the place


def _make_empty(target: Target) -> None:
    """What an earlier restore has left goes; anything else stays, and is in the way."""
    mark = target.data_dir / RESTORING
    if mark.exists():
        try:
            stores = Path(json.loads(mark.read_text(encoding="utf-8"))["stores"])
        except (ValueError, KeyError, TypeError):
            raise BackupError(f"{mark} is damaged: remove all of {target.data_dir}, and try again") from None
        for store in stores.glob("*"):
            if store.name.isdecimal():
                shutil.rmtree(store)
        shutil.rmtree(target.data_dir / NAME, ignore_errors=True)
        for name in (*BESIDE, "site.json"):
            (target.data_dir / name).unlink(missing_ok=True)
        if stores.parent == target.data_dir and stores.exists() and not any(stores.iterdir()):
            stores.rmdir()
        # Last: while it is there this can be said again.
        mark.unlink()
        sync_directory(target.data_dir)
    for directory in dict.fromkeys((target.data_dir, target.stores)):
        found = sorted(set(os.listdir(directory)) - _NOT_OURS) if directory.exists() else []
        if found:
            what = ", ".join(found[:3]) + (" and more" if len(found) > 3 else "")
            raise BackupError(f"{directory} is not empty, it holds {what}: name an empty directory, or move away what is there")


def require_room(stores: Path, size: int) -> None:
    there = next(directory for directory in (stores, *stores.parents) if directory.exists())
    free, wanted = free_bytes(there), size + 2 * SPACE_LOW_BYTES
    if free < wanted:
        raise BackupError(
            f"{Size(free >> 20 << 20)} are free at {there}, and {Size(-(-wanted >> 20) << 20)} are wanted: the backup, and room to work"
        )


# ---------------------------------------------------------------------------------------------------- what is put there


def _restore(backup: Backup, target: Target, later_lost: bool, pace: Pace, progress: Progress) -> Restored:
    manifest = backup.manifest
    advance = advancing(backup.manifest.bytes, progress)
    paths = [target.engine(shard.shard) for shard in manifest.shards]
    for path in paths:
        path.mkdir(mode=0o700, parents=True)
    for file in manifest.files:
        place = target.data_dir / file.name
        if file.name.startswith("shards/"):
            _, shard, name = file.name.split("/")
            place = target.engine(int(shard)) / name
        put_back(backup, file, place, pace, advance)
    incarnation = manifest.incarnation + 1
    several = target.n_sites > 1
    _go_on(backup, paths, incarnation, later_lost, several)
    for number, path in enumerate(paths):
        sync_directory(path)
        if several:
            seed_copy(path.parent, number, incarnation, manifest.site)
        else:
            note_store(target.data_dir, path, number)
    sync_directory(target.stores)
    # What storage_quota = "auto" stands for is found anew: the disk may be another one.
    site = Site(FORMAT_VERSION_SITES if several else FORMAT_VERSION, manifest.site, incarnation, manifest.n_shards, manifest.created)
    write_site(target.data_dir, replace(site, n_sites=target.n_sites, replication_factor=target.replication_factor))
    (target.data_dir / RESTORING).unlink()
    sync_directory(target.data_dir)
    return Restored(incarnation, manifest.bytes)


def put_back(backup: Backup, file: CopiedFile, place: Path, pace: Pace, advance: Callable[[int], None]) -> None:
    """One file of it, to be new at its place. Raises BackupError when it is not what was copied."""
    try:
        source = os.open(backup.path / file.name, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _damaged(backup, file.name) from None
    try:
        if os.fstat(source).st_size != file.bytes or copy(source, file.bytes, place, pace, advance) != file.sha256:
            raise _damaged(backup, file.name)
    finally:
        os.close(source)


def _go_on(backup: Backup, paths: list[Path], incarnation: int, later_lost: bool, several: bool) -> None:
    """Every store is opened as it was, and then goes on with the routes of the sessions of all others."""
    routes: list[list[Route]] = []
    now = read_clocks()
    for shard, path in zip(backup.manifest.shards, paths, strict=True):
        note_reached(str(path), shard.sequence)
        with opened(path, shard.shard) as engine:
            routes.append(list(routes_of_home(engine)))
    for number, path in enumerate(paths):
        others = (route for home, of_home in enumerate(routes) if home != number for route in of_home)
        with opened(path, number) as engine:
            # Of a copy of several sites: its log is not with it, and nothing of that is ever applied to it again.
            engine.write([(HOME_FAMILY, APPLIED_ROW, None)])
            since = begin_incarnation(engine, incarnation, others, now.wall_ms, later_lost)
            if several:
                engine.write([seed_op(since)])
                engine.sync()


@contextmanager
def opened(path: Path, shard: int) -> Iterator[Engine]:
    """A store that serves nobody. Raises BackupError, also for what the inner part meets in it."""
    try:
        engine = open_backend(BACKEND, str(path), "strict")
        try:
            yield engine
        finally:
            engine.close()
    except (StoreFailed, ValueError) as error:
        raise BackupError(f"the store of shard {shard} cannot be used: {error}") from error


def advancing(total: int, progress: Progress) -> Callable[[int], None]:
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, total)

    progress(0, total)
    return advance


def _damaged(backup: Backup, name: str) -> BackupError:
    return BackupError(f"{backup.path / name} is not what was copied: this backup is damaged, take another one")
