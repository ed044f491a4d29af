"""The files of a RocksDB store at one moment, while its owner goes on writing: for a copy of them.

Nothing is asked of the owner, who notices nothing. What counts is in three kinds of files: data files never change; the manifest, which
says which of them there are, and the logs only grow. So the open files and a length for each are the store at one moment, whatever their
names come to: a file that is deleted stays there for whoever has it open.

Holds, when `StoreFiles.take` has returned: what is copied of these files opens, and is the store after a prefix of its writes, with all
that were made before `take` was called. Because
* the manifest is the same before and after all others were opened, so every file that it names was there to be opened: RocksDB writes
  down that it does without a file before it deletes it;
* a log gets no more bytes once there is a next one, and each is measured when all have been opened, the oldest first: so what is
  missing of them is at the end of the last one only, now and whenever they are measured again; what was flushed meanwhile is still in them.
RocksDB goes on from a log that ends within a write with the writes before it.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple, Self

from rocksdict import Cache

from shards.engine import HOME_FAMILY, StoreFailed
from shards.engine_rocks import tables_of
from shards.layouts.registry import layout_named
from shards.log_garbage import damage
from shards.read_only import generation_rows, opened_read_only
from shards.rocks_options import RocksOptions, database_options
from shards.rows import META, unpack_row

_TRIES = 100
"""It takes a millisecond or two, and the owner changes its manifest after some megabytes."""
_IS_DATA = re.compile(r"\d+\.(sst|log)")
_MANIFEST = re.compile(r"MANIFEST-\d+")
_CURRENT = "CURRENT"
_LEFT_BY_ROCKSDICT = "rocksdict-config.json"
"""It writes this one into whatever it opens, and does without it."""
_POSITION_ROW = META + b"position"


class OpenFile(NamedTuple):
    """So many of its bytes belong to the store at that moment."""

    name: str
    descriptor: int
    bytes: int


class StoreFiles:
    """Life cycle: taken -> measured again, as often as somebody wants -> `release` of each file, in any order -> closed."""

    def __init__(self, path: str, manifest: str, files: list[OpenFile]) -> None:
        self.path = path
        self.manifest = manifest
        """The name of the one that counts; whoever makes the copy names it in a file CURRENT."""
        self.files = files

    @classmethod
    def take(cls, path: str) -> Self:
        """Raises StoreFailed when there is no store at ``path``, or its owner does not leave it alone for a moment; OSError when so many
        files cannot be open."""
        for _ in range(_TRIES):
            manifest, size = _manifest_now(path)
            found = cls(path, manifest, _opened(path, manifest, size))
            if _manifest_now(path) == (manifest, size):
                return found
            found.close()
        raise StoreFailed(f"{path}: its files changed during each of {_TRIES} looks at them")

    def measure(self) -> None:
        """What has been written since is in the copy as well."""
        self.files = [
            file._replace(bytes=os.fstat(file.descriptor).st_size) if file.name.endswith(".log") else file for file in self.files
        ]  # fmt: skip

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def release(self, file: OpenFile) -> None:
        self.files.remove(file)
        os.close(file.descriptor)

    def close(self) -> None:
        for file in list(self.files):
            self.release(file)


def name_manifest(path: str, manifest: str) -> None:
    """In a copy: which manifest counts."""
    with open(os.path.join(path, _CURRENT), "w", encoding="ascii") as current:
        current.write(f"{manifest}\n")
        current.flush()
        os.fsync(current.fileno())


class Looked(NamedTuple):
    """What a copy holds. sequence: number of its last operation. position: highest of its records, -1 without any. layouts: of its
    generations. tables: the data files that belong to it; others are of work that had not ended."""

    sequence: int
    position: int
    generations: int
    layouts: tuple[str, ...]
    tables: frozenset[str]


def look(path: str) -> Looked:
    """Open a copy, changing nothing in it, with all of its data files. Raises StoreFailed when it is none of ours, cannot be read, or has
    a layout that this program does not know."""
    if found := damage(path):
        raise StoreFailed(f"{path} was not closed in order and its log ends in garbage ({found[0]}): start the broker once")
    left = os.path.join(path, _LEFT_BY_ROCKSDICT)
    was_there = os.path.exists(left)
    try:
        return _look(path)
    finally:
        if not was_there:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(left)


def _look(path: str) -> Looked:
    cache = Cache(1 << 20)
    options = database_options(RocksOptions(), cache)
    options.create_if_missing(False)
    # All data files are opened, so one that is missing is noticed here.
    options.set_max_open_files(-1)
    with opened_read_only(path, options) as (db, families):
        home = families[HOME_FAMILY]
        tables = frozenset(table for family in families.values() for table in tables_of(family))
        if missing := [table for table in sorted(tables) if not os.path.exists(os.path.join(path, table))]:
            raise StoreFailed(f"{os.path.join(path, missing[0])} is missing")
        try:
            row = home.get(_POSITION_ROW)
            position = int(unpack_row(row)[0]) if row else -1
            infos = generation_rows(home)
            layouts = tuple(sorted({layout_named(info.layout) for info in infos}))
        except ValueError as error:
            raise StoreFailed(f"{path} is not for this program: {error}") from error
        return Looked(db.latest_sequence_number(), position, len(infos), layouts, tables)


def _manifest_now(path: str) -> tuple[str, int]:
    """Its name and size: every change of the set of files makes it longer, or is in another one."""
    for _ in range(_TRIES):
        try:
            with open(os.path.join(path, _CURRENT), encoding="ascii") as current:
                name = current.read().strip()
            if _MANIFEST.fullmatch(name):
                return name, os.path.getsize(os.path.join(path, name))
        except FileNotFoundError:
            # The owner is about to name another one, or there is no store.
            continue
        except (OSError, ValueError) as error:
            raise StoreFailed(f"look into {path}: {error}") from error
    raise StoreFailed(f"open {path}: there is no store")


def _opened(path: str, manifest: str, manifest_bytes: int) -> list[OpenFile]:
    """The logs in the order in which they were written, data files behind them. One that goes meanwhile is not wanted, or the manifest
    says so and all is done again."""
    descriptors: dict[str, int] = {}
    try:
        for name in sorted((name for name in os.listdir(path) if _IS_DATA.fullmatch(name) or name == manifest), key=_age):
            try:
                descriptors[name] = os.open(os.path.join(path, name), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
        sizes = {name: os.fstat(descriptor).st_size for name, descriptor in descriptors.items()}
    except BaseException:
        for descriptor in descriptors.values():
            os.close(descriptor)
        raise
    sizes[manifest] = manifest_bytes
    return [OpenFile(name, descriptors[name], sizes[name]) for name in descriptors]


def _age(name: str) -> tuple[bool, int, str]:
    return name.endswith(".sst"), int(re.sub(r"\D", "", name)), name
