"""The engine port for looking only: a RocksDB secondary instance beside whoever owns the store, or over one that is stopped.

It takes no lock and changes no file of the store. What it shows is the store at the moment of opening, or of the last `catch_up`, the
write-ahead log included, so also what is written and not yet synced. Every change is refused. Its own notes go into a scratch
directory of the caller's.

Catching up, RocksDB reads first the manifest and then the logs. A log that the owner flushed and deleted in between is in neither, and
RocksDB says nothing: then there is a hole in what is shown, before things that are newer. So it is looked whether all logs of before
are there afterwards, and if not, it is done again, which reads from the manifest what was in them.

Always holds, after an opening or a `catch_up` that returned: everything up to `latest_sequence` is shown, except in families that were
made since the opening, which it does not have, and in families that were dropped. What of a dropped family can still be read may be a part
of it only: the row that names a family goes before it does (shards.engine), so that row has to be asked first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

from rocksdict import AccessType, Cache, Options, Rdict

from shards.engine import Op, StoreFailed
from shards.engine_rocks import RocksEngine, damage, family_of, mapped
from shards.rocks_options import RocksOptions, database_options

_OPTIONS = RocksOptions(write_buffer_bytes=1 << 20, block_cache_bytes=16 << 20)
_TRIES = 100
"""For a step between two of which the owner deletes a log each time, which it does after some megabytes."""


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
        self._cache = Cache(_OPTIONS.block_cache_bytes)
        options = database_options(_OPTIONS, self._cache)
        options.create_if_missing(False)
        # The owner deletes files meanwhile: only what is open stays readable.
        options.set_max_open_files(-1)
        logs = self._logs()
        names: list[str] = []
        while True:
            seen = names
            try:
                names = self._names(path, options)
                self._db = Rdict(path, options, dict.fromkeys(names, options), AccessType.secondary(scratch))
                break
            except Exception as error:
                # The owner may have dropped a family since it was listed; then the next list is another one.
                if names == seen:
                    raise mapped(f"open {path}", error) from error
        self._options = options
        self._rdicts = {family_of(path, name): self._db.get_column_family(name) for name in names}
        self._handles = {}
        if not logs <= self._logs():
            self.catch_up()

    @staticmethod
    def _names(path: str, options: Options) -> list[str]:
        return Rdict.list_cf(path, options)

    def catch_up(self) -> None:
        """Show what was written until now. Raises StoreFailed: when the owner has put something into a file of a family that was made
        since the opening, only another opening helps, and it may help otherwise."""
        self._alive()
        for _ in range(_TRIES):
            logs = self._logs()
            try:
                self._db.try_catch_up_with_primary()
            except Exception as error:
                raise mapped(f"catch up with {self._path}", error) from error
            if logs <= self._logs():
                return
        raise StoreFailed(f"catch up with {self._path}: its owner deleted a log during each of {_TRIES} attempts")

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

    def _logs(self) -> set[str]:
        try:
            return {name for name in os.listdir(self._path) if name.endswith(".log")}
        except OSError as error:
            raise StoreFailed(f"look into {self._path}: {error}") from error

    def _refuse(self) -> NoReturn:
        raise StoreFailed(f"{self._path} is open for reading only")
