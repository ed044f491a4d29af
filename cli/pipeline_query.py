"""`holdfast pipeline sql`, `restore`: questions to archive and store as one table, and messages of an archive back to topics."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.pipeline_session import MASTER, Broker, Brokers, CaFile, Master, Tls, TokenFile, broker_of, need_spark, progress, said, spark_for
from cli.stores import ConfigFile, DataDir, Sets, refuse
from cli.typed import checked_filters, moment_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Json = Annotated[bool, typer.Option("--json", help="A JSON object for each row.")]
TABLE = "messages"
CELL_MAX = 60


def sql(
    statement: Annotated[str, typer.Argument(metavar="SELECT", help="Of the table `messages`.")],
    archive: Annotated[Path | None, typer.Option("--archive", metavar="ROOT", help="Its messages as well, each once.")] = None,
    topic_filter: Annotated[
        list[str] | None, typer.Option("--topic-filter", metavar="FILTER", help="Only these topics are in the table; it is faster.")
    ] = None,
    decode: Annotated[
        list[str] | None, typer.Option("--decode", metavar="FILTER=FORMAT:SCHEMA", help="Payloads to columns: json, cbor or msgpack.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to print.")] = 1000,
    master: Master = MASTER,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
    brokers: Brokers = None, token_file: TokenFile = None, tls: Tls = False, ca_file: CaFile = None, as_json: Json = False,
) -> None:  # fmt: skip
    """Ask the table `messages`: what is stored, and with --archive what is archived."""
    filters = checked_filters(topic_filter)
    broker = broker_of(data_dir, config, set_, brokers, token_file, tls, ca_file)
    spark = spark_for(broker, master, "holdfast sql")
    release = _table(spark, broker, archive, filters)
    with said():
        try:
            if decode:
                from holdfast_spark.decoders import Rule
                from holdfast_spark.decoders import decode as decoded

                decoded(spark.table(TABLE), [Rule.parse(each) for each in decode]).createOrReplaceTempView(TABLE)
            rows = spark.sql(statement)
            # One more says that there are more.
            found = rows.limit(limit + 1).toArrow().to_pylist() if rows.columns else []
        finally:
            release()
    if as_json:
        for row in found[:limit]:
            print(json.dumps({name: _plain(value) for name, value in row.items()}))
    else:
        for line in _lines(rows, found[:limit]):
            print(line)
    if len(found) > limit:
        progress(f"there are more than {limit} rows: see --limit")


def _table(spark: SparkSession, broker: Broker, archive: Path | None, filters: tuple[str, ...]) -> Any:
    """Makes it; what is returned lets go of what it holds."""
    with said():
        options = broker.options() | ({"topicFilter": json.dumps(filters)} if filters else {})
        if archive is None:
            spark.read.format("holdfast").options(**options).load().createOrReplaceTempView(TABLE)
            return lambda: None
        from pipeline.view import release, view

        endpoint = broker.endpoint()
        # Of this command's own, so that two at a time do not let go of each other's.
        name = f"sql-{os.getpid()}"
        view(spark, endpoint, archive.absolute(), name, topics=filters, options=broker.options()).createOrReplaceTempView(TABLE)
        return lambda: release(endpoint, name)


def restore(
    root: Annotated[Path, typer.Argument(metavar="ROOT", help="Directory of the archive.")],
    topic_filter: Annotated[list[str] | None, typer.Option("--topic-filter", metavar="FILTER", help="Only these topics.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="'2h' ago, or an ISO date and time (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="The same; what was taken then is not restored.")] = None,
    shard: Annotated[
        list[str] | None, typer.Option("--offsets", metavar="SHARD:FROM:TO", help="Of a shard only from <= offset < to.")
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TOPIC", help='In front of each topic; it may be "".')] = "restore/",
    allow_retain: Annotated[bool, typer.Option("--allow-retain", help="Retained messages replace those that are there.")] = False,
    rate: Annotated[int | None, typer.Option("--max-rows-per-second", min=1, help="Of each of eight tasks.")] = None,
    again: Annotated[str, typer.Option("--again", metavar="TEXT", help="The same once more: any text not used yet.")] = "",
    master: Master = MASTER,
    data_dir: DataDir = None, config: ConfigFile = None, set_: Sets = None,
    brokers: Brokers = None, token_file: TokenFile = None, tls: Tls = False, ca_file: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON for scripts.")] = False,
) -> None:  # fmt: skip
    """Publish messages of an archive, each once, however often this runs."""
    need_spark()
    from pipeline import restore as restores

    options = restores.Options(
        topics=checked_filters(topic_filter),
        from_ms=None if since is None else moment_ms(since),
        before_ms=None if until is None else moment_ms(until),
        offsets=_offsets(shard),
        prefix=prefix,
        allow_retain=allow_retain,
        rows_per_second=rate,
        again=again,
    )
    broker = broker_of(data_dir, config, set_, brokers, token_file, tls, ca_file)
    spark = spark_for(broker, master, "holdfast restore")
    with said():
        done = restores.run(spark, root.absolute(), options, broker.options())
    where = f"below {prefix}" if prefix else "to their own topics"
    line = f"{done.rows} messages of {done.files} files are restored {where}; what an earlier run had restored was not written again"
    print(json.dumps(asdict(done)) if as_json else line)


def _offsets(texts: list[str] | None) -> dict[int, tuple[int, int]]:
    found = {}
    for text in texts or []:
        parsed = re.fullmatch(r"(\d{1,4}):(\d{1,19}):(\d{1,19})", text)
        if parsed is None or int(parsed[2]) >= int(parsed[3]):
            refuse(f"{text!r} is no range of offsets: SHARD:FROM:TO is wanted, FROM before TO.", 2)
        found[int(parsed[1])] = (int(parsed[2]), int(parsed[3]))
    return found


# ---------------------------------------------------------------------------------------------------- words


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    return value


def _lines(rows: DataFrame, found: list[dict[str, Any]]) -> Iterator[str]:
    """A table as wide as it has to be."""
    names = rows.columns
    cells = [[_cell(row[name]) for name in names] for row in found]
    widths = [max(len(name), *(len(row[column]) for row in cells), 1) if cells else len(name) for column, name in enumerate(names)]
    numbers = [isinstance(found[0][name], int | float) if found else False for name in names]
    for row in [names, *cells]:
        yield "  ".join(
            text.rjust(width) if number else text.ljust(width) for text, width, number in zip(row, widths, numbers, strict=True)
        ).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    text = "".join(char if char.isprintable() else "." for char in text)
    return text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}…"
