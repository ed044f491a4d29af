"""Takes a backup: the files of all stores, each store at one moment, into a directory beside those of earlier backups.

The brokers' processes are not asked for anything here: whoever wants to know that all they had committed is in it brings what they said
(`Told`). All stores are taken first, at almost one moment; then they are copied, however long that takes. What a store
deletes meanwhile stays on the disk until it is copied.

Data files that an earlier backup of the same directory has are not copied again, but linked. So each backup is whole, and
any of them may be removed.

Always holds: what does not end leaves a directory that nobody takes for a backup, and the next one removes it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from actors.backup.copying import Pace, copy, same_end
from actors.backup.manifest import (
    BESIDE,
    FORMAT_VERSION,
    PART,
    Backup,
    BackupError,
    CopiedFile,
    CopiedShard,
    Manifest,
    backups_in,
    number_of,
    parts_in,
    read_backup,
    write_manifest,
)
from actors.datadir import Site, sync_directory
from actors.release import release
from actors.reserve import free_bytes
from actors.shard_serving import SPACE_LOW_BYTES
from config.values import Size
from shards.engine import StoreFailed
from shards.store_files import OpenFile, StoreFiles, look, name_manifest

SPARE_BYTES = 16 << 20
"""Left free on the disk of the backup at least."""
APART_MAX_S = 0.0005
"""Between the moments of the first and the last shard, unless the machine never gives us so much time at once."""
_TRIES = 100
_CURRENT = "CURRENT"


@dataclass(frozen=True, slots=True)
class Told:
    """What a shard had committed when the backup began: everything up to position, written up to sequence."""

    position: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Source:
    """stores: by shard. told: of a running broker; none: it is stopped, and stays so meanwhile. copies: the stores are copies of shards
    that several sites share; then `site` has the id and the incarnation of what they share."""

    data_dir: Path
    site: Site
    stores: Sequence[Path]
    backend: str
    told: Mapping[int, Told]
    copies: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """linked_bytes: of files that an earlier backup had already."""

    backup: Backup
    copied_bytes: int
    linked_bytes: int


Progress = Callable[[int, int], None]
"""Told how many bytes of how many are done."""


def take(source: Source, into: Path, pace: Pace | None = None, progress: Progress = lambda done, total: None) -> Taken:
    """Raises BackupError; then `into` holds the backups that it held before."""
    for inner in (source.data_dir, *(store.parent.parent if source.copies else store.parent for store in source.stores)):
        if into == inner or into.is_relative_to(inner):
            raise BackupError(f"{into} lies in {inner}, of which the backup is to be: name another directory, best on another disk")
    try:
        into.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(into):
            for part in parts_in(into):
                shutil.rmtree(part)
            return _take(source, into, pace or Pace(), progress)
    except OSError as error:
        raise BackupError(
            f"the backup was not taken: {error.strerror or error}{f' ({error.filename})' if error.filename else ''}"
        ) from error


@contextmanager
def _alone(into: Path) -> Iterator[None]:
    lock = os.open(into / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupError(f"another backup is being taken into {into}") from None
        yield
    finally:
        os.close(lock)


def _take(source: Source, into: Path, pace: Pace, progress: Progress) -> Taken:
    before = backups_in(into)
    number = 1 + max(map(number_of, before), default=0)
    earlier = _earlier(source, before)
    made = time.gmtime()
    final = into / f"{number:06d}-{time.strftime('%Y%m%dT%H%M%SZ', made)}"
    part = final.with_name(final.name + PART)
    stores = _hold(source)
    try:
        plan = _Plan(stores, earlier)
        _require_room(source, into, plan.new_bytes)
        part.mkdir(mode=0o700)
        try:
            files = _copy(stores, plan, part, pace, progress)
            shards = tuple(_checked(source, part, shard, files) for shard in range(len(stores)))
            manifest = Manifest(
                FORMAT_VERSION, number, time.strftime("%Y-%m-%dT%H:%M:%SZ", made), release(), not source.told, source.site.site,
                source.site.incarnation, source.site.n_shards, source.site.created, source.backend, shards,
                (*sorted(files.values(), key=lambda file: file.name), *_beside(source, part)),
            )  # fmt: skip
            write_manifest(part, manifest)
            os.rename(part, final)
            sync_directory(into)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        for store in stores:
            store.close()
    linked = sum(file.bytes for file in manifest.files if file.name in plan.known)
    return Taken(Backup(final, manifest), manifest.bytes - linked, linked)


def _earlier(source: Source, before: Sequence[Path]) -> Backup | None:
    """The newest of the same store that can be read."""
    for path in reversed(before):
        try:
            found = read_backup(path)
        except BackupError:
            # That is for whoever wants to restore it; here it is only of no use.
            continue
        if found.manifest.store == f"{source.site.site}:{source.site.incarnation}":
            return found
    return None


# ---------------------------------------------------------------------------------------------------- the moment


def _hold(source: Source) -> list[StoreFiles]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    held: list[StoreFiles] = []
    try:
        for shard, path in enumerate(source.stores):
            try:
                held.append(StoreFiles.take(str(path)))
            except StoreFailed as error:
                raise BackupError(f"the store of shard {shard} cannot be copied: {error}") from error
        _at_one_moment(held)
    except BaseException:
        for store in held:
            store.close()
        raise
    return held


def _at_one_moment(stores: Sequence[StoreFiles]) -> None:
    """As near as it gets: whoever is told something by one shard commits nothing that follows from it to another one so soon."""
    for _ in range(_TRIES):
        began = time.monotonic()
        for store in stores:
            store.measure()
        if time.monotonic() - began < APART_MAX_S:
            return


class _Plan:
    """Which data files are in an earlier backup: name -> its file there."""

    def __init__(self, stores: Sequence[StoreFiles], earlier: Backup | None) -> None:
        self.known: dict[str, CopiedFile] = {}
        self.earlier = earlier
        self.bytes = sum(store.bytes for store in stores)
        there = {file.name: file for file in earlier.manifest.files} if earlier else {}
        for shard, store in enumerate(stores):
            for file in store.files:
                known = there.get(_name(shard, file.name)) if file.name.endswith(".sst") else None
                if known is None or earlier is None or known.bytes != file.bytes:
                    continue
                if same_end(file.descriptor, file.bytes, earlier.path / known.name):
                    self.known[known.name] = known

    @property
    def new_bytes(self) -> int:
        return self.bytes - sum(file.bytes for file in self.known.values())


def _require_room(source: Source, into: Path, wanted: int) -> None:
    free = free_bytes(into)
    device = into.stat().st_dev
    shared = any(path.stat().st_dev == device for path in (source.data_dir, *source.stores))
    # A broker on the same disk refuses messages when less is free.
    left = 2 * SPACE_LOW_BYTES if shared and source.told else SPARE_BYTES
    if free < wanted + left:
        why = ", without which the broker beside it would refuse messages" if left > SPARE_BYTES else ""
        raise BackupError(
            f"the backup takes {_size(wanted)} more at {into}, where {_size(free)} are free and {_size(left)} have to stay so{why}: "
            "make room, or name another disk"
        )


def _size(value: int) -> str:
    return str(Size(-(-value // (1 << 20)) << 20))


# ---------------------------------------------------------------------------------------------------- copying


def _copy(stores: Sequence[StoreFiles], plan: _Plan, part: Path, pace: Pace, progress: Progress) -> dict[str, CopiedFile]:
    """Logs and manifests first: they are held by nothing but us."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        progress(done, plan.bytes)

    progress(0, plan.bytes)
    copied: dict[str, CopiedFile] = {}
    (part / "shards").mkdir(mode=0o700)
    for shard, store in enumerate(stores):
        directory = part / "shards" / str(shard)
        directory.mkdir(mode=0o700)
        name_manifest(str(directory), store.manifest)
    both: list[tuple[int, StoreFiles, OpenFile]] = [(shard, store, file) for shard, store in enumerate(stores) for file in store.files]
    for shard, store, file in sorted(both, key=lambda each: each[2].name.endswith(".sst")):
        name = _name(shard, file.name)
        known = plan.known.get(name)
        if known is not None and plan.earlier is not None and _linked(plan.earlier.path / name, part / name):
            copied[name] = known
            advance(file.bytes)
        else:
            plan.known.pop(name, None)
            copied[name] = CopiedFile(name, file.bytes, copy(file.descriptor, file.bytes, part / name, pace, advance))
        store.release(file)
    return copied


def _linked(known: Path, name: Path) -> bool:
    try:
        os.link(known, name)
    except OSError:
        # Not every file system has that.
        return False
    return True


def _checked(source: Source, part: Path, shard: int, files: dict[str, CopiedFile]) -> CopiedShard:
    """What the copy of a store holds: it is opened, and has all that the shard had committed."""
    directory = part / "shards" / str(shard)
    try:
        found = look(str(directory))
    except StoreFailed as error:
        raise BackupError(f"the copy of the store of shard {shard} cannot be read: {error}") from error
    told = source.told.get(shard)
    if told is not None and (found.sequence < told.sequence or found.position < told.position):
        raise BackupError(
            f"the copy of the store of shard {shard} reaches to position {found.position}, operation {found.sequence}, and the shard had "
            f"position {told.position}, operation {told.sequence}, when the backup began: its files were changed by somebody else"
        )
    for path in directory.glob("*.sst"):
        if path.name not in found.tables:
            # It was being made, or was not deleted yet.
            path.unlink()
            del files[_name(shard, path.name)]
    current = (directory / _CURRENT).read_bytes()
    files[_name(shard, _CURRENT)] = _in_memory(_name(shard, _CURRENT), current)
    sync_directory(directory)
    sync_directory(directory.parent)
    return CopiedShard(shard, found.sequence, found.position, found.generations, found.layouts)


def _beside(source: Source, part: Path) -> list[CopiedFile]:
    found: list[CopiedFile] = []
    for name in BESIDE:
        try:
            content = (source.data_dir / name).read_bytes()
        except FileNotFoundError:
            continue
        descriptor = os.open(part / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        found.append(_in_memory(name, content))
    return found


def _in_memory(name: str, content: bytes) -> CopiedFile:
    return CopiedFile(name, len(content), hashlib.sha256(content).hexdigest())


def prune(into: Path, keep: int) -> list[Path]:
    """Remove all whole backups but the newest so many; those that are gone. Raises BackupError."""
    gone: list[Path] = []
    try:
        with _alone(into):
            for path in backups_in(into)[:-keep]:
                # Half of one is not taken for a backup.
                part = path.with_name(path.name + PART)
                os.rename(path, part)
                shutil.rmtree(part)
                gone.append(path)
    except OSError as error:
        raise BackupError(f"an earlier backup was not removed: {error.strerror} ({error.filename})") from error
    return gone


def _name(shard: int, file: str) -> str:
    return f"shards/{shard}/{file}"
