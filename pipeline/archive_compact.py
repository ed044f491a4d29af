"""Small files of an hour become one: what was archived often, in small parts, is read faster afterwards.

    archive_compact.compact(root)

Rows are copied as they are, file after file, so pieces and digests carry over; the new file is read back and compared before the commit
that puts it in the place of the old ones. These go a day later, when nobody reads them any more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast_spark.client import Unit
from holdfast_spark.digest import MODULUS
from holdfast_spark.parquet_units import USUAL, Limits, Piece, Unlike, WrittenFile, write_units
from holdfast_spark.schema import arrow_schema
from pipeline import delta
from pipeline.archive_files import Run, clear
from pipeline.archived import ArchiveError, ArchiveFile, Draft, State
from pipeline.manifest import Manifest, Step, nothing

SMALL_BYTES: Final = 32 << 20
"""A file below this is one of the small ones."""


@dataclass(slots=True)
class Compacted:
    before: int = 0
    """Files that were rewritten, and what became of them."""
    after: int = 0
    rows: int = 0
    commits: int = 0


def compact(root: str | Path, *, small_bytes: int = SMALL_BYTES, limits: Limits = USUAL, step: Step = nothing) -> Compacted:
    """Hour by hour, one commit each. ArchiveError: it stopped, and says why; what was committed stays."""
    root = Path(root).absolute()
    manifest = Manifest(root)
    done = Compacted()
    state = manifest.load()
    for files in _hours(state, small_bytes):
        if any(file.path not in state.files for file in files):
            continue
        after = _rewrite(root, manifest, state, files, limits, step)
        if after is None:
            # Others commit meanwhile; what they took out of our hands is not there any more.
            state = manifest.load()
            continue
        done.before += len(files)
        done.after += len(after.files) - len(state.files) + len(files)
        done.rows += sum(file.rows for file in files)
        done.commits += 1
        state = after
    if delta.is_table(root):
        step("before the table follows")
        delta.follow(root, manifest, state, step)
    clear(root, state)
    return done


def _hours(state: State, small_bytes: int) -> Iterator[list[ArchiveFile]]:
    hours: dict[int, list[ArchiveFile]] = defaultdict(list)
    for file in state.files.values():
        if file.bytes < small_bytes:
            hours[file.hour].append(file)
    for hour in sorted(hours):
        if len(hours[hour]) > 1:
            # In the order of the store: a topic's messages lie in the order of their publishing as far as that can be.
            yield sorted(hours[hour], key=lambda file: min((piece.unit.shard, piece.first) for piece in file.pieces))


def _rewrite(root: Path, manifest: Manifest, state: State, files: Sequence[ArchiveFile], limits: Limits, step: Step) -> State | None:
    run = Run(root)
    run.open()
    try:
        written = _written(root, files, run.directory, limits)
        _same(files, written)
        step("moving files")
        moved = run.move_in(written, step)
        draft = Draft(
            "compact", state.store, run.name, int(time.time() * 1000), moved, tuple(file.path for file in files), filters=state.filters
        )
        step("committing")
        run.check_there()
        while True:
            after = manifest.commit(state, draft, step)
            if after is not None:
                return after
            state = manifest.load()
            if any(file.path not in state.files for file in files):
                run.take_back()
                return None
    finally:
        run.end()


def _written(root: Path, files: Sequence[ArchiveFile], directory: Path, limits: Limits) -> list[WrittenFile]:
    pieces = [piece for file in files for piece in file.pieces]
    source = _Source(root, files)
    counts = iter([piece.rows for piece in pieces])
    try:
        # One piece after the other is asked for, in the order in which they lie.
        reports = list(
            write_units([piece.unit for piece in pieces], lambda _: source.take(next(counts)), directory, arrow_schema(), limits)
        )
    except Unlike as error:
        raise ArchiveError(str(error)) from error
    except (OSError, ValueError, pa.ArrowException) as error:  # ValueError: of a footer that was damaged
        raise ArchiveError(f"the files of {files[0].path.rpartition('/')[0]} cannot be rewritten: {str(error).splitlines()[0]}") from error
    return [report for report in reports if isinstance(report, WrittenFile)]


class _Source:
    """The rows of files, one after the other, handed out in the numbers that are asked for."""

    def __init__(self, root: Path, files: Sequence[ArchiveFile]) -> None:
        self._batches = _rows(root, files)
        self._rest: pa.RecordBatch | None = None

    def take(self, rows: int) -> Iterator[pa.RecordBatch]:
        while rows:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            if batch is None:
                raise Unlike("files have fewer rows than the manifest says; nothing was rewritten")
            self._rest = batch.slice(rows) if batch.num_rows > rows else None
            batch = batch.slice(0, rows)
            rows -= batch.num_rows
            yield batch


def _rows(root: Path, files: Sequence[ArchiveFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pq.ParquetFile(root / file.path, page_checksum_verification=True) as source:
            yield from source.iter_batches(batch_size=8192, use_threads=False)


def _same(files: Sequence[ArchiveFile], written: Sequence[WrittenFile]) -> None:
    """Rewritten rows are those that were archived, not those that a damaged file holds now."""
    if _by_unit(piece for file in files for piece in file.pieces) != _by_unit(piece for file in written for piece in file.pieces):
        raise ArchiveError(
            f"{files[0].path} or one of {len(files) - 1} other files holds other rows than were archived; nothing was rewritten"
        )


def _by_unit(pieces: Iterable[Piece]) -> dict[Unit, tuple[int, int]]:
    found: dict[Unit, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for piece in pieces:
        rows, digest = found[piece.unit]
        found[piece.unit] = rows + piece.rows, (digest + piece.digest) % MODULUS
    return dict(found)
