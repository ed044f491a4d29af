"""The archive: what is stored becomes Parquet files by hour, with a manifest and, on request, a Delta table; and a lease waits for it.

    archive.run(spark, endpoint, root, Options(format="delta"))

A round takes sealed generations, and with `live_after_ms` also what has waited that long in current ones. Executors write the files and
read them back; the driver compares rows and digests with the scans, and rows with the store's own count, moves the files to their places,
commits, and only then acknowledges the lease. What is wrong stops before the commit, with one sentence. Files of a run that crashed are in
no commit, and nobody reads them; so a run begun anew does what is left.

Leaves to others: which ranges come next (pipeline.archive_plan), files (pipeline.archive_files), commits (pipeline.manifest), Delta
(pipeline.delta), running tasks and judging what they report (pipeline.archive_work), scans and Parquet (holdfast_spark.archive_tasks).

Holds: the lease is acknowledged for nothing that is not in a commit that is on disk, and in the Delta table when there is one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import structlog

from holdfast_spark.archive_tasks import Job
from holdfast_spark.client import Client, Endpoint, NoReader
from holdfast_spark.parquet_units import WrittenFile
from holdfast_spark.protocol import Refused, WireError
from pipeline import delta
from pipeline.archive_files import Run, clear
from pipeline.archive_plan import Round, Seen, acknowledged, live_positions, lost_of, next_round, rows_per_unit, tasks_of, units_of
from pipeline.archive_work import compared, execute, planned
from pipeline.archived import ArchiveError, ArchiveFile, Draft, Lost, Reached, SparkEnded, State, site_of
from pipeline.manifest import DIRECTORY, Manifest, Step, nothing, sync_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS: Final = 86_400_000
RACES_MAX: Final = 5
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What to archive, and how. Times in ms."""

    format: Literal["parquet", "delta"] | None = None
    """None: as the archive is already; a new one is Parquet."""
    filters: tuple[str, ...] = ()
    """Of the topics; none: everything, which needs the broker's own token. Once chosen for an archive, it stays."""
    live_after_ms: int | None = None
    """Also what has waited so long in a generation that is not sealed yet."""
    lease: str | None = "archive"
    """None: nothing waits for the archive."""
    lease_ttl_ms: int = 7 * DAY_MS
    lease_max_age_ms: int | None = None
    lease_max_bytes: int | None = None
    lease_block: bool = False
    capture: tuple[str, ...] = ()
    """Topics that are stored for the archive when nobody else wants them."""
    round_bytes: int = 4 << 30
    """What one commit takes at most, but for one generation that is larger."""
    task_bytes: int = 128 << 20
    orphans_after_ms: int = DAY_MS


USUAL: Final = Options()


@dataclass(slots=True)
class Done:
    """What a run did. acknowledged: for each shard the position below which all is archived; waiting_bytes: of sealed generations, left."""

    commits: int = 0
    rows: int = 0
    raw_bytes: int = 0
    files: int = 0
    file_bytes: int = 0
    seconds: float = 0.0
    number: int = 0
    """Of the newest commit of the archive."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    lost: list[Lost] = field(default_factory=list)
    races: int = 0
    """How often another archiver was faster, and files were thrown away."""
    waiting_bytes: int = 0
    newest_ms: int | None = None
    """The time of the youngest message that was archived."""


def run(
    spark: SparkSession | None,
    endpoint: Endpoint,
    root: str | Path,
    options: Options = USUAL,
    *,
    rounds_max: int | None = None,
    step: Step = nothing,
) -> Done:
    """Archive what there is, round after round; what comes meanwhile is for the next run, or one that is slower than generations follow
    each other would never end. spark None: in this process, for little. ArchiveError: it stopped, and says why."""
    archiver = _Archiver(spark, endpoint, Path(root), options, step)
    began = time.monotonic()
    try:
        with Client(endpoint, who="archive driver") as client:
            archiver.work(client, rounds_max)
    except Refused as error:
        raise ArchiveError(f"the reader refuses what the archive needs: {error.sentence}") from error
    except (WireError, NoReader) as error:
        raise ArchiveError(str(error)) from error
    archiver.done.seconds = time.monotonic() - began
    return archiver.done


def watch(
    spark: SparkSession | None,
    endpoint: Callable[[], Endpoint],
    root: str | Path,
    options: Options,
    interval_s: float,
    ended: threading.Event,
    told_round: Callable[[Done], None] | None = None,
) -> None:
    """Run again and again until ``ended``, one round at a time; after a failure too, with the sentence in the log. endpoint: asked before
    each round, since a broker that was started anew has its reader elsewhere; it may raise ArchiveError. Raises SparkEnded."""
    while not ended.is_set():
        more = False
        try:
            done = run(spark, endpoint(), root, options, rounds_max=1)
            more = done.waiting_bytes > 0 and done.commits > 0
            _say(done)
            if told_round is not None:
                told_round(done)
        except SparkEnded:
            raise
        except ArchiveError as error:
            log.error("archive.stopped", root=str(root), cause=str(error))
        if not more:
            ended.wait(interval_s)


def _say(done: Done) -> None:
    rate = round(done.rows / done.seconds) if done.seconds else 0
    lag_s = None if done.newest_ms is None else round(time.time() - done.newest_ms / 1000)
    log.info(
        "archive.round",
        commit=done.number,
        rows=done.rows,
        bytes=done.raw_bytes,
        file_bytes=done.file_bytes,
        files=done.files,
        rows_per_s=rate,
        lag_s=lag_s,
        waiting_bytes=done.waiting_bytes,
        acknowledged=done.acknowledged,
    )


class _Archiver:
    """One run."""

    def __init__(self, spark: SparkSession | None, endpoint: Endpoint, root: Path, options: Options, step: Step) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._root = root.absolute()
        self._options = options
        self._step = step
        self._manifest = Manifest(self._root)
        self._followed: int | None = None
        """The commit that the table was brought up to."""
        self.done = Done()

    def work(self, client: Client, rounds_max: int | None) -> None:
        state = self._begin(client.hello()["store"])
        self._follow(state)
        rounds = 0
        begun: Mapping[int, int] | None = None
        while True:
            self._hold(client)
            seen = Seen.of(client.cuts())
            begun = begun or seen.cuts
            # Behind that: what is not there any more, another archiver may have taken before it went.
            state = self._manifest.load()
            next_ = next_round(seen, state, self._live_below(client, seen), self._options.round_bytes, begun)
            self.done.waiting_bytes = next_.waiting_bytes
            if (rounds_max is not None and rounds >= rounds_max) or not (next_.ranges or next_.lost):
                break
            after = self._take(client, seen, state, next_)
            if after is None:
                self.done.races += 1
                if self.done.races > RACES_MAX:
                    raise ArchiveError(f"another archiver of {self._root} was faster {RACES_MAX} times: one of them is enough")
                state = self._manifest.load()
            else:
                state, rounds = after, rounds + 1
            self._follow(state)
            self._acknowledge(client, seen, state)
        self._follow(state)
        self._acknowledge(client, seen, state)
        self.done.number = state.number
        self._step("clearing")
        clear(self._root, state, older_s=self._options.orphans_after_ms / 1000)

    def _begin(self, store: str) -> State:
        root = self._root
        try:
            root.mkdir(parents=True, exist_ok=True)
            (root / DIRECTORY).mkdir(exist_ok=True)
            # What is found is acted upon, so it has to be on disk: who wrote it may have died before that.
            sync_directory(root / DIRECTORY)
            sync_directory(root)
        except OSError as error:
            raise ArchiveError(f"the archive {root} cannot be written to: {error.strerror or error}") from error
        if self._options.format == "parquet" and delta.is_table(root):
            raise ArchiveError(
                f"{root} is a Delta table already, and plain Parquet is asked for: leave the format out, or take another root"
            )
        state = self._manifest.load()
        if state.number and site_of(state.store) != site_of(store):
            raise ArchiveError(f"{root} is the archive of the site {site_of(state.store)}, and this broker is the site {site_of(store)}")
        if state.number and state.filters != self._options.filters:
            shown, wanted = (", ".join(filters) or "everything" for filters in (state.filters, self._options.filters))
            raise ArchiveError(f"{root} is an archive of {shown}, and {wanted} is asked for: that is another archive")
        return state

    def _hold(self, client: Client) -> None:
        """Before each round: its time to live is counted from there."""
        options = self._options
        if options.lease is None:
            return
        client.lease(
            "put",
            name=options.lease,
            ttl_ms=options.lease_ttl_ms,
            max_age_ms=options.lease_max_age_ms,
            max_bytes=options.lease_max_bytes,
            block=options.lease_block,
            filters=list(options.capture),
            start="earliest",
        )
        self._step("after the lease is put")

    def _live_below(self, client: Client, seen: Seen) -> Mapping[int, int] | None:
        if self._options.live_after_ms is None:
            return None
        before_ms = max(0, int(time.time() * 1000) - self._options.live_after_ms)
        return live_positions(seen, client.find([before_ms])["behind"])

    def _follow(self, state: State) -> None:
        """Each time it is looked whether there is a table: another archiver may just have made it."""
        if self._followed != state.number and (self._options.format == "delta" or delta.is_table(self._root)):
            self._step("before the table follows")
            delta.follow(self._root, self._manifest, state, self._step)
            self._step("after the table followed")
            self._followed = state.number

    def _acknowledge(self, client: Client, seen: Seen, state: State) -> None:
        cuts = acknowledged(seen, state)
        if self._options.lease is not None:
            self._step("acknowledging")
            client.ack(self._options.lease, cuts)
            self._step("after the acknowledgement")
        self.done.acknowledged = cuts

    def _take(self, client: Client, seen: Seen, state: State, next_: Round) -> State | None:
        """The state after a commit of the round; None: another archiver took some of it."""
        run_ = Run(self._root)
        run_.open()
        try:
            files, reached = self._write(client, seen, state, next_, run_)
            draft = Draft("archive", seen.store, run_.name, int(time.time() * 1000), files, (), reached, next_.lost, self._options.filters)
            self._step("committing")
            run_.check_there()
            after = self._commit(seen, state, draft)
            if after is None:
                run_.take_back()
                return None
        finally:
            run_.end()
        done = self.done
        done.commits += 1
        done.rows += sum(file.rows for file in files)
        done.raw_bytes += sum(file.raw_bytes for file in files)
        done.files += len(files)
        done.file_bytes += sum(file.bytes for file in files)
        lost_now = [lost for lost in next_.lost if lost in after.lost]
        done.lost += lost_now
        done.newest_ms = max((file.ts_last // 1000 for file in files), default=done.newest_ms)
        for lost in lost_now:
            log.error("archive.lost", root=str(self._root), what=str(lost))
        return after

    def _commit(self, seen: Seen, state: State, draft: Draft) -> State | None:
        while True:
            after = self._manifest.commit(state, draft, self._step)
            if after is not None:
                return after
            state = self._manifest.load()
            # Somebody else's commit is no harm as long as it has nothing of ours.
            if any((was := state.reached.get((each.shard, each.generation))) and was.stop != each.start for each in draft.reached):
                return None
            # It may have had what we have missed.
            draft = replace(draft, lost=tuple(lost for lost in lost_of(seen, state) if lost in draft.lost))
            if not (draft.reached or draft.lost):
                return None

    def _write(
        self, client: Client, seen: Seen, state: State, next_: Round, run_: Run
    ) -> tuple[tuple[ArchiveFile, ...], tuple[Reached, ...]]:
        options = self._options
        rows = rows_per_unit(next_.ranges, seen, options.task_bytes)
        units = units_of(next_.ranges, planned(client, next_.ranges, options.filters, rows))
        tasks = tasks_of(units, options.task_bytes)
        job = Job(self._endpoint, seen.store, options.filters, dict(seen.walls), str(run_.directory), tasks)
        self._step("scanning")
        reports = execute(self._spark, job) if tasks else []
        self._step("comparing")
        reached = compared(units, reports, state, counts=not options.filters)
        self._step("moving files")
        try:
            files = run_.move_in((report for report in reports if isinstance(report, WrittenFile)), self._step)
        except ArchiveError:
            run_.take_back()
            raise
        return files, reached
