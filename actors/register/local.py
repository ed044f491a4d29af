"""A register of one copy: a file that is replaced whole, fsynced before a change is answered.

For one site, and for several when their operator accepts that this one is a single point: while it is away, shards that have a leader go
on, and none gets another.  A file and not a database, because it is a few kilobytes that change when something fails: one rule of crash
safety (another name, fsync, rename, fsync of the directory) covers all of it.  It is part of a process that is there anyway; the others ask
it over a link (actors.register.linked).

Always holds: one process has it (LOCK); what was answered DONE is in the file; after a sync of which nobody knows what it left, nothing is
answered any more.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

import msgpack
from isal.isal_zlib import crc32

from shards.engine import StoreFailed, StoreFull, StoreInUse
from shards.replication.log_segment import PART, full_or_failed, put_file, read_file
from shards.replication.ports import Outcome, RegisterAway
from shards.replication.register import LISTED_MAX, NO_VALUE, Held, RegisterMistake, check_change

REGISTER_VERSION = 1
REGISTER_FILE = "register"
LOCK_FILE = "register.lock"
KEYS_MAX = 1_000


class LocalRegister:
    """Made by `open_register`."""

    def __init__(self, directory: Path, lock: int, revision: int, held: dict[str, Held]) -> None:
        self._path = directory / REGISTER_FILE
        self._lock = lock
        self._revision = revision
        """Grows by one with every change: a version is never used twice, as in etcd."""
        self._held = held
        self._turn = asyncio.Lock()
        self._changes: set[asyncio.Task[Outcome]] = set()
        self._away = ""

    async def read(self, key: str) -> Held | None:
        async with self._turn:
            self._there()
            return self._held.get(key)

    async def list(self, prefix: str) -> dict[str, Held]:
        assert prefix, "a list wants a prefix"
        async with self._turn:
            self._there()
            found = {key: held for key, held in sorted(self._held.items()) if key.startswith(prefix)}
        if len(found) > LISTED_MAX:
            raise RegisterMistake(f"the register has {len(found)} keys that begin with {prefix!r}, at most {LISTED_MAX} are listed")
        return found

    async def cas(self, key: str, version: int, new: bytes) -> Outcome:
        check_change(key, version, new)
        # Whoever waits for this may be cancelled; the change is not, and keeps its turn.
        change = asyncio.create_task(self._change(key, version, new))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return await asyncio.shield(change)

    async def close(self) -> None:
        async with self._turn:
            self._away = self._away or "it was closed"
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    async def _change(self, key: str, version: int, new: bytes) -> Outcome:
        async with self._turn:
            if self._away:
                return Outcome.UNKNOWN
            held = self._held.get(key)
            if version != (held.version if held else NO_VALUE):
                return Outcome.CONFLICT
            after = {**self._held, key: Held(new, self._revision + 1)}
            assert len(after) <= KEYS_MAX, f"{len(after)} keys in the register, wanted at most {KEYS_MAX}"
            try:
                await asyncio.to_thread(_write, self._path, self._revision + 1, after)
            except StoreFull:
                return Outcome.UNKNOWN
            except StoreFailed as error:
                self._away = str(error)
                return Outcome.UNKNOWN
            self._held, self._revision = after, self._revision + 1
            return Outcome.DONE

    def _there(self) -> None:
        if self._away:
            raise RegisterAway(f"the register of this site does not answer any more: {self._away}")


def open_register(directory: Path) -> LocalRegister:
    """Makes an empty one where there is none: whoever calls this has said that this site has the register.

    Raises StoreInUse, StoreFailed, RegisterMistake for a file that is damaged."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise full_or_failed(error, str(directory)) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise StoreInUse(f"{directory}: another process has the register open") from None
    try:
        (directory / (REGISTER_FILE + PART)).unlink(missing_ok=True)
        path = directory / REGISTER_FILE
        revision, held = _read(path) if path.exists() else (0, {})
        # Written anew: what is read here may be in the page cache only, after a sync that failed.
        _write(path, revision, held)
    except BaseException:
        os.close(lock)
        raise
    return LocalRegister(directory, lock, revision, held)


def _write(path: Path, revision: int, held: dict[str, Held]) -> None:
    rows = [[key, each.version, each.value] for key, each in sorted(held.items())]
    body = bytes(msgpack.packb([REGISTER_VERSION, revision, rows]))
    os.close(put_file(str(path), [crc32(body).to_bytes(4, "little"), body]))


def _read(path: Path) -> tuple[int, dict[str, Held]]:
    data = read_file(str(path))
    body = data[4:]
    if len(data) < 5 or crc32(body) != int.from_bytes(data[:4], "little"):
        raise RegisterMistake(
            f"the register is damaged: {path} does not fit its checksum. Each replica remembers the last record that it has seen: "
            "`promise` in the log of the shard"
        )
    version, revision, rows = msgpack.unpackb(body)
    if version != REGISTER_VERSION:
        raise RegisterMistake(f"{path} has version {version}; this program reads version {REGISTER_VERSION}")
    return revision, {key: Held(value, of) for key, of, value in rows}
