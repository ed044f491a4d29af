"""The engine on RocksDB: one database per shard, one column family per engine family, one write-ahead log for all.

Writes go to the log unsynced; ``sync`` is ``flush_wal(True)``, which releases the interpreter lock while the disk works.
Creating and dropping a family and opening hold it, so they belong into idle moments.

A full disk: the write that meets it raises StoreFull, and so does every other until RocksDB has recovered, which it does by
itself some seconds after there is room again. It gives up for good if its log is synced in between, so ``sync`` waits
instead: to the caller it is a disk that answers late. Any other failure of a write or sync is final, as nobody knows what
the file holds: the engine refuses everything from then on.

Opening goes over the logs first, because RocksDB 9.8 never returns from certain garbage behind a torn end (shards.log_garbage).
Damage is told apart from other failures (StoreDamaged), and the file is noted for the next opening (shards.suspects); what is
done about it is for shards.salvage.

Always holds: an iterator's ReadOptions live as long as the iterator (without them rocksdict ends a scan early and says
nothing), and an iterator that stops is asked whether it stopped because of an error.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

from rocksdict import Cache, Checkpoint, ColumnFamily, Rdict, RdictIter, ReadOptions, WriteBatch

from shards import suspects
from shards.engine import HOME_FAMILY, Apart, Entries, FamilyMissing, Op, StoreDamaged, StoreFailed, StoreFull, StoreInUse, index_of
from shards.engine_kept import KeptReads
from shards.engine_scans import MANY, behind, few, many, parts
from shards.family_names import HOME_NAME, FamilyNames
from shards.log_files import note_reached
from shards.log_garbage import disarm
from shards.rocks_options import RocksOptions, database_options, options_of_families

__all__ = ["RocksCursor", "RocksEngine", "RocksOptions", "database_options", "mapped", "noted", "tables_of"]

_NO_SPACE = "No space left on device"
_PROBE_KEY = b"\xff\xff\xff\xff probe"
_FULL_POLL_S = 0.25
_NO_BOUND = 1 << 62
_BYTES = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")
"""Properties of a family that together are what it takes."""

_NOT_THE_FILE = ("Too many open files", "Permission denied", "Cannot allocate memory")
"""Why a file may be unreadable though nothing is wrong with it."""
_BLAMED_MANIFEST = re.compile(r" The file \S+ may be corrupted\.$")
_TABLES = re.compile(r"^ (\d+):(\d+)\[", re.MULTILINE)


class RocksCursor:
    __slots__ = ("_iterator", "_lower", "_notes", "_options")

    def __init__(self, db: Rdict, lower: bytes, upper: bytes, notes: str) -> None:
        self._notes = notes
        self._options = ReadOptions()
        self._options.set_iterate_upper_bound(upper)
        # set_iterate_lower_bound does not hold a seek back, so seek does it.
        self._lower = lower
        self._iterator: RdictIter = db.iter(self._options)

    def seek(self, key: bytes) -> None:
        self._iterator.seek(max(key, self._lower))

    def next(self) -> None:
        self._iterator.next()

    def valid(self) -> bool:
        if self._iterator.valid():
            return True
        try:
            self._iterator.status()
        except Exception as error:
            raise noted(self._notes, "cursor", error) from error
        return False

    def key(self) -> bytes:
        key: bytes = self._iterator.key()
        return key

    def value(self) -> bytes:
        value: bytes = self._iterator.value()
        return value


class RocksEngine:
    """Life cycle: opened -> used -> failed, or closed. The directory is locked meanwhile; a killed process leaves no lock.

    rocksdict raises bare ``Exception`` for everything, which is why it is caught here, at every call, and nowhere else.
    """

    def __init__(self, path: str, options: RocksOptions | None = None) -> None:
        """Open the store at ``path``, making an empty one if there is none. Recovers a log whose end is torn.

        What was recovered is only safe against a power cut after the first ``sync``.
        """
        self._path = self._notes = path
        self.damage_found = disarm(path)
        """Sentences about damage that was met at opening, to be logged."""
        self._failed: str | None = None
        self._full = False
        # Kept: RocksDB refers to the cache for as long as the database is open.
        options = options or RocksOptions()
        self._cache = Cache(options.block_cache_bytes)
        own = database_options(options, self._cache)
        self._made_with = options_of_families(options, self._cache)
        at_opening = options_of_families(options, self._cache)
        for found in (at_opening.home, at_opening.generation, at_opening.index):
            found.set_disable_auto_compactions(not options.compacts)
        try:
            self._called = FamilyNames(path, Rdict.list_cf(path, own) if os.path.exists(os.path.join(path, "CURRENT")) else [HOME_NAME])
            self._db = Rdict(path, own, {name: at_opening.of(family) for family, name in self._called.of.items()})
        except StoreFailed:
            raise
        except Exception as error:
            raise mapped(f"open {path}", error) from error
        self._rdicts: dict[int, Rdict] = {}
        self._handles: dict[int, ColumnFamily] = {}
        self._kept: KeptReads | None = KeptReads()
        for family, name in self._called.of.items():
            self._take_family(family, name)
        for family in list(self._rdicts):
            if family < HOME_FAMILY and index_of(family) not in self._rdicts:
                # Its generation was put aside, as it is damaged (shards.salvage).
                self._drop(family)

    # ---- families

    def families(self) -> list[int]:
        return sorted(family for family in self._rdicts if family >= HOME_FAMILY)

    def families_and_indexes(self) -> list[int]:
        return sorted(self._rdicts)

    def has_family(self, family: int) -> bool:
        return family in self._rdicts

    def create_family(self, family: int) -> None:
        self._alive()
        if family in self._rdicts:
            raise ValueError(f"family {family} exists already")
        if family < HOME_FAMILY:
            self._rdict(index_of(family))
        name = self._called.give(family)
        try:
            self._db.create_column_family(name, self._made_with.of(family))
        except Exception as error:
            raise mapped(f"create family {family}", error) from error
        self._take_family(family, name)

    def drop_family(self, family: int) -> None:
        self._alive()
        if family == HOME_FAMILY:
            raise ValueError("family 0 cannot be dropped")
        self._rdict(family)
        if index_of(family) in self._rdicts and family > HOME_FAMILY:
            self._drop(index_of(family))
        self._drop(family)

    def _drop(self, family: int) -> None:
        if self._kept is not None:
            self._kept.end_all()
        # The files go when the last handle has gone; closing a dropped family raises, so they are just let go.
        del self._rdicts[family], self._handles[family]
        try:
            self._db.drop_column_family(self._called.take(family))
        except Exception as error:
            raise mapped(f"drop family {family}", error) from error

    def release_log(self) -> None:
        """Put what is in the log only into data files, so that the log can go: it holds what was dropped, too. From any thread."""
        for rdict in list(self._rdicts.values()):
            # One may be dropped meanwhile; whatever fails here fails again, loudly, where it is written.
            with contextlib.suppress(Exception):
                rdict.flush(True)

    # ---- writing

    def write(self, ops: Sequence[Op]) -> None:
        self._alive()
        batch = WriteBatch(raw_mode=True)
        put, handles = batch.put, self._handles
        try:
            for family, key, value in ops:
                if value is None:
                    batch.delete(key, handles[family])
                else:
                    put(key, value, handles[family])
        except KeyError as error:
            raise FamilyMissing(f"family {error} does not exist, only {self.families()}") from None
        try:
            self._db.write(batch)
        except Exception as error:
            raise self._write_failed(error) from error
        self._full = False
        if self._kept:
            self._kept.end_old()

    def sync(self) -> None:
        self._alive()
        try:
            if self._full:
                self._wait_for_room()
            self._db.flush_wal(True)
        except Exception as error:
            self._failed = f"sync: {error}"
            raise StoreFailed(f"sync {self._path}: {error}") from error

    # ---- reading

    def get(self, family: int, key: bytes) -> bytes | None:
        rdict = self._rdict(family)
        try:
            value: bytes | None = rdict.get(key)
        except Exception as error:
            raise noted(self._notes, "get", error) from error
        return value

    def get_many(self, family: int, keys: Sequence[bytes]) -> list[bytes | None]:
        rdict = self._rdict(family)
        if not keys:
            return []
        try:
            return list(rdict.get(list(keys)) or ())
        except Exception as error:
            raise noted(self._notes, "get_many", error) from error

    def scan(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> list[tuple[bytes, bytes]]:
        keys, values, _ = self._read(family, start, end, limit, bytes_max, None)
        return list(zip(keys, values, strict=True))

    def keys_and_values(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None, goes_on: bool = False
    ) -> Apart:
        return self._read(family, start, end, limit, bytes_max, self._kept, goes_on)

    def _read(
        self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None, kept: KeptReads | None, goes_on: bool = False
    ) -> Apart:
        rdict = self._rdict(family)
        if limit <= 0 or start >= end:
            return [], [], 0
        left = _NO_BOUND if bytes_max is None else bytes_max
        try:
            if limit < MANY and not goes_on:
                return few(rdict, start, end, limit, left)
            standing = kept.take(family, start, end) if kept is not None else None
            return many(rdict, start, end, limit, left, standing, None if kept is None else partial(kept.keep, family, end))
        except Exception as error:
            raise noted(self._notes, "scan", error) from error

    def columns(self, family: int, start: bytes, end: bytes, limit: int, bytes_max: int | None = None) -> Iterator[Entries]:
        rdict = self._rdict(family)
        left = _NO_BOUND if bytes_max is None else bytes_max
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        # Nobody reads the same blocks again soon, and putting them into the cache costs as much as taking them apart.
        options.fill_cache(False)  # type: ignore[call-arg]  # its stub forgets the argument
        try:
            while limit > 0 and start < end:
                found = cast("Iterator[tuple[bytes, bytes]]", rdict.items(from_key=start, read_opt=options))
                for part in parts(found, limit, left, 1):
                    yield part
                    left, limit, start = left - sum(part[2]), limit - len(part[0]), behind(part[0], start)
                if limit <= 0 or left <= 0:
                    return
                # These iterators end at a damaged block as they do at the last key, and say nothing: another kind is asked whether there
                # is more. There is when something was written meanwhile.
                iterator = rdict.iter(options)
                iterator.seek(start)
                if not iterator.valid():
                    iterator.status()
                    return
        except Exception as error:
            raise noted(self._notes, "columns", error) from error

    def cursor(self, family: int, lower: bytes, upper: bytes) -> RocksCursor:
        return RocksCursor(self._rdict(family), lower, upper, self._notes)

    # ---- the whole

    def checkpoint(self, path: str) -> None:
        self._alive()
        try:
            Checkpoint(self._db).create_checkpoint(path)
        except Exception as error:
            raise mapped(f"checkpoint {path}", error) from error

    def compact(self, family: int) -> None:
        """Give back what was erased. Takes as long as there are bytes; for a store that serves nobody."""
        self._alive()
        try:
            self._rdict(family).compact_range(None, None)
            if family and index_of(family) in self._rdicts:
                self._rdicts[index_of(family)].compact_range(None, None)
        except Exception as error:
            raise mapped(f"compact family {family}", error) from error

    def tables(self, family: int) -> dict[str, int]:
        """The data files of a family: name -> bytes."""
        return tables_of(self._rdict(family))

    def set_compacting(self, family: int, on: bool) -> None:
        """Off, the files of a family stay as they are: compacting meets damage in them, and then RocksDB takes no writes at all."""
        self._rdict(family).set_options({"disable_auto_compactions": "false" if on else "true"})

    def latest_sequence(self) -> int:
        """Number of the last operation that was written."""
        return self._db.latest_sequence_number()

    def size_bytes(self) -> int:
        total = 0
        with os.scandir(self._path) as entries:
            for entry in entries:
                try:
                    total += entry.stat().st_blocks * 512
                except FileNotFoundError:
                    # RocksDB deletes files meanwhile.
                    continue
        return total

    def family_bytes(self, family: int) -> int:
        index = self._rdicts.get(index_of(family)) if family else None
        both = (self._rdict(family), index) if index is not None else (self._rdict(family),)
        return sum(rdict.property_int_value(name) or 0 for rdict in both for name in _BYTES)

    def close(self) -> None:
        """Also when failed, or twice. RocksDB closes when the last handle is gone, so a cursor keeps it open."""
        if self._failed == "closed":
            return
        healthy = self._failed is None and not self._full
        self._failed = "closed"
        self._handles.clear()
        if self._kept is not None:
            self._kept.end_all()
        sequence = self.latest_sequence() if healthy else 0
        rdicts = [*self._rdicts.values(), self._db]
        self._rdicts.clear()
        for rdict in rdicts:
            if healthy:
                # Flushes, so that the next start has no log to replay; a store that is in trouble is left as it is.
                try:
                    rdict.close()
                except Exception as error:
                    raise mapped(f"close {self._path}", error) from error
        del self._db
        if healthy:
            note_reached(self._path, sequence)

    # ---- within

    def _take_family(self, family: int, name: str) -> None:
        self._rdicts[family] = self._db.get_column_family(name)
        self._handles[family] = self._db.get_column_family_handle(name)

    def _rdict(self, family: int) -> Rdict:
        found = self._rdicts.get(family)
        if found is None:
            self._alive()
            raise FamilyMissing(f"family {family} does not exist, only {self.families()}")
        return found

    def _alive(self) -> None:
        if self._failed is not None:
            raise StoreFailed(f"{self._path} takes nothing more: {self._failed}")

    def _write_failed(self, error: Exception) -> StoreFailed:
        failure = noted(self._notes, f"write {self._path}", error)
        if isinstance(failure, StoreFull):
            self._full = True
        else:
            self._failed = f"write: {error}"
        return failure

    def _wait_for_room(self) -> None:
        """Return when RocksDB takes writes again. Recovering, it has flushed to disk all that was written before.

        Sleeps, as a part of `sync`, which runs in a thread of its own wherever there is an event loop.
        """
        while self._full and self._failed is None:
            batch = WriteBatch(raw_mode=True)
            batch.delete(_PROBE_KEY)
            try:
                self._db.write(batch)
            except Exception as error:
                if _NO_SPACE not in str(error):
                    raise
                time.sleep(_FULL_POLL_S)
            else:
                self._full = False


def tables_of(rdict: Rdict) -> dict[str, int]:
    text = rdict.property_value("rocksdb.sstables") or ""
    return {f"{int(number):06d}.sst": int(size) for number, size in _TABLES.findall(text)}


def mapped(what: str, error: Exception) -> StoreFailed:
    text = " ".join(str(error).split())
    if ".sst" in text:
        # It adds this to whatever keeps it from opening.
        text = _BLAMED_MANIFEST.sub("", text)
    if _NO_SPACE in text:
        return StoreFull(f"{what}: {text}")
    if "lock hold by current process" in text or ("While lock file" in text and "temporarily unavailable" in text):
        return StoreInUse(f"{what.removeprefix('open ')} is in use: another process has this store open")
    if not any(cause in text for cause in _NOT_THE_FILE) and ("Corruption" in text or (".sst" in text and "IO error" in text)):
        return StoreDamaged(f"{what}: {text}")
    return StoreFailed(f"{what}: {text}")


def noted(notes: str, what: str, error: Exception) -> StoreFailed:
    """As `mapped`; a damaged file is noted for the next opening. notes: the directory of the store; empty for whoever only looks."""
    failure = mapped(what, error)
    if notes and isinstance(failure, StoreDamaged):
        suspects.note(notes, str(failure))
    return failure
