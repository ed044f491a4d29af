"""The archive as a Delta table: the table follows the manifest, commit by commit, and is never ahead of it.

The manifest says what the archive is; the table is for those who read Delta. Each Delta commit carries the number of the manifest's commit
that it comes up to, as the version of an application transaction: so a commit that is made again after a crash, or by a second archiver, is
refused or not needed. No Java and no jar takes part.

Holds: a version of the table has exactly the files of one state of the manifest; what is in its log has a checksum when `follow` returns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from holdfast_spark.schema import arrow_schema
from pipeline import delta_log
from pipeline.archived import ArchiveError, ArchiveFile, State
from pipeline.delta_log import LOG
from pipeline.manifest import Manifest, Step, nothing

APPLICATION: Final = "holdfast-archive"
PARTITIONS: Final = ("date", "hour")
_TRIES: Final = 5


def is_table(root: Path) -> bool:
    return (root / LOG).is_dir()


def table_schema() -> pa.Schema:
    """The columns of the source, and those that are in the paths."""
    return pa.schema([*arrow_schema(), pa.field("date", pa.date32()), pa.field("hour", pa.int32())])


def follow(root: Path, manifest: Manifest, state: State, step: Step = nothing) -> int:
    """Bring the table up to the state, making it when it is not there. The manifest number that it has on return: at least the state's."""
    from deltalake import DeltaTable
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        if not DeltaTable.is_deltatable(str(root)):
            step("making the table")
            DeltaTable.create(str(root), table_schema(), mode="ignore", partition_by=list(PARTITIONS), name="holdfast")
        for _ in range(_TRIES):
            table = DeltaTable(str(root))
            reached = table.transaction_version(APPLICATION)
            if state.number == 0 or (reached is not None and reached >= state.number):
                step("noting the table's log")
                delta_log.note(root)
                return int(reached or 0)
            step("committing to the table")
            try:
                _commit(table, root, manifest, state, reached)
            except CommitFailedError:
                # Somebody else was faster; what they did is to be looked at.
                continue
            # The library leaves it to the system when its log is on disk; what we acknowledge afterwards cannot wait for that.
            step("syncing the table")
            delta_log.note(root)
            return state.number
    except (DeltaError, OSError) as error:
        raise ArchiveError(f"the Delta table at {root} cannot be brought up to commit {state.number}: {_first_line(error)}") from error
    raise ArchiveError(f"the Delta table at {root} was changed by somebody else each of the {_TRIES} times that it was to be committed to")


def files_of(root: Path) -> tuple[int | None, dict[str, int]]:
    """The manifest number that the table has, and its files with their sizes."""
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    return table.transaction_version(APPLICATION), _files(table)


def _files(table: Any) -> dict[str, int]:
    found = pa.table(table.get_add_actions(flatten=True))
    paths, sizes = found.column("path").to_pylist(), found.column("size_bytes").to_pylist()
    return {unquote(path): size for path, size in zip(paths, sizes, strict=True)}


def _commit(table: Any, root: Path, manifest: Manifest, state: State, reached: int | None) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    there = _files(table)
    if reached is None and there:
        raise ArchiveError(f"{root} holds a Delta table that is not an archive's: it has {len(there)} files already")
    rewritten = {file.path for commit in manifest.commits(reached or 0) if commit.draft.kind == "compact" for file in commit.draft.add}
    now_ms = int(time.time() * 1000)
    actions: list[Any] = [
        # A reader that follows the table takes rows that were only written anew for what they are.
        AddAction(path, file.bytes, _partition(file.hour), now_ms, path not in rewritten, json.dumps(_statistics(file)))
        for path, file in state.files.items()
        if path not in there
    ]
    actions += [
        RemoveAction(path, False, now_ms, size, _partition(_hour_of(path))) for path, size in there.items() if path not in state.files
    ]
    properties = CommitProperties(
        custom_metadata={"holdfast.commit": str(state.number)},
        app_transactions=[Transaction(APPLICATION, state.number)],
        max_commit_retries=0,
    )
    table.create_write_transaction(actions, "append", table_schema(), list(PARTITIONS), commit_properties=properties)


def _hour_of(path: str) -> int:
    date, hour = path.split("/")[:2]
    at = datetime.fromisoformat(date.removeprefix("date=")).replace(tzinfo=UTC)
    return int(at.timestamp()) // 3600 + int(hour.removeprefix("hour="))


def _partition(hour: int) -> Mapping[str, str]:
    at = datetime.fromtimestamp(3600 * hour, UTC)
    return {"date": f"{at:%Y-%m-%d}", "hour": str(at.hour)}


def _statistics(file: ArchiveFile) -> dict[str, Any]:
    """What Delta's readers skip files by. Its times have milliseconds: so down at one end, and up at the other."""
    first, last = min(piece.first for piece in file.pieces), max(piece.last for piece in file.pieces)
    shards = [piece.unit.shard for piece in file.pieces]
    generations = [piece.unit.generation for piece in file.pieces]
    least = {"ts": _iso(file.ts_first // 1000), "offset": first, "shard": min(shards), "generation": min(generations)}
    most = {"ts": _iso(-(-file.ts_last // 1000)), "offset": last, "shard": max(shards), "generation": max(generations)}
    return {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}


def _iso(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
