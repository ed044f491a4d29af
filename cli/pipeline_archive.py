"""`holdfast pipeline archive`, `verify`, `compact`: what is stored, kept as Parquet files or a Delta table (pipeline.archive)."""

from __future__ import annotations

import json
import signal
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import structlog
import typer

from cli.pipeline_session import MASTER, Broker, Brokers, CaFile, Tls, TokenFile, broker_of, need_spark, progress, said, spark_for
from cli.stores import ConfigFile, DataDir, Sets, refuse
from cli.typed import checked_filters, duration_ms, duration_or_none, size_or_none
from pipeline.capacity import amount

if TYPE_CHECKING:
    from holdfast_spark.client import Endpoint
    from pipeline.audit import Report

Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Root = Annotated[Path, typer.Argument(metavar="ROOT", help="Directory of the archive.")]
NO_SPARK_MASTER = "none"
LEASE_NAME_MAX = 64
"""Characters, as the reader takes it."""
INTERVAL_MS_MIN = 1000


def archive(
    root: Root,
    format: Annotated[str | None, typer.Option("--format", metavar="FORMAT", help="parquet or delta; else what it is.")] = None,
    topic_filter: Annotated[
        list[str] | None, typer.Option("--topic-filter", metavar="FILTER", help="Only these topics; it stays so for this archive.")
    ] = None,
    live_after: Annotated[
        str | None, typer.Option("--live-after", metavar="DURATION", help="Take what is so old also from generations that are not sealed.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C or SIGTERM.")] = False,
    interval: Annotated[str, typer.Option("--interval", metavar="DURATION", help="How long to wait when there is nothing to do.")] = "30s",
    lease: Annotated[str, typer.Option("--lease", metavar="NAME", help='Messages wait for it; "none": they do not.')] = "archive",
    lease_ttl: Annotated[str, typer.Option("--lease-ttl", metavar="DURATION", help="It is gone when no archive ran for so long.")] = "7d",
    lease_max_age: Annotated[str, typer.Option("--lease-max-age", metavar="DURATION", help="They wait no longer than that.")] = "infinity",
    lease_max_bytes: Annotated[str, typer.Option("--lease-max-bytes", metavar="SIZE", help="How much waits, in each shard.")] = "infinity",
    block: Annotated[bool, typer.Option("--block", help="Wait at whatever price: at the quota publishers are refused.")] = False,
    capture: Annotated[
        list[str] | None, typer.Option("--capture", metavar="FILTER", help="Store these topics for it though no session wants them.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help='Of Spark; "none": in this process, for little.')] = MASTER,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
    brokers: Brokers = None, token_file: TokenFile = None, tls: Tls = False, ca_file: CaFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Write what is stored into the archive; what is there already is not written again."""
    if format not in (None, "parquet", "delta"):
        refuse(f"{format!r} is no format of an archive: parquet or delta is wanted.", 2)
    of_lease = {"--capture": bool(capture), "--block": block, "--lease-max-age": duration_or_none(lease_max_age) is not None}
    of_lease["--lease-max-bytes"] = size_or_none(lease_max_bytes) is not None
    if said_too := [name for name, there in of_lease.items() if there and lease == "none"]:
        refuse(f"{said_too[0]} is about a lease, and --lease none says that there is to be none: leave one out.", 2)
    if not 0 < len(lease) <= LEASE_NAME_MAX:
        refuse(f"the name of a lease has {len(lease)} characters: 1 to {LEASE_NAME_MAX} are wanted.", 2)
    _check_times(interval, lease_ttl, watch and lease != "none")
    need_spark()
    from pipeline import archive as archives
    from pipeline.archived import ArchiveError

    options = archives.Options(
        format="delta" if format == "delta" else "parquet" if format == "parquet" else None,
        filters=checked_filters(topic_filter),
        live_after_ms=None if live_after is None else duration_ms(live_after),
        lease=None if lease == "none" else lease,
        lease_ttl_ms=duration_ms(lease_ttl),
        lease_max_age_ms=duration_or_none(lease_max_age),
        lease_max_bytes=size_or_none(lease_max_bytes),
        lease_block=block,
        capture=checked_filters(capture),
    )
    interval_s = duration_ms(interval) / 1000
    broker = broker_of(data_dir, config, set_, brokers, token_file, tls, ca_file)
    spark = None if master == NO_SPARK_MASTER else spark_for(broker, master, "holdfast archive")
    with said():
        endpoint = broker.endpoint()
        if not watch:
            done = archives.run(spark, endpoint, root.absolute(), options)
            print(json.dumps(_done(done)) if as_json else _done_line(done))
            raise typer.Exit(1 if done.lost else 0)
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        # What goes wrong meanwhile is said, and tried again.
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(_Progress()))  # type: ignore[arg-type]  # it has what is used of a file

        def told(done: Any) -> None:
            if as_json:
                print(json.dumps(_done(done)), flush=True)
            elif done.commits:
                print(_done_line(done), flush=True)

        progress(f"archiving into {root}; Ctrl-C ends it between two rounds")

        def found() -> Endpoint:
            try:
                return broker.endpoint()
            except typer.Exit:
                # It was said why.
                raise ArchiveError("the broker is not reached") from None

        archives.watch(spark, found, root.absolute(), options, interval_s, ended, told)


def _check_times(interval: str, lease_ttl: str, watched_lease: bool) -> None:
    if duration_ms(interval) < INTERVAL_MS_MIN:
        refuse(f"--interval is {interval}: at least 1s is wanted.", 2)
    if not duration_ms(lease_ttl):
        refuse(f"--lease-ttl is {lease_ttl}: a lease that lives for no time holds nothing.", 2)
    if watched_lease and duration_ms(interval) > duration_ms(lease_ttl) // 2:
        refuse(f"--interval is {interval}: at most half of --lease-ttl, {lease_ttl}, is wanted, or the lease may be gone in between.", 2)


class _Progress:
    """A file for loggers: standard error as it is at that moment."""

    def write(self, text: str) -> int:
        progress(text.rstrip("\n")) if text.strip() else None
        return len(text)

    def flush(self) -> None:
        pass


def verify(root: Root, as_json: Json = False) -> None:
    """Read all of an archive, byte by byte; exit 1 and a sentence for each thing that is not as it was written."""
    need_spark()
    from pipeline import archive_verify

    with said():
        found = archive_verify.verify(root.absolute())
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        for problem in found.problems:
            print(f"DAMAGED {problem}")
        what = f"{found.commits} commits, {found.files} files, {found.rows} messages, {amount(found.bytes)} read"
        orphans = f"; {found.orphans} files are in no commit, which is no harm" if found.orphans else ""
        print(f"{what}{orphans}: {f'{len(found.problems)} problems' if found.problems else 'nothing is wrong'}")
    raise typer.Exit(1 if found.problems else 0)


def compact(root: Root, as_json: Json = False) -> None:
    """Make one file of the small ones of an hour. Nobody who reads is disturbed; the old files go a day later."""
    need_spark()
    from pipeline import archive_compact

    with said():
        done = archive_compact.compact(root.absolute())
    print(json.dumps(asdict(done)) if as_json else f"{done.before} small files became {done.after}, with {done.rows} messages in them")


def damage_of(spark: Any, broker: Broker, root: Path, report: Report) -> Report:
    """For `audit --archive`."""
    from pipeline.audit_archive import with_archive

    progress(f"comparing {root} with the store")
    return with_archive(spark, broker.endpoint(), root.absolute(), report)


# ---------------------------------------------------------------------------------------------------- words


def _done(done: Any) -> dict[str, Any]:
    return {**asdict(done), "lost": [str(each) for each in done.lost]}


def _done_line(done: Any) -> str:
    if not done.commits:
        return "there was nothing to archive"
    line = f"commit {done.number}: {done.rows} messages in {done.files} files, {amount(done.file_bytes)}"
    if done.waiting_bytes:
        line += f"; {amount(done.waiting_bytes)} wait for the next round"
    return line + "".join(f"\nLOST before it could be archived: {each}" for each in done.lost)
