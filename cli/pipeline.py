"""`holdfast pipeline`: stored messages and Spark. Here: the reader and its tokens, audit, capacity; the rest is beside this module.

Results are on standard output, progress is on standard error. The JSON forms are interfaces: fields are added, never renamed.
Exit codes as everywhere (cli.main); `audit` and `verify` end with 1 also when they found something.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from actors.asking import NotReached, running
from actors.quota import quota_bytes
from actors.reader.keeping import WANTED
from actors.reader.options import reader_options
from actors.reserve import stored_bytes
from actors.snapshot import settings_in_force
from cli import pipeline_archive, pipeline_query
from cli.paths import data_path
from cli.pipeline_session import MASTER, TOKEN_FILE, Broker, Brokers, CaFile, Master, Tls, TokenFile, broker_of, progress, said, spark_for
from cli.stores import ConfigFile, DataDir, Sets, Stores, engine_paths, load_or_refuse, open_stores, refuse, site_of
from cli.typed import checked_filter, duration_ms, moment_ms
from config.schema import Config
from pipeline import audit as audits
from pipeline.capacity import Forecast, Generation, Loser, Pattern, amount, exact, forecast, leases_behind, patterns_of, would_go

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Stored messages and Spark: read, archive, audit, query.")

app.command("archive")(pipeline_archive.archive)
app.command("verify")(pipeline_archive.verify)
app.command("compact")(pipeline_archive.compact)
app.command("restore")(pipeline_query.restore)
app.command("sql")(pipeline_query.sql)

Json = Annotated[bool, typer.Option("--json", help="JSON for scripts.")]
Filters = Annotated[list[str] | None, typer.Option("--topic-filter", metavar="FILTER", help="Only these topics; several are allowed.")]
COUNT_MAX = 1_000_000
"""Messages of a session that are counted, and no more."""


# ---------------------------------------------------------------------------------------------------- reader


@app.command()
def start(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None, as_json: Json = False) -> None:
    """Bring the reader up, and say where it listens. It ends by itself when nobody was connected for pipeline.idle_stop."""
    broker = broker_of(data_dir, config, set_, None, None)
    address, tls = broker.address(), bool(broker.certificate())
    print(json.dumps({"address": address, "tls": tls}) if as_json else f"the reader listens on {address}{' in TLS' if tls else ''}")


@app.command()
def stop(data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None) -> None:
    """Let the reader go now. Whoever reads is cut off and waits for the next one, which comes when somebody asks for it."""
    directory = broker_of(data_dir, config, set_, None, None).data_dir
    assert directory is not None
    try:
        topology = running(directory)
    except NotReached as error:
        refuse(f"{error}.")
    if reader_options(settings_in_force(topology)).when == "always":
        refuse('the reader stays: the configuration says pipeline.reader = "always".')
    (topology.run_dir / WANTED).unlink(missing_ok=True)
    print("the reader ends")


@app.command()
def token(
    new: Annotated[str | None, typer.Option("--new", metavar="NAME", help="Make a token of this name for the configuration.")] = None,
    filters: Annotated[list[str] | None, typer.Option("--filter", metavar="FILTER", help="What it may read; several are allowed.")] = None,
    write: Annotated[bool, typer.Option("--write", help="It may write, too.")] = False,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
) -> None:  # fmt: skip
    """Where the broker's own token lies, or a new one: the secret on standard output, its configuration entry on standard error."""
    if new is None:
        directory = data_path(load_or_refuse(data_dir, config, set_).data_dir)
        site_of(directory)
        print(directory / TOKEN_FILE)
        return
    checked = [checked_filter(each) for each in filters or []]
    if not checked:
        refuse("a token is for some topics: say which with --filter.", 2)
    secret = secrets.token_urlsafe(32)
    entry = f'{{name = {json.dumps(new)}, sha256 = "{hashlib.sha256(secret.encode()).hexdigest()}", filters = {json.dumps(checked)}'
    progress("Put this into the configuration of the broker and `holdfast reload`; the token itself is kept nowhere:")
    progress(f"[pipeline]\ntokens = [{entry}{', write = true' if write else ''}}}]")
    print(secret)


# ---------------------------------------------------------------------------------------------------- audit


@app.command()
def audit(
    topic_filter: Filters = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="'2h' ago, or an ISO date and time (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="The same; from then on nothing counts.")] = None,
    sequence: Annotated[
        str | None, typer.Option("--sequence", metavar="WHERE", help="json:FIELD, property:NAME, bytes:OFFSET:LENGTH, last-level.")
    ] = None,
    expect: Annotated[
        Path | None, typer.Option("--expect", metavar="FILE", help="What was promised: client_id, topic, sequence, as .parquet or .csv.")
    ] = None,
    archive: Annotated[Path | None, typer.Option("--archive", metavar="ROOT", help="Compare this archive with the store as well.")] = None,
    master: Master = MASTER,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
    brokers: Brokers = None, token_file: TokenFile = None, tls: Tls = False, ca_file: CaFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Gaps, duplicates and order per publisher and topic; exit 1 when anything is wrong."""
    options = _time_options(since, until)
    if topic_filter:
        options["topicFilter"] = json.dumps([checked_filter(each) for each in topic_filter])
    try:
        parsed = audits.Sequence.parse(sequence) if sequence else None
    except audits.AuditError as error:
        refuse(f"{error}.", 2)
    broker = broker_of(data_dir, config, set_, brokers, token_file, tls, ca_file)
    spark = spark_for(broker, master, "holdfast audit")
    with said():
        options = broker.options() | options
        progress("reading and sorting what is stored; the Spark UI above shows how far it is")
        report = audits.run(spark, options, sequence=parsed, expect=str(expect.absolute()) if expect else None)
        if archive is not None:
            report = pipeline_archive.damage_of(spark, broker, archive, report)
    if as_json:
        print(json.dumps(report.facts()))
    else:
        for line in _audit_lines(report):
            print(line)
    raise typer.Exit(1 if report.wrong else 0)


def _audit_lines(report: audits.Report) -> list[str]:
    lines = [f"{report.rows} messages of {report.publishers} publishers and topics"]
    counts = {
        "missing": report.missing, "duplicates": report.duplicates, "out of order": report.disordered, "repeated": report.repeated,
        "without a number": report.unreadable,
    }  # fmt: skip
    lines[0] += (
        ": " + ", ".join(f"{count} {name}" for name, count in counts.items()) if report.sequence else f", {report.repeated} repeated"
    )
    if report.expected is not None:
        lines.append(f"{report.expected} were promised, {report.lost} of them are lost")
        lines += [f"  LOST {client} {topic} {number}" for client, topic, number in report.lost_named]
    for each in report.worst:
        facts = [
            f"{count} {name}"
            for name, count in (
                ("missing", each.missing), ("duplicates", each.duplicates), ("out of order", each.disordered), ("repeated", each.repeated),
                ("without a number", each.unreadable),
            )
            if count
        ]  # fmt: skip
        gaps = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in each.gaps)
        lines.append(f"  {each.client_id} {each.topic}: {each.rows} rows, {', '.join(facts)}{f'; missing are {gaps}' if gaps else ''}")
    if report.archived_units is not None:
        lines.append(f"{report.archived_units} generations compared with the archive")
    lines += [f"  DAMAGED {each}" for each in report.damage]
    lines.append("something is wrong" if report.wrong else "nothing is wrong")
    return lines


def _time_options(since: str | None, until: str | None) -> dict[str, str]:
    given = {"startingTimestamp": since, "endingTimestamp": until}
    return {name: str(moment_ms(text)) for name, text in given.items() if text is not None}


# ---------------------------------------------------------------------------------------------------- capacity


@app.command()
def capacity(
    topic_filter: Filters = None,
    period: Annotated[
        str | None, typer.Option("--period", metavar="DURATION", help="Who would lose what if messages were kept for so long only.")
    ] = None,
    count_all: Annotated[bool, typer.Option("--exact", help="Read everything in Spark instead of estimating.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="Patterns to show; --json has all.")] = 20,
    master: Master = MASTER,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
    brokers: Brokers = None, token_file: TokenFile = None, tls: Tls = False, ca_file: CaFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """How much is stored under which topics, how fast that grows, when the quota is reached."""
    period_ms = duration_ms(period) if period is not None else None
    wanted = [checked_filter(each) for each in topic_filter or ["#"]]
    broker = broker_of(data_dir, config, set_, brokers, token_file, tls, ca_file)
    now_ms = int(time.time() * 1000)
    with said(), broker.client() as client:
        generations = Generation.all_of(client.cuts())
        stats = client.ask("STATS", filters=wanted)
    patterns = patterns_of(stats, generations, now_ms)
    if count_all:
        names = {row["stream"]: row["pattern"] for row in stats["patterns"]}
        with said():
            spark = spark_for(broker, master, "holdfast capacity")
            patterns = exact(spark, broker.options() | {"topicFilter": json.dumps(wanted)}, patterns, names)
    outlook = _outlook(broker, stats, generations, now_ms)
    losers: list[Loser] = []
    if period_ms is not None:
        going = would_go(generations, period_ms, now_ms)
        losers = [*leases_behind(stats["leases"], going), *_sessions_behind(broker, going)]
    if as_json:
        facts = {"patterns": [asdict(each) for each in patterns], "forecast": asdict(outlook), "leases": stats["leases"]}
        if period_ms is not None:
            facts["losers"] = [asdict(each) for each in losers]
        print(json.dumps(facts))
        return
    for line in _capacity_lines(patterns, top, outlook, period, losers, broker):
        print(line)


def _capacity_lines(
    patterns: list[Pattern], top: int, outlook: Forecast, period: str | None, losers: list[Loser], broker: Broker
) -> list[str]:
    lines = []
    for each in patterns[:top]:
        about = "about " if each.sampled else ""
        rate = "" if each.rows_per_s is None else f", {each.rows_per_s:.1f} messages/s, {amount(each.bytes_per_s)}/s"
        lines.append(f"{each.pattern}: {about}{each.rows} messages, {amount(each.bytes)}{rate}")
    if not patterns:
        lines.append("nothing is stored")
    if len(patterns) > top:
        rest = patterns[top:]
        lines.append(f"{len(rest)} more patterns: {sum(one.rows for one in rest)} messages, {amount(sum(one.bytes for one in rest))}")
    lines.append(_outlook_line(outlook))
    if period is not None:
        for one in losers:
            upto = "what it has not read" if one.messages is None else f"up to {one.messages} messages"
            does = "would be waited for, within its bounds, for" if one.held else "would lose"
            lines.append(
                f"with {period}: the {one.kind} {one.name} {does} {upto} of shard {one.shard}, generation {one.generation} ({one.filter})"
            )
        if not losers:
            lines.append(f"with {period}: nobody would lose anything")
        if broker.data_dir is None:
            lines.append("which sessions would lose messages is known only where the data directory is")
    return lines


def _outlook_line(outlook: Forecast) -> str:
    if outlook.used_bytes is None:
        return f"{outlook.rows_per_s:.1f} messages/s now" if outlook.rows_per_s is not None else "how fast it grows is not known yet"
    line = f"files take {amount(outlook.used_bytes)}"
    if outlook.quota_bytes is not None:
        line += f" of a quota of {amount(outlook.quota_bytes)}"
    if outlook.bytes_per_s is None:
        return line + "; how fast they grow is not known yet"
    line += f" and grow by {amount(outlook.bytes_per_s)}/s with {outlook.rows_per_s:.1f} messages/s"
    if outlook.quota_bytes is None:
        return f"{line}; they come to {amount(outlook.steady_bytes)}, and there is no quota"
    if outlook.days is None:
        return f"{line}; they come to {amount(outlook.steady_bytes)} and do not reach the quota"
    return f"{line}; the quota is reached in {outlook.days:.1f} days"


def _outlook(broker: Broker, stats: dict[str, Any], generations: list[Generation], now_ms: int) -> Forecast:
    """The quota and the periods are in the configuration and the stores: known only where the files are."""
    if broker.data_dir is None:
        return forecast(generations, {}, now_ms, None, None)
    loaded, paths = _in_force(broker.data_dir)
    default_ms = loaded.durable_sessions.message_retention_period.ms
    sealed = stats["retention"]["generations"]
    left = {(row["shard"], row["generation"]): row["left_ms"] for row in sealed}
    held = {(row["shard"], row["generation"]) for row in sealed if row["left_ms"] <= 0 and row["held_by"]}
    with open_stores(Stores(paths, default_ms)) as stores:
        periods = {info.klass: store.survey.period_ms(info, default_ms) for store in stores for info in store.survey.generations}
    return forecast(generations, periods, now_ms, stored_bytes(paths[0].parent), quota_bytes(loaded, broker.data_dir), left, held)


def _sessions_behind(broker: Broker, going: list[Generation]) -> list[Loser]:
    if broker.data_dir is None or not going:
        return []
    loaded, paths = _in_force(broker.data_dir)
    held = loaded.durable_storage.messages.hold_unread
    found = []
    with open_stores(Stores(paths, 0)) as stores:
        unread = [one for store in stores for one in store.survey.unread()]
        for each in going:
            survey = stores[each.shard].survey
            assert each.until is not None
            for one in unread:
                if one.shard == each.shard and one.place < each.until - 1:
                    messages, _ = survey.count(each.id, one.filter, one.place, COUNT_MAX)
                    if messages:
                        found.append(
                            Loser("session", one.client.decode(errors="replace"), one.filter.decode(), each.shard, each.id, messages, held)
                        )
    return found


def _in_force(data_dir: Path) -> tuple[Config, list[Path]]:
    """What the running broker goes by, which is not always what its file says by now; and where its stores are."""
    try:
        loaded = settings_in_force(running(data_dir))
    except NotReached as error:
        refuse(f"{error}.")
    return loaded, engine_paths(loaded, site_of(data_dir))
