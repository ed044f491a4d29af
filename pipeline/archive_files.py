"""The files of an archive beside its manifest: where a run works, where its files go, and what is cleared away.

    <root>/_staging/<run>/           what executors write; nobody reads it, and it goes with its run
    <root>/date=2026-11-21/hour=20/  Parquet files; those that the manifest does not name are no part of the archive

Holds: a file that the manifest names, or that it may name soon, is never deleted; what a crashed run left is, a day later.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast_spark.digest import MODULUS
from holdfast_spark.parquet_units import WrittenFile
from pipeline.archived import ArchiveError, ArchiveFile, State, path_of_hour
from pipeline.manifest import DIRECTORY, Step, nothing, sync_directory

STAGING: Final = "_staging"
ORPHANS_AFTER_S: Final = 86_400.0


class Run:
    """The place of one run. made -> files moved in -> ended; a name of its own keeps its files apart from everybody's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = secrets.token_hex(6)
        self.directory = root / STAGING / self.name
        self._moved: list[Path] = []

    def open(self) -> None:
        try:
            self.directory.mkdir(parents=True)
        except OSError as error:
            raise ArchiveError(f"the archive {self.root} cannot be written to: {error.strerror or error}") from error

    def move_in(self, written: Iterable[WrittenFile], step: Step = nothing) -> tuple[ArchiveFile, ...]:
        """Files of the run in the places that they keep, durably. They are no part of the archive yet."""
        found: list[ArchiveFile] = []
        touched: set[Path] = set()
        for number, file in enumerate(written):
            path = f"{path_of_hour(file.hour)}/{self._named(number, file)}"
            target = self.root / path
            try:
                touched |= _make(target.parent, self.root)
                os.rename(file.path, target)
            except FileNotFoundError:
                found_not = (
                    f"{file.path}, which an executor wrote, is not there: {self.root} has to be a directory that all executors share"
                )
                raise ArchiveError(found_not) from None
            except OSError as error:
                raise ArchiveError(f"{file.path} cannot be moved to {target.parent}: {error.strerror or error}") from error
            self._moved.append(target)
            touched.add(target.parent)
            if not number:
                step("after the first file is in its place")
            sizes = file.rows, file.bytes, file.crc, file.raw_bytes
            found.append(ArchiveFile(path, file.hour, *sizes, file.ts_first, file.ts_last, file.pieces))
        step("syncing the files' directories")
        for directory in sorted(touched):
            sync_directory(directory)
        return tuple(found)

    def _named(self, number: int, file: WrittenFile) -> str:
        shards = sorted({piece.unit.shard for piece in file.pieces})
        generations = sorted({piece.unit.generation for piece in file.pieces})
        digest = sum(piece.digest for piece in file.pieces) % MODULUS
        return f"s{_span(shards)}-g{_span(generations)}-{digest:016x}-{self.name}{number:04}.parquet"

    def check_there(self) -> None:
        """Just before a commit: a run that stood still for a day may have been cleared away by another."""
        for path in self._moved:
            if not path.exists():
                raise ArchiveError(f"{path} has gone since it was written, so nothing is committed; the next run writes it again")

    def take_back(self) -> None:
        """The files are in no commit and will be in none."""
        for path in self._moved:
            path.unlink(missing_ok=True)
        self._moved = []

    def end(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


def _span(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _make(directory: Path, root: Path) -> set[Path]:
    """The directories whose entries changed."""
    changed: set[Path] = set()
    for each in (directory.parent, directory):
        try:
            each.mkdir()
            changed.add(each.parent)
        except FileExistsError:
            continue
    return changed


def clear(root: Path, state: State, *, older_s: float = ORPHANS_AFTER_S, now_s: float | None = None) -> int:
    """Delete what crashed runs left, and files that were rewritten, when they are older than this. How many files that were."""
    now_s = time.time() if now_s is None else now_s
    gone = 0
    for path in parquet_files(root):
        name = path.relative_to(root).as_posix()
        if name in state.files:
            continue
        # A rename leaves the time of the content and changes that of the entry.
        since = state.removed[name] / 1000 if name in state.removed else _changed_s(path)
        if now_s - since > older_s:
            path.unlink(missing_ok=True)
            gone += 1
    for path in _entries(root / STAGING):
        if now_s - _newest_s(path) > older_s:
            shutil.rmtree(path, ignore_errors=True)
            gone += 1
    for path in _entries(root / DIRECTORY):
        if path.name.startswith("part-") and now_s - _changed_s(path) > older_s:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def parquet_files(root: Path) -> Iterator[Path]:
    """All files in the places where files of the archive are."""
    for date in _entries(root):
        if date.name.startswith("date="):
            for hour in _entries(date):
                if hour.name.startswith("hour="):
                    yield from (path for path in _entries(hour) if path.name.endswith(".parquet"))


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _changed_s(path: Path) -> float:
    try:
        found = path.stat()
    except FileNotFoundError:
        return time.time()
    return max(found.st_mtime, found.st_ctime)


def _newest_s(directory: Path) -> float:
    return max([_changed_s(directory), *(_changed_s(path) for path in _entries(directory))])
