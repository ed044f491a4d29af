"""Messages from an archive back to topics: a range of it, in the order in which they were published, each of them once.

    restore.run(spark, "/lake", restore.Options(topics=("plant/#",), from_ms=..., before_ms=...), {"brokers": ..., "tokenFile": ...})

They are written by the sink of `format("holdfast")`, below `restore/` unless told otherwise. A restore has a name, made of the archive and
of what is restored, and shards keep for each name how far they have come: begun anew after a crash, it goes on, and run again when it is
done, it writes nothing. What is archived later does not change that: the first run of a restore writes down which commit it is of.

Holds: the messages of a client and topic are in one partition, in the order of the store; partitions are the same however often it runs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast_spark.schema import TYPES, ddl
from pipeline.archived import ArchiveError, ArchiveFile, Generation, State, sealed, unsealed
from pipeline.manifest import DIRECTORY, Manifest, sync_directory, write_new
from pipeline.view import matching

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PREFIX: Final = "restore/"


@dataclass(frozen=True, slots=True)
class Options:
    """What to restore. Times in ms since 1970, of `ts`, the end exclusive; offsets: for a shard from <= offset < to."""

    topics: tuple[str, ...] = ()
    """Filters; none: everything."""
    from_ms: int | None = None
    before_ms: int | None = None
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """None named: all shards, all of them."""
    prefix: str = PREFIX
    allow_retain: bool = False
    rows_per_second: int | None = None
    partitions: int = 8
    again: str = ""
    """Any text: the same range once more, as another restore."""

    def range(self) -> dict[str, Any]:
        """What makes a restore another one."""
        found = asdict(self)
        for speed in ("allow_retain", "rows_per_second"):
            del found[speed]
        found["offsets"] = {str(shard): list(bounds) for shard, bounds in sorted(self.offsets.items())}
        return found


@dataclass(frozen=True, slots=True)
class Restored:
    """rows: of the range; those that an earlier run has written already are among them."""

    rows: int
    replay_id: str
    commit: int
    files: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Plan:
    state: State
    """Which rows: those that were archived then."""
    files: tuple[ArchiveFile, ...]
    """Where they are now."""
    replay_id: str


def run(spark: SparkSession, root: str | Path, options: Options, sink: Mapping[str, str] | None = None) -> Restored:
    """Restore the range. sink: options that say where the broker is; none when the session knows. ArchiveError with one sentence."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    began = time.monotonic()
    plan = _planned(Path(root).absolute(), options)
    if not plan.files:
        return Restored(0, plan.replay_id, plan.state.number, 0, time.monotonic() - began)
    counted = Observation()
    rows = _rows(spark, Path(root).absolute(), plan, options).observe(counted, f.count(f.lit(1)).alias("rows"))
    told = {"topicPrefix": options.prefix, "replayId": plan.replay_id, "allowRetain": str(options.allow_retain).lower(), **(sink or {})}
    if options.rows_per_second is not None:
        told["maxRowsPerSecond"] = str(options.rows_per_second)
    in_order(rows, options.partitions).write.format("holdfast").options(**told).mode("append").save()
    return Restored(int(counted.get["rows"]), plan.replay_id, plan.state.number, len(plan.files), time.monotonic() - began)


def messages(spark: SparkSession, root: str | Path, options: Options) -> DataFrame:
    """The range as a DataFrame, in the order of publishing per client and topic, as it would be restored."""
    root = Path(root).absolute()
    return in_order(_rows(spark, root, _planned(root, options), options), options.partitions)


def in_order(rows: DataFrame, partitions: int) -> DataFrame:
    """A client's messages are in one shard and, here, in one partition: its offsets are the order of their publishing."""
    return rows.repartition(partitions, "client_id").sortWithinPartitions("shard", "offset")


def _rows(spark: SparkSession, root: Path, plan: _Plan, options: Options) -> DataFrame:
    from pyspark.sql import functions as f

    if not plan.files:
        return spark.createDataFrame([], ddl(tuple(TYPES)))
    rows = spark.read.schema(ddl(tuple(TYPES))).parquet(*[str(root / file.path) for file in plan.files]).select(*TYPES)
    rows = matching(rows, options.topics)
    if options.from_ms is not None:
        rows = rows.where(f.col("ts") >= f.timestamp_millis(f.lit(options.from_ms)))
    if options.before_ms is not None:
        rows = rows.where(f.col("ts") < f.timestamp_millis(f.lit(options.before_ms)))
    if options.offsets:
        inside = f.lit(False)
        for shard, (start, stop) in options.offsets.items():
            inside |= (f.col("shard") == shard) & (f.col("offset") >= start) & (f.col("offset") < stop)
        rows = rows.where(inside)
    # Compaction may have put what came later into one file with what was there.
    for (shard, generation), stop in _later(plan).items():
        rows = rows.where(~((f.col("shard") == shard) & (f.col("generation") == generation) & (f.col("offset") >= stop)))
    return rows


def _planned(root: Path, options: Options) -> _Plan:
    manifest = Manifest(root)
    now = manifest.load()
    if not now.number:
        raise ArchiveError(f"{root} is not an archive, or an empty one: there is no commit in {root / DIRECTORY}")
    first = next(iter(manifest.commits(0)))
    # The archive is known by its first commit, wherever it is moved to.
    content = {"archive": hashlib.sha256(first.encode()).hexdigest(), **options.range()}
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]
    then = manifest.at(_commit_of(root, name, now.number))
    files = tuple(file for path, file in sorted(now.files.items()) if _wanted(file, then, options))
    return _Plan(then, files, f"restore-{name}")


def _commit_of(root: Path, name: str, now: int) -> int:
    """The commit that the first run of this restore was of; this one's, when it is the first."""
    path = root / DIRECTORY / "restores" / f"{name}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        write_new(path, sealed({"version": 1, "commit": now}))
        sync_directory(path.parent)
        return int(unsealed(path.read_bytes(), str(path))["commit"])
    except OSError as error:
        raise ArchiveError(f"{path} cannot be written: {error.strerror or error}") from error


def _wanted(file: ArchiveFile, then: State, options: Options) -> bool:
    if options.from_ms is not None and file.ts_last < 1000 * options.from_ms:
        return False
    if options.before_ms is not None and file.ts_first >= 1000 * options.before_ms:
        return False
    return any(piece.first < _upto(then, options, piece.unit.shard, piece.unit.generation) for piece in file.pieces)


def _upto(then: State, options: Options, shard: int, generation: int) -> int:
    reached = then.reached.get((shard, generation))
    if reached is None or (options.offsets and shard not in options.offsets):
        return 0
    return min(reached.stop, options.offsets[shard][1]) if options.offsets else reached.stop


def _later(plan: _Plan) -> dict[Generation, int]:
    """Of the generations in the files of which more, or all, came later: where that begins."""
    found: dict[Generation, int] = {}
    for file in plan.files:
        for piece in file.pieces:
            key = piece.unit.shard, piece.unit.generation
            reached = plan.state.reached.get(key)
            stop = 0 if reached is None else reached.stop
            if piece.last >= stop:
                found[key] = stop
    return found
