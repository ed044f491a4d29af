"""The engine port for looking only: a RocksDB secondary instance beside whoever owns the store, or over one that is stopped.

It takes no lock and changes no file of the store. What it shows is the store at the moment of opening, or of the last `catch_up`, the
write-ahead log included, so also what is written and not yet synced. Every change is refused. Its own notes go into a scratch
directory of the caller's.

`catch_up` follows the log, and of the files what it can: families that were made or dropped, and files of families of which nothing is in
memory. When others have changed, or files went while it looked, it raises Outdated, and only another opening shows what is there.
RocksDB 9.8 would go on, and show what never was:
* what a flush has put into a file stays in the memory of a secondary as well, and there it hides newer values of the same keys, and
  brings erased ones back, until something is written to that family;
* a family that is dropped loses what of it was flushed in between, and is not empty. But the row that names it went before (shards.engine);
* one that is dropped and made again stays what it was, whatever is written to the new one: an owner that begins anew does that with the one
  that was made for the next generation. So its new manifest is not followed, and names are compared (shards.family_names);
* a log that is flushed and deleted between the reading of the manifest and that of the logs is in neither: then there is a hole, before
  things that are newer; and where a file of the manifest is gone already, an older state of the family is taken.
So an opening during which a file is deleted is done again. What it would not survive is a name that two families had: shards.family_names.

Always holds, after an opening or a `catch_up` that returned: what is shown is the store at one moment, everything up to `latest_sequence`,
but for families that were made since the opening, which it does not have, and those that were dropped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NoReturn

from rocksdict import AccessType, Cache, Options, Rdict

from shards.engine import HOME_FAMILY, Op, StoreFailed, index_of
from shards.engine_rocks import RocksEngine, mapped, tables_of
from shards.family_names import FamilyNames
from shards.log_garbage import damage
from shards.rocks_options import RocksOptions, database_options

_OPTIONS = RocksOptions(write_buffer_bytes=1 << 20, block_cache_bytes=16 << 20)
_TRIES = 30
"""It takes some milliseconds, and the owner changes its files after some megabytes."""

_IS_DATA = re.compile(r"\d+\.(sst|log)$|MANIFEST-")


class Outdated(StoreFailed):
    """What is open does not show what is there any more: it is to be closed and opened anew."""


class SecondaryEngine(RocksEngine):
    """Reads as its parent does. Raises StoreFailed for everything that would write."""

    def __init__(self, path: str, scratch: str) -> None:
        """Raises StoreFailed when there is no store at ``path``, or when the end of its log wants the care of the owner's start."""
        found = damage(path)
        if found:
            raise StoreFailed(f"{path} was not closed in order and its log ends in garbage ({found[0]}): start the broker once")
        self._path, self._notes = path, ""
        self._failed = None
        self._full = False
        # Its owner deletes the files that one would go on with.
        self._kept = None
        self._cache = Cache(_OPTIONS.block_cache_bytes)
        self._options = database_options(_OPTIONS, self._cache)
        self._options.create_if_missing(False)
        # The owner deletes files meanwhile: only what is open stays readable.
        self._options.set_max_open_files(-1)
        for _ in range(_TRIES):
            self._manifest = self._manifest_now()
            files = self._data_files()
            names = self._open(scratch)
            if files <= self._data_files():
                break
            self._db.close()
        else:
            raise StoreFailed(f"open {path}: its owner deleted files during each of {_TRIES} attempts")
        self._called = FamilyNames(path, names)
        self._rdicts = {family: self._db.get_column_family(name) for family, name in self._called.of.items()}
        self._handles = {}

    def _open(self, scratch: str) -> list[str]:
        names: list[str] = []
        while True:
            seen = names
            try:
                names = self._names(self._path, self._options)
                self._db = Rdict(self._path, self._options, dict.fromkeys(names, self._options), AccessType.secondary(scratch))
            except Exception as error:
                # The owner may have dropped a family since it was listed; then the next list is another one.
                if names == seen:
                    raise mapped(f"open {self._path}", error) from error
            else:
                return names

    @staticmethod
    def _names(path: str, options: Options) -> list[str]:
        return Rdict.list_cf(path, options)

    def catch_up(self) -> None:
        """Show what was written until now. Raises Outdated; then it shows nothing that may be relied on, and is to be closed."""
        self._alive()
        manifest = self._manifest_now()
        if manifest[0] != self._manifest[0]:
            raise Outdated(f"the owner of {self._path} has begun anew since it was opened for reading")
        followed = manifest == self._manifest
        files = set() if followed else self._data_files()
        held = {} if followed else self._held(list(self._rdicts))
        try:
            self._db.try_catch_up_with_primary()
            made_again = not followed and self._made_again()
        except Exception as error:
            raise Outdated(str(mapped(f"catch up with {self._path}", error))) from error
        changed = self._manifest_now() != manifest or (not followed and (files - self._data_files() or self._held(list(held)) != held))
        if made_again or changed:
            raise Outdated(f"the files of {self._path} have changed since it was opened for reading")
        self._manifest = manifest

    def keys_estimated(self, family: int) -> int:
        return self._rdict(family).property_int_value("rocksdb.estimate-num-keys") or 0

    def create_family(self, family: int) -> None:
        self._refuse()

    def drop_family(self, family: int) -> None:
        self._refuse()

    def write(self, ops: Sequence[Op]) -> None:
        self._refuse()

    def sync(self) -> None:
        self._refuse()

    def checkpoint(self, path: str) -> None:
        self._refuse()

    def close(self) -> None:
        if self._failed is None:
            self._failed = "closed"
            self._rdicts.clear()
            self._db.close()
            del self._db

    def _made_again(self) -> bool:
        """Whether one that is open here has another name by now, or an index that it had not."""
        now, called = FamilyNames(self._path, self._names(self._path, self._options)).of, self._called.of
        new_indexes = [family for family in now.keys() - called.keys() if family < HOME_FAMILY and index_of(family) in called]
        return bool(new_indexes) or any(now.get(family, name) != name for family, name in called.items())

    def _held(self, families: Sequence[int]) -> dict[int, dict[str, int]]:
        """Those of which something is in memory, with the files that they have."""
        found: dict[int, dict[str, int]] = {}
        for family in families:
            rdict = self._rdict(family)
            if any(rdict.property_int_value(f"rocksdb.num-entries-{kind}") for kind in ("active-mem-table", "imm-mem-tables")):
                found[family] = tables_of(rdict)
        return found

    def _data_files(self) -> set[str]:
        try:
            return {name for name in os.listdir(self._path) if _IS_DATA.match(name)}
        except OSError as error:
            raise StoreFailed(f"look into {self._path}: {error}") from error

    def _manifest_now(self) -> tuple[str, int]:
        """The name and size of the manifest: every change of the files makes it longer, or is in another one."""
        for _ in range(_TRIES):
            try:
                with open(os.path.join(self._path, "CURRENT"), encoding="ascii") as current:
                    name = current.read().strip()
                return name, os.path.getsize(os.path.join(self._path, name))
            except FileNotFoundError:
                # The owner is about to name another one, or there is no store.
                continue
            except OSError as error:
                raise StoreFailed(f"look into {self._path}: {error}") from error
        raise StoreFailed(f"open {self._path}: there is no store")

    def _refuse(self) -> NoReturn:
        raise StoreFailed(f"{self._path} is open for reading only")
