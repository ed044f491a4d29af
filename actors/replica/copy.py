"""The copy of a shard on this site: a directory with the log and the data engine, and the id that was made with it.

    shards/N/log/         the replicated log; its promise has the id of the copy (docs/formats.md, "Replicated log")
    shards/N/data/        the data engine
    shards/N/new.tmp/     a checkpoint that is coming; erased at the start
    shards/N/new/         one that has come whole: takes the place of data/, also when the process ends in the middle of that
    shards/N/old.tmp/     what it replaces; erased at the start
    shards/N/sent-K/      checkpoint K of this copy, for another; erased at the start
    shards/N/damaged/     what cannot be opened any more, put aside; one of it is kept
    shards/N/former/      of an incarnation that was over when leadership was forced elsewhere, put aside; one of it is kept

A copy that cannot be opened is not mended: the others have what it had.  It is put aside, and a new one is made, which is another replica
and in sync with nobody by name (shards.replication.configuration).

Always holds: a copy with this id has what its log and data say, or is not opened; erasing takes the log first, so that what is left of
an erased copy is never taken for one.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from shards.engine import Engine, StoreDamaged, StoreFailed
from shards.replication.applying import applied_in
from shards.replication.configuration import Rid, rid_of, site_of
from shards.replication.log import ReplicatedLog
from shards.replication.log_opening import open_log
from shards.replication.log_segment import full_or_failed, sync_directory
from shards.replication.promise import PROMISE_FILE
from shards.replication.seeding import seed_rid

LOG, DATA, DAMAGED, FORMER = "log", "data", "damaged", "former"
COMING, CAME, OLD = "new.tmp", "new", "old.tmp"
SENT = "sent-"
COPY_BYTES = 8

log = structlog.get_logger(__name__)

OpenEngine = Callable[[str], Engine]


@dataclass(slots=True)
class Copy:
    """What is open.  `engine` is another one after a checkpoint was installed."""

    path: Path
    log: ReplicatedLog
    engine: Engine
    open_engine: OpenEngine

    @property
    def rid(self) -> Rid:
        return self.log.rid

    def close(self) -> None:
        """Not while a sync of the log is under way."""
        self.log.close()
        self.engine.close()


def open_copy(path: Path, shard: int, incarnation: int, site: str, open_engine: OpenEngine) -> Copy:
    """The copy that is there; where there is none, or one that is damaged, a new and empty one.

    open_engine: raises StoreDamaged for what it cannot open.  Raises StoreFull, StoreInUse, StoreFailed."""
    if (path / "CURRENT").exists():
        raise StoreFailed(
            f"{path} is the store of a broker that stood alone: sites that share their shards begin with empty stores "
            "(restore a backup into them, or use another data directory)"
        )
    try:
        return _opened(path, shard, incarnation, site, open_engine)
    except StoreDamaged as error:
        told = f"{error}; it is put aside as {path / DAMAGED}, and a new copy is made from the others"
        log.error("copy.damaged", shard=shard, cause=told)
    put_aside(path, DAMAGED)
    return _opened(path, shard, incarnation, site, open_engine)


def erase_copy(path: Path) -> None:
    """Of a copy that nobody counts on any more, and that is closed.  What was put aside stays."""
    try:
        _erase(path / LOG)
        for name in _names(path):
            if name not in (DAMAGED, FORMER):
                _erase(path / name)
    except OSError as error:
        raise full_or_failed(error, str(path)) from error


def seed_copy(path: Path, shard: int, incarnation: int, site: str) -> Rid:
    """Beside data that was put there, with its applied row (shards.replication.seeding): from now on it is a copy."""
    try:
        rid = seed_rid(site, secrets.token_hex(COPY_BYTES))
        open_log(str(path / LOG), shard, incarnation, new=rid).close()
        sync_directory(str(path))
    except OSError as error:
        raise full_or_failed(error, str(path)) from error
    return rid


def swap_in(path: Path) -> None:
    """A checkpoint that came whole takes the place of the data."""
    try:
        if (path / CAME).exists():
            if (path / DATA).exists():
                _erase(path / OLD)
                os.rename(path / DATA, path / OLD)
            os.rename(path / CAME, path / DATA)
            sync_directory(str(path))
        _erase(path / OLD)
    except OSError as error:
        raise full_or_failed(error, str(path)) from error


def _opened(path: Path, shard: int, incarnation: int, site: str, open_engine: OpenEngine) -> Copy:
    new: Rid | None = None
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _names(path):
            if name == COMING or name.startswith(SENT):
                _erase(path / name)
        if not (path / LOG / PROMISE_FILE).exists():
            if any(_names(path / LOG)) or (path / DATA).exists() or (path / CAME).exists():
                if not _is_unborn(path):
                    raise StoreDamaged(f"the log of this replica is missing: {path / LOG} has no promise")
                erase_copy(path)
            new = rid_of(site, secrets.token_hex(COPY_BYTES))
    except OSError as error:
        raise full_or_failed(error, str(path)) from error
    swap_in(path)
    opened = open_log(str(path / LOG), shard, incarnation, new=new)
    try:
        if site_of(opened.rid) != site:
            raise StoreFailed(f"{path} is a copy of site {site_of(opened.rid)}, and this is site {site}: it was put here by a wrong hand")
        (path / DATA).mkdir(mode=0o700, exist_ok=True)
        engine = open_engine(str(path / DATA))
        try:
            applied = applied_in(engine)
            if applied.index < opened.first - 1:
                raise StoreDamaged(f"{path}: the data ends at entry {applied.index}, and the log begins at {opened.first}")
        except BaseException:
            engine.close()
            raise
    except BaseException:
        opened.close()
        raise
    if new is not None:
        log.info("copy.made", shard=shard, rid=new)
    return Copy(path, opened, engine, open_engine)


def _is_unborn(path: Path) -> bool:
    """The process ended while it made this copy: its promise comes last, and only then its data."""
    return not (path / DATA).exists() and not (path / CAME).exists()


def put_aside(path: Path, kept: str) -> None:
    """Of a copy that is closed.  kept: DAMAGED or FORMER; what was there is erased."""
    try:
        aside = path / kept
        _erase(aside)
        aside.mkdir(mode=0o700)
        # The log first: what has none is no copy.
        for name in sorted(_names(path), key=lambda each: each != LOG):
            if name not in (DAMAGED, FORMER):
                os.rename(path / name, aside / name)
        sync_directory(str(path))
    except OSError as error:
        raise full_or_failed(error, str(path)) from error


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def _erase(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
        sync_directory(str(path.parent))
