"""Opens a RocksDB store whose files are broken: what can be served is served, what cannot is put aside and said.

    salvage   a sealed generation with a broken data file is put aside as a whole: its files go to `quarantine/` in the directory of
              the store, its row stays, so that it counts as dropped and is reported. An index of its own family goes alone, whatever
              its generation, as it is made anew from the messages. The write-ahead log is read up to the first
              damage; a log with more behind it is kept in `quarantine/`. CURRENT is written anew when there is one manifest only.
    strict    any of these refuses to open, and nothing is changed.

Family 0 (sessions) and the current generation are never thrown away: a data file of theirs that is missing or too short refuses in
both. So does a manifest that cannot be read. Damage within a block shows only when it is read: then the file is noted
(shards.suspects), and the next opening puts its generation aside, or leaves a family that cannot go uncompacted.

Always holds: what is opened is the store as it was at some moment, without whole generations that are named; refusing is one
sentence that names the file and what to do. A torn end of the log is no damage: a power cut leaves it of what was not synced.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from rocksdict import Cache, Options, Rdict

from shards import suspects
from shards.backends import OnDamage
from shards.engine import HOME_FAMILY, StoreDamaged, StoreFailed, StoreFull, StoreInUse, index_of
from shards.engine_rocks import RocksEngine, RocksOptions, database_options, mapped, tables_of
from shards.family_names import FamilyNames, name_of
from shards.generations import ROW_PREFIX, ROWS_END, GenerationInfo
from shards.log_files import batches_behind, log_names, note_reached, reached
from shards.read_only import generation_rows, opened_read_only
from shards.suspects import QUARANTINE

Found = TypeVar("Found")

_HELD = "logs-at-opening"
_MANIFEST = re.compile(r"MANIFEST-\d+")
_RESTORE = "restore the directory from a backup"
_SALVAGE = 'or go on with durable_storage.messages.on_damage = "salvage" without what cannot be read'
_AFRESH = "or move it away while the broker is down, which loses all that this shard held"


def open_store(path: str, on_damage: OnDamage = "salvage", options: RocksOptions | None = None) -> RocksEngine:
    """As RocksEngine(path), with damage treated as above; `damage_found` has what is to be said. Raises StoreDamaged."""
    if on_damage == "strict":
        return _open_strictly(path, options)
    said = _mend_current(path)
    had = reached(path)
    if _log_missing(path):
        said.append(f"{path} has no write-ahead log any more: what was written last is lost, by a wrong hand or the file system")
    _hold_logs(path)
    refused: set[str] = set()
    if suspects.read(path):
        options = replace(options or RocksOptions(), compacts=False)
    engine: RocksEngine | None = None
    while engine is None:
        try:
            engine = RocksEngine(path, options)
        except (StoreFull, StoreInUse):
            raise
        except StoreFailed as error:
            if str(error) in refused:
                raise StoreDamaged(f"{_plainly(path, error)}: {_RESTORE}, {_AFRESH}") from error
            refused.add(str(error))
            said += _put_aside(path, _broken(path, error))
    with contextlib.ExitStack() as unless_all_is_well:
        # Whatever ends this, the store must not stay locked by an engine that nobody has.
        unless_all_is_well.callback(engine.close)
        said += _logs_cut(path, engine.latest_sequence())
        if engine.latest_sequence() < had:
            said.append(_fallen_behind(path, had, engine.latest_sequence()))
        said += _careful(path, engine)
        unless_all_is_well.pop_all()
    # Safe by now: opening has flushed what it found in the logs.
    note_reached(path, engine.latest_sequence())
    engine.damage_found = (*engine.damage_found, *said)
    return engine


# ---------------------------------------------------------------------------------------------------- strict


def _open_strictly(path: str, options: RocksOptions | None) -> RocksEngine:
    if not _is_new(path):
        problem = _current_problem(path)
        if problem:
            raise StoreDamaged(f"{problem}: {_RESTORE}, {_SALVAGE}")
        known = suspects.read(path)
        if known:
            file, cause = next(iter(known.items()))
            notes = os.path.join(path, QUARANTINE, "suspects")
            raise StoreDamaged(
                f"{os.path.join(path, file)} was found damaged while the broker ran ({cause}): {_RESTORE} and remove {notes}, {_SALVAGE}"
            )
        if _log_missing(path):
            raise StoreDamaged(f"{path} has no write-ahead log any more, so its newest messages are lost: {_RESTORE}, {_SALVAGE}")
        try:
            found = _look(path, lambda db, _: db.latest_sequence_number())
            lost = _lost(path, found) or (_fallen_behind(path, reached(path), found) if found < reached(path) else "")
        except StoreFailed as error:
            raise StoreDamaged(f"{_plainly(path, error)}: {_RESTORE}, {_SALVAGE}") from error
        if lost:
            raise StoreDamaged(f"{path}: {lost}: {_RESTORE}, {_SALVAGE}")
    try:
        return RocksEngine(path, options)
    except StoreDamaged as error:
        raise StoreDamaged(f"{_plainly(path, error)}: {_RESTORE}, {_SALVAGE}") from error


# ---------------------------------------------------------------------------------------------------- CURRENT


def _is_new(path: str) -> bool:
    """Nothing was ever stored: RocksDB made CURRENT before anything else of use, or has not come that far."""
    if os.path.exists(os.path.join(path, "CURRENT")):
        return False
    names = os.listdir(path) if os.path.isdir(path) else []
    kept = [name for name in names if name.endswith((".sst", ".log"))]
    return all(os.path.getsize(os.path.join(path, name)) == 0 for name in kept)


def _current_problem(path: str) -> str:
    file = os.path.join(path, "CURRENT")
    try:
        with open(file, encoding="utf-8", errors="replace") as current:
            text = current.read(100)
    except FileNotFoundError:
        return f"{file} is missing"
    except OSError as error:
        return f"{file} cannot be read ({error.strerror})"
    named = text.removesuffix("\n")
    if not text.endswith("\n") or not _MANIFEST.fullmatch(named):
        return f"{file} does not name a manifest"
    return "" if os.path.exists(os.path.join(path, named)) else f"{os.path.join(path, named)}, which CURRENT names, is missing"


def _mend_current(path: str) -> list[str]:
    """CURRENT names the newest manifest. While there is one only, nothing but that can have stood there."""
    problem = "" if _is_new(path) else _current_problem(path)
    if not problem:
        return []
    manifests = [name for name in os.listdir(path) if _MANIFEST.fullmatch(name)]
    if len(manifests) != 1:
        raise StoreDamaged(f"{problem}, and there are {len(manifests)} manifests to choose from: {_RESTORE}, {_AFRESH}")
    beside = os.path.join(path, "CURRENT.part")
    with open(beside, "w", encoding="ascii") as current:
        current.write(manifests[0] + "\n")
        current.flush()
        os.fsync(current.fileno())
    os.replace(beside, os.path.join(path, "CURRENT"))
    return [f"{problem}: it was written anew, as {manifests[0]} is the only one there is"]


# ---------------------------------------------------------------------------------------------------- the write-ahead log


def _log_missing(path: str) -> bool:
    """A store of ours has had a log ever since its first generation was made."""
    if log_names(path) or not os.path.exists(os.path.join(path, "CURRENT")):
        return False
    try:
        return len(Rdict.list_cf(path, Options(raw_mode=True))) > 1
    except Exception:  # rocksdict raises nothing narrower; a manifest that cannot be read is told of by whoever opens it
        return False


def _hold_logs(path: str) -> None:
    """A second name for each log: RocksDB deletes them when it has read them as far as it can."""
    names = log_names(path)
    held = os.path.join(path, QUARANTINE, _HELD)
    with contextlib.suppress(OSError):
        if names:
            os.makedirs(held, exist_ok=True)
        for name in names:
            with contextlib.suppress(FileExistsError):
                os.link(os.path.join(path, name), os.path.join(held, name))


def _lost(logs: str, recovered: int) -> str:
    """What lies behind damage; empty when it is at most a last batch, which may be the torn end of what was not synced."""
    behind = batches_behind(logs, recovered)
    if len(behind) < 2:
        return ""
    first, last = behind[0], behind[-1]
    until = "" if last.file == first.file else f", up to {os.path.basename(last.file)},"
    name = os.path.basename(first.file)
    return f"the log {name} is damaged at or before byte {first.offset}: {last.last - recovered} operations behind it{until} cannot be read"


def _plainly(path: str, error: StoreFailed) -> str:
    """RocksDB does not name the log when data files hold what came after its damage: then there is no moment to go back to."""
    if "ahead of WALs" not in str(error):
        return str(error)
    return f"{path}: one of the logs {', '.join(log_names(path))} is damaged, and data files hold what came after it ({error})"


def _fallen_behind(path: str, had: int, found: int) -> str:
    return f"{path} held {had} operations when it was last opened or closed and holds {found} now: a log or a manifest was cut or put back"


def _logs_cut(path: str, recovered: int) -> list[str]:
    held = os.path.join(path, QUARANTINE, _HELD)
    names = log_names(held)
    said: list[str] = []
    lost = _lost(held, recovered)
    if lost:
        said.append(f"{path}: {lost}; the store is as it was before them, and the log stays in {os.path.join(path, QUARANTINE)}")
        damaged = {batch.file for batch in batches_behind(held, recovered)}
        for name in names:
            if os.path.join(held, name) in damaged:
                with contextlib.suppress(OSError):
                    os.replace(os.path.join(held, name), os.path.join(path, QUARANTINE, name))
    elif torn := batches_behind(held, recovered):
        file = os.path.join(path, os.path.basename(torn[0].file))
        said.append(f"{file} ended in {torn[0].ops} operations that cannot be read, as when the power fails before a sync")
    shutil.rmtree(held, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.join(path, QUARANTINE))
    return said


# ---------------------------------------------------------------------------------------------------- data files


class _Broken:
    """Families that cannot be opened. files: of each, all; causes: of each, which of them is broken and how."""

    def __init__(self, rows: dict[int, GenerationInfo]) -> None:
        self.rows = rows
        self.files: dict[int, list[str]] = {}
        self.causes: dict[int, str] = {}

    def sentence(self, path: str, family: int) -> str:
        kept = os.path.join(path, QUARANTINE, name_of(family))
        if family < HOME_FAMILY:
            found = f"the index of generation {index_of(family)} is put aside: {self.causes[family]}"
            return f"{found}; its files are kept in {kept}, and it is made anew from the messages, which are all there"
        info = self.rows.get(family)
        where = f"generation {family} (positions {info.since} to {info.until})" if info else f"family {family}, which nothing refers to,"
        return f"{where} is lost: {self.causes[family]}; its files are kept in {kept}, sessions that have not read it go on without it"


def _look(path: str, ask: Callable[[Rdict, dict[int, Rdict]], Found]) -> Found:
    """Ask a store that is opened for reading only, with whatever of it can be opened. Changes nothing."""
    cache = Cache(1 << 20)
    lenient = database_options(RocksOptions(), cache, paranoid=False)
    with opened_read_only(path, lenient) as (db, families):
        return ask(db, families)


def _broken(path: str, error: StoreFailed) -> _Broken:
    """Which families hold the store back. Raises StoreDamaged when it cannot be opened without them."""
    try:
        rows, tables = _look(path, lambda _, families: (_rows(families[HOME_FAMILY]), {n: tables_of(f) for n, f in families.items()}))
    except StoreFailed:
        raise StoreDamaged(f"{_plainly(path, error)}: {_RESTORE}, {_AFRESH}") from error
    found = _Broken(rows)
    for family, files in tables.items():
        causes = [cause for name, size in files.items() if (cause := _cause(path, name, size, str(error)))]
        if causes:
            found.causes[family], found.files[family] = "; ".join(causes), list(files)
    for family, cause in found.causes.items():
        info = rows.get(family)
        if family == HOME_FAMILY or (info is not None and info.until is None):
            holds = "the sessions" if family == HOME_FAMILY else f"the newest messages (generation {family})"
            raise StoreDamaged(f"{cause}, and it holds {holds}, which are not thrown away: {_RESTORE}, {_AFRESH}") from error
    if not found.causes:
        raise StoreDamaged(f"{_plainly(path, error)}: {_RESTORE}, {_AFRESH}") from error
    return found


def _rows(home: Rdict) -> dict[int, GenerationInfo]:
    return {info.id: info for info in generation_rows(home)}


def _cause(path: str, name: str, size: int, refusal: str) -> str:
    file = os.path.join(path, name)
    try:
        found = os.path.getsize(file)
    except FileNotFoundError:
        return f"{file} is missing"
    if found != size:
        return f"{file} has {found} bytes and should have {size}"
    return f"{file} is damaged ({refusal})" if name in refusal else ""


def _put_aside(path: str, broken: _Broken) -> list[str]:
    for family, files in broken.files.items():
        _keep(path, family, files)
    cache = Cache(1 << 20)
    lenient = database_options(RocksOptions(), cache, paranoid=False)
    lenient.set_disable_auto_compactions(True)
    try:
        names = Rdict.list_cf(path, lenient)
        db = Rdict(path, lenient, dict.fromkeys(names, lenient))
        called = FamilyNames(path, names)
        for family in broken.causes:
            db.drop_column_family(called.of[family])
        db.close()
    except Exception as error:
        raise mapped(f"open {path} without {', '.join(map(name_of, broken.causes))}", error) from error
    return [broken.sentence(path, family) for family in broken.causes]


def _keep(path: str, family: int, files: list[str]) -> None:
    """A second name for the files of a family that is going to be dropped."""
    aside = os.path.join(path, QUARANTINE, name_of(family))
    try:
        os.makedirs(aside, exist_ok=True)
        for name in files:
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(os.path.join(path, name), os.path.join(aside, name))
    except OSError as error:
        raise mapped(f"keep the files of {name_of(family)} in {aside}", error) from error


def _careful(path: str, engine: RocksEngine) -> list[str]:
    """Do what files that were met broken while the store ran ask for."""
    noted = suspects.read(path)
    if not noted:
        return []
    infos = [GenerationInfo.decode(*row) for row in engine.scan(HOME_FAMILY, ROW_PREFIX, ROWS_END, 1 << 32)]
    rows = {int(info.id): info for info in infos}
    broken = _Broken(rows)
    said: list[str] = []
    still: set[str] = set()
    for family in engine.families_and_indexes():
        files = engine.tables(family)
        met = sorted(noted.keys() & files.keys())
        if not met:
            engine.set_compacting(family, True)
            continue
        cause = "; ".join(f"{os.path.join(path, name)} is damaged ({noted[name]})" for name in met)
        info = rows.get(family)
        if family != HOME_FAMILY and (info is None or info.until is not None):
            broken.causes[family] = cause
            _keep(path, family, list(files))
            engine.drop_family(family)
            said.append(broken.sentence(path, family))
        else:
            still.update(met)
            holds = "sessions" if family == HOME_FAMILY else f"the newest messages (generation {family})"
            said.append(f"{cause}, and it holds {holds}: what of it can be read is served, and it is not compacted; {_RESTORE}")
    suspects.keep(path, still)
    return said
