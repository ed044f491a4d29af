"""Which broker a command of `holdfast pipeline` is about, and the Spark session or the client it asks with.

A broker of this machine is named by its data directory, as everywhere; its reader is asked for, and its token found. One elsewhere is
named by the addresses of its readers, with a token in a file. What is foreseen is one sentence on standard error and exit code 1; pyspark
is imported only by what needs it.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from actors.asking import NotReached
from actors.reader.demand import certificate, demand
from cli.paths import data_path
from cli.stores import load_or_refuse, refuse, site_of
from holdfast_spark.client import Client, Endpoint, NoReader, parse_brokers
from holdfast_spark.protocol import Refused, WireError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN_FILE = "pipeline.token"
"""Below the data directory."""
NO_SPARK = "pyspark is not installed: make env-spark"

Brokers = Annotated[str | None, typer.Option("--brokers", metavar="HOST:PORT,...", help="Readers of a broker elsewhere.")]
TokenFile = Annotated[Path | None, typer.Option("--token-file", metavar="FILE", help="With the token for them in its first line.")]
CaFile = Annotated[Path | None, typer.Option("--ca-file", metavar="FILE", help="They speak TLS, with a certificate of these authorities.")]
Tls = Annotated[bool, typer.Option("--tls", help="They speak TLS, with a certificate that this machine trusts.")]
Master = Annotated[str, typer.Option("--master", help="Of Spark: local[2], spark://host:7077, ...")]
MASTER = "local[*,4]"


@dataclass(frozen=True, slots=True)
class Broker:
    """The one that is meant. data_dir None: it is elsewhere."""

    data_dir: Path | None
    brokers: str | None = None
    token_file: Path | None = None
    tls: bool = False
    ca_file: Path | None = None

    def options(self) -> dict[str, str]:
        """What `format("holdfast")` has to be told to find it; its reader is asked for."""
        if self.data_dir is not None:
            found = {"brokers": self.address(), "tokenFile": str(self.data_dir / TOKEN_FILE)}
            shown = self.certificate()
            return found | ({"tls": "true", "caFile": shown} if shown else {})
        assert self.brokers is not None and self.token_file is not None
        found = {"brokers": self.brokers, "tokenFile": str(self.token_file)}
        if self.tls or self.ca_file:
            found["tls"] = "true"
        return found | ({"caFile": str(self.ca_file)} if self.ca_file else {})

    def address(self) -> str:
        assert self.data_dir is not None
        try:
            return str(demand(self.data_dir))
        except NotReached as error:
            refuse(f"{error}.")

    def certificate(self) -> str:
        """Which the reader of this machine shows; empty: it speaks no TLS."""
        assert self.data_dir is not None
        try:
            return certificate(self.data_dir)
        except NotReached as error:
            refuse(f"{error}.")

    def endpoint(self) -> Endpoint:
        options = self.options()
        token = (_text_of(options["tokenFile"]).splitlines() or [""])[0].strip()
        ca_pem = _text_of(options["caFile"]) if "caFile" in options else None
        try:
            brokers = parse_brokers(options["brokers"])
        except ValueError as error:
            refuse(f"{error}.", 2)
        return Endpoint(brokers, token, "tls" in options, ca_pem)

    def client(self) -> Client:
        return Client(self.endpoint(), who="holdfast pipeline")


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        refuse(f"{path} cannot be read: {error}.")


def broker_of(
    data_dir: str | None,
    config: Path | None,
    sets: list[str] | None,
    brokers: str | None,
    token_file: Path | None,
    tls: bool = False,
    ca_file: Path | None = None,
) -> Broker:
    """From what was typed; ends the command when it does not fit together."""
    if brokers is None:
        if token_file is not None or tls or ca_file is not None:
            refuse(
                "--token-file, --tls and --ca-file belong to --brokers: a broker of this machine has its token in its data directory.", 2
            )
        loaded = load_or_refuse(data_dir, config, sets)
        directory = data_path(loaded.data_dir)
        site_of(directory)
        return Broker(directory)
    if data_dir is not None or config is not None:
        refuse("--brokers names a broker elsewhere and --data-dir or --config one of this machine: leave one out.", 2)
    if token_file is None:
        refuse("--brokers wants --token-file as well: a file with a token that the broker knows.", 2)
    return Broker(None, brokers, Path(token_file), tls, ca_file)


def spark_for(broker: Broker, master: str, app: str) -> SparkSession:
    """A session with the data source; ends the command when there is none to be had."""
    need_spark()
    from pipeline.java import NoSpark
    from pipeline.session import session

    # What went wrong is said once, by us; Spark's own account of it is pages.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)
    try:
        if broker.data_dir is not None:
            return session(broker.data_dir, master=master, app=app)
        return session(master=master, app=app)
    except NoSpark as error:
        refuse(f"{error}.")
    except NotReached as error:
        refuse(f"{error}.")


def need_spark() -> None:
    """Ends the command where pyspark, or what comes with it, is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow")):
        refuse(f"{NO_SPARK}.")


@contextmanager
def said() -> Iterator[None]:
    """Errors that queries and requests bring, as one sentence each."""
    try:
        yield
    except (Refused, NoReader, WireError, NotReached) as error:
        refuse(f"{sentence(error)}.")
    except typer.Exit:
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")) and not _foreseen(error):
            raise
        refuse(f"{sentence(error)}.")


def _foreseen(error: Exception) -> bool:
    """Of those whose classes are only there where pyarrow is."""
    return type(error).__name__ in ("ArchiveError", "SparkEnded", "ManifestDamaged", "AuditError", "RuleError", "OptionError")


_SPARKS = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE:.*$|\s*\(line \d+, pos \d+\)$")
_OURS = re.compile(r"(?:holdfast_spark|pipeline)\.[\w.]+\.([A-Z]\w*): (.+)")


def sentence(error: BaseException) -> str:
    """What an error says, without the page that Spark puts around it: the last line that one of ours said, or else the first of all."""
    text = str(error).strip()
    lines = text.splitlines()
    ours = [found[2] for line in lines if (found := _OURS.search(line))]
    first = ours[-1] if ours else (lines[0] if lines else type(error).__name__)
    before = None
    while before != first:
        before, first = first, _SPARKS.sub("", first).strip()
    return first.rstrip(".")


def progress(line: str) -> None:
    """For who watches; results go to standard output."""
    print(line, file=sys.stderr, flush=True)
