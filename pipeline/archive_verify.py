"""Is an archive what its manifest says? Every commit, every byte of every file, every row's digest, and the Delta table when there is one.

    for problem in archive_verify.verify(root).problems: ...

Reads everything and changes nothing. A flipped bit anywhere in what belongs to the archive is one sentence here; what does not belong to
it (staging, orphans) is only counted.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_spark.parquet_units import Unlike, read_back
from pipeline import delta, delta_log
from pipeline.archive_files import parquet_files
from pipeline.archived import ArchiveError, ArchiveFile, ManifestDamaged, State
from pipeline.manifest import DIRECTORY, Manifest

THREADS = 4


@dataclass(slots=True)
class Verified:
    """problems: one sentence each; none: the archive is whole."""

    commits: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    orphans: int = 0
    problems: list[str] = field(default_factory=list)


def verify(root: str | Path, *, threads: int = THREADS) -> Verified:
    """ArchiveError: there is no archive."""
    root = Path(root)
    if not (root / DIRECTORY).is_dir():
        raise ArchiveError(f"{root} is not an archive: it has no directory {DIRECTORY}")
    found = Verified()
    manifest = Manifest(root)
    try:
        state = manifest.check_all()
    except ManifestDamaged as error:
        found.problems.append(str(error))
        state = _as_far_as_known(manifest)
    found.commits = state.number
    with ThreadPoolExecutor(threads) as pool:
        # Parquet and CRC work outside of Python's lock.
        for file, problem in zip(state.files.values(), pool.map(lambda file: problem_of(root, file), state.files.values()), strict=True):
            found.files += 1
            found.rows += file.rows
            found.bytes += file.bytes
            if problem is not None:
                found.problems.append(problem)
    found.orphans = sum(path.relative_to(root).as_posix() not in state.files for path in parquet_files(root))
    found.problems += table_problems(root, manifest, state)
    return found


def problem_of(root: Path, file: ArchiveFile) -> str | None:
    """What is wrong with one file."""
    path = root / file.path
    try:
        size, crc, pieces = read_back(path, file.pieces)
    except FileNotFoundError:
        return f"{path} is missing: {file.rows} rows are gone"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    except Unlike as error:
        return str(error)
    for was, now in zip(file.pieces, pieces, strict=True):
        if was != now:
            return f"{path} holds other rows than were archived: digest {now.digest:016x} instead of {was.digest:016x}"
    if (size, crc) != (file.bytes, file.crc):
        # Its rows are right, so it was padding or a statistic; but nobody of ours changes files.
        return f"{path} was changed: {size} bytes with the checksum {crc:08x}, and {file.bytes} with {file.crc:08x} were written"
    return None


def _as_far_as_known(manifest: Manifest) -> State:
    try:
        return manifest.load()
    except ArchiveError:
        return State()


def table_problems(root: Path, manifest: Manifest, state: State) -> list[str]:
    """What is wrong with the Delta table of an archive that was seen in this state. It may have gone on since."""
    if not delta.is_table(root):
        return []
    try:
        number, files = delta.files_of(root)
    except Exception as error:  # of a library whose errors for a broken log are of many kinds
        return [f"the Delta table at {root} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"]
    reached = number or 0
    if reached < state.number:
        return [f"the Delta table at {root} is at commit {reached}, and the archive at {state.number}: the next run brings it up"]
    if reached > state.number:
        try:
            state = manifest.at(reached)
        except ManifestDamaged as error:
            return [f"the Delta table at {root} is at commit {reached}: {error}"]
    wanted = {file.path: file.bytes for file in state.files.values()}
    if files != wanted:
        return [f"the Delta table at {root} has {len(files)} files, and the archive has {len(wanted)}, or they are others"]
    return list(delta_log.problems(root))
