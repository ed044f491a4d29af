"""The engine port for looking only: a RocksDB secondary instance beside whoever owns the store, or over one that is stopped.

It takes no lock and changes no file of the store. What it shows is the store at the moment of opening, the write-ahead log
included, so also what is written and not yet synced. Every change is refused.
Its own notes go into a scratch directory of the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from rocksdict import AccessType, Options, Rdict

from shards.engine import Op, StoreFailed
from shards.engine_rocks import RocksEngine, damage, family_of, mapped


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
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        # The owner deletes files meanwhile: only what is open stays readable.
        options.set_max_open_files(-1)
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

    @staticmethod
    def _names(path: str, options: Options) -> list[str]:
        return Rdict.list_cf(path, options)

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

    def _refuse(self) -> NoReturn:
        raise StoreFailed(f"{self._path} is open for reading only")
